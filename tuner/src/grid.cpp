#include "grid.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "crossover/dispatch/decide.hpp"
#include "crossover/dispatch/error.hpp"
#include "crossover/tuner/tuner.hpp"

namespace crossover {
namespace {

constexpr Rows kDense = 16;  // every row count up to here

// 16·√2^k in exact integers where they exist: 16, 23, 32, 45, 64, 91, …
std::vector<Rows> geometric(Rows max_rows) {
  constexpr double kSqrt2 = 1.4142135623730951;
  std::vector<Rows> steps;
  for (Rows power = kDense; power <= max_rows; power *= 2) {
    steps.push_back(power);
    const double between = static_cast<double>(power) * kSqrt2;
    if (between < static_cast<double>(max_rows)) {
      steps.push_back(static_cast<Rows>(std::llround(between)));
    }
    if (power > max_rows / 2) {
      break;
    }
  }
  return steps;
}

}  // namespace

std::vector<Rows> grid(Rows max_rows, std::span<const Rows> tile_edges) {
  if (max_rows < 1) {
    throw InvalidArgument("the largest row count to measure must be at least 1, not " + std::to_string(max_rows));
  }
  std::set<Rows> rows;
  for (Rows m = 1; m <= std::min(kDense, max_rows); ++m) {
    rows.insert(m);
  }
  for (const Rows m : geometric(max_rows)) {
    rows.insert(m);
  }
  for (const Rows m : tile_edges) {
    if (m >= 1 && m <= max_rows) {
      rows.insert(m);
    }
  }
  rows.insert(max_rows);
  rows.erase(rows.upper_bound(max_rows), rows.end());
  return {rows.begin(), rows.end()};
}

namespace tuning {

std::uint64_t Random::next() {
  std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::size_t Random::below(std::size_t bound) { return static_cast<std::size_t>(next() % bound); }

double Random::uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

std::vector<Rows> coarse_to_fine(std::span<const Rows> rows) {
  if (rows.empty()) {
    return {};
  }
  const Rows largest = *std::max_element(rows.begin(), rows.end());
  // At the edge of a tile times jump, which no neighbour tells; among the first 16 row counts they hardly move.
  const auto tier = [&](Rows m) {
    if ((m & (m - 1)) == 0 || m == largest) {
      return 0;
    }
    return m > kDense ? 1 : 2;
  };
  std::vector<Rows> order(rows.begin(), rows.end());
  std::sort(order.begin(), order.end(), [&](Rows a, Rows b) {
    const int tier_a = tier(a), tier_b = tier(b);
    return tier_a != tier_b ? tier_a < tier_b : a < b;
  });
  return order;
}

std::vector<std::size_t> rotation(std::size_t count, std::uint64_t round) {
  std::vector<std::size_t> order(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t zigzag = i % 2 == 1 ? (i + 1) / 2 : (count - i / 2) % count;  // 0, 1, n-1, 2, n-2, …
    order[i] = (zigzag + static_cast<std::size_t>(round % count)) % count;
  }
  if ((round / std::max<std::size_t>(count, 1)) % 2 == 1) {
    std::reverse(order.begin(), order.end());
  }
  return order;
}

std::vector<Rows> off_grid(Rows largest, std::span<const Rows> taken, int count, Random& random) {
  std::set<Rows> used(taken.begin(), taken.end());
  std::set<Rows> chosen;
  const double top = std::log(static_cast<double>(std::max<Rows>(largest, 1)));
  for (int tries = 0; tries < 100 * count && static_cast<int>(chosen.size()) < count; ++tries) {
    const auto m = static_cast<Rows>(std::exp(random.uniform() * top));
    if (m >= 1 && m <= largest && used.insert(m).second) {
      chosen.insert(m);
    }
  }
  return {chosen.begin(), chosen.end()};
}

std::vector<Rows> crossover_gaps(const Run& run, std::span<const Rows> measured) {
  constexpr double kNarrow = 1.12, kAtStake = 0.0025;
  const Verdict verdict = decide({run.device, run.problem, run.regime}, {&run, 1}, Policy{});
  std::map<std::pair<Rows, std::string>, double> medians;
  for (const Sample& sample : run.samples) {
    if (sample.role == Role::grid) {
      medians[{sample.m, sample.arm}] = sample.median_ns;
    }
  }
  std::set<Rows> wanted;
  for (const Crossover& crossover : verdict.crossovers) {
    Rows below = 0, middle = 0;
    double widest = kNarrow, at_stake = 0;
    for (const Rows m : measured) {
      if (m + 1 < crossover.m_low) {
        continue;
      }
      const auto from = medians.find({m, crossover.from_arm}), to = medians.find({m, crossover.to_arm});
      if (from != medians.end() && to != medians.end()) {
        at_stake = std::max(at_stake, std::fabs(from->second / to->second - 1));
      }
      if (below > 0) {
        const auto between =
            static_cast<Rows>(std::llround(std::sqrt(static_cast<double>(below) * static_cast<double>(m))));
        const double gap = static_cast<double>(m) / static_cast<double>(below);
        if (gap > widest && between > below && between < m) {
          widest = gap;
          middle = between;
        }
      }
      below = m;
      if (m >= crossover.m_high) {
        break;
      }
    }
    if (middle > 0 && at_stake >= kAtStake) {
      wanted.insert(middle);
    }
  }
  return {wanted.begin(), wanted.end()};
}

}  // namespace tuning
}  // namespace crossover
