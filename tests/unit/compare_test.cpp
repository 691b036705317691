#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <random>

#include "crossover/dispatch/decide.hpp"

namespace crossover {
namespace {

double binomial_tail(int n, int at_most) {  // P(Binomial(n, 1/2) <= at_most), straightforwardly
  double sum = 0;
  for (int k = 0; k <= at_most; ++k)
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(k + 1) - std::lgamma(n - k + 1) - n * std::log(2.0));
  return sum;
}

TEST(Compare, IntervalIsTheNarrowestThatHoldsItsLevel) {
  for (const int n : {1, 2, 7, 8, 9, 12, 24, 25, 48, 96, 500, 5000})
    for (const double alpha : {0.0125, 0.0125 / 9, 0.05}) {
      std::vector<double> ratios;
      for (int i = 1; i <= n; ++i) ratios.push_back(i);
      const Ratio ratio = compare(ratios, alpha);
      int rank = 0;  // of the lower limit
      while (2 * binomial_tail(n, rank) <= alpha) ++rank;
      if (rank == 0) {
        EXPECT_EQ(ratio.low, 0) << n;
        EXPECT_EQ(ratio.high, std::numeric_limits<double>::infinity()) << n;
        EXPECT_EQ(ratio.comparison, Comparison::open) << n;
      } else {
        EXPECT_EQ(ratio.low, rank) << n << " at " << alpha;
        EXPECT_EQ(ratio.high, n + 1 - rank) << n << " at " << alpha;
      }
    }
}

TEST(Compare, WinLossTieOpen) {
  const auto of = [](double from, double to) {
    std::vector<double> ratios;
    for (int i = 0; i < 48; ++i) ratios.push_back(from + (to - from) * i / 47);
    return compare(ratios, kAlphaPerLook).comparison;
  };
  EXPECT_EQ(of(0.95, 0.96), Comparison::win);
  EXPECT_EQ(of(1.04, 1.05), Comparison::loss);
  EXPECT_EQ(of(0.995, 1.005), Comparison::tie);
  EXPECT_EQ(of(0.5, 2), Comparison::open);
}

TEST(Compare, WhatIsNotATimeIsNotCounted) {
  std::vector<double> ratios(24, 0.5);
  ratios.push_back(std::numeric_limits<double>::quiet_NaN());
  ratios.push_back(-1);
  ratios.push_back(0);
  ratios.push_back(std::numeric_limits<double>::infinity());
  const Ratio ratio = compare(ratios, kAlphaPerLook);
  EXPECT_EQ(ratio.pairs, 24);
  EXPECT_EQ(ratio.comparison, Comparison::win);
  const Ratio none = compare(std::vector<double>(30, std::numeric_limits<double>::quiet_NaN()), kAlphaPerLook);
  EXPECT_EQ(none.pairs, 0);
  EXPECT_EQ(none.comparison, Comparison::open);
}

TEST(Compare, SwappingTheArmsSwapsTheAnswer) {
  EXPECT_TRUE(rc::check([] {
    const auto raw = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 1000)));
    std::vector<double> forward, backward;
    for (const int value : raw) {
      forward.push_back(value / 300.0);
      backward.push_back(300.0 / value);
    }
    const Ratio a = compare(forward, 0.0125);
    const Ratio b = compare(backward, 0.0125);
    RC_ASSERT(std::fabs(a.median * b.median - 1) < 1e-12);
    RC_ASSERT((a.comparison == Comparison::win) == (b.comparison == Comparison::loss));
    RC_ASSERT((a.comparison == Comparison::tie) == (b.comparison == Comparison::tie));
  }));
}

TEST(Compare, EqualArmsAreSeldomCalledDifferent) {
  std::mt19937_64 generator(7);
  std::normal_distribution<double> normal(0, 0.03);
  int different = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> ratios(24);
    for (double& ratio : ratios) ratio = std::exp(normal(generator));
    const Comparison comparison = compare(ratios, kAlphaPerLook).comparison;
    different += comparison == Comparison::win || comparison == Comparison::loss;
  }
  EXPECT_LE(different, kTrials * 125 / 10000);
}

}  // namespace
}  // namespace crossover
