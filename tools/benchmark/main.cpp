// crossover_benchmark: Google Benchmark's options. Exits with 1 if a benchmark failed, allocated or locked where it
// must not.

#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>

#include "benchmarks.hpp"
#include "counting.hpp"

namespace crossover::bench {
namespace {
bool failed = false;
}

void fail(benchmark::State& state, const char* why) {
  failed = true;
  state.SkipWithError(why);
}
}  // namespace crossover::bench

int main(int argc, char** argv) {
  try {
    crossover::bench::check_that_counting_works();
    crossover::bench::register_select();
    crossover::bench::register_store();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    benchmark::Shutdown();
    return crossover::bench::failed ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "crossover_benchmark: %s\n", error.what());
    return 1;
  }
}
