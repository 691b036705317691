#pragma once
// Which samples and runs are clean. Pure: a reader can recompute every bit from the stored rounds and the limits.

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "crossover/dispatch/decide.hpp"
#include "crossover/dispatch/evidence.hpp"
#include "crossover/tuner/backend.hpp"

namespace crossover::tuning {

// Under this many counted rounds a sample is not believed. Not the first look: a short budget may end between the two,
// where the sign-test interval is unbounded (eleven pairs are the fewest that can decide) and so claims
// nothing.
inline constexpr int kMinRounds = 5;

constexpr std::uint64_t bit(Dirty reason) { return static_cast<std::uint64_t>(reason); }

// Finite and above zero; false for NaN.
bool plausible(double time_ns) noexcept;

// How much slower than usual each round was for all samples of one M alike: the median of their times, each over the
// median of its sample. Of a device whose clock drops between rounds it is the drop, which comparisons within a round
// do not see. Nothing where fewer than three samples can tell it from a disturbance of one of them.
using RoundSpeeds = std::map<std::uint32_t, double>;
RoundSpeeds round_speeds(std::span<const Sample* const> samples);

// The bits that follow from the sample's own rounds, noise and outliers after `speeds` are taken out. Implausible
// rounds are marked as discarded and hold what was read, or 0 for what is not finite; they make the sample
// `implausible`, and do not count as discarded by the back end.
std::uint64_t dirty_bits(const Sample& sample, const CleanLimits& limits, const RoundSpeeds& speeds = {});

// Share of the rounds of all `samples` (those of one M) that the back end discarded, retries included.
double discarded_share(std::span<const Sample* const> samples);

// Bits for the samples of one M, all of them given: too many rounds discarded, and what they were discarded for.
std::uint64_t discard_bits(std::span<const Sample* const> samples, const CleanLimits& limits);

// Dirty::clock_moved, or 0: from the clocks of all rounds of the grid that count, each over the highest of its sample,
// because a heavy arm runs at a lower clock than a light one beside it.
std::uint64_t clock_bits(std::span<const Sample> samples, const CleanLimits& limits);

// Dirty::placebo, or 0. `ratios`: default / placebo over all row counts of a run. Different means both real (the
// interval excludes 1) and large (the median is beyond the limit).
std::uint64_t placebo_bits(std::span<const double> ratios, const CleanLimits& limits);

}  // namespace crossover::tuning
