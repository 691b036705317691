// crossover arms: with a problem, without one, of a stored device.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

Json by_name(const Json& document) {
  Json arms;
  for (const Json& arm : document["arms"]) arms[arm["name"].get<std::string>()] = arm;
  return arms;
}

TEST(Arms, TheDefaultArmNamesItsRows) {
  const Output output = run({"arms", "--shape", "256,256", "--json"}, {{"CROSSOVER_DB", "/nonexistent/tuning.db"}});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json arms = by_name(output.json());
  EXPECT_EQ(arms[kFast]["default_for"], Json::parse(R"([{"from": 1, "to": null}])"));
  EXPECT_EQ(arms[kSlow]["default_for"], Json::array());
  EXPECT_EQ(arms[kFast]["eligible"], true);
  EXPECT_EQ(arms[kFast]["numerics"], "a16");
}

TEST(Arms, WithoutAProblemEligibilityIsUnknown) {
  const Output output = run({"arms", "--json"}, {{"CROSSOVER_DB", "/nonexistent/tuning.db"}});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json document = output.json();
  EXPECT_TRUE(document["problem"].is_null());
  for (const Json& arm : document["arms"]) {
    EXPECT_TRUE(arm["eligible"].is_null());
    EXPECT_TRUE(arm["default_for"].is_null());
    EXPECT_NE(arm["fingerprint"], "");
  }
  EXPECT_THAT(run({"arms"}).out, HasSubstr("add --shape N,K"));
}

TEST(Arms, FingerprintsAreTheSameInEveryProcess) {
  EXPECT_EQ(run({"arms", "--json"}).out, run({"arms", "--json"}).out);
}

TEST(Arms, AttributesNeedAProblem) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--dtype", "f16"}, {"--bias"}}) {
    std::vector<std::string> arguments{"arms"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(run(arguments).code, 2);
  }
}

TEST(Arms, OfAStoredDeviceAsTheyWereMeasured) {
  const Folder folder;
  const std::string database = (folder / "tuning.db").string();
  const Gpu gpu = store_gpu_evidence(database);
  const Output output =
      run({"arms", "--device", gpu.device.hex().substr(0, 8), "--shape", "4096,7168", "--db", database, "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json arms = by_name(output.json());
  EXPECT_EQ(arms.size(), 4u);
  EXPECT_EQ(arms["gemv_warp"]["default_for"], Json::parse(R"([{"from": 1, "to": 8}])"));
  EXPECT_EQ(arms["tensor_core/64x128"]["default_for"], Json::parse(R"([{"from": 9, "to": null}])"));
  EXPECT_EQ(arms["dequant_cublaslt"]["numerics"], "w16");
  EXPECT_EQ(arms["dequant_cublaslt"]["fingerprint"], "fingerprint of dequant_cublaslt");
}

TEST(Arms, MarkdownIsEscaped) {
  const Output output = run({"arms", "--shape", "256,256", "--format", "markdown"});
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("| host\\_vector |"));
  EXPECT_THAT(output.out, HasSubstr("| --- |"));
}

}  // namespace
}  // namespace crossover::testing
