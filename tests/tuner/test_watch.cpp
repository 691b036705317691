// What a device says of itself while it is measured: what is kept of it, and what each fault does to a run.

#include "watch.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "bench.hpp"
#include "clean.hpp"

namespace crossover::fake {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using tuning::bit;
using tuning::condition_bits;
using tuning::merge;
using tuning::number_of;

TEST(Conditions, NumbersAreReadStrictly) {
  const Conditions conditions{
      {"whole", "12"}, {"part", "0.25"}, {"bits", "0x24"}, {"word", "on"}, {"half", "12 W"},
      {"nan", "nan"},  {"inf", "inf"},   {"empty", ""},    {"0x", "0x"},   {"long", "0xfffffffffffffffff"}};
  EXPECT_EQ(number_of(conditions, "whole"), 12);
  EXPECT_EQ(number_of(conditions, "part"), 0.25);
  EXPECT_EQ(number_of(conditions, "bits"), 36);
  for (const char* name : {"word", "half", "nan", "inf", "empty", "0x", "long", "absent"})
    EXPECT_FALSE(number_of(conditions, name).has_value()) << name;
}

TEST(Conditions, MergingKeepsWhatShowsTrouble) {
  Conditions all{{"other_processes", "1"}, {"sm_clock_mhz", "1980"},  {"clock_event_reasons", "0x4"},
                 {"temperature_c", "60"},  {"governor", "powersave"}, {"ecc", "on"}};
  merge(all, {{"other_processes", "0"},
              {"sm_clock_mhz", "1200"},
              {"clock_event_reasons", "0x20"},
              {"temperature_c", "55"},
              {"governor", "performance"},
              {"power_w", "300"}});
  EXPECT_EQ(all, (Conditions{{"other_processes", "1"},
                             {"sm_clock_mhz", "1200"},
                             {"clock_event_reasons", "0x24"},
                             {"temperature_c", "60"},
                             {"governor", "performance"},
                             {"ecc", "on"},
                             {"power_w", "300"}}));
}

std::vector<std::string> judged(const Conditions& before, const Conditions& during, const Conditions& after) {
  return dirty_reasons(condition_bits({{"before", before}, {"during", during}, {"after", after}}, 10'000'000, {}));
}

TEST(Conditions, WhatIsUnknownAccusesNobody) {
  EXPECT_THAT(judged({}, {}, {}), IsEmpty());
  EXPECT_EQ(condition_bits({}, 1, {}), 0u);
  EXPECT_THAT(judged({{"other_processes", "many"}, {"utilization_percent", "nan"}}, {}, {{"ecc_uncorrected", "5"}}),
              IsEmpty());
}

TEST(Conditions, EachFaultHasItsReason) {
  const Conditions quiet{{"other_processes", "0"},
                         {"utilization_percent", "3"},
                         {"ecc_uncorrected", "2"},
                         {"thermal_slowdown_ns", "1000"},
                         {"temperature_c", "37"}};
  EXPECT_THAT(judged(quiet, quiet, quiet), IsEmpty());
  const auto with = [&](const char* name, const char* value) {
    Conditions changed = quiet;
    changed[name] = value;
    return changed;
  };
  EXPECT_THAT(judged(with("other_processes", "1"), quiet, quiet), ElementsAre("contended"));
  EXPECT_THAT(judged(quiet, with("other_processes", "1"), quiet), ElementsAre("contended"));
  EXPECT_THAT(judged(quiet, quiet, with("other_processes", "1")), ElementsAre("contended"));
  EXPECT_THAT(judged(with("utilization_percent", "40"), quiet, quiet), ElementsAre("contended"));
  EXPECT_THAT(judged(quiet, with("utilization_percent", "99"), with("utilization_percent", "99")), IsEmpty())
      << "that is the tuning itself";
  EXPECT_THAT(judged(quiet, quiet, with("ecc_uncorrected", "3")), ElementsAre("hardware event"));
  EXPECT_THAT(judged(quiet, quiet, with("thermal_slowdown_ns", "200001000")), ElementsAre("throttled"));
  EXPECT_THAT(judged(quiet, quiet, with("thermal_slowdown_ns", "50001000")), IsEmpty()) << "0.5% of ten seconds";
  EXPECT_THAT(judged(quiet, quiet, with("temperature_c", "55")), IsEmpty()) << "devices grow warm";
}

// --- the same through a whole run -----------------------------------------------------------------------------------

Bench two_arms() { return Bench({arm("a", constant(1e5)), arm("b", constant(2e5))}); }

TEST(Watch, ConditionsAreReadBeforeDuringAndAfter) {
  Bench bench({arm("a", constant(2e6)), arm("b", constant(3e6))});
  bench.backend.on_conditions = [&](Conditions& now) {
    now["reading"] = std::to_string(bench.backend.conditions_read);
  };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(run.conditions.at("before").at("reading"), "1");
  ASSERT_TRUE(run.conditions.contains("during"));
  EXPECT_EQ(run.conditions.at("after").at("reading"), std::to_string(bench.backend.conditions_read));
  const double seconds = static_cast<double>(run.duration_us) * 1e-6;
  EXPECT_LE(bench.backend.conditions_read, 2 + seconds) << "no more than once a second";
}

TEST(Watch, AnotherProcessMakesTheRunDirtyWheneverItComes) {
  for (const bool only_in_the_middle : {false, true}) {
    Bench bench({arm("a", constant(2e6)), arm("b", constant(3e6))});
    bench.backend.on_conditions = [&](Conditions& now) {
      const bool there = !only_in_the_middle || bench.backend.conditions_read == 2;
      now["other_processes"] = there ? "1" : "0";
    };
    EXPECT_THAT(dirty_reasons(bench.measure().dirty_mask), ElementsAre("contended"));
  }
}

TEST(Watch, ADeviceThatIsStillBusyIsWaitedFor) {
  Bench bench = two_arms();
  bench.backend.on_conditions = [&](Conditions& now) {  // an average over the last second, as NVML gives it
    now["utilization_percent"] = bench.world->now_ns < 1'700'000'000 ? "80" : "0";
  };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(run.dirty_mask, 0u);
  EXPECT_EQ(run.conditions.at("before").at("utilization_percent"), "0");
  EXPECT_GT(bench.backend.slept_ns, 500'000'000);

  Bench always = two_arms();
  always.backend.on_conditions = [](Conditions& now) { now["utilization_percent"] = "80"; };
  EXPECT_THAT(dirty_reasons(always.measure().dirty_mask), ElementsAre("contended"));
  EXPECT_LE(always.backend.slept_ns, 1'500'000'000);
}

TEST(Watch, TheTraceOfItsOwnLastRunIsNobodyElses) {
  Bench bench = two_arms();
  bench.options.budget = std::chrono::duration<double>(1);
  std::int64_t busy_until = 0;  // what NVML still shows of the run before
  bench.backend.on_conditions = [&](Conditions& now) {
    now["utilization_percent"] = bench.world->now_ns < busy_until ? "95" : "0";
  };
  EXPECT_EQ(bench.measure().dirty_mask, 0u);
  busy_until = bench.world->now_ns + 1'000'000'000;
  EXPECT_EQ(bench.measure().dirty_mask, 0u) << "a tenth of the budget would not have been enough";
}

TEST(Watch, WhoeverCannotSeeOthersSaysSo) {
  Bench bench = two_arms();
  bench.backend.shared = true;
  const crossover::Run blind = bench.measure();
  EXPECT_EQ(blind.dirty_mask, 0u);
  EXPECT_EQ(blind.conditions.at("before").at("other_work"), "unknown");
  bench.backend.own_conditions["utilization_percent"] = "0";
  EXPECT_FALSE(bench.measure().conditions.at("before").contains("other_work"));
}

// --- rounds and clocks ----------------------------------------------------------------------------------------------

TEST(Clock, WarmUpLastsUntilItSettles) {
  const auto waited = [](double settled_at_s, double budget_s) {
    Bench bench = two_arms();
    bench.options.budget = std::chrono::duration<double>(budget_s);
    bench.backend.has_clock = true;
    const std::int64_t begin = bench.world->now_ns;
    std::int64_t first_sample = 0;
    bench.backend.tamper = [&](const Timed&, Timing& timing) {
      const double seconds = static_cast<double>(bench.world->now_ns - begin) * 1e-9;
      timing.sm_clock_mhz = seconds < settled_at_s ? 1200 + 300 * seconds : 1200 + 300 * settled_at_s;
    };
    const crossover::Run run = bench.measure({}, [&](const Progress& progress) {
      if (progress.stage == "measuring" && first_sample == 0) first_sample = bench.world->now_ns;
    });
    EXPECT_EQ(run.dirty_mask, 0u);
    return static_cast<double>(first_sample - begin) * 1e-9;
  };
  EXPECT_NEAR(waited(0, 100), 0.6, 0.2);  // half a second at least
  EXPECT_NEAR(waited(2, 100), 2.5, 0.4);
  EXPECT_NEAR(waited(50, 100), 3.1, 0.3);  // three seconds at most
  EXPECT_LT(waited(50, 5), 0.7);           // and a tenth of the budget
}

TEST(Clock, ARoundAtAnotherClockIsTimedAgain) {
  Bench bench = two_arms();
  int rounds_of_a = 0;
  bench.backend.tamper = [&](const Timed& timed, Timing& timing) {
    timing.sm_clock_mhz = 1980;
    if (timed.arm == "a" && timed.rows == 3 && ++rounds_of_a == 15) timing.sm_clock_mhz = 1400;
  };
  const crossover::Run run = bench.measure();
  const std::vector<Round>& raw = sample_of(run, "a", 3)->raw;
  const auto stepped =
      std::count_if(raw.begin(), raw.end(), [](const Round& r) { return (r.flags & kClockStep) != 0; });
  const std::vector<Round>& placebo = sample_of(run, "a", 3, Role::placebo)->raw;
  const auto there =
      std::count_if(placebo.begin(), placebo.end(), [](const Round& r) { return (r.flags & kClockStep) != 0; });
  EXPECT_EQ(stepped + there, 1);
  EXPECT_EQ(run.dirty_mask, 0u);
  EXPECT_EQ(sample_of(run, "a", 3)->dirty_mask, 0u);
}

TEST(Clock, AHeavyArmAtALowerClockIsNoFault) {
  Bench bench = two_arms();
  bench.backend.tamper = [](const Timed& timed, Timing& timing) {
    timing.sm_clock_mhz = timed.arm == "a" ? 1980 : 1650;  // as an H200 at its power limit
  };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(run.dirty_mask, 0u);
  for (const Sample& sample : run.samples) EXPECT_EQ(sample.dirty_mask, 0u);
}

TEST(Clock, ARunWhoseClockWandersIsDirty) {
  Bench bench = two_arms();
  int count = 0;
  bench.backend.tamper = [&](const Timed&, Timing& timing) { timing.sm_clock_mhz = 1650 + 250 * (++count % 3); };
  EXPECT_THAT(dirty_reasons(bench.measure().dirty_mask), ElementsAre("clock moved"));
}

TEST(Clock, AThrottledRoundIsTimedAgainAndTooManyAreDirty) {
  Bench bench = two_arms();
  int count = 0;
  bench.backend.tamper = [&](const Timed& timed, Timing& timing) {
    if (timed.rows == 2 && ++count % 7 == 0) timing.flags = kDiscarded | kThrottled;
    if (timed.rows == 4) timing.flags = kPowerCapped;
  };
  const crossover::Run run = bench.measure();
  for (const Sample& sample : run.samples) EXPECT_EQ(sample.dirty_mask, 0u) << sample.m;
  for (const Round& round : sample_of(run, "a", 4)->raw) EXPECT_EQ(round.flags, kPowerCapped);

  bench.backend.tamper = [&](const Timed& timed, Timing& timing) {
    if (timed.rows == 2 && ++count % 2 == 0) timing.flags = kDiscarded | kThrottled;
  };
  const crossover::Run hot = bench.measure();
  EXPECT_THAT(dirty_reasons(sample_of(hot, "a", 2)->dirty_mask), ElementsAre("discarded rounds", "throttled"));
  EXPECT_EQ(sample_of(hot, "a", 3)->dirty_mask, 0u);
}

TEST(Clock, ADeviceThatThrottlesForGoodDoesNotEatTheBudgetInPauses) {
  Bench bench = two_arms();
  bench.options.budget = std::chrono::duration<double>(10);
  bench.backend.tamper = [](const Timed&, Timing& timing) { timing.flags = kDiscarded | kThrottled; };
  const crossover::Run run = bench.measure();
  EXPECT_LT(bench.backend.slept_ns, 2'000'000'000);
}

TEST(Order, WhatAnArmGainsByRunningAfterItselfFavoursNoLabel) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.1e5)), arm("c", constant(1.2e5))});
  bench.options.keep_arms = {"b", "c"};
  std::string last;
  bench.backend.tamper = [&](const Timed& timed, Timing& timing) {
    if (timed.arm == last) timing.total_ns *= 0.98;
    last = timed.arm;
  };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(run.dirty_mask, 0u) << "the placebo is the default arm";
  for (const Rows m : rows_of(run, "a")) {
    const Sample *a = sample_of(run, "a", m), *again = sample_of(run, "a", m, Role::placebo);
    EXPECT_NEAR(compare(paired_ratios(*a, *again), 0.0125).median, 1, 0.005) << m;
  }
}

TEST(Roofline, ATimeThatMemoryCannotDeliverIsNoTime) {
  Bench bench = two_arms();
  bench.options.max_rows = 1;
  bench.backend.peak = 16 / 1e-4 * 1.05;  // 16 bytes in 95 µs: 100 µs and 200 µs are possible
  for (const Sample& sample : bench.measure().samples) EXPECT_EQ(sample.dirty_mask, 0u);
  bench.backend.peak = 16 / 1e-4 / 1.5;  // in 150 µs: 100 µs are not
  for (const Sample& sample : bench.measure().samples)
    EXPECT_EQ(sample.dirty_mask, sample.arm == "a" ? bit(Dirty::implausible) : 0u) << sample.arm;
  bench.options.l2 = L2State::hot;
  for (const Sample& sample : bench.measure().samples) EXPECT_EQ(sample.dirty_mask, 0u) << "in the cache they are";
}

TEST(Graph, LaunchesAreCountedByWhatTheyTakeInAGraph) {
  Bench bench({arm("a", constant(2e3)), arm("b", constant(3e3))});
  bench.backend.modes = {LaunchMode::graph, LaunchMode::eager};
  bench.backend.eager_overhead_ns = 20e3;
  bench.options.max_rows = 2;
  const crossover::Run run = bench.measure();
  EXPECT_NEAR(sample_of(run, "a", 1)->launches, 100, 2);  // 200 µs; 10 if what an eager launch takes were counted
  bench.options.launch_mode = LaunchMode::eager;
  EXPECT_LE(bench.measure().samples.front().launches, 10u);
}

// --- refinement -----------------------------------------------------------------------------------------------------

TEST(Refinement, NarrowsACrossoverUntilItsGapIsSmall) {
  Bench bench({arm("a", linear(1e5, 1e3)), arm("b", constant(4e5))});  // cross at 300
  bench.options.max_rows = 1024;
  bench.options.budget = std::chrono::duration<double>(200);
  crossover::Run run = bench.measure();
  run.id.bytes.back() = 1;
  const Verdict verdict = decide({run.device, run.problem, run.regime}, {&run, 1}, Policy{});
  ASSERT_EQ(verdict.crossovers.size(), 1u);
  const Crossover& found = verdict.crossovers[0];
  EXPECT_LE(found.m_low, 301);
  EXPECT_GE(found.m_high, 301);
  // At 304 rows the arms are within 2%: bounds may begin and end on either side of it, a gap of 12% each.
  EXPECT_LE(static_cast<double>(found.m_high) / static_cast<double>(found.m_low), 1.12 * 1.12);
  const std::set<Rows> rows = rows_of(run, "a");
  const std::vector<Rows> planned = grid(1024, {});
  EXPECT_GT(rows.size(), planned.size());
  EXPECT_LE(rows.size(), planned.size() + 4);
  EXPECT_EQ(rows, rows_of(run, "b"));
}

TEST(Refinement, NothingIsAddedWhereNothingIsAtStake) {
  const auto added = [](double ratio_above) {
    Bench bench({arm("a", constant(1e5)), arm("b", [=](Rows m) { return m < 40 ? 1.2e5 : 1e5 / ratio_above; })});
    bench.options.max_rows = 256;
    bench.options.budget = std::chrono::duration<double>(200);
    return rows_of(bench.measure(), "a").size() - grid(256, {}).size();
  };
  EXPECT_GT(added(1.2), 0u);
  EXPECT_EQ(added(1.0), 0u);  // no crossover: a tie stays with the default arm
}

TEST(Refinement, StaysWithinTheBudget) {
  Bench bench({arm("a", linear(1e5, 1e3)), arm("b", constant(4e5))});
  bench.options.max_rows = 1024;
  bench.options.budget = std::chrono::duration<double>(0.5);
  const std::int64_t begin = bench.world->now_ns;
  bench.measure();
  EXPECT_LE(static_cast<double>(bench.world->now_ns - begin) * 1e-9, 0.5 * 1.2);
}

}  // namespace
}  // namespace crossover::fake
