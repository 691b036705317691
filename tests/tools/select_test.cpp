// crossover select: origins, policies, regimes, stored devices, what a lookup leaves untouched.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossover/kernels/fp8_block_linear.hpp"
#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class Select : public ::testing::Test {
 protected:
  Output select(const std::vector<std::string>& more, Environ environment = {}) const {
    std::vector<std::string> arguments{"select", "--db", database_, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, std::move(environment));
  }
  Json choice(const std::vector<std::string>& more, Environ environment = {}) const {
    const Output output = select(more, std::move(environment));
    EXPECT_EQ(output.code, 0) << output.err;
    return output.json();
  }

  Folder folder_;
  std::string database_ = (folder_ / "tuning.db").string();
};

TEST_F(Select, TheWinnerChangesAtTheCrossover) {
  store_evidence(database_);
  EXPECT_EQ(choice({"--shape", "256,256", "--rows", "1"})["arm"], kFast);
  EXPECT_EQ(choice({"--shape", "256,256", "--rows", "32"})["arm"], kFast);
  EXPECT_EQ(choice({"--shape", "256,256", "--rows", "64"})["arm"], kLibrary);
  EXPECT_EQ(choice({"--shape", "256,256", "--rows", "256"})["arm"], kLibrary);
  EXPECT_EQ(choice({"--shape", "256,256", "--rows", "256"})["origin"], "tuned");
}

TEST_F(Select, BeyondTheGridIsOutOfRange) {
  store_evidence(database_);
  for (const char* rows : {"257", "9223372036854775807"}) {
    const Json answer = choice({"--shape", "256,256", "--rows", rows});
    EXPECT_EQ(answer["origin"], "out_of_range");
    EXPECT_EQ(answer["arm"], kFast) << "the default arm";
  }
}

TEST_F(Select, NoRowsAreNothingToLaunch) {
  store_evidence(database_);
  EXPECT_EQ(choice({"--shape", "256,256", "--rows", "0"})["rows"], 0);
  const Output text = run({"select", "--shape", "256,256", "--rows", "0", "--db", database_});
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.out, HasSubstr("nothing to launch"));
}

TEST_F(Select, AnotherShapeIsAFallback) {
  store_evidence(database_);
  const Json answer = choice({"--shape", "256,512", "--rows", "7"}, {{"CROSSOVER_ON_MISS", "fallback"}});
  EXPECT_EQ(answer["origin"], "fallback");
  EXPECT_TRUE(answer["verdict"].is_null());
}

TEST_F(Select, AttributesThatDifferHaveVerdictsOfTheirOwn) {
  store_evidence(database_);
  store_evidence(database_, {.dtype = "f16"});
  const Json bf16 = choice({"--shape", "256,256", "--rows", "7"});
  const Json f16 = choice({"--shape", "256,256", "--dtype", "f16", "--rows", "7"});
  EXPECT_EQ(bf16["origin"], "tuned");
  EXPECT_EQ(f16["origin"], "tuned");
  EXPECT_NE(bf16["verdict"], f16["verdict"]);
  EXPECT_EQ(choice({"--shape", "256,256", "--bias", "--rows", "7"})["origin"], "fallback");
  EXPECT_EQ(choice({"--problem", "n=256,k=256,x_row_stride=264", "--rows", "7"})["origin"], "fallback");
}

TEST_F(Select, ProblemAndShapeSayTheSame) {
  store_evidence(database_);
  const Json by_shape = choice({"--shape", "256,256", "--rows", "7"});
  EXPECT_EQ(by_shape, choice({"--problem", "n=256,k=256", "--rows", "7"}));
  EXPECT_EQ(by_shape,
            choice({"--operation", "fp8_block_linear", "--problem", "k=256, n=256, dtype=bf16", "--rows", "7"}));
  EXPECT_EQ(by_shape, choice({"--shape=256,256", "--rows=7"}));
  EXPECT_EQ(by_shape,
            choice({"--shape", "256,256", "--device", "cpu", "--launch", "eager", "--l2", "cold", "--rows", "7"}));
}

TEST_F(Select, RegimeIsPartOfTheVerdict) {
  store_evidence(database_);
  EXPECT_EQ(choice({"--shape", "256,256", "--rows", "7", "--l2", "hot"})["origin"], "fallback");
}

TEST_F(Select, BiasOfTheSameType) {
  const Json f16 = choice({"--shape", "256,256", "--dtype", "f16", "--bias", "--rows", "7"});
  EXPECT_EQ(f16["problem"]["attributes"]["bias"], "f16");
  EXPECT_EQ(choice({"--problem", "n=256,k=256,dtype=f16", "--bias", "--rows", "7"}), f16);
}

TEST_F(Select, PolicyFiltersWithoutMeasuring) {
  const Id id = store_evidence(database_);
  const Json only = choice({"--shape", "256,256", "--rows", "128", "--arms", "host_vector,host_reference"});
  EXPECT_EQ(only["arm"], kFast);
  EXPECT_EQ(only["origin"], "tuned");
  EXPECT_EQ(only["verdict"], id.hex()) << "the stored verdict, whatever the policy";
}

// host_reference needs none, so none has to be exceeded: tuned, beyond the grid, or without evidence.
TEST_F(Select, NoAnswerNeedsMoreWorkspaceThanThePolicyGrants) {
  store_evidence(database_);
  for (const char* shape : {"256,256", "512,64"}) {
    for (const char* disabled : {"", kFast, kLibrary}) {
      for (const char* bytes : {"0", "3000", "70000"}) {
        for (const char* rows : {"1", "7", "40", "128", "300", "100000"}) {
          const Json answer = choice({"--shape", shape, "--rows", rows, "--workspace-bytes", bytes},
                                     {{"CROSSOVER_DISABLE_ARMS", disabled}});
          const Problem problem{"fp8_block_linear", answer["problem"]["attributes"]};
          const Cost cost = fp8_block_linear().find(answer["arm"].get<std::string>())->cost(problem, std::stoll(rows));
          EXPECT_LE(cost.workspace_bytes, std::stoull(bytes)) << answer << " without " << disabled;
        }
      }
    }
  }
}

TEST_F(Select, ExplainSaysWhyAnArmIsNotAllowed) {
  store_evidence(database_);
  const Json answer = choice({"--shape", "256,256", "--rows", "128", "--arms", kFast, "--explain"});
  bool said = false;
  for (const Json& each : answer["runners_up"]) {
    if (each["arm"] != kLibrary) continue;
    said = true;
    EXPECT_EQ(each["allowed"], false);
    EXPECT_EQ(each["why_not"], "not among the arms asked for");
    EXPECT_LT(each["ratio"].get<double>(), 1);
  }
  EXPECT_TRUE(said);
}

TEST_F(Select, BatchInvariantIsOneArmForAllRows) {
  store_evidence(database_);
  const auto arm = [&](const char* rows) {
    return choice({"--shape", "256,256", "--rows", rows, "--batch-invariant"})["arm"];
  };
  EXPECT_EQ(arm("1"), arm("256"));
  EXPECT_EQ(arm("1"), arm("100000"));
}

TEST_F(Select, ErrorModeIsExitCode3) {
  store_evidence(database_);
  const Output output = select({"--shape", "256,512", "--rows", "7"}, {{"CROSSOVER_ON_MISS", "error"}});
  EXPECT_EQ(output.code, 3);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err, HasSubstr("no verdict for fp8_block_linear("));
  EXPECT_EQ(select({"--shape", "256,256", "--rows", "7"}, {{"CROSSOVER_ON_MISS", "error"}}).code, 0);
}

TEST_F(Select, RecordLeavesARequest) {
  const Json answer = choice({"--shape", "256,512", "--rows", "7"}, {{"CROSSOVER_ON_MISS", "record"}});
  EXPECT_EQ(answer["origin"], "fallback");
  const auto store = Store::open(database_, Store::Access::lookup_only);
  const std::vector<Request> requests = store->requests();
  ASSERT_EQ(requests.size(), 1u);
  EXPECT_EQ(requests[0].key.problem.attributes.at("k"), "512");
  EXPECT_FALSE(requests[0].low_priority);
}

TEST_F(Select, TuneMeasuresNow) {
  const Json answer = choice({"--shape", "64,128", "--rows", "2", "--max-rows", "4", "--budget", "1s"},
                             {{"CROSSOVER_ON_MISS", "tune"}});
  EXPECT_FALSE(answer["verdict"].is_null());
  const Json later = choice({"--shape", "64,128", "--rows", "2"}, {{"CROSSOVER_ON_MISS", "error"}});
  EXPECT_EQ(later["verdict"], answer["verdict"]);
}

// quda#1558: a run with tuning disabled overwrote good data.
TEST_F(Select, QudaIssue1558LookupChangesNoByte) {
  store_evidence(database_);
  const auto before = snapshot(folder_.path());
  for (const char* mode : {"fallback", "error"}) {
    select({"--shape", "256,256", "--rows", "7", "--explain"}, {{"CROSSOVER_ON_MISS", mode}});
    select({"--shape", "256,512", "--rows", "7"}, {{"CROSSOVER_ON_MISS", mode}});
  }
  choice({"--shape", "256,256", "--rows", "7", "--assume", "driver=999"}, {{"CROSSOVER_ON_MISS", "tune"}});
  run({"audit", "list", "--db", database_});
  run({"arms", "--shape", "256,256", "--db", database_});
  run({"device", "--db", database_});
  EXPECT_EQ(snapshot(folder_.path()), before);
}

TEST_F(Select, LookupCreatesNoFile) {
  choice({"--shape", "256,256", "--rows", "7"});
  run({"audit", "list", "--db", database_});
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST_F(Select, DatabaseOfTheEnvironment) {
  store_evidence(database_);
  const Output output = run({"select", "--shape", "256,256", "--rows", "7", "--json"}, {{"CROSSOVER_DB", database_}});
  EXPECT_EQ(output.json()["origin"], "tuned");
}

TEST_F(Select, DatabaseOfTheDataHome) {
  store_evidence(folder_ / "crossover" / "tuning.db");
  const Output output =
      run({"select", "--shape", "256,256", "--rows", "7", "--json"}, {{"XDG_DATA_HOME", folder_.path().string()}});
  EXPECT_EQ(output.json()["origin"], "tuned");
}

TEST_F(Select, StoredDeviceNeedsNoGpu) {
  const Gpu gpu = store_gpu_evidence(database_);
  const std::string id = gpu.device.hex();
  const Json small = choice({"--device", id, "--shape", "4096,7168", "--rows", "1"});
  EXPECT_EQ(small["arm"], "gemv_warp");
  EXPECT_EQ(small["origin"], "tuned");
  EXPECT_EQ(small["status"], "confirmed");
  EXPECT_EQ(small["device"]["model"], "NVIDIA H200");
  EXPECT_EQ(small["regime"]["launch_mode"], "graph");
  EXPECT_EQ(choice({"--device", id.substr(0, 6), "--shape", "4096,7168", "--rows", "256"})["arm"], "dequant_cublaslt");
  EXPECT_EQ(choice({"--device", id, "--shape", "4096,7168", "--rows", "1", "--launch", "eager"})["origin"], "fallback");
}

TEST_F(Select, StoredDeviceHasItsOwnArms) {
  const Gpu gpu = store_gpu_evidence(database_);
  const std::vector<std::string> base{"--device", gpu.device.hex(), "--shape", "4096,7168", "--rows", "256"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  EXPECT_EQ(choice(with({"--arms", "tensor_core"}))["arm"], "tensor_core/128x128");
  EXPECT_EQ(choice(with({"--allow", "a16"}))["arm"], "tensor_core/128x128");
  EXPECT_EQ(choice(base, {{"CROSSOVER_DISABLE_ARMS", "dequant_cublaslt"}})["arm"], "tensor_core/128x128");
  EXPECT_EQ(choice(with({"--assume", "cublaslt=99"}))["origin"], "stale");
  EXPECT_EQ(select(with({"--arms", "host_vector"})).code, 2);
}

TEST_F(Select, StoredDeviceIsNotTunedHere) {
  const Gpu gpu = store_gpu_evidence(database_);
  const std::vector<std::string> other{"--device", gpu.device.hex(), "--shape", "512,512", "--rows", "1"};
  EXPECT_EQ(choice(other)["origin"], "fallback");
  EXPECT_EQ(select(other, {{"CROSSOVER_ON_MISS", "error"}}).code, 3);
  const Output tune = select(other, {{"CROSSOVER_ON_MISS", "tune"}});
  EXPECT_EQ(tune.code, 2);
  EXPECT_THAT(tune.err, HasSubstr("not this host's device"));
}

TEST_F(Select, OwnDeviceByItsId) {
  store_evidence(database_);
  const Json named = choice({"--shape", "256,256", "--rows", "7"});
  const std::string id = named["device"]["id"];
  EXPECT_EQ(choice({"--device", id.substr(0, 8), "--shape", "256,256", "--rows", "7"}), named);
}

// vllm#52192: M = 2048 snapped to a row tuned at M = 8.
TEST_F(Select, VllmIssue52192NoSnapToASmallTable) {
  store_evidence(database_, {.edit = [](crossover::Run& run) {
                   std::erase_if(run.samples, [](const Sample& sample) { return sample.m > 8; });
                 }});
  EXPECT_EQ(choice({"--shape", "256,256", "--rows", "8"})["origin"], "tuned");
  EXPECT_EQ(choice({"--shape", "256,256", "--rows", "2048"})["origin"], "out_of_range");
}

// vllm#17619: tuned, got slower, cannot tell why.
TEST_F(Select, VllmIssue17619ExplainShowsMarginAgeConditions) {
  store_evidence(database_);
  const Output output = run({"select", "--shape", "256,256", "--rows", "7", "--explain", "--db", database_});
  EXPECT_EQ(output.code, 0);
  for (const char* text : {kLibrary, kSlow, "crossover", "regret", "ago", "conditions before", "compiler"}) {
    EXPECT_THAT(output.out, HasSubstr(text));
  }
}

// TensorRT-LLM#19099 and nvbench#231: what is not known for sure is served by the default arm, and says so.
TEST_F(Select, InconclusiveIsAFallbackThatNamesItsVerdict) {
  store_evidence(database_, {.edit = [](crossover::Run& run) {
                   std::erase_if(run.samples, [](const Sample& sample) { return sample.role == Role::grid; });
                   run.samples.push_back(run.samples.front());
                   run.samples.back().role = Role::grid;
                   run.samples.back().dirty_mask = static_cast<std::uint64_t>(Dirty::throttled);
                 }});
  const Json answer = choice({"--shape", "256,256", "--rows", "7"});
  EXPECT_EQ(answer["origin"], "fallback");
  EXPECT_EQ(answer["status"], "inconclusive");
  EXPECT_FALSE(answer["verdict"].is_null());
}

}  // namespace
}  // namespace crossover::testing
