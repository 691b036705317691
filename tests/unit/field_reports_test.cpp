// Faults that users of other tuned-dispatch systems reported in public, as far as they concern the rule and the lookup.
// tests/README.md says where the others are.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "synthetic.hpp"

namespace crossover {
namespace {

using synthetic::line;

Resolution answer(synthetic::Source& source, const Current& now, const Policy& policy = {}) {
  return resolve(now, source, synthetic::problem(), Regime{}, policy, {});
}

// Accuracy collapsed at random: jitter chose between arms that round differently.
TEST(FieldReports, TensorRTLLM19099ArmsOfAnotherClassAreNeverRankedUnlessAllowed) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    synthetic::RunSpec spec;
    spec.seed = seed;
    spec.noise = 0.2;
    spec.arms.push_back({.name = "exact", .time_ns = line(1000, 10)});
    spec.arms.push_back({.name = "quantised", .time_ns = line(300, 3), .numerics = "a8"});
    synthetic::Source source;
    source.add(synthetic::run(spec));
    for (const PlanSegment& segment : answer(source, synthetic::current(spec)).plan) EXPECT_EQ(segment.arm, "exact");
    const Plan opted_in = answer(source, synthetic::current(spec), {.allow = {"a16", "a8"}}).plan;
    EXPECT_EQ(at(opted_in, 64).arm, "quantised");
  }
}

// Two bucket functions, one in the tuner and one in the lookup, disagreed: NaN and a dead engine.
TEST(FieldReports, Flashinfer3192TunerAndLookupAgreeAtEveryRowCount) {
  EXPECT_TRUE(rc::check([] {
    synthetic::RunSpec spec;
    spec.seed = *rc::gen::arbitrary<std::uint64_t>();
    spec.noise = 0.02;
    for (int i = 0; i < 4; ++i)
      spec.arms.push_back(
          {.name = "arm" + std::to_string(i), .time_ns = line(500 + 700 * i, *rc::gen::inRange(1, 150))});
    synthetic::Source source;
    source.add(synthetic::run(spec));
    const Verdict verdict = source.conclude();
    const Plan plan = answer(source, synthetic::current(spec)).plan;
    for (Rows m = 1; m <= 300; ++m) {
      const PlanSegment& served = at(plan, m);
      if (m > verdict.segments.back().to) {
        RC_ASSERT(served.origin == Origin::out_of_range);
        continue;
      }
      for (const Segment& segment : verdict.segments)
        if (m >= segment.from && m <= segment.to)
          RC_ASSERT(served.arm == segment.arm && served.config == segment.config);
    }
  }));
}

// Arms were identified by their index; an upgrade that removed one shifted all the others.
TEST(FieldReports, Flashinfer3449ArmsAreTheirNamesNotTheirPositions) {
  const synthetic::RunSpec spec = synthetic::two_arms();
  synthetic::Source source;
  source.add(synthetic::run(spec));
  source.conclude();
  Current now = synthetic::current(spec);
  const Plan before = answer(source, now).plan;
  std::reverse(now.arm_set.arms.begin(), now.arm_set.arms.end());
  EXPECT_EQ(answer(source, now).plan, before);
  std::erase_if(now.arm_set.arms, [](const ArmRecord& arm) { return arm.id.name == "large"; });
  for (const PlanSegment& segment : answer(source, now).plan) EXPECT_EQ(segment.arm, "small");
}

// A layout flag was missing from the key.
TEST(FieldReports, Vllm43119AttributesAreAllPartOfTheKey) {
  const synthetic::RunSpec spec = synthetic::two_arms();
  synthetic::Source source;
  source.add(synthetic::run(spec));
  source.conclude();
  for (const auto& [name, value] : {std::pair{"n", "9"}, std::pair{"layout", "transposed"}}) {
    Problem other = synthetic::problem();
    other.attributes[name] = value;
    EXPECT_TRUE(resolve(synthetic::current(spec), source, other, Regime{}, {}, {}).miss);
  }
}

// CUDA or compiler versions were not part of what was compared.
TEST(FieldReports, Quda140AndSglang5716AnotherToolkitIsSeenWithItsReason) {
  const synthetic::RunSpec spec = synthetic::two_arms();
  synthetic::Source source;
  source.add(synthetic::run(spec));
  source.conclude();
  for (const std::string_view field : {"driver", "cuda", "cublaslt"}) {
    Current now = synthetic::current(spec);
    assume(now, std::string(field) + "=999");
    const Resolution resolution = answer(source, now);
    EXPECT_EQ(at(resolution.plan, 8).origin, Origin::stale);
    ASSERT_EQ(resolution.stale.size(), 1U);
    EXPECT_EQ(to_string(resolution.stale[0]), std::string(field) + ": none -> 999");
  }
}

// Equal times were dropped by an ordered set.
TEST(FieldReports, CudnnFrontendEqualTimesAreTwoTimes) {
  synthetic::RunSpec spec;
  spec.noise = 0;
  for (const char* name : {"a", "b", "c"}) spec.arms.push_back({.name = name, .time_ns = line(1000, 1)});
  EXPECT_EQ(standings(std::vector<synthetic::RunRecord>{synthetic::run(spec)}, {}, 8).arms.size(), 3U);
}

// A failed arm was scored -1 and won.
TEST(FieldReports, CLBlastAnArmWithoutATimeNeverWins) {
  synthetic::RunSpec spec = synthetic::two_arms();
  synthetic::RunRecord run = synthetic::run(spec);
  for (Sample& sample : run.samples)
    if (sample.arm == "large")
      for (Round& round : sample.raw) round.total_ns = -1;
  for (const Segment& segment : decide(synthetic::key(), std::vector{run}, {}).segments)
    EXPECT_EQ(segment.arm, "small");
}

// Tuned, got slower, nobody could tell why.
TEST(FieldReports, Vllm17619RunnersUpAndMarginAreKept) {
  const synthetic::RunSpec spec = synthetic::two_arms();
  const Standings standing = standings(std::vector<synthetic::RunRecord>{synthetic::run(spec)}, {}, 8);
  ASSERT_EQ(standing.arms.size(), 2U);
  EXPECT_EQ(standing.arms[1].arm, "large");
  EXPECT_NEAR(standing.arms[1].to_best.median, 3320.0 / 1800, 0.02);
  EXPECT_LT(standing.arms[1].to_best.low, standing.arms[1].to_best.high);
}

}  // namespace
}  // namespace crossover
