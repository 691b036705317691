// Paired comparison by a sign-test interval for the median. Only +, -, *, / and sqrt, which IEEE 754 rounds the same
// everywhere: the result does not depend on a maths library.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "crossover/dispatch/decide.hpp"

namespace crossover {
namespace {

// Largest k with 2·P(Binomial(n, 1/2) < k) <= alpha; the interval is then [x_(k), x_(n-k+1)] of the ordered values, and
// there is none for k = 0. (Conover, Practical Nonparametric Statistics, confidence interval for a quantile.) The
// weights are binomial coefficients relative to the largest one, so that nothing overflows and what underflows does not
// matter.
std::size_t interval_rank(std::size_t n, double alpha) {
  const std::size_t middle = n / 2;
  std::vector<double> weight(middle + 1);
  weight[middle] = 1;
  for (std::size_t i = middle; i > 0; --i)
    weight[i - 1] = weight[i] * static_cast<double>(i) / static_cast<double>(n - i + 1);
  double below = 0;
  for (std::size_t i = 0; i < middle; ++i) below += weight[i];
  const double total = n % 2 == 0 ? 2 * below + weight[middle] : 2 * (below + weight[middle]);
  double tail = 0;
  std::size_t rank = 0;
  while (rank < middle) {
    tail += weight[rank];
    if (2 * tail > alpha * total) break;
    ++rank;
  }
  return rank;
}

}  // namespace

std::string_view to_string(Comparison comparison) noexcept {
  switch (comparison) {
    case Comparison::win:
      return "win";
    case Comparison::loss:
      return "loss";
    case Comparison::tie:
      return "tie";
    case Comparison::open:
      break;
  }
  return "open";
}

std::vector<double> paired_ratios(const Sample& a, const Sample& b) {
  std::map<std::uint32_t, double> times;
  for (const Round& round : b.raw) {
    if (counts(round)) {
      times[round.number] = round.total_ns / b.launches;
    }
  }
  std::vector<double> ratios;
  for (const Round& round : a.raw) {
    if (!counts(round)) {
      continue;
    }
    const auto other = times.find(round.number);
    if (other != times.end()) {
      ratios.push_back(round.total_ns / a.launches / other->second);
    }
  }
  return ratios;
}

Ratio compare(std::span<const double> a_over_b, double alpha) {
  std::vector<double> ratios;
  ratios.reserve(a_over_b.size());
  for (const double ratio : a_over_b)
    if (ratio > 0 && std::isfinite(ratio)) ratios.push_back(ratio);
  std::sort(ratios.begin(), ratios.end());

  Ratio result{.median = std::numeric_limits<double>::quiet_NaN(),
               .low = 0,
               .high = std::numeric_limits<double>::infinity(),
               .pairs = static_cast<int>(ratios.size()),
               .comparison = Comparison::open};
  const std::size_t n = ratios.size();
  if (n == 0) return result;
  // The geometric mean of the middle two, so that b against a gives the reciprocal.
  result.median = n % 2 == 1 ? ratios[n / 2] : std::sqrt(ratios[n / 2 - 1] * ratios[n / 2]);
  const std::size_t rank = interval_rank(n, alpha);
  if (rank == 0) return result;
  result.low = ratios[rank - 1];
  result.high = ratios[n - rank];

  constexpr double kUpper = 1 + kTieBand;
  constexpr double kLower = 1 / kUpper;
  if (result.high < kLower)
    result.comparison = Comparison::win;
  else if (result.low > kUpper)
    result.comparison = Comparison::loss;
  else if (result.low >= kLower && result.high <= kUpper)
    result.comparison = Comparison::tie;
  return result;
}

}  // namespace crossover
