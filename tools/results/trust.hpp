#pragma once
// How far one tuning can be trusted, from many tunings of the same problem.

#include <span>

#include "crossover/dispatch/evidence.hpp"
#include "document.hpp"

namespace crossover::program {

// The runs are of one problem, loaded, each by a process of its own. What each of them alone would have decided for the
// default policy is held against all of them together: `truth` is the median, over the clean runs, of an arm's medians
// at an M. Runs that are not clean are counted and decide nothing.
struct Trust {
  std::size_t runs = 0, dirty_runs = 0, samples = 0, dirty_samples = 0;
  std::size_t points = 0, flips = 0;         // (run, M) with a plan; of them those with another arm than most runs have
  double median_regret = 0, max_regret = 0;  // of the plan's arm against the true best at (run, M)
  Rows worst_rows = 0;
  std::size_t crossovers = 0,
              covered = 0;         // of the runs; those whose bounds hold the pooled crossover of the same arms
  double median_s = 0, max_s = 0;  // of a tuning
  double max_held_out = 0;         // the largest held-out regret of any run
  std::size_t over_budget = 0;     // (run, M, arm) that the budget left out
};
Trust trust_of(std::span<const Run> runs);

// The table of `crossover_results --trust DATABASE`: a row for every problem that at least two runs are of.
int write_trust(const char* database);

}  // namespace crossover::program
