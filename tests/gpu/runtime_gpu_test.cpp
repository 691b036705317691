// First use on a GPU: graphs across a change of plan, and what tuning leaves behind.

#include <cuda_runtime_api.h>

#include <chrono>
#include <vector>

#include "crossover/cuda/handles.hpp"
#include "crossover/db/store.hpp"
#include "crossover/dispatch/dispatcher.hpp"
#include "crossover/tuner/tuner.hpp"
#include "gpu_test.hpp"

namespace crossover::test {
namespace {

struct Recorder final : OnMiss {
  bool tune(const Miss&) override { return false; }
  void record(const Miss& miss) override { reasons.push_back(miss.reason); }
  std::vector<std::string> reasons;
};

TuneOptions short_tuning(Rows max_rows, double seconds) {
  TuneOptions options;
  options.max_rows = max_rows;
  options.budget = std::chrono::duration<double>(seconds);
  options.seed = 7;
  return options;
}

// One layer behind a dispatcher, and what it takes to capture its launches.
class Served {
 public:
  Served()
      : workload(fp8_block_linear().workload(problem, Regime{}, gpu()->memory(), kRows, 1, 3)),
        dispatcher(*gpu(), *store, &recorder,
                   {.on_miss = MissMode::record,
                    .max_rows = kRows,
                    .warn = [](const std::string& text) { ADD_FAILURE() << text; }}),
        bound(dispatcher.bind(fp8_block_linear(), problem, workload->weights(0))) {}

  // Launches at `rows` captured on a stream of its own; memory for the workspace comes from `workspaces`.
  cuda::OwnedGraphExec capture(Rows rows) {
    workspaces.push_back(std::make_unique<DeviceBytes>(bound.workspace_bytes(rows)));
    const Workspace workspace = *workspaces.back();
    const Arguments arguments = workload->arguments(rows, 0);
    cuda::check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeGlobal), "beginning to capture");
    const Status status = bound.launch(arguments, rows, workspace, Stream{stream.get()}, LaunchMode::graph);
    cudaGraph_t raw = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream.get(), &raw);
    const cuda::OwnedGraph graph(raw);
    EXPECT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(ended, cudaSuccess) << "the capture was spoilt: " << cudaGetErrorString(ended);
    cudaGraphExec_t executable = nullptr;
    cuda::check(cudaGraphInstantiate(&executable, raw, 0), "making a graph");
    return cuda::OwnedGraphExec(executable);
  }
  void expect_right(const cuda::OwnedGraphExec& graph, Rows rows, const std::string& what) {
    workload->poison(rows);
    cuda::check(cudaGraphLaunch(graph.get(), stream.get()), "launching a graph");
    cuda::check(cudaStreamSynchronize(stream.get()), "running a graph");
    const Check check = workload->check(rows, "w16");
    EXPECT_TRUE(check.ok) << what << ": " << check.detail;
  }

  static constexpr Rows kRows = 256;
  const Problem problem = fp8_block_linear().normalise(Fp8BlockLinear{.n = 7168, .k = 2048}.problem());
  std::unique_ptr<Store> store = Store::in_memory();
  Recorder recorder;
  std::unique_ptr<Workload> workload;
  Dispatcher dispatcher;
  Bound bound;
  cuda::OwnedStream stream = cuda::make_stream();
  std::vector<std::unique_ptr<DeviceBytes>> workspaces;
};

TEST(Runtime, GraphsOutliveTheChangeOfPlan) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  Served served;
  ASSERT_FALSE(served.recorder.reasons.empty()) << "a miss is recorded";
  const std::vector<Rows> ladder{1, 7, 16, 33, 64, 128, 200, 256};
  std::vector<std::pair<Rows, cuda::OwnedGraphExec>> graphs;
  const auto capture = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const Rows rows = ladder[static_cast<std::size_t>(i) % ladder.size()];
      graphs.emplace_back(rows, served.capture(rows));
    }
  };
  capture(50);
  const std::size_t requests = served.recorder.reasons.size();
  const auto plan = [&] {
    std::vector<std::string> names;
    for (const Rows rows : ladder) names.push_back(served.bound.select(rows, LaunchMode::graph).arm->id().name);
    return names;
  };
  const std::vector<std::string> before = plan();
  Tuner tuner(*gpu(), *served.store, short_tuning(Served::kRows, 10), {});
  const Tuning tuning = tuner.tune(fp8_block_linear(), served.problem);
  ASSERT_EQ(tuning.not_stored, "");
  ASSERT_NE(tuning.verdict.status, VerdictStatus::inconclusive) << tuning.verdict.why;  // it would serve nothing
  for (int i = 0; i < 3; ++i) served.dispatcher.refresh();  // what fails three times is warned of
  const Resolution& now = served.bound.resolution(LaunchMode::graph);
  EXPECT_EQ(to_string(served.bound.select(1, LaunchMode::graph).origin), "tuned") << now.why;
  EXPECT_NE(plan(), before) << "no change of plan: the test shows nothing";
  capture(50);
  EXPECT_EQ(served.recorder.reasons.size(), requests) << "launching in a capture asks for nothing";
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    served.expect_right(graphs[i].second, graphs[i].first, "graph " + std::to_string(i));
  }
}

// Whoever captures must be able to launch what select() named, whatever the plan: no arm that cannot be captured.
TEST(Runtime, WhatIsChosenInACaptureCanBeCaptured) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  Served served;
  for (Rows rows = 1; rows <= Served::kRows; ++rows) {
    EXPECT_TRUE(served.bound.select(rows, LaunchMode::graph).arm->capture_safe()) << rows;
  }
}

// A layer may be loaded while another stream captures, in the mode in which any call that is not allowed spoils it.
TEST(Runtime, ACaptureOnAnotherStreamSurvivesALookup) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  Served served;
  cuda::check(cudaStreamBeginCapture(served.stream.get(), cudaStreamCaptureModeGlobal), "beginning to capture");
  const Regime regime{LaunchMode::graph, L2State::cold, "normal"};
  const Problem other = fp8_block_linear().normalise(Fp8BlockLinear{.n = 512, .k = 512}.problem());
  const std::size_t requests = served.recorder.reasons.size();
  EXPECT_NO_THROW(served.dispatcher.lookup(fp8_block_linear(), other, regime));
  served.dispatcher.refresh();
  cudaGraph_t raw = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(served.stream.get(), &raw), cudaSuccess);
  const cuda::OwnedGraph graph(raw);
  EXPECT_GT(served.recorder.reasons.size(), requests);
}

TEST(Runtime, DeviceMemoryIsFlatOver200Tunings) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  const Problem problem = fp8_block_linear().normalise(Fp8BlockLinear{.n = 256, .k = 256}.problem());
  const auto store = Store::in_memory();
  Tuner tuner(*gpu(), *store, short_tuning(2, 0.15), {});
  std::size_t first = 0, least = ~std::size_t{0};
  for (int i = 0; i < 200; ++i) {
    EXPECT_NO_THROW(tuner.tune(fp8_block_linear(), problem));
    const std::size_t free = gpu()->memory().available_bytes();
    if (i == 4) first = free;  // by then every library has made itself at home
    least = std::min(least, free);
  }
  RecordProperty("free_after_5", std::to_string(first));
  RecordProperty("free_least", std::to_string(least));
  EXPECT_EQ(gpu()->memory().available_bytes(), first) << "free after five tunings, and after 200";
}

}  // namespace
}  // namespace crossover::test
