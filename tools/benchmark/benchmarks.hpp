#pragma once

#include <benchmark/benchmark.h>

namespace crossover::bench {

void register_select();
void register_store();

// Marks the benchmark as failed; the program then exits with 1.
void fail(benchmark::State& state, const char* why);

}  // namespace crossover::bench
