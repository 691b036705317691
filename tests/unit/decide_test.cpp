#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "synthetic.hpp"

namespace crossover {
namespace {

using synthetic::line;
using synthetic::RunRecord;
using synthetic::Runs;
using testing::IsEmpty;
using testing::SizeIs;

Verdict decided(const Runs& runs, const Policy& policy = {}, const std::vector<Segment>& incumbent = {}) {
  return decide(synthetic::key(), runs, policy, incumbent);
}

std::string arm_at(const Verdict& verdict, Rows m) {
  for (const Segment& segment : verdict.segments)
    if (m >= segment.from && m <= segment.to) return segment.arm;
  return "none";
}

TEST(Decide, FindsTheCrossoverOfTwoLines) {
  const Verdict verdict = decided({synthetic::run(synthetic::two_arms())});
  ASSERT_THAT(verdict.segments, SizeIs(2));
  ASSERT_THAT(verdict.crossovers, SizeIs(1));
  const Crossover& crossover = verdict.crossovers[0];  // the lines cross at 33.3, between 32 and 64
  EXPECT_GE(crossover.m, 33);
  EXPECT_LE(crossover.m, 36);
  EXPECT_EQ(verdict.segments[0], (Segment{1, crossover.m - 1, "small", "-"}));
  EXPECT_EQ(verdict.segments[1], (Segment{crossover.m, 256, "large", "-"}));
  EXPECT_LE(crossover.m_low, 34);
  EXPECT_GE(crossover.m_high, 34);
  EXPECT_EQ(verdict.threshold, crossover.m);
  EXPECT_EQ(verdict.first_win, 64);
  EXPECT_EQ(verdict.library_arm, "large");
  EXPECT_EQ(verdict.status, VerdictStatus::provisional);
}

TEST(Decide, TieGoesToTheDefaultArmAndOtherwiseToTheIncumbent) {
  synthetic::RunSpec spec;
  spec.arms.push_back({.name = "b", .time_ns = line(1000, 1)});
  spec.arms.push_back({.name = "a", .time_ns = line(1000, 1)});
  const RunRecord run = synthetic::run(spec);
  EXPECT_THAT(decided({run}).segments, testing::ElementsAre(Segment{1, 256, "b", "-"}));
  EXPECT_THAT(decided({run}, {}, {{1, 256, "a", "-"}}).segments, testing::ElementsAre(Segment{1, 256, "a", "-"}));
}

TEST(Decide, EqualWinnersGiveTheSamePickWhateverTheNoise) {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    synthetic::RunSpec spec;
    spec.seed = seed;
    spec.noise = 0.03;
    spec.arms.push_back({.name = "slow", .time_ns = line(2000, 1)});
    spec.arms.push_back({.name = "y", .time_ns = line(1000, 1)});
    spec.arms.push_back({.name = "x", .time_ns = line(1000, 1)});
    EXPECT_THAT(decided({synthetic::run(spec)}).segments, testing::ElementsAre(Segment{1, 256, "x", "-"})) << seed;
  }
}

TEST(Decide, OpenComparisonStaysWithTheDefaultArm) {
  synthetic::RunSpec spec = synthetic::two_arms();
  spec.rounds = 6;  // too few for any interval
  const Verdict verdict = decided({synthetic::run(spec)});
  EXPECT_THAT(verdict.segments, testing::ElementsAre(Segment{1, 256, "small", "-"}));
}

TEST(Decide, StaircasesAreNotFlattened) {
  synthetic::RunSpec spec = synthetic::two_arms();
  spec.arms[1].time_ns = [](Rows m) { return m == 8 || m >= 128 ? 500.0 : 90000.0; };
  const Verdict verdict = decided({synthetic::run(spec)});
  EXPECT_EQ(arm_at(verdict, 4), "small");
  EXPECT_EQ(arm_at(verdict, 8), "large");
  EXPECT_EQ(arm_at(verdict, 16), "small");
  EXPECT_EQ(arm_at(verdict, 128), "large");
  EXPECT_GT(verdict.threshold,
            64);  // between two row counts nobody knows: 90 times slower at one, 13 times faster at the other
  EXPECT_LE(verdict.threshold, 128);
  EXPECT_EQ(verdict.first_win, 8);
}

TEST(Decide, BetweenTwoRowCountsASegmentBeginsWhereTheRatioCrossesOne) {
  EXPECT_TRUE(rc::check([] {
    synthetic::RunSpec spec = synthetic::two_arms();
    spec.seed = *rc::gen::arbitrary<std::uint64_t>();
    spec.noise = 0;
    spec.drift = 0;
    const double truth = *rc::gen::inRange(20, 2500) / 10.0;
    spec.arms[0].time_ns = line(1000, 60);
    spec.arms[1].time_ns = line(1000 + 60 * truth, 0);
    const Verdict verdict = decided({synthetic::run(spec)});
    RC_ASSERT(verdict.segments.size() == 2u);
    const Rows from = verdict.segments[1].from;
    const auto loss_at = [&](Rows m) {
      const double small = spec.arms[0].time_ns(m), large = spec.arms[1].time_ns(m);
      return (arm_at(verdict, m) == "small" ? small : large) / std::min(small, large) - 1;
    };
    for (Rows m = 1; m <= 256; ++m) RC_ASSERT(loss_at(m) < 0.12);
    // Rule 1 began at the next measured row count.
    const Verdict before = decide(synthetic::key(), {{synthetic::run(spec)}}, {}, {}, true, 1);
    RC_ASSERT(before.segments.size() == 2u);
    RC_ASSERT(from <= before.segments[1].from);
    RC_ASSERT(std::find(spec.rows.begin(), spec.rows.end(), before.segments[1].from) != spec.rows.end());
  }));
}

TEST(Decide, AnIncumbentStaysUnlessSomethingIsGained) {
  synthetic::RunSpec spec = synthetic::two_arms();
  const std::vector<Segment> boundary_moved{{1, 31, "small", "-"},
                                            {32, 256, "large", "-"}};  // at 32 they are within 2%
  EXPECT_EQ(decided({synthetic::run(spec)}, {}, boundary_moved).segments, boundary_moved);
  const std::vector<Segment> shorter{{1, 40, "small", "-"}, {41, 64, "large", "-"}};
  const Verdict longer = decided({synthetic::run(spec)}, {}, shorter);
  EXPECT_EQ(longer.segments.back().to, 256) << "beyond it the new plan goes on";
  const std::vector<Segment> wrong{{1, 256, "small", "-"}};
  EXPECT_THAT(decided({synthetic::run(spec)}, {}, wrong).segments, SizeIs(2));
  const std::vector<Segment> gone{{1, 31, "vanished", "-"}, {32, 256, "large", "-"}};
  EXPECT_EQ(arm_at(decided({synthetic::run(spec)}, {}, gone), 1), "small");
}

TEST(Decide, WhoCannotSeeOthersCannotConfirm) {
  synthetic::RunSpec spec = synthetic::two_arms();
  Runs runs;
  for (std::uint8_t process = 1; process <= 3; ++process) {
    spec.id = spec.process = process;
    spec.seed = process;
    runs.push_back(synthetic::run(spec));
  }
  EXPECT_EQ(decided(runs).status, VerdictStatus::confirmed);
  runs[0].conditions["before"]["other_work"] = "unknown";
  EXPECT_EQ(decided(runs).status, VerdictStatus::confirmed) << "two could see";
  runs[1].conditions["before"]["other_work"] = "unknown";
  EXPECT_EQ(decided(runs).status, VerdictStatus::provisional);
  EXPECT_THAT(decided(runs).why, testing::HasSubstr("could not see"));
}

TEST(Decide, SmallGainAtOnePointIsNotWorthASegment) {
  synthetic::RunSpec spec = synthetic::two_arms();
  spec.noise = 0.0005;
  spec.arms[1].time_ns = [](Rows m) { return (1000 + 100 * static_cast<double>(m)) * (m == 8 ? 0.985 : 1.5); };
  EXPECT_THAT(decided({synthetic::run(spec)}).segments, SizeIs(1));
}

TEST(Decide, AnArmThatWasNotMeasuredAtAPointIsNotServedThere) {
  synthetic::RunSpec spec = synthetic::two_arms();
  spec.arms[1].time_ns = [](Rows m) { return m == 128 ? 0.0 : 10.0; };
  const Verdict verdict = decided({synthetic::run(spec)});
  EXPECT_EQ(arm_at(verdict, 64), "large");
  EXPECT_EQ(arm_at(verdict, 128), "small");
  EXPECT_EQ(arm_at(verdict, 256), "large");
}

TEST(Decide, PoliciesAreFiltersOfTheSameRows) {
  synthetic::RunSpec spec;
  spec.arms.push_back({.name = "native", .time_ns = line(1000, 100)});
  spec.arms.push_back({.name = "cached", .time_ns = line(900, 10), .numerics = "w16", .cached_bytes = 1000});
  spec.arms.push_back(
      {.name = "scratch", .time_ns = line(800, 20), .numerics = "w16", .workspace_bytes = 5000, .error = 3e-3});
  spec.arms.push_back({.name = "quantised", .time_ns = line(100, 1), .numerics = "a8", .error = 3e-2});
  spec.arms.push_back({.name = "varying", .time_ns = line(500, 90), .batch_invariant = false});
  const Runs runs{synthetic::run(spec)};
  const auto arms = [&](const Policy& policy) {
    std::vector<std::string> names;
    for (const Segment& segment : decided(runs, policy).segments) names.push_back(segment.arm);
    return names;
  };
  using testing::ElementsAre;
  EXPECT_THAT(arms({}), ElementsAre("varying", "scratch"));
  EXPECT_THAT(arms({.cached_bytes = 1000}), ElementsAre("varying", "scratch", "cached"));
  EXPECT_THAT(arms({.cached_bytes = 999}), ElementsAre("varying", "scratch"));
  EXPECT_THAT(arms({.workspace_bytes = 4999}), ElementsAre("varying"));
  EXPECT_THAT(arms({.allow = {"a16"}}), ElementsAre("varying"));
  EXPECT_THAT(arms({.allow = {"a8", "a16"}}), ElementsAre("quantised"));
  EXPECT_THAT(arms({.max_error = 2e-3}), ElementsAre("varying"));
  EXPECT_THAT(arms({.batch_invariant = true}), ElementsAre("scratch"));
  EXPECT_THAT(arms({.arms = {"native", "cached"}}), ElementsAre("native"));
  EXPECT_THAT(arms({.disabled = {"varying"}}), ElementsAre("scratch"));
}

TEST(Decide, OneArmForEveryBatchIsTheBestOne) {
  synthetic::RunSpec spec = synthetic::two_arms();
  spec.arms.push_back({.name = "middling", .time_ns = line(1500, 60)});
  const Verdict verdict = decided({synthetic::run(spec)}, {.batch_invariant = true});
  EXPECT_THAT(verdict.segments, testing::ElementsAre(Segment{1, 256, "middling", "-"}));
  spec.arms[2].time_ns = [](Rows m) { return m == 2 ? 0.0 : 1500.0; };  // now there is a gap
  EXPECT_THAT(decided({synthetic::run(spec)}, {.batch_invariant = true}).segments, SizeIs(1));
  EXPECT_NE(decided({synthetic::run(spec)}, {.batch_invariant = true}).segments[0].arm, "middling");
}

TEST(Decide, ADirtyTimeIsNeitherForNorAgainstItsArm) {
  RunRecord run = synthetic::run(synthetic::two_arms());
  for (Sample& sample : run.samples)
    if (sample.arm == "large" && sample.m == 128) sample.dirty_mask = static_cast<std::uint64_t>(Dirty::noisy);
  const Verdict verdict = decided({run});
  EXPECT_EQ(verdict.segments, decided({synthetic::run(synthetic::two_arms())}).segments);
  EXPECT_EQ(verdict.crossovers[0].m_high, 64);
}

TEST(Decide, DirtyAndForeignIsNotEvidence) {
  RunRecord run = synthetic::run(synthetic::two_arms());
  for (Sample& sample : run.samples)
    if (sample.arm == "large") sample.dirty_mask = static_cast<std::uint64_t>(Dirty::noisy);
  EXPECT_THAT(decided({run}).segments, SizeIs(1));
  run.dirty_mask = static_cast<std::uint64_t>(Dirty::placebo);
  EXPECT_THAT(decided({run}).segments, IsEmpty());
  EXPECT_EQ(decided({run}).status, VerdictStatus::inconclusive);
  run = synthetic::run(synthetic::two_arms());
  run.problem.attributes["n"] = "9";
  EXPECT_THAT(decided({run}).segments, IsEmpty());
  run = synthetic::run(synthetic::two_arms());
  run.protocol = kMinProtocol - 1;
  EXPECT_THAT(decided({run}).segments, IsEmpty());
}

TEST(Decide, NaNNeitherWinsNorCrashes) {
  RunRecord run = synthetic::run(synthetic::two_arms());
  for (Sample& sample : run.samples)
    if (sample.arm == "large")
      for (Round& round : sample.raw) round.total_ns = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(decided({run}).segments, testing::ElementsAre(Segment{1, 256, "small", "-"}));
  run = synthetic::run(synthetic::two_arms());
  for (Sample& sample : run.samples)
    if (sample.arm == "large") sample.error = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(decided({run}, {.max_error = 1}).segments, testing::ElementsAre(Segment{1, 256, "small", "-"}));
}

TEST(Decide, TwoProcessesThatAgreeConfirm) {
  synthetic::RunSpec one = synthetic::two_arms(), two = synthetic::two_arms();
  two.id = 2;
  two.process = 2;
  two.seed = 2;
  EXPECT_EQ(decided({synthetic::run(one), synthetic::run(two)}).status, VerdictStatus::confirmed);
  two.process = 1;
  EXPECT_EQ(decided({synthetic::run(one), synthetic::run(two)}).status, VerdictStatus::provisional);
  two.process = 2;
  std::swap(two.arms[0].time_ns, two.arms[1].time_ns);
  EXPECT_EQ(decided({synthetic::run(one), synthetic::run(two)}).status, VerdictStatus::inconclusive);
}

// A process that lost the winner's sample at a row count, to noise or to its budget, knows less there; its plan has
// another arm at that row count, which is no disagreement. One that lost it at most row counts confirms nothing.
TEST(Decide, WhereAProcessHasNoCleanWinnerItDoesNotDisagree) {
  synthetic::RunSpec spec = synthetic::two_arms(), other = spec;
  other.id = 2;
  other.process = 2;
  other.seed = 2;
  const RunRecord one = synthetic::run(spec);
  const auto status = [&](const std::function<void(Sample&)>& edit, bool erase = false) {
    RunRecord two = synthetic::run(other);
    for (Sample& sample : two.samples) edit(sample);
    if (erase) std::erase_if(two.samples, [](const Sample& sample) { return sample.dirty_mask != 0; });
    return decided({one, two}).status;
  };
  const auto dirty = [](bool yes, Sample& sample) {
    if (yes) sample.dirty_mask = static_cast<std::uint64_t>(Dirty::noisy);
  };
  for (const bool erase : {false, true}) {
    EXPECT_EQ(status([&](Sample& s) { dirty(s.m == 256 && s.arm == "large", s); }, erase), VerdictStatus::confirmed);
    EXPECT_EQ(status([&](Sample& s) { dirty(s.m == 1 && s.arm == "small", s); }, erase), VerdictStatus::confirmed);
    EXPECT_EQ(status([&](Sample& s) { dirty(s.m == 64, s); }, erase), VerdictStatus::confirmed);
    EXPECT_EQ(status([&](Sample& s) { dirty(s.m > 2, s); }, erase), VerdictStatus::inconclusive);
    EXPECT_EQ(status([&](Sample& s) { dirty(s.arm == "large" || s.m > 4, s); }, erase), VerdictStatus::inconclusive);
  }
}

// One arm for every M loses somewhere wherever arms cross: processes agree if they pick the same one.
TEST(Decide, TwoProcessesAgreeOnOneArmForEveryM) {
  synthetic::RunSpec one = synthetic::two_arms(), two = synthetic::two_arms();
  two.id = 2;
  two.process = 2;
  two.seed = 2;
  const Policy policy{.batch_invariant = true};
  const Verdict alone = decided({synthetic::run(one)}, policy);
  const Verdict both = decided({synthetic::run(one), synthetic::run(two)}, policy);
  ASSERT_THAT(both.segments, SizeIs(1));
  EXPECT_EQ(both.segments.front().arm, alone.segments.front().arm);
  EXPECT_EQ(both.status, VerdictStatus::confirmed) << both.why;
}

// Rounds that nobody believes do not keep an arm in place that is far slower; a little slower they do.
TEST(Decide, AFarSlowerArmIsNotServedForBeingDirty) {
  const auto served_at_128 = [](double factor) {
    synthetic::RunSpec spec;
    spec.arms = {{.name = "fast", .time_ns = [](Rows m) { return m < 16 ? 1e4 : 3e4; }},
                 {.name = "slow", .time_ns = [](Rows) { return 3.003e4; }}};
    spec.defaults = {{kMaxRows, "fast"}};
    RunRecord run = synthetic::run(spec);
    for (Sample& sample : run.samples) {
      if (sample.arm != "fast" || sample.m < 16) continue;
      sample.dirty_mask = static_cast<std::uint64_t>(Dirty::too_few_rounds);
      for (Round& round : sample.raw) round.total_ns *= factor;
      sample.median_ns = median_ns(sample);
    }
    const Verdict verdict = decided({run});
    for (const Segment& segment : verdict.segments)
      if (segment.from <= 128 && 128 <= segment.to) return segment.arm;
    return std::string();
  };
  EXPECT_EQ(served_at_128(1), "fast");
  EXPECT_EQ(served_at_128(33), "slow");
}

// A row count off the grid with one arm says nothing about regret.
TEST(Decide, RegretNeedsARivalOffTheGrid) {
  RunRecord run = synthetic::run(synthetic::two_arms());
  const auto off_grid = [&](const std::vector<std::string>& arms) {
    RunRecord with = run;
    for (const Sample& sample : run.samples) {
      if (sample.m != 8 || std::find(arms.begin(), arms.end(), sample.arm) == arms.end()) continue;
      Sample held = sample;
      held.m = 9;
      held.role = Role::held_out;
      with.samples.push_back(held);
    }
    return decided({with}).held_out;
  };
  EXPECT_FALSE(off_grid({"small"}));
  ASSERT_TRUE(off_grid({"small", "large"}));
  EXPECT_EQ(off_grid({"small", "large"})->points, 1);
}

// Among arms that both beat the default one, a single odd round in twelve does not make equals of what is 6% apart.
TEST(Decide, AnOddRoundMakesNoEqualsOfDifferentArms) {
  const auto pick = [](double slower) {
    synthetic::RunSpec spec;
    spec.arms = {{.name = "default", .time_ns = [](Rows) { return 2e5; }},
                 {.name = "a", .time_ns = [=](Rows) { return 1e5 * slower; }},
                 {.name = "b", .time_ns = [](Rows) { return 1e5; }}};
    spec.defaults = {{kMaxRows, "default"}};
    spec.rounds = 12;
    RunRecord run = synthetic::run(spec);
    for (Sample& sample : run.samples)
      if (sample.arm == "b") sample.raw[5].total_ns *= 1.2;
    return decided({run}).segments.front().arm;
  };
  EXPECT_EQ(pick(1.06), "b");
  EXPECT_EQ(pick(1.005), "a") << "equals: the first by name";
}

// Two arms that are clean in different runs only share no round. Far beyond what processes differ by, that decides.
TEST(Decide, ArmsThatShareNoRoundAreComparedByTheirMedians) {
  const auto status = [](double ratio, double noise, int rounds) {
    synthetic::RunSpec one, two;
    one.arms = {{.name = "small", .time_ns = [](Rows) { return 1e5; }}};
    two.arms = {{.name = "large", .time_ns = [=](Rows) { return 1e5 * ratio; }}};
    one.defaults = two.defaults = {{kMaxRows, "small"}};
    one.noise = two.noise = noise;
    one.drift = two.drift = 0;
    one.rounds = two.rounds = rounds;
    two.id = 2;
    two.process = 2;
    RunRecord first = synthetic::run(one), second = synthetic::run(two);
    first.arm_set.arms.push_back(second.arm_set.arms.front());
    second.arm_set = first.arm_set;
    const Verdict verdict = decided({first, second});
    return verdict.segments.empty() ? std::string() : verdict.segments.front().arm;
  };
  EXPECT_EQ(status(0.5, 0.004, 12), "large") << "the default arm is twice as slow";
  EXPECT_EQ(status(0.9, 0.004, 12), "small") << "10% between processes is no evidence";
  EXPECT_EQ(status(1.1, 0.004, 12), "small");
  EXPECT_EQ(status(2.0, 0.004, 12), "small");
  EXPECT_EQ(status(0.7, 0.2, 12), "small") << "nor is 30% where times vary by 20%";
  EXPECT_EQ(status(0.5, 0.004, 7), "small") << "nor are a few rounds";
}

TEST(Decide, AChangedArmBringsOnlyItsNewestRows) {
  synthetic::RunSpec old_spec = synthetic::two_arms(), new_spec = synthetic::two_arms();
  new_spec.id = 2;
  new_spec.started_us += 5;
  new_spec.arms[1].fingerprint = "f2";
  new_spec.arms[1].time_ns = line(100, 1);
  EXPECT_THAT(decided({synthetic::run(new_spec), synthetic::run(old_spec)}).segments,
              testing::ElementsAre(Segment{1, 256, "large", "-"}));
}

TEST(Decide, OrderOfRowsAndRegistrationDoesNotMatter) {
  synthetic::RunSpec spec = synthetic::two_arms();
  spec.noise = 0.05;
  spec.arms.push_back({.name = "third", .time_ns = line(1100, 90)});
  synthetic::RunSpec other = spec;
  other.id = 2;
  other.process = 2;
  other.seed = 9;
  const Runs runs{synthetic::run(spec), synthetic::run(other)};
  const Verdict expected = decided(runs);
  EXPECT_TRUE(rc::check([&] {
    Runs shuffled = runs;
    std::mt19937_64 generator(*rc::gen::arbitrary<std::uint64_t>());
    std::shuffle(shuffled.begin(), shuffled.end(), generator);
    for (RunRecord& run : shuffled) {
      std::shuffle(run.samples.begin(), run.samples.end(), generator);
      std::shuffle(run.arm_set.arms.begin(), run.arm_set.arms.end(), generator);
      for (Sample& sample : run.samples) std::shuffle(sample.raw.begin(), sample.raw.end(), generator);
    }
    shuffled.push_back(shuffled.front());  // the same run twice is one run
    const Verdict verdict = decided(shuffled);
    RC_ASSERT(verdict.segments == expected.segments);
    RC_ASSERT(verdict.crossovers == expected.crossovers);
    RC_ASSERT(verdict.status == expected.status);
    RC_ASSERT(verdict.run_ids == expected.run_ids);
  }));
}

// It is never served. It is a rival more, so the level of each comparison is a little stricter, and at an M where the
// two others are within 2% of each other that may tip the pick; nowhere else.
TEST(Decide, ADominatedArmNeverChangesThePlan) {
  EXPECT_TRUE(rc::check([] {
    synthetic::RunSpec spec = synthetic::two_arms();
    spec.seed = *rc::gen::arbitrary<std::uint64_t>();
    const double slope = *rc::gen::inRange(1, 80);
    spec.arms[1].time_ns = line(3000, slope);
    const Verdict without = decided({synthetic::run(spec)});
    RunRecord run = synthetic::run(spec);
    run.arm_set.arms.push_back({{"dominated", "f"}, "a16", true, false, true, ""});
    const std::size_t count = run.samples.size();
    for (std::size_t i = 0; i < count; ++i)
      if (run.samples[i].arm == "small") {
        Sample slower = run.samples[i];
        slower.arm = "dominated";
        for (Round& round : slower.raw) round.total_ns *= 2 + slope / 10;
        run.samples.push_back(slower);
      }
    const Verdict with = decided({run});
    const auto arm_at = [](const Verdict& verdict, Rows m) {
      for (const Segment& segment : verdict.segments)
        if (segment.from <= m && m <= segment.to) return segment.arm;
      return std::string();
    };
    for (const Rows m : spec.rows) {
      RC_ASSERT(arm_at(with, m) == arm_at(without, m));
    }
  }));
}

TEST(Decide, SegmentsCoverTheGridWithoutAGap) {
  EXPECT_TRUE(rc::check([] {
    synthetic::RunSpec spec;
    spec.seed = *rc::gen::arbitrary<std::uint64_t>();
    spec.noise = 0.1;
    const int arms = *rc::gen::inRange(1, 6);
    for (int i = 0; i < arms; ++i)
      spec.arms.push_back(
          {.name = "arm" + std::to_string(i), .time_ns = line(500 + 400 * i, *rc::gen::inRange(1, 200))});
    const Verdict verdict = decided({synthetic::run(spec)});
    Rows next = 1;
    for (const Segment& segment : verdict.segments) {
      RC_ASSERT(segment.from == next);
      RC_ASSERT(segment.to >= segment.from);
      next = segment.to + 1;
    }
    RC_ASSERT(next == 257);
    RC_ASSERT(verdict.crossovers.size() + 1 == verdict.segments.size());
    for (const Crossover& crossover : verdict.crossovers) {
      RC_ASSERT(crossover.m_low <= crossover.m);
      RC_ASSERT(crossover.m <= crossover.m_high);
    }
  }));
}

TEST(Decide, BoundsCoverTheTrueCrossover) {
  int covered = 0;
  constexpr int kTrials = 200;
  for (int trial = 0; trial < kTrials; ++trial) {
    synthetic::RunSpec spec = synthetic::two_arms();
    spec.seed = static_cast<std::uint64_t>(1000 + trial);
    spec.noise = 0.03;
    spec.arms[1].time_ns = line(3000, 52);  // crosses at 41.7
    spec.rows = {1, 2, 4, 8, 16, 24, 32, 36, 40, 44, 48, 64, 128, 256};
    spec.id = static_cast<std::uint8_t>(trial);
    const Verdict verdict = decided({synthetic::run(spec)});
    for (const Crossover& crossover : verdict.crossovers)
      if (crossover.to_arm == "large") covered += crossover.m_low <= 42 && crossover.m_high >= 41;
  }
  EXPECT_GE(covered, kTrials * 95 / 100);
}

TEST(Standings, RunnersUpWithTheirReasons) {
  synthetic::RunSpec spec = synthetic::two_arms();
  spec.arms.push_back({.name = "quantised", .time_ns = line(10, 1), .numerics = "a8"});
  const RunRecord run = synthetic::run(spec);
  const Standings standing = standings(Runs{run}, {}, 100);
  EXPECT_EQ(standing.m, 64);
  ASSERT_THAT(standing.arms, SizeIs(3));
  EXPECT_EQ(standing.arms[0].arm, "quantised");
  EXPECT_FALSE(standing.arms[0].allowed);
  EXPECT_THAT(standing.arms[0].why_not, testing::HasSubstr("opt-in"));
  EXPECT_EQ(standing.arms[1].arm, "large");
  EXPECT_EQ(standing.arms[1].to_best.median, 1);
  EXPECT_EQ(standing.arms[2].arm, "small");
  EXPECT_NEAR(standing.arms[2].to_best.median, 7400.0 / 5560, 0.02);
  EXPECT_EQ(standings({}, {}, 5).arms.size(), 0U);
}

TEST(HeldOutRegret, IsMeasuredAgainstTheBestArmThere) {
  synthetic::RunSpec spec = synthetic::two_arms();
  spec.noise = 0.0001;
  const RunRecord grid = synthetic::run(spec);
  EXPECT_EQ(decided({grid}).held_out, std::nullopt);
  const auto held_out = [&] {
    synthetic::RunSpec between = spec;
    between.rows = {20, 100};
    RunRecord run = grid;
    for (Sample sample : synthetic::run(between).samples) {
      sample.role = Role::held_out;
      run.samples.push_back(sample);
    }
    return decided({run}).held_out;
  };
  const auto none = held_out();
  ASSERT_TRUE(none);
  EXPECT_EQ(none->points, 2);
  EXPECT_NEAR(none->max_regret, 0, 1e-3);
  std::swap(spec.arms[0].time_ns, spec.arms[1].time_ns);  // between the points the other arm is the faster one
  const auto regret = held_out();
  ASSERT_TRUE(regret);
  EXPECT_NEAR(regret->max_regret, 11000.0 / 7000 - 1, 0.01);
  EXPECT_NEAR(regret->mean_regret, (3800.0 / 3000 - 1 + 11000.0 / 7000 - 1) / 2, 0.01);
}

}  // namespace
}  // namespace crossover
