#include "clean.hpp"

#include <algorithm>
#include <cmath>

namespace crossover::tuning {

namespace {

// `values` is not empty. The mean of the two in the middle where their number is even.
double median_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

bool plausible(double time_ns) noexcept { return std::isfinite(time_ns) && time_ns > 0; }

RoundSpeeds round_speeds(std::span<const Sample* const> samples) {
  constexpr std::size_t kFewest = 3;
  std::map<std::uint32_t, std::vector<double>> relative;
  for (const Sample* sample : samples) {
    const double median = median_ns(*sample);
    if (!plausible(median)) {
      continue;
    }
    for (const Round& round : sample->raw) {
      if (counts(round)) {
        relative[round.number].push_back(round.total_ns / sample->launches / median);
      }
    }
  }
  RoundSpeeds speeds;
  for (auto& [number, times] : relative) {
    if (times.size() >= kFewest) {
      speeds[number] = median_of(times);
    }
  }
  return speeds;
}

std::uint64_t dirty_bits(const Sample& sample, const CleanLimits& limits, const RoundSpeeds& speeds) {
  std::vector<double> times;
  std::uint64_t mask = 0;
  for (const Round& round : sample.raw) {
    if (!plausible(round.total_ns)) {
      mask |= bit(Dirty::implausible);
    }
    if (counts(round)) {
      const auto speed = speeds.find(round.number);
      times.push_back(round.total_ns / sample.launches / (speed == speeds.end() ? 1 : speed->second));
    }
  }
  if (times.size() < static_cast<std::size_t>(kMinRounds)) {
    mask |= bit(Dirty::too_few_rounds);
  }
  if (!plausible(median_ns(sample))) {
    return mask | bit(Dirty::implausible);
  }
  const double median = median_of(times);
  std::vector<double> distances;
  for (const double time : times) {
    distances.push_back(std::fabs(time - median));
  }
  const double mad = median_of(distances);
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

std::uint64_t discard_bits(std::span<const Sample* const> samples, const CleanLimits& limits) {
  if (!(discarded_share(samples) > limits.discarded_share)) {
    return 0;
  }
  std::uint32_t flags = 0;
  for (const Sample* sample : samples) {
    for (const Round& round : sample->raw) {
      flags |= (round.flags & kDiscarded) != 0 ? round.flags : 0;
    }
  }
  return bit(Dirty::discarded_rounds) | ((flags & kThrottled) != 0 ? bit(Dirty::throttled) : 0) |
         ((flags & kClockStep) != 0 ? bit(Dirty::clock_moved) : 0);
}

std::uint64_t clock_bits(std::span<const Sample> samples, const CleanLimits& limits) {
  std::vector<double> relative;
  for (const Sample& sample : samples) {
    std::vector<double> clocks;
    for (const Round& round : sample.raw) {
      if (counts(round) && round.sm_clock_mhz > 0) {
        clocks.push_back(round.sm_clock_mhz);
      }
    }
    if (clocks.empty() || sample.role == Role::held_out) {
      continue;
    }
    const double highest = *std::max_element(clocks.begin(), clocks.end());
    for (const double clock : clocks) {
      relative.push_back(clock / highest);
    }
  }
  if (relative.empty()) {
    return 0;
  }
  std::sort(relative.begin(), relative.end());
  const double low = relative[relative.size() * 5 / 100], high = relative[(relative.size() - 1) * 95 / 100];
  return high - low > limits.clock_spread ? bit(Dirty::clock_moved) : 0;
}

std::uint64_t placebo_bits(std::span<const double> ratios, const CleanLimits& limits) {
  const Ratio ratio = compare(ratios, kAlphaPerLook);
  const bool excludes_one = ratio.low > 1 || ratio.high < 1;
  return excludes_one && !(std::fabs(ratio.median - 1) <= limits.placebo_median) ? bit(Dirty::placebo) : 0;
}

}  // namespace crossover::tuning
