// crossover tune, measuring for real: small problems, small budgets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "crossover/kernels/fp8_block_linear.hpp"
#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class Tune : public ::testing::Test {
 protected:
  std::vector<std::string> arguments(std::vector<std::string> more) const {
    more.insert(more.begin(), "tune");
    more.insert(more.end(), {"--db", database_, "--json"});
    return more;
  }
  Output tune(std::vector<std::string> more) const { return run(arguments(std::move(more))); }
  Json select(const char* shape, const char* rows, Environ environment = {}) const {
    const Output output = run({"select", "--shape", shape, "--rows", rows, "--db", database_, "--json", "--explain"},
                              std::move(environment));
    EXPECT_EQ(output.code, 0) << output.err;
    return output.json();
  }

  Folder folder_;
  std::string database_ = (folder_ / "tuning.db").string();
};

TEST_F(Tune, HasItsFieldsAndIsStored) {
  const Output output = tune({"--shape", "128,256", "--max-rows", "8", "--budget", "5s"});
  ASSERT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.err, "") << "progress is for terminals";
  const Json document = output.json();
  ASSERT_EQ(document["verdicts"].size(), 1u);
  const Json& verdict = document["verdicts"][0];
  for (const char* name : {"id", "problem", "status", "segments", "crossovers", "threshold", "first_win", "held_out",
                           "duration_s", "rows_measured", "rows_dirty"}) {
    EXPECT_TRUE(verdict.contains(name)) << name;
  }
  EXPECT_EQ(verdict["problem"]["attributes"]["n"], "128");
  EXPECT_GE(verdict["rows_measured"].get<int>(), 8);
  EXPECT_GT(verdict["duration_s"].get<double>(), 0);
  ASSERT_FALSE(verdict["segments"].empty());
  EXPECT_EQ(verdict["segments"][0]["from"], 1);
  EXPECT_EQ(verdict["segments"].back()["to"], 8);
  EXPECT_TRUE(verdict["segments"][0]["arm"].is_string());

  const Output show = run({"audit", "show", verdict["id"], "--db", database_, "--json"});
  ASSERT_EQ(show.code, 0) << show.err;
  EXPECT_EQ(show.json()["segments"], verdict["segments"]);
  const Json stored = show.json()["runs"][0];  // whether it is clean is up to the host; that it says why is not
  EXPECT_EQ(stored["clean"], stored["reasons"].empty()) << stored["reasons"];
  EXPECT_FALSE(show.json()["measurements"].empty());
}

TEST_F(Tune, ANewProcessRestoresTheConfigThatWasMeasured) {
  ASSERT_EQ(tune({"--shape", "128,256", "--max-rows", "8", "--budget", "1s"}).code, 0);
  const Json choice = select("128,256", "7");
  const std::string verdict = choice["verdict"];
  const Json shown = run({"audit", "show", verdict, "--db", database_, "--json"}).json();
  if (choice["origin"] == "fallback") GTEST_SKIP() << "inconclusive on this host: " << choice["why"];
  std::set<std::string> measured;  // not at every row count: on a busy host the budget may end before
  for (const Json& each : shown["measurements"]) {
    if (each["arm"] == choice["arm"] && each["role"] == "grid") measured.insert(each["config"]);
  }
  EXPECT_EQ(measured, std::set<std::string>{choice["config"]});
}

TEST_F(Tune, EveryEligibleArmIsMeasuredWhateverThePolicy) {
  const Output output =
      tune({"--shape", "64,128", "--max-rows", "2", "--budget", "1s", "--arms", "host_reference", "--allow", "a16"});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json verdict = output.json()["verdicts"][0];
  for (const Json& segment : verdict["segments"]) EXPECT_EQ(segment["arm"], kSlow) << "the policy's verdict";
  EXPECT_EQ(verdict["policy"]["arms"], Json::array({kSlow}));
  const Json shown = run({"audit", "show", verdict["id"], "--db", database_, "--json"}).json();
  std::set<std::string> measured;
  for (const Json& each : shown["measurements"]) measured.insert(each["arm"]);
  EXPECT_TRUE(measured.contains(kFast));
  EXPECT_TRUE(measured.contains(kSlow));
  EXPECT_NE(select("64,128", "2")["verdict"], verdict["id"]) << "dispatch goes by the default policy's";
}

TEST_F(Tune, SecondProcessConfirmsOrSaysWhyNot) {
  for (int process = 0; process < 2; ++process) {
    ASSERT_EQ(tune({"--shape", "64,128", "--max-rows", "4", "--budget", "1s"}).code, 0);
  }
  const Json choice = select("64,128", "2");
  EXPECT_TRUE(choice["status"] == "confirmed" || choice["status"] == "inconclusive") << choice;
  const Json shown = run({"audit", "show", choice["verdict"], "--db", database_, "--json"}).json();
  EXPECT_EQ(shown["runs"].size(), 2u);
}

TEST_F(Tune, SeveralShapesEachOnce) {
  write_file(folder_ / "shapes.csv", "model,layer,N,K,note\nm,a,64,64,\nm,b,64,128,x\nm,c,64,64,again\n");
  const Output output =
      tune({"--shapes", (folder_ / "shapes.csv").string(), "--max-rows", "2", "--budget", "400ms", "--dtype", "f16"});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json verdicts = output.json()["verdicts"];
  ASSERT_EQ(verdicts.size(), 2u);
  EXPECT_EQ(verdicts[0]["problem"]["attributes"]["k"], "64");
  EXPECT_EQ(verdicts[1]["problem"]["attributes"]["k"], "128");
  EXPECT_EQ(verdicts[1]["problem"]["attributes"]["dtype"], "f16");
}

TEST_F(Tune, TextHasTheTableAndTheVerdict) {
  const Output output = run({"tune", "--shape", "64,128", "--max-rows", "4", "--budget", "500ms", "--db", database_});
  ASSERT_EQ(output.code, 0) << output.err;
  for (const char* text : {"fp8_block_linear(", "host_vector us", "status", "samples in", "* is served"}) {
    EXPECT_THAT(output.out, HasSubstr(text));
  }
}

// vllm#13623: results written only at exit.
TEST_F(Tune, VllmIssue13623StoppedAfterTheFirstProblem) {
  write_file(folder_ / "shapes.csv", "64,64\n64,128\n64,192\n64,256\n64,320\n64,384\n64,448\n64,512\n");
  Running running(Invocation{
      .arguments = arguments({"--shapes", (folder_ / "shapes.csv").string(), "--max-rows", "4", "--budget", "2s"})});
  const auto stored = [&] {
    const auto store = Store::open(database_, Store::Access::lookup_only);
    return store->all_verdicts().size();
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (stored() == 0 && !running.finished() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  ASSERT_FALSE(running.finished());
  running.send(SIGTERM);
  EXPECT_EQ(running.wait().code, 128 + SIGTERM);
  const Output list = run({"audit", "list", "--db", database_, "--json"});
  ASSERT_EQ(list.code, 0) << list.err;
  EXPECT_EQ(list.err, "");
  const std::size_t kept = list.json()["verdicts"].size();
  EXPECT_GE(kept, 1u);
  EXPECT_LT(kept, 8u);
  EXPECT_EQ(tune({"--shape", "64,576", "--max-rows", "2", "--budget", "400ms"}).code, 0) << "nothing was left locked";
}

TEST_F(Tune, PendingServesWhatWasRecorded) {
  ASSERT_EQ(run({"select", "--shape", "64,64", "--rows", "2", "--max-rows", "1", "--db", database_},
                {{"CROSSOVER_ON_MISS", "record"}})
                .code,
            0);
  const Output output = tune({"--pending", "--budget", "1s"});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json verdicts = output.json()["verdicts"];
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0]["problem"]["attributes"]["n"], "64");
  const Json shown = run({"audit", "show", verdicts[0]["id"], "--db", database_, "--json"}).json();
  ASSERT_FALSE(shown["measurements"].empty());
  for (const Json& each : shown["measurements"]) EXPECT_EQ(each["m"], 1) << "as many rows as were asked for";
  // One process has measured it: the next one confirms it, or finds that it cannot and puts it off.
  const Json again = tune({"--pending", "--budget", "1s"}).json()["verdicts"];
  ASSERT_EQ(again.size(), verdicts[0]["status"] == "provisional" ? 1u : 0u);
  for (const Json& each : again) EXPECT_NE(each["status"], "provisional");
  EXPECT_EQ(tune({"--pending"}).json()["verdicts"], Json::array());
}

TEST_F(Tune, ThoroughMeasuresInThreeProcesses) {
  const Output output = tune({"--shape", "64,128", "--max-rows", "2", "--budget", "1500ms", "--thorough"});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json verdicts = output.json()["verdicts"];  // one document, of the last process
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_NE(verdicts[0]["status"], "provisional");
  std::set<Id> processes;
  for (const crossover::Run& each : Store::open(database_, Store::Access::lookup_only)->all_runs())
    processes.insert(each.process_uuid);
  EXPECT_EQ(processes.size(), 3u);
  const Output impossible = tune({"--shape", "64,128", "--launch", "graph", "--thorough"});
  EXPECT_EQ(impossible.code, 2);
  EXPECT_EQ(std::count(impossible.err.begin(), impossible.err.end(), '\n'), 1) << impossible.err;
}

TEST_F(Tune, PendingServesWhatItCanAndNamesTheRest) {
  ASSERT_EQ(run({"select", "--shape", "64,64", "--rows", "2", "--max-rows", "1", "--db", database_},
                {{"CROSSOVER_ON_MISS", "record"}})
                .code,
            0);
  {
    const auto store = Store::open(database_, Store::Access::read_write);
    const Request possible = store->requests().at(0);
    // Asked for more often, so that they come first: beyond the memory, of other builds, in a regime that is not here.
    const auto ask = [&](const std::function<void(EvidenceKey&)>& change) {
      Request request = possible;
      change(request.key);
      for (int i = 0; i < 3; ++i) store->request(request);
    };
    ask([](EvidenceKey& key) {
      key.problem = fp8_block_linear().normalise({"fp8_block_linear", {{"n", "1073741824"}, {"k", "1073741824"}}});
    });
    ask([](EvidenceKey& key) { key.problem.operation = "someone_elses"; });
    ask([](EvidenceKey& key) { key.problem.attributes["colour"] = "red"; });
    ask([](EvidenceKey& key) { key.regime.launch_mode = LaunchMode::graph; });
    ask([](EvidenceKey& key) { key.regime.fill = "zeros"; });
  }
  ASSERT_EQ(run({"select", "--shape", "64,128", "--rows", "2", "--max-rows", "1", "--db", database_},
                {{"CROSSOVER_ON_MISS", "record"}})
                .code,
            0);
  const Output output = tune({"--pending", "--budget", "300ms"});
  EXPECT_EQ(output.code, 1);
  const Json document = output.json();
  std::set<std::string> served;
  for (const Json& each : document["verdicts"]) served.insert(each["problem"]["attributes"]["k"]);
  EXPECT_EQ(served, (std::set<std::string>{"64", "128"}));
  for (const char* named :
       {"n=1073741824", "someone_elses", "colour", "graph", "zeros", "crossover: 5 of 7 requests could not be served"})
    EXPECT_THAT(output.err, HasSubstr(named));
  std::size_t put_off = 0;  // a busy host comes to no conclusion, and is to try again later
  for (const Json& each : document["verdicts"]) put_off += each["status"] == "inconclusive" ? 1 : 0;
  EXPECT_EQ(Store::open(database_, Store::Access::lookup_only)->requests().size(), 5 + put_off);
}

TEST_F(Tune, OutOfMemoryIsASentence) {
  const Output output = tune({"--shape", "1073741824,1073741824", "--max-rows", "2", "--budget", "500ms"});
  EXPECT_EQ(output.code, 1) << output.err;
  EXPECT_THAT(output.err, HasSubstr("memory"));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  EXPECT_FALSE(std::filesystem::exists(database_)) << "nothing was measured, nothing is stored";
}

// The least address space, in steps of 64 MiB, in which the program starts: with CUDA its libraries alone take most of
// a gigabyte.
std::size_t least_address_space() {
  constexpr std::size_t kStep = std::size_t{64} << 20;
  for (std::size_t limit = kStep; limit < std::size_t{64} << 30; limit += kStep) {
    const Output output = run(
        Invocation{.arguments = {"--version"}, .environment = {{"OPENBLAS_NUM_THREADS", "1"}}, .address_space = limit});
    if (output.code == 0) return limit;
  }
  ADD_FAILURE() << "the program does not start in any address space";
  return 0;
}

// flashinfer#2357: tuning runs out of memory.
TEST_F(Tune, FlashinferIssue2357LittleMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs all of the address space";
#endif
  const Output output =
      run(Invocation{.arguments = arguments({"--shape", "16384,16384", "--max-rows", "4", "--budget", "500ms"}),
                     .environment = {{"OPENBLAS_NUM_THREADS", "1"}},
                     .address_space = least_address_space() + (std::size_t{192} << 20)});
  EXPECT_EQ(output.code, 1) << output.err;
  EXPECT_THAT(output.err, HasSubstr("memory"));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
}

// OpenBLAS starts as many threads as there are processors before main(), and never gives up where they do not fit.
TEST_F(Tune, AnAddressSpaceTooSmallForThreadsIsASentence) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer needs all of the address space";
#endif
  const Output list = run({"arms", "--device", "cpu", "--shape", "64,64"});
  if (list.out.find("host_dequant_blas") == std::string::npos) GTEST_SKIP() << "built without OpenBLAS";
  const std::size_t least = least_address_space();
  for (const char* threads : {"2", "16", "64"}) {
    for (std::size_t more = 0; more <= std::size_t{1} << 30; more += std::size_t{128} << 20) {
      const Output output = run(Invocation{.arguments = {"--version"},
                                           .environment = {{"OPENBLAS_NUM_THREADS", threads}},
                                           .address_space = least + more});
      if (output.code == 0) continue;
      EXPECT_EQ(output.code, 1) << output.err;
      EXPECT_THAT(output.err, HasSubstr("memory"));
      EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
    }
  }
}

TEST_F(Tune, OneProblemTooLargeLosesNothingOfTheOthers) {
  write_file(folder_ / "shapes.csv", "64,64\n1073741824,1073741824\n");
  const Output output = tune({"--shapes", (folder_ / "shapes.csv").string(), "--max-rows", "2", "--budget", "400ms"});
  EXPECT_EQ(output.code, 1) << output.err;
  EXPECT_EQ(output.json()["verdicts"].size(), 1u);
  EXPECT_EQ(run({"audit", "list", "--db", database_, "--json"}).json()["verdicts"].size(), 1u);
}

}  // namespace
}  // namespace crossover::testing
