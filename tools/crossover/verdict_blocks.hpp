#pragma once
// How a verdict is shown to people, wherever it is.

#include <span>
#include <vector>

#include "crossover/dispatch/decide.hpp"
#include "document.hpp"

namespace crossover::program {

// Status, segments, threshold with its bounds, regret.
Fields verdict_fields(const Verdict& verdict);
// Medians of the grid in microseconds, a line for each row count and a column for each arm that was timed; the arm that
// `segments` serves there is marked with *, and samples that are not believed with !.
Table median_table(std::span<const Run> runs, std::span<const Segment> segments);
// Which arms were not timed at which row counts, and why; a line for each arm and outcome.
Table attempt_table(std::span<const Run> runs);

}  // namespace crossover::program
