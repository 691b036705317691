// What `select --assume` and `audit list` say when something has changed since it was measured.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class Stale : public ::testing::Test {
 protected:
  void SetUp() override { store_evidence(database_); }

  Json assume(const std::string& rows, const std::vector<std::string>& assumptions) const {
    std::vector<std::string> arguments{"select", "--shape", "256,256", "--rows", rows, "--json", "--db", database_};
    for (const std::string& each : assumptions) arguments.insert(arguments.end(), {"--assume", each});
    const Output output = run(arguments);
    EXPECT_EQ(output.code, 0) << output.err;
    return output.json();
  }
  static std::vector<std::string> fields(const Json& choice) {
    std::vector<std::string> names;
    for (const Json& reason : choice["stale"]) names.push_back(reason["field"]);
    return names;
  }

  Folder folder_;
  std::string database_ = (folder_ / "tuning.db").string();
};

TEST_F(Stale, NothingChanged) {
  EXPECT_EQ(assume("128", {})["origin"], "tuned");
  EXPECT_EQ(assume("128", {})["stale"], Json::array());
}

// quda#140, sglang#5716: wrong after an upgrade; the version was not in the key.
TEST_F(Stale, QudaIssue140AnotherVersionOfWhatIsUnderneath) {
  for (const char* field : {"driver", "cuda", "cublaslt", "blas"}) {
    const Json now = assume("128", {std::string(field) + "=999"});
    EXPECT_EQ(now["origin"], "stale") << field;
    EXPECT_EQ(now["arm"], kLibrary) << "the same arm";
    ASSERT_EQ(fields(now), std::vector<std::string>{field});
    EXPECT_EQ(now["stale"][0]["new"], "999");
    EXPECT_NE(now["stale"][0]["old"], "999");
  }
}

TEST_F(Stale, AChangedDefaultArmIsServedAndNamed) {
  const Json now = assume("128", {"arm:host_vector=other"});
  EXPECT_EQ(now["origin"], "stale");
  EXPECT_EQ(fields(now), std::vector<std::string>{"arm host_vector"});
  EXPECT_EQ(now["stale"][0]["new"], "other");
  EXPECT_EQ(now["arm"], kFast) << "the default arm has changed: nothing measured outranks it";
}

TEST_F(Stale, AChangedArmThatIsNotTheDefaultIsDropped) {
  const Json now = assume("128", {"arm:host_dequant_blas=other"});
  EXPECT_EQ(now["origin"], "stale");
  EXPECT_EQ(fields(now), std::vector<std::string>{"arm host_dequant_blas"});
  EXPECT_EQ(now["arm"], kFast) << "the best of what was measured and has not changed";
}

TEST_F(Stale, ANewArm) {
  const Json now = assume("128", {"new_arm=x"});
  EXPECT_EQ(now["origin"], "stale");
  EXPECT_EQ(fields(now), std::vector<std::string>{"arm x"});
  EXPECT_EQ(now["stale"][0]["old"], "absent");
  EXPECT_EQ(now["arm"], kLibrary);
}

// flashinfer#3449: wrong engine after an upgrade, arms were identified by index.
TEST_F(Stale, FlashinferIssue3449ARemovedArmIsNotServed) {
  const Json now = assume("128", {"arm:host_dequant_blas=absent"});
  EXPECT_EQ(now["origin"], "stale");
  EXPECT_EQ(now["arm"], kFast);
  EXPECT_EQ(now["stale"][0]["new"], "absent");
}

// TensorRT-LLM#17664: another GPU's cache loads clean.
TEST_F(Stale, TensorRtLlmIssue17664AnotherDeviceIsAMiss) {
  const Json now = assume("128", {"sm_count=1"});
  EXPECT_EQ(now["origin"], "fallback");
  EXPECT_TRUE(now["verdict"].is_null());
  EXPECT_EQ(now["device"]["sm_count"], 1);
}

TEST_F(Stale, SeveralAtOnceAreAllNamed) {
  const Json now = assume("128", {"driver=1", "cuda=2", "new_arm=x"});
  EXPECT_EQ(now["origin"], "stale");
  EXPECT_THAT(fields(now), ::testing::UnorderedElementsAre("driver", "cuda", "arm x"));
}

TEST_F(Stale, BeyondTheGridStaysOutOfRange) { EXPECT_EQ(assume("1000", {"driver=1"})["origin"], "out_of_range"); }

TEST_F(Stale, TextSaysWhatChanged) {
  const Output output =
      run({"select", "--shape", "256,256", "--rows", "7", "--assume", "driver=999", "--db", database_});
  EXPECT_THAT(output.out, HasSubstr("stale"));
  EXPECT_THAT(output.out, HasSubstr("driver: none -> 999"));
}

TEST_F(Stale, MalformedAssumptionsAreExitCode2) {
  for (const char* bad : {"driver", "driver=", "nonsense=1", "sm_count=x", "sm_count=0", "sm_count=-1", "arm:nosuch=x",
                          "arm:host_vector", "new_arm=host_vector", "=", ""}) {
    const Output output =
        run({"select", "--shape", "256,256", "--rows", "7", "--assume", bad, "--db", database_, "--json"});
    EXPECT_EQ(output.code, 2) << bad;
    EXPECT_EQ(output.out, "");
    EXPECT_THAT(output.err, HasSubstr("crossover: ")) << bad;
  }
}

TEST_F(Stale, AssumptionsThatContradictEachOtherAreExitCode2) {
  const auto select = [&](const std::string& first, const std::string& second) {
    return run({"select", "--shape", "256,256", "--rows", "7", "--assume", first, "--assume", second, "--db", database_,
                "--json"});
  };
  for (const auto& [first, second] :
       std::vector<std::pair<std::string, std::string>>{{"driver=1", "driver=2"},
                                                        {"sm_count=1", "sm_count=2"},
                                                        {"arm:host_vector=a", "arm:host_vector=b"},
                                                        {"arm:host_vector=a", "arm:host_vector=absent"},
                                                        {"new_arm=x", "arm:x=absent"}}) {
    for (const Output& output : {select(first, second), select(second, first)}) {
      EXPECT_EQ(output.code, 2) << first << " " << second;
      EXPECT_EQ(output.out, "");
      EXPECT_THAT(output.err, HasSubstr("contradict"));
      EXPECT_THAT(output.err, HasSubstr("--assume " + first));
      EXPECT_THAT(output.err, HasSubstr("--assume " + second));
    }
  }
  for (const auto& [first, second] : std::vector<std::pair<std::string, std::string>>{
           {"driver=1", "driver=1"}, {"driver=1", "cuda=2"}, {"new_arm=x", "new_arm=y"}})
    EXPECT_EQ(select(first, second).code, 0) << first << " " << second;
}

TEST_F(Stale, AuditListComparesWithThisHost) {
  store_evidence(database_, {.n = "512", .edit = [](crossover::Run& run) { run.environment["driver"] = "older"; }});
  store_evidence(database_, {.n = "768", .edit = [](crossover::Run& run) {
                               for (ArmRecord& arm : run.arm_set.arms) {
                                 if (arm.id.name == kFast) arm.id.fingerprint = "older";
                               }
                             }});
  store_gpu_evidence(database_);
  const Json document = run({"audit", "list", "--db", database_, "--json"}).json();
  std::map<std::string, Json> stale;
  for (const Json& verdict : document["verdicts"]) stale[verdict["problem"]["attributes"]["n"]] = verdict["stale"];
  ASSERT_EQ(stale.size(), 4u);
  EXPECT_EQ(stale["256"], Json::array());
  ASSERT_EQ(stale["512"].size(), 1u);
  EXPECT_EQ(stale["512"][0]["field"], "driver");
  ASSERT_EQ(stale["768"].size(), 1u);
  EXPECT_EQ(stale["768"][0]["field"], "arm host_vector");
  EXPECT_TRUE(stale["4096"].is_null()) << "another device's: unknown here";
}

}  // namespace
}  // namespace crossover::testing
