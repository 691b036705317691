#include "clean.hpp"

#include <algorithm>
#include <cmath>

namespace crossover::tuning {

bool plausible(double time_ns) noexcept { return std::isfinite(time_ns) && time_ns > 0; }

std::uint64_t dirty_bits(const Sample& sample, const CleanLimits& limits) {
  std::vector<double> times;
  std::uint64_t mask = 0;
  for (const Round& round : sample.raw) {
    if (!plausible(round.total_ns)) {
      mask |= bit(Dirty::implausible);
    }
    if (counts(round)) {
      times.push_back(round.total_ns / sample.launches);
    }
  }
  if (times.size() < static_cast<std::size_t>(kMinRounds)) {
    mask |= bit(Dirty::too_few_rounds);
  }
  const double median = median_ns(sample);
  const double mad = mad_ns(sample);
  if (!plausible(median)) {
    return mask | bit(Dirty::implausible);
  }
  if (!(mad / median <= limits.mad_over_median)) {
    mask |= bit(Dirty::noisy);
  }
  // Modified z-score (Iglewicz and Hoaglin): 0.6745 (t - median) / MAD. Rounds that agree to the last digit of the
  // clock have no MAD to speak of; 0.1% of the median stands for it, so that the next digit is not an outlier.
  const double scale = std::max(mad, 1e-3 * median);
  const auto outliers = std::count_if(times.begin(), times.end(), [&](double time) {
    return !(0.6745 * std::fabs(time - median) / scale <= limits.outlier_z);
  });
  if (static_cast<double>(outliers) > limits.outlier_share * static_cast<double>(times.size())) {
    mask |= bit(Dirty::outliers);
  }
  return mask;
}

double discarded_share(std::span<const Sample* const> samples) {
  std::size_t discarded = 0, all = 0;
  for (const Sample* sample : samples) {
    for (const Round& round : sample->raw) {
      ++all;
      discarded += (round.flags & kDiscarded) != 0 && plausible(round.total_ns) ? 1u : 0u;
    }
  }
  return all == 0 ? 0 : static_cast<double>(discarded) / static_cast<double>(all);
}

std::uint64_t placebo_bits(std::span<const double> ratios, const CleanLimits& limits) {
  const Ratio ratio = compare(ratios, kAlphaPerLook);
  const bool excludes_one = ratio.low > 1 || ratio.high < 1;
  return excludes_one && !(std::fabs(ratio.median - 1) <= limits.placebo_median) ? bit(Dirty::placebo) : 0;
}

}  // namespace crossover::tuning
