#pragma once
// The order in which a tight budget reaches row counts, and small deterministic helpers of the schedule.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "crossover/dispatch/evidence.hpp"
#include "crossover/dispatch/problem.hpp"

namespace crossover::tuning {

// splitmix64: the same sequence on every platform.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  std::size_t below(std::size_t bound);  // 0…bound-1; bound ≥ 1
  double uniform();                      // [0, 1)

 private:
  std::uint64_t state_;
};

// `rows` coarse to fine: powers of two and the largest, then the √2 steps between them, then 3…15, then tile edges.
// Each group ascends, so that whatever a budget reaches covers the range.
std::vector<Rows> coarse_to_fine(std::span<const Rows> rows);

// Order of `count` entries in round `round`: a Latin square in which each entry also follows each other one equally
// often (E. J. Williams, 1949), reversed in every other cycle. So neither an entry's place nor its predecessor favours
// it: an arm that runs right after itself is a little faster. Two entries: A B, B A, B A, A B.
std::vector<std::size_t> rotation(std::size_t count, std::uint64_t round);

// Up to `count` row counts in 1…largest that are not in `taken`, spread evenly over the logarithm; ascending.
std::vector<Rows> off_grid(Rows largest, std::span<const Rows> taken, int count, Random& random);

// One row count for every crossover of the plan that the default policy would get from `run` alone: the middle, on a
// logarithmic scale, of the widest gap of `measured` (ascending) that the crossover's bounds leave. None where every
// gap is under 12% or nothing larger than a quarter of a per cent is at stake. Ascending, unique.
std::vector<Rows> crossover_gaps(const Run& run, std::span<const Rows> measured);

}  // namespace crossover::tuning
