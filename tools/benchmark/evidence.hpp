#pragma once
// Evidence to look things up in: an operation of four arms whose times follow known lines, and runs of it as the tuner
// writes them. The arms do nothing; nothing here measures, so that what is timed is the library alone.

#include <memory>
#include <string>
#include <vector>

#include "crossover/db/store.hpp"
#include "crossover/dispatch/dispatcher.hpp"
#include "crossover/tuner/backend.hpp"

namespace crossover::bench {

inline constexpr Rows kMaxMeasured = 8192;

const Operation& lines();                           // named "benchmark_lines"; attributes n and k
Problem lines_problem(int number);                  // a different one for every number
Backend& host();                                    // this machine's CPU
std::vector<Rows> measured_rows();                  // of every run below
Run lines_run(const Problem& problem, int number);  // of this machine, now, clean
// Appends the run and the default policy's verdict; gives the verdict.
Verdict store_lines(Store& store, int number);

}  // namespace crossover::bench
