// crossover compare, and audit constant.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class Compare : public ::testing::Test {
 protected:
  Output compare(std::vector<std::string> more) const {
    more.insert(more.begin(), {"compare", "--device", "cpu", "--shape", "64,128"});
    return run(more, {{"CROSSOVER_DB", database_}});
  }

  Folder folder_;
  std::string database_ = (folder_ / "tuning.db").string();
};

TEST_F(Compare, GivesTheRatioOfEveryRowCountAndStoresNothing) {
  const Output output =
      compare({"--arms", "host_vector,host_reference", "--rows", "8,1,8", "--budget", "3s", "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json document = output.json();
  EXPECT_EQ(document["reference"], "host_vector");
  std::vector<std::pair<int, std::string>> rows;
  for (const Json& each : document["comparisons"]) {
    rows.emplace_back(each["m"], each["arm"]);
    ASSERT_FALSE(each["sample"].is_null());
    const double ratio = each["ratio"]["median"];
    EXPECT_GT(ratio, 0);
    EXPECT_GT(each["ratio"]["rounds"], 0);
    if (!each["ratio"]["low"].is_null()) {
      EXPECT_LE(each["ratio"]["low"], ratio);
      EXPECT_GE(each["ratio"]["high"], ratio);
    }
    EXPECT_FALSE(each["sample"]["error"].is_null()) << "checked before it was timed";
  }
  EXPECT_EQ(rows,
            (std::vector<std::pair<int, std::string>>{
                {1, "host_reference"}, {1, "host_vector again"}, {8, "host_reference"}, {8, "host_vector again"}}));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

// The reference arm in f64, one element after the other, is many times slower than vectors, on any host and load.
TEST_F(Compare, SaysLossWhereAnArmIsFarSlower) {
  const Json document =
      compare({"--arms", "host_vector,host_reference", "--rows", "64", "--budget", "5s", "--json"}).json();
  if (document["clean"] == false) GTEST_SKIP() << "the host is too busy: the arm differs from itself";
  const Json& ratio = document["comparisons"][0]["ratio"];
  EXPECT_EQ(ratio["outcome"], "loss") << ratio;
  ASSERT_EQ(document["rows"].size(), 1u);
  EXPECT_EQ(document["rows"][0], (Json{{"m", 64},
                                       {"arm", "host_reference"},
                                       {"verdict", "win"},
                                       {"winner", "host_vector"},
                                       {"ratio", ratio["median"]},
                                       {"ratio_low", ratio["low"]},
                                       {"ratio_high", ratio["high"]}}));
}

TEST_F(Compare, OneAfterTheOtherSaysThatItIsNoEvidence) {
  const Output output = compare({"--arms", "host_vector,host_reference", "--rows", "1,2", "--budget", "2s",
                                 "--sequential", "--format", "markdown"});
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("one arm after the other"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Compare, MarkdownCarriesConditionsAndTheCommand) {
  const Output output =
      compare({"--arms", "host_reference,host_vector", "--rows", "2", "--budget", "2s", "--format", "markdown"});
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("| M | arm |"));
  for (const char* text : {"crossover compare --device cpu --shape 64,128 --arms host", "conditions before",
                           "conditions after", "crossover", "cold L2"}) {
    EXPECT_THAT(output.out, HasSubstr(text));
  }
}

TEST_F(Compare, AnArmThatCannotDoItSaysWhy) {
  if (run({"arms", "--device", "cpu", "--shape", "64,64"}).out.find("gemv_warp") == std::string::npos)
    GTEST_SKIP() << "built without CUDA: every arm does every problem";
  for (const char* arms : {"host_vector,gemv_warp", "gemv_warp,host_vector"}) {
    const Output output = compare({"--arms", arms, "--rows", "1,2", "--budget", "1s", "--json"});
    EXPECT_EQ(output.code, 2) << output.err;
    EXPECT_EQ(output.out, "");
    EXPECT_THAT(output.err, HasSubstr("gemv_warp cannot do that"));
  }
}

class Constant : public Compare {
 protected:
  Output constant(std::vector<std::string> more) const {
    more.insert(more.begin(), {"audit", "constant"});
    more.insert(more.end(), {"--db", database_});
    return run(more);
  }
};

// Below its row count the constant leads to the best of the others, from there on to its arm, whatever that costs.
TEST_F(Constant, CostsWhatTheStoredTimesSay) {
  store_evidence(database_);
  for (const Rows from : {Rows{1}, kCrossover, kLargest, kLargest + 1}) {
    const Json document = constant({std::string(kLibrary) + ":" + std::to_string(from), "--json"}).json();
    ASSERT_EQ(document["problems"].size(), 1u);
    const Json& problem = document["problems"][0];
    double worst = 0;
    ASSERT_FALSE(problem["rows"].empty());
    for (const Json& each : problem["rows"]) {
      const Rows m = each["m"];
      const double fast = usual_times(kFast, m), library = usual_times(kLibrary, m);
      EXPECT_EQ(each["best"], fast <= library ? kFast : kLibrary) << m;
      EXPECT_EQ(each["picked"], m >= from ? kLibrary : kFast) << m;
      EXPECT_NEAR(each["cost"], (m >= from ? library : fast) / std::min(fast, library), 0.01) << m;
      worst = std::max(worst, each["cost"].get<double>());
    }
    EXPECT_EQ(problem["worst_cost"], worst);
    if (from == kCrossover) {
      EXPECT_EQ(worst, 1) << "the measured threshold loses nothing";
    }
  }
}

TEST_F(Constant, WhatWasNotTimedHasNoCost) {
  store_evidence(database_, {.edit = [](crossover::Run& run) {
                   std::erase_if(run.samples, [](const Sample& s) { return s.arm == kLibrary && s.m < 16; });
                 }});
  const Json document = constant({std::string(kLibrary) + ":1", "--json"}).json();
  ASSERT_FALSE(document["problems"][0]["rows"].empty());
  for (const Json& each : document["problems"][0]["rows"]) {
    EXPECT_EQ(each["cost"].is_null(), each["m"] < 16) << each;
    EXPECT_EQ(each["picked"].is_null(), each["m"] < 16) << each;
  }
}

TEST_F(Constant, OfAnotherDeviceAndOneProblem) {
  store_evidence(database_);
  const Gpu gpu = store_gpu_evidence(database_);
  const Json all = constant({"dequant_cublaslt:512", "--json"}).json();
  ASSERT_EQ(all["problems"].size(), 1u) << "only problems that have the arm";
  EXPECT_EQ(all["problems"][0]["device"]["kind"], "cuda");
  EXPECT_EQ(constant({"dequant_cublaslt:512", "--json", "--device", gpu.device.hex().substr(0, 8)}).json(), all);
  EXPECT_EQ(constant({"dequant_cublaslt:512", "--json", "--shape", "17,19"}).json()["problems"], Json::array());
  EXPECT_THAT(constant({"dequant_cublaslt:512"}).out, HasSubstr("worst cost"));
}

TEST_F(Constant, BadOnesAreOneSentence) {
  store_evidence(database_);
  for (const char* text : {"host_vector", "host_vector:", ":5", "host_vector:0", "host_vector:-1", "host_vector:x",
                           "nosuch:5", "host_vector:99999999999999999999"}) {
    const Output output = constant({text});
    EXPECT_EQ(output.code, 2) << text;
    EXPECT_EQ(output.out, "");
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }
}

}  // namespace
}  // namespace crossover::testing
