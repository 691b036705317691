#include "clean.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace crossover::tuning {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Sample sample(const std::vector<double>& totals, std::uint32_t launches = 1) {
  Sample result;
  result.m = 1;
  result.launches = launches;
  std::uint32_t number = 0;
  for (const double total : totals) result.raw.push_back({++number, 0, total, 0});
  return result;
}
std::vector<std::string> reasons(const Sample& of) { return dirty_reasons(dirty_bits(of, CleanLimits{})); }

TEST(Plausible, OnlyFiniteAndAboveZero) {
  EXPECT_TRUE(plausible(1e-9));
  for (const double time : {0.0, -0.0, -1.0, kNaN, kInfinity, -kInfinity}) EXPECT_FALSE(plausible(time)) << time;
}

TEST(DirtyBits, QuietSampleIsClean) {
  EXPECT_THAT(reasons(sample({100e3, 100.1e3, 99.9e3, 100.05e3, 100e3, 99.95e3})), IsEmpty());
}
TEST(DirtyBits, IdenticalRoundsAreClean) { EXPECT_THAT(reasons(sample(std::vector<double>(12, 5e4))), IsEmpty()); }

TEST(DirtyBits, FewRounds) {
  EXPECT_THAT(reasons(sample(std::vector<double>(kMinRounds - 1, 5e4))), ElementsAre("too few rounds"));
  EXPECT_THAT(reasons(sample(std::vector<double>(kMinRounds, 5e4))), IsEmpty());
  Sample discarded = sample(std::vector<double>(kMinRounds, 5e4));
  discarded.raw[0].flags = kDiscarded;
  EXPECT_THAT(reasons(discarded), ElementsAre("too few rounds"));
}

TEST(DirtyBits, NoiseBeyondTheLimit) {
  const std::vector<double> quiet{100e3, 102e3, 104e3, 98e3, 96e3, 100e3, 102.5e3, 97.5e3};  // MAD 2%
  EXPECT_THAT(reasons(sample(quiet)), IsEmpty());
  const std::vector<double> noisy{100e3, 105e3, 110e3, 95e3, 90e3, 100e3, 106e3, 94e3};  // MAD 5%
  EXPECT_THAT(reasons(sample(noisy)), ElementsAre("noisy"));
  EXPECT_THAT(reasons(sample(noisy, 100)), ElementsAre("noisy"));  // 1 µs a launch
}

TEST(DirtyBits, OutliersBeyondTheirShare) {
  std::vector<double> times(40, 100e3);
  for (std::size_t i = 0; i < times.size(); ++i) times[i] += static_cast<double>(i % 5) * 50;
  for (std::size_t i = 0; i < 10; ++i) times[i] = 200e3;
  EXPECT_THAT(reasons(sample(times)), IsEmpty());  // 25%
  times[10] = 200e3;
  EXPECT_THAT(reasons(sample(times)), ElementsAre("outliers"));
  // A zero deviation neither hides them nor invents them.
  std::vector<double> equal(40, 100e3);
  for (std::size_t i = 0; i < 11; ++i) equal[i] = 200e3;
  EXPECT_THAT(reasons(sample(equal)), ElementsAre("outliers"));
  for (std::size_t i = 0; i < 11; ++i) equal[i] = 100.001e3;
  EXPECT_THAT(reasons(sample(equal)), IsEmpty());
}

TEST(DirtyBits, ImplausibleTimesNeverPass) {
  for (const double bad : {0.0, -3.0, kNaN, kInfinity, -kInfinity}) {
    std::vector<double> times(12, 100e3);
    times[4] = bad;
    EXPECT_NE(dirty_bits(sample(times), CleanLimits{}) & bit(Dirty::implausible), 0u) << bad;
    EXPECT_NE(dirty_bits(sample(std::vector<double>(12, bad)), CleanLimits{}) & bit(Dirty::implausible), 0u) << bad;
    Sample flagged = sample(times);
    flagged.raw[4].flags = kDiscarded;
    EXPECT_NE(dirty_bits(flagged, CleanLimits{}) & bit(Dirty::implausible), 0u) << bad;
  }
  EXPECT_NE(dirty_bits(sample({}), CleanLimits{}), 0u);
}

TEST(PairedRatios, PairsByNumberAndPerLaunch) {
  Sample a = sample({10, 20, 30, 40}), b = sample({10, 10, 10, 10}, 2);
  a.raw[0].number = 9;          // b has no round 9
  b.raw[2].flags = kDiscarded;  // of round 3
  a.raw.push_back({4, kDiscarded, 1e9, 0});
  EXPECT_THAT(paired_ratios(a, b), ElementsAre(4, 8));
}

TEST(DiscardedShare, CountsWhatTheBackEndDiscarded) {
  Sample a = sample({10, 10, 10, 10}), b = sample({10, 10, 10, 10});
  a.raw[0].flags = a.raw[1].flags = kDiscarded;
  a.raw[2] = {3, kDiscarded, 0, 0};  // implausible, not discarded by the back end
  const Sample* both[]{&a, &b};
  EXPECT_DOUBLE_EQ(discarded_share(both), 0.25);
  EXPECT_EQ(discarded_share({}), 0);
}

TEST(PlaceboBits, DifferentIsBothRealAndLarge) {
  const CleanLimits limits;
  const std::vector<double> slow(24, 1.01), tiny(24, 1.001), few(4, 1.2), same(24, 1.0);
  EXPECT_NE(placebo_bits(slow, limits), 0u);
  EXPECT_EQ(placebo_bits(tiny, limits), 0u);
  EXPECT_EQ(placebo_bits(few, limits), 0u);
  EXPECT_EQ(placebo_bits(same, limits), 0u);
  EXPECT_EQ(placebo_bits({}, limits), 0u);
  std::vector<double> noise;
  for (int i = 0; i < 24; ++i) noise.push_back(i % 2 == 0 ? 0.9 : 1.12);
  EXPECT_EQ(placebo_bits(noise, limits), 0u);
}

}  // namespace
}  // namespace crossover::tuning
