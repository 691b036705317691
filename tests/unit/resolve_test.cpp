#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "synthetic.hpp"

namespace crossover {
namespace {

using synthetic::line;
using synthetic::RunRecord;
using testing::Contains;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;

// The evidence of two_arms(), its stored verdict, and what is true now.
struct Resolve : testing::Test {
  Resolve() : spec(synthetic::two_arms()), now(synthetic::current(spec)) {
    source.add(synthetic::run(spec));
    verdict = source.conclude();
  }
  Resolution answer(const Policy& policy = {}, const Overrides& overrides = {},
                    const std::vector<std::string>& unrestorable = {}) {
    return resolve(now, source, synthetic::problem(), Regime{}, policy, overrides, unrestorable);
  }
  static std::vector<std::string> fields(const Resolution& resolution) {
    std::vector<std::string> names;
    for (const StaleReason& reason : resolution.stale) names.push_back(reason.field);
    return names;
  }

  synthetic::RunSpec spec;
  synthetic::Source source;
  Current now;
  Verdict verdict;
};

TEST_F(Resolve, WhatHoldsIsTuned) {
  const Resolution resolution = answer();
  EXPECT_THAT(resolution.plan, ElementsAre(PlanSegment{verdict.segments.at(0).to, "small", "-", Origin::tuned},
                                           PlanSegment{256, "large", "-", Origin::tuned},
                                           PlanSegment{kMaxRows, "small", "", Origin::out_of_range}));
  EXPECT_FALSE(resolution.miss);
  EXPECT_THAT(resolution.stale, IsEmpty());
  ASSERT_TRUE(resolution.stored);
  EXPECT_EQ(resolution.stored->id, verdict.id);
  EXPECT_TRUE(resolution.wants_tuning);  // provisional
}

TEST_F(Resolve, OurOwnVersionCommitAndCompilerDoNotMatter) {
  now.environment["crossover"] = "9.9";
  now.environment["commit"] = "other";
  now.environment["compiler"] = "other";
  now.environment["os"] = "other";
  EXPECT_EQ(at(answer().plan, 1).origin, Origin::tuned);
}

TEST_F(Resolve, EverySoftwareFieldThatMattersMakesItStale) {
  for (const std::string_view field : kStalingEnvironment) {
    now = synthetic::current(spec);
    const std::string before = now.environment[std::string(field)];
    now.environment[std::string(field)] = "999";
    const Resolution resolution = answer();
    EXPECT_EQ(at(resolution.plan, 64).arm, "large");
    EXPECT_EQ(at(resolution.plan, 64).origin, Origin::stale);
    EXPECT_THAT(resolution.stale, ElementsAre(StaleReason{std::string(field), before, "999"}));
    EXPECT_TRUE(resolution.wants_tuning);
    now.environment.erase(std::string(field));  // no longer readable is a change too
    EXPECT_THAT(answer().stale, ElementsAre(StaleReason{std::string(field), before, "unknown"}));
  }
}

TEST_F(Resolve, AConditionMattersWhereBothSidesKnowIt) {
  now.conditions["governor"] = "powersave";
  EXPECT_THAT(answer().stale, ElementsAre(StaleReason{"governor", "performance", "powersave"}));
  now.conditions.erase("governor");
  EXPECT_THAT(answer().stale, IsEmpty());
  now.conditions["power_limit_w"] = "300";  // the run did not know it
  EXPECT_THAT(answer().stale, IsEmpty());
  now.conditions["temperature_c"] = "90";
  EXPECT_THAT(answer().stale, IsEmpty());
}

TEST_F(Resolve, AChangedArmLosesItsRows) {
  assume(now, "arm:large=other");
  const Resolution resolution = answer();
  EXPECT_THAT(resolution.stale, ElementsAre(StaleReason{"arm large", "f1", "other"}));
  EXPECT_EQ(at(resolution.plan, 200).arm, "small");
  EXPECT_EQ(at(resolution.plan, 200).origin, Origin::stale);
}

TEST_F(Resolve, AChangedDefaultArmIsServedItself) {
  assume(now, "arm:small=other");
  const Resolution resolution = answer();
  EXPECT_EQ(at(resolution.plan, 1).arm, "small");
  EXPECT_EQ(at(resolution.plan, 200).arm, "small");
  EXPECT_EQ(at(resolution.plan, 200).origin, Origin::stale);
  EXPECT_EQ(at(resolution.plan, 200).config, "");  // what was measured is not this arm's
}

TEST_F(Resolve, OnlyWhereTheDefaultArmChangedItReplacesTheMeasuredOne) {
  spec.defaults = {{8, "small"}, {kMaxRows, "large"}};
  spec.id = 2;
  source.stored = {synthetic::run(spec)};
  now = synthetic::current(spec);
  assume(now, "arm:large=other");
  const Resolution resolution = answer();
  EXPECT_EQ(at(resolution.plan, 8).arm, "small");
  EXPECT_EQ(at(resolution.plan, 8).config, "-");
  EXPECT_EQ(at(resolution.plan, 9).arm, "large");
  EXPECT_EQ(at(resolution.plan, 9).config, "");
  for (const PlanSegment& segment : resolution.plan)
    EXPECT_EQ(segment.origin, segment.up_to <= 256 ? Origin::stale : Origin::out_of_range);
}

TEST_F(Resolve, ANewArmIsImpossibleToMiss) {
  assume(now, "new_arm=x");
  const Resolution resolution = answer();
  EXPECT_THAT(resolution.stale, ElementsAre(StaleReason{"arm x", "absent", "assumed"}));
  EXPECT_EQ(at(resolution.plan, 64).arm, "large");
  EXPECT_EQ(at(resolution.plan, 64).origin, Origin::stale);
  // One that cannot do this problem cannot matter …
  now = synthetic::current(spec);
  now.arm_set.arms.push_back({{"y", "f"}, "a16", true, false, false, "needs a GPU"});
  EXPECT_THAT(answer().stale, IsEmpty());
  // … until it can.
  now.arm_set.arms.back().eligible = true;
  EXPECT_THAT(fields(answer()), ElementsAre("arm y"));
}

TEST_F(Resolve, ARemovedArmIsNotServed) {
  assume(now, "arm:large=absent");
  const Resolution resolution = answer();
  EXPECT_THAT(resolution.stale, ElementsAre(StaleReason{"arm large", "f1", "absent"}));
  for (const PlanSegment& segment : resolution.plan) EXPECT_EQ(segment.arm, "small");
  now = synthetic::current(spec);
  for (ArmRecord& arm : now.arm_set.arms)
    if (arm.id.name == "large") arm.eligible = false;  // it no longer does this problem
  EXPECT_THAT(fields(answer()), ElementsAre("arm large"));
}

TEST_F(Resolve, ChangedDefaultsAreSeen) {
  now.arm_set.defaults = {{kMaxRows, "large"}};
  const Resolution resolution = answer();
  EXPECT_THAT(fields(resolution), ElementsAre("default arms"));
  EXPECT_EQ(at(resolution.plan, 1000).arm, "large");
}

TEST_F(Resolve, AConfigThatCannotBeRestoredCountsAsAChangedArm) {
  const Resolution resolution = answer({}, {}, {"large"});
  EXPECT_THAT(fields(resolution), ElementsAre("arm large"));
  EXPECT_EQ(at(resolution.plan, 200).arm, "small");
  EXPECT_EQ(at(resolution.plan, 200).origin, Origin::stale);
}

TEST_F(Resolve, AnotherDeviceProblemOrRegimeIsAMiss) {
  assume(now, "sm_count=1");
  EXPECT_TRUE(answer().miss);
  EXPECT_EQ(at(answer().plan, 64).origin, Origin::fallback);
  EXPECT_EQ(at(answer().plan, 64).arm, "small");
  EXPECT_THAT(answer().why, HasSubstr("nothing was ever measured"));
  now = synthetic::current(spec);
  Problem other = synthetic::problem();
  other.attributes["stride"] = "9";
  EXPECT_TRUE(resolve(now, source, other, Regime{}, {}, {}).miss);
  EXPECT_TRUE(resolve(now, source, synthetic::problem(), Regime{.launch_mode = LaunchMode::graph}, {}, {}).miss);
  EXPECT_TRUE(resolve(now, source, synthetic::problem(), Regime{.l2 = L2State::hot}, {}, {}).miss);
}

TEST_F(Resolve, VerdictsThatMakeNoPlanAreRecomputed) {
  for (const std::vector<Segment>& bad : {std::vector<Segment>{},
                                          {{1, 0, "large", "-"}},
                                          {{2, 256, "large", "-"}},
                                          {{1, 9, "large", "-"}, {12, 256, "small", "-"}}}) {
    source.made[0].segments = bad;
    EXPECT_EQ(at(answer().plan, 32).arm, "small");
    EXPECT_EQ(at(answer().plan, 64).arm, "large");
  }
}

TEST_F(Resolve, ARunWithoutDefaultArmsIsNotEvidence) {
  source.stored[0].arm_set.defaults.clear();
  EXPECT_TRUE(answer().miss);
}

TEST_F(Resolve, AMemoDoesNotOutliveItsEvidence) {
  source.damaged = true;
  const Resolution resolution = answer();
  EXPECT_TRUE(resolution.miss);
  EXPECT_EQ(at(resolution.plan, 64).origin, Origin::fallback);
  EXPECT_THAT(resolution.why, HasSubstr("damaged"));
}

TEST_F(Resolve, DirtyRunsAndOldProtocolsAreAMissThatSaysWhy) {
  source.made.clear();
  source.stored[0].dirty_mask = static_cast<std::uint64_t>(Dirty::placebo);
  EXPECT_TRUE(answer().miss);
  EXPECT_THAT(answer().why, HasSubstr("placebo"));
  source.stored[0].dirty_mask = 0;
  source.stored[0].protocol = kMinProtocol - 1;
  EXPECT_THAT(answer().why, HasSubstr("protocol"));
}

TEST_F(Resolve, ReceivedEvidenceIsShippedAndNeverOutranksOurOwn) {
  source.stored[0].received = true;
  EXPECT_EQ(at(answer().plan, 1).origin, Origin::shipped);
  synthetic::RunSpec own = spec;
  own.id = 2;
  own.started_us -= 1000;  // older
  own.arms[1].time_ns = line(90000, 40);
  source.add(synthetic::run(own));
  const Resolution resolution = answer();
  EXPECT_EQ(at(resolution.plan, 200).arm, "small");
  EXPECT_EQ(at(resolution.plan, 200).origin, Origin::tuned);
}

TEST_F(Resolve, TheRunsThatFitTheMomentAreTheEvidence) {
  synthetic::RunSpec other = spec;  // a later build with another arm, on the same host
  other.id = 2;
  other.started_us += 1000;
  other.arms.push_back({.name = "third", .time_ns = line(10, 1)});
  source.add(synthetic::run(other));
  EXPECT_THAT(answer().stale, IsEmpty());
  EXPECT_EQ(at(answer().plan, 200).arm, "large");
  now = synthetic::current(other);
  EXPECT_THAT(answer().stale, IsEmpty());
  EXPECT_EQ(at(answer().plan, 200).arm, "third");
}

TEST_F(Resolve, PoliciesNeedNoNewMeasurement) {
  const Resolution resolution = answer({.disabled = {"large"}});
  EXPECT_EQ(at(resolution.plan, 200).arm, "small");
  EXPECT_EQ(at(resolution.plan, 200).origin, Origin::tuned);
  EXPECT_EQ(resolution.stored->id, verdict.id);
  EXPECT_EQ(at(answer({.extrapolate = true}).plan, 100000).arm, "large");
  EXPECT_EQ(at(answer({.extrapolate = true}).plan, 100000).origin, Origin::tuned);
}

TEST_F(Resolve, BatchInvarianceHoldsBeyondTheGridAndWithoutEvidence) {
  const Resolution resolution = answer({.batch_invariant = true});
  for (const PlanSegment& segment : resolution.plan) EXPECT_EQ(segment.arm, resolution.plan[0].arm);
  EXPECT_EQ(resolution.plan.back().origin, Origin::out_of_range);
  now.arm_set.defaults = {{8, "small"}, {kMaxRows, "large"}};
  source.stored.clear();
  const Resolution fallback = answer({.batch_invariant = true});
  EXPECT_THAT(fallback.plan, ElementsAre(PlanSegment{kMaxRows, "large", "", Origin::fallback}));
}

TEST_F(Resolve, ClassesAreNeverCrossedEvenByTheFallback) {
  source.stored.clear();
  now.arm_set.arms[0].numerics = "a8";  // the default arm, now of a class that is opt-in
  EXPECT_EQ(at(answer().plan, 1).arm, "large");
  now.arm_set.arms[1].numerics = "a8";
  EXPECT_THROW(answer(), InvalidArgument);
  EXPECT_EQ(at(answer({.allow = {"a8"}}).plan, 1).arm, "small");
}

// small needs ten bytes a row, large none.
TEST_F(Resolve, WithoutEvidenceAnArmThatKeepsToTheWorkspaceGoesFirst) {
  source.stored.clear();
  now.facts["small"].workspace_bytes = [](Rows rows) { return static_cast<std::size_t>(10 * rows); };
  now.facts["large"].workspace_bytes = [](Rows) { return std::size_t{0}; };
  EXPECT_THAT(answer({.workspace_bytes = 0}).plan, ElementsAre(PlanSegment{kMaxRows, "large", "", Origin::fallback}));
  EXPECT_THAT(answer({.workspace_bytes = 505}).plan, ElementsAre(PlanSegment{50, "small", "", Origin::fallback},
                                                                 PlanSegment{kMaxRows, "large", "", Origin::fallback}));
  EXPECT_THAT(answer({.workspace_bytes = 505, .batch_invariant = true}).plan,
              ElementsAre(PlanSegment{kMaxRows, "large", "", Origin::fallback}));
  // Where none does, the default arm: it may be launched with more after all.
  EXPECT_EQ(at(answer({.workspace_bytes = 505, .disabled = {"large"}}).plan, 51).arm, "small");
  Overrides overrides;
  overrides.force_arm = "small";
  EXPECT_EQ(at(answer({.workspace_bytes = 0}, overrides).plan, 1).arm, "small");
  // A stand-in for a disabled arm.
  now.arm_set.arms.push_back({{"third", "f1"}, "a16", true, false, true, ""});
  EXPECT_EQ(at(answer({.workspace_bytes = 505, .disabled = {"large"}}).plan, 51).arm, "third");
}

TEST_F(Resolve, BetweenMeasuredRowCountsTheWorkspaceIsKeptToAsWell) {
  now.facts["small"].workspace_bytes = [](Rows rows) { return static_cast<std::size_t>(10 * rows); };
  EXPECT_THAT(answer({.workspace_bytes = 205}).plan,
              ElementsAre(PlanSegment{20, "small", "-", Origin::tuned},
                          PlanSegment{verdict.segments.at(0).to, "large", "", Origin::fallback},
                          PlanSegment{256, "large", "-", Origin::tuned},
                          PlanSegment{kMaxRows, "large", "", Origin::out_of_range}));
}

TEST_F(Resolve, AnInconclusiveVerdictFallsBackAndSaysSo) {
  synthetic::RunSpec other = spec;
  other.id = 2;
  other.process = 2;
  std::swap(other.arms[0].time_ns, other.arms[1].time_ns);
  source.add(synthetic::run(other));
  const Verdict inconclusive = source.conclude();
  ASSERT_EQ(inconclusive.status, VerdictStatus::inconclusive);
  const Resolution resolution = answer();
  EXPECT_EQ(at(resolution.plan, 200).origin, Origin::fallback);
  EXPECT_EQ(resolution.stored->id, inconclusive.id);
  EXPECT_FALSE(resolution.miss);
  EXPECT_THAT(resolution.why, HasSubstr("inconclusive"));
}

TEST_F(Resolve, ForceArm) {
  Overrides overrides;
  overrides.force_arm = "large";
  EXPECT_THAT(answer({}, overrides).plan, ElementsAre(PlanSegment{kMaxRows, "large", "-", Origin::forced}));
  EXPECT_EQ(answer({}, overrides).stored->id, verdict.id);
  for (ArmRecord& arm : now.arm_set.arms)
    if (arm.id.name == "large") {
      arm.eligible = false;
      arm.reason = "N % 8 != 0 (N = 2113)";
    }
  try {
    answer({}, overrides);
    FAIL();
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("N % 8 != 0 (N = 2113)"));
  }
}

// Naming an arm is the permission: rows it does not take and memory that the policy does not grant are no reason to
// refuse.
TEST_F(Resolve, AForcedArmNeedsNoStandIn) {
  now.facts["large"].rows.max = 16;
  now.facts["large"].cached_bytes = 1 << 20;
  Overrides overrides;
  overrides.force_arm = "large";
  EXPECT_EQ(at(answer({}, overrides).plan, 4).arm, "large");
  EXPECT_EQ(at(answer({}, overrides).plan, 4).origin, Origin::forced);
  Overrides threshold;
  threshold.threshold = {"large", 8};
  EXPECT_EQ(at(answer({}, threshold).plan, 4).arm, "small");
  EXPECT_EQ(at(answer({}, threshold).plan, 8).arm, "large");
}

TEST_F(Resolve, Threshold) {
  Overrides overrides;
  overrides.threshold = {"large", 32};
  const Plan plan = answer({}, overrides).plan;
  EXPECT_EQ(at(plan, 31).arm, "small");
  EXPECT_EQ(at(plan, 31).origin, Origin::tuned);
  EXPECT_EQ(at(plan, 32).arm, "large");
  EXPECT_EQ(at(plan, 32).origin, Origin::forced);
  EXPECT_EQ(at(plan, kMaxRows).arm, "large");
  overrides.threshold = {"large", 1};
  EXPECT_THAT(answer({}, overrides).plan, ElementsAre(PlanSegment{kMaxRows, "large", "-", Origin::forced}));
  overrides.threshold = {"large", 5000};
  EXPECT_EQ(at(answer({}, overrides).plan, 4999).origin, Origin::out_of_range);
  EXPECT_EQ(at(answer({}, overrides).plan, 5000).origin, Origin::forced);
}

TEST_F(Resolve, DisableIsAsIfNotRegisteredAndMakesNothingStale) {
  Overrides overrides;
  overrides.disable_arms = {"small"};  // the default arm
  const Resolution resolution = answer({}, overrides);
  EXPECT_THAT(resolution.stale, IsEmpty());
  EXPECT_EQ(at(resolution.plan, 1).arm, "large");
  EXPECT_EQ(at(resolution.plan, 1).origin, Origin::tuned);
  EXPECT_EQ(at(resolution.plan, 1000).arm, "large");
  overrides.disable_arms = {"small", "large"};
  EXPECT_THROW(answer({}, overrides), InvalidArgument);
}

TEST_F(Resolve, AFamilyMeansAllItsVariants) {
  spec.arms = {{.name = "plain", .time_ns = line(5000, 100)},
               {.name = "tc/64", .time_ns = line(1000, 100)},
               {.name = "tc/128", .time_ns = line(3000, 40)}};
  spec.id = 2;
  source.stored = {synthetic::run(spec)};
  source.made.clear();
  now = synthetic::current(spec);
  Overrides overrides;
  overrides.force_arm = "tc";
  const Plan forced = answer({}, overrides).plan;
  EXPECT_EQ(at(forced, 1).arm, "tc/64");
  EXPECT_EQ(at(forced, 200).arm, "tc/128");
  for (const PlanSegment& segment : forced) {
    EXPECT_EQ(segment.origin, Origin::forced);
    EXPECT_EQ(family(segment.arm), "tc");
  }
  Overrides disabled;
  disabled.disable_arms = {"tc"};
  for (const PlanSegment& segment : answer({}, disabled).plan) EXPECT_EQ(segment.arm, "plain");
  Overrides threshold;
  threshold.threshold = {"tc", 100};
  EXPECT_EQ(at(answer({}, threshold).plan, 99).arm, "plain");
  EXPECT_EQ(at(answer({}, threshold).plan, 128).arm, "tc/128");
}

TEST_F(Resolve, WhereOnlyTheMissingArmWasMeasuredTheOriginSaysWhyNotThatItIsOutOfRange) {
  spec.arms.push_back({.name = "third", .time_ns = [](Rows m) { return m <= 8 ? 9e6 : 0.0; }});
  spec.id = 2;
  source.stored = {synthetic::run(spec)};
  source.made.clear();
  now = synthetic::current(spec);
  Policy only;
  only.arms = {"third", "small"};
  only.disabled = {"small"};
  EXPECT_EQ(at(answer(only).plan, 8).origin, Origin::tuned);
  EXPECT_EQ(at(answer(only).plan, 9).origin, Origin::fallback);
  EXPECT_EQ(at(answer(only).plan, 257).origin, Origin::out_of_range);
  assume(now, "arm:small=other");
  assume(now, "arm:large=absent");
  EXPECT_EQ(at(answer().plan, 9).arm, "small");
  EXPECT_EQ(at(answer().plan, 9).origin, Origin::stale);
  EXPECT_EQ(at(answer().plan, 257).origin, Origin::out_of_range);
}

TEST_F(Resolve, AssumptionsThatMakeNoSense) {
  for (const char* bad : {"driver", "driver=", "nonsense=1", "sm_count=x", "sm_count=0", "sm_count=-3", "arm:nope=f",
                          "new_arm=small", "=", ""})
    EXPECT_THROW(assume(now, bad), InvalidArgument) << bad;
}

TEST_F(Resolve, PlansCoverEveryRowCount) {
  for (const Policy& policy :
       {Policy{}, Policy{.batch_invariant = true}, Policy{.disabled = {"small"}}, Policy{.extrapolate = true}}) {
    const Plan plan = answer(policy).plan;
    EXPECT_EQ(plan.back().up_to, kMaxRows);
    for (std::size_t i = 1; i < plan.size(); ++i) EXPECT_GT(plan[i].up_to, plan[i - 1].up_to);
  }
}

}  // namespace
}  // namespace crossover
