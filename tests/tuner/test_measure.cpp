#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "bench.hpp"
#include "clean.hpp"

namespace crossover::fake {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// What one round timed, in order. A round ends where an (arm, M) comes again; the default arm comes twice (placebo).
std::vector<std::vector<Timed>> rounds_of(const FakeBackend& backend, const std::string& default_name) {
  std::vector<std::vector<Timed>> rounds;
  std::map<std::pair<std::string, Rows>, int> seen;
  for (const Timed& timed : backend.times) {
    const int most = timed.arm == default_name ? 2 : 1;
    if (rounds.empty() || seen[{timed.arm, timed.rows}] == most) {
      rounds.emplace_back();
      seen.clear();
    }
    ++seen[{timed.arm, timed.rows}];
    rounds.back().push_back(timed);
  }
  return rounds;
}

// --- what a run holds -----------------------------------------------------------------------------------------------

TEST(Measure, RunCarriesItsWholeProvenance) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(2e5))});
  bench.backend.uuid = "GPU-1";
  bench.options.seed = 77;
  const crossover::Run run = bench.measure();
  EXPECT_FALSE(run.process_uuid.empty());
  EXPECT_EQ(run.device, bench.backend.own_device);
  EXPECT_EQ(run.environment, bench.backend.own_environment);
  EXPECT_EQ(run.problem, bench.operation.problem());
  EXPECT_EQ(run.regime, (Regime{LaunchMode::eager, L2State::cold, "normal"}));
  EXPECT_EQ(run.gpu_uuid, "GPU-1");
  EXPECT_FALSE(run.host.empty());
  EXPECT_FALSE(run.boot_id.empty());
  EXPECT_EQ(run.protocol, kProtocol);
  EXPECT_EQ(run.seed, 77u);
  EXPECT_EQ(run.started_us, 1'790'000'000'000'000);
  EXPECT_GT(run.duration_us, 0);
  EXPECT_EQ(run.dirty_mask, 0u);
  EXPECT_EQ(run.conditions.at("before").at("power_limit_w"), "300");
  EXPECT_EQ(run.conditions.at("before").at("cold_pool_bytes"), std::to_string(8 * (1024 + 16)));
  EXPECT_EQ(run.conditions.at("after").at("power_limit_w"), "300");
  EXPECT_THAT(run.arm_set.arms, SizeIs(2));
  EXPECT_EQ(run.arm_set.defaults, (std::vector<DefaultArm>{{kMaxRows, "a"}}));
  ASSERT_THAT(run.attempts, SizeIs(1));  // lost everywhere at the first look
  EXPECT_EQ(run.attempts[0].arm, "b");

  const std::vector<Rows> rows = grid(64, {});
  EXPECT_EQ(rows_of(run, "a"), std::set<Rows>(rows.begin(), rows.end()));
  EXPECT_EQ(rows_of(run, "b"), std::set<Rows>(rows.begin(), rows.end()));
  for (const Sample& sample : run.samples) {
    EXPECT_EQ(sample.dirty_mask, 0u) << sample.arm << " at " << sample.m;
    EXPECT_EQ(sample.config, "-");
    ASSERT_TRUE(sample.error.has_value());
    EXPECT_EQ(*sample.error, 0);
    EXPECT_EQ(sample.median_ns, median_ns(sample));
    EXPECT_EQ(sample.mad_ns, mad_ns(sample));
    EXPECT_NEAR(sample.median_ns, sample.arm == "a" ? 1e5 : 2e5, 2e3);
  }
}

TEST(Measure, OneProcessHasOneIdentityAndEveryRunItsOwnSeed) {
  Bench bench({arm("a", constant(1e5))});
  bench.options.seed = 0;
  bench.options.max_rows = 2;
  const crossover::Run first = bench.measure(), second = bench.measure();
  EXPECT_EQ(first.process_uuid, second.process_uuid);
  EXPECT_NE(first.seed, second.seed);
  EXPECT_NE(first.seed, 0u);
}

TEST(Measure, SameSeedSameSchedule) {
  Bench one({arm("a", constant(1e5)), arm("b", constant(1.5e5))}, 5),
      two({arm("a", constant(1e5)), arm("b", constant(1.5e5))}, 5);
  const crossover::Run first = one.measure(), second = two.measure();
  EXPECT_EQ(first.samples, second.samples);
}

TEST(Measure, TakesTheRegimeThatIsAskedFor) {
  Bench bench({arm("a", constant(1e5))});
  bench.backend.modes = {LaunchMode::graph, LaunchMode::eager};
  bench.options.max_rows = 1;
  EXPECT_EQ(bench.measure().regime.launch_mode, LaunchMode::graph);
  bench.options.launch_mode = LaunchMode::eager;
  bench.options.l2 = L2State::hot;
  const crossover::Run run = bench.measure();
  EXPECT_EQ(run.regime, (Regime{LaunchMode::eager, L2State::hot, "normal"}));
  EXPECT_FALSE(run.conditions.at("before").contains("cold_pool_bytes"));
}

// --- arms that are not trusted --------------------------------------------------------------------------------------

TEST(Untrusted, AnExcludedArmIsNeverStarted) {
  Bench bench({arm("a", constant(1e5)), arm("bad", constant(1e4))});
  bench.options.excluded = {{0, "bad", Outcome::timed_out, "hung"}};
  const crossover::Run run = bench.measure();
  ASSERT_THAT(run.attempts, SizeIs(1));
  EXPECT_EQ(run.attempts[0], bench.options.excluded[0]);
  EXPECT_THAT(samples_of(run, "bad"), IsEmpty());
  EXPECT_NE(sample_of(run, "a", 1), nullptr);
  for (const Timed& each : bench.backend.runs) EXPECT_EQ(each.arm, "a");
  bench.options.excluded[0].arm = "a";  // the default arm
  EXPECT_THROW(bench.measure(), Failure);
  EXPECT_EQ(bench.world->memory.live_blocks(), 0u);
}

TEST(Untrusted, AProbeRunsOneArmAndTimesNothing) {
  Bench bench({arm("a", constant(1e5)), arm("bad", constant(1e4))});
  bench.operation.spec("bad").wrong = [](Rows m) { return m > 8; };
  const auto probed = [&](const std::string& name) {
    bench.backend.runs.clear();
    return probe(bench.backend, bench.operation, bench.operation.problem(), bench.options, name);
  };
  EXPECT_FALSE(probed("a").has_value());
  std::set<Rows> rows;
  for (const Timed& each : bench.backend.runs) {
    EXPECT_EQ(each.arm, "a");
    rows.insert(each.rows);
  }
  EXPECT_THAT(rows, SizeIs(3));
  EXPECT_EQ(*rows.begin(), 1);
  EXPECT_EQ(*rows.rbegin(), 64);
  const auto bad = probed("bad");
  ASSERT_TRUE(bad.has_value());
  EXPECT_EQ(bad->m, 0);
  EXPECT_EQ(bad->outcome, Outcome::wrong_result);
  EXPECT_THAT(bad->detail, HasSubstr(" rows: "));
  EXPECT_THAT(bench.backend.times, IsEmpty());
  EXPECT_EQ(bench.world->memory.live_blocks(), 0u);
}

TEST(Untrusted, WhatRunsIsAlwaysSaid) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.2e5))});
  std::string inside;
  Rows rows = 0;
  bench.options.on_arm = [&](std::string_view name, Rows m) {
    inside = name;
    rows = m;
  };
  bench.backend.tamper = [&](const Timed& timed, Timing&) {
    EXPECT_EQ(inside, timed.arm);
    EXPECT_EQ(rows, timed.rows);
  };
  bench.measure();
  EXPECT_THAT(bench.backend.times, testing::Not(IsEmpty()));
  EXPECT_EQ(inside, "");
}

// --- bad input ------------------------------------------------------------------------------------------------------

TEST(Measure, RefusesWhatCannotBe) {
  Bench bench({arm("a", constant(1e5))});
  const TuneOptions good = bench.options;
  for (const double seconds : {0.0, -1.0, kNaN, std::numeric_limits<double>::infinity(), 1e9}) {
    bench.options.budget = std::chrono::duration<double>(seconds);
    EXPECT_THROW(bench.measure(), InvalidArgument) << seconds;
  }
  bench.options = good;
  for (const Rows rows : {Rows{0}, Rows{-1}}) {
    bench.options.max_rows = rows;
    EXPECT_THROW(bench.measure(), InvalidArgument) << rows;
  }
  bench.options = good;
  bench.options.launch_mode = LaunchMode::graph;
  EXPECT_THROW(bench.measure(), InvalidArgument);
  bench.options = good;
  bench.options.keep_arms = {"a", "nobody"};
  try {
    bench.measure();
    ADD_FAILURE() << "an unknown arm was accepted";
  } catch (const InvalidArgument& error) {
    EXPECT_THAT(error.what(), HasSubstr("nobody"));
    EXPECT_THAT(error.what(), HasSubstr("there are: a"));
  }
  EXPECT_THAT(bench.backend.times, IsEmpty());
  EXPECT_THAT(bench.backend.runs, IsEmpty());
  EXPECT_EQ(bench.world->memory.live_blocks(), 0u);
}

// --- the gate -------------------------------------------------------------------------------------------------------

using Fault = void (*)(ArmSpec&);
struct GateCase {
  const char* name;
  Fault fault;
  Outcome outcome;
};
class Gate : public testing::TestWithParam<GateCase> {};

TEST_P(Gate, WhatFailsAtSomeRowsIsDataThereAndNeverATime) {
  Bench bench({arm("a", constant(1e5)), arm("bad", constant(1e4))});
  GetParam().fault(bench.operation.spec("bad"));
  const crossover::Run run = bench.measure();
  for (const Rows m : grid(64, {})) {
    if (m > 8) {  // the faults are at more than 8 rows
      const Attempt* attempt = attempt_of(run, "bad", m);
      ASSERT_NE(attempt, nullptr) << m;
      EXPECT_EQ(attempt->outcome, GetParam().outcome);
      EXPECT_FALSE(attempt->detail.empty());
      EXPECT_EQ(sample_of(run, "bad", m), nullptr) << m;
    } else {
      EXPECT_EQ(attempt_of(run, "bad", m), nullptr) << m;
      EXPECT_NE(sample_of(run, "bad", m), nullptr) << m;
    }
    EXPECT_NE(sample_of(run, "a", m), nullptr) << m;
  }
  for (const Timed& timed : bench.backend.times) EXPECT_FALSE(timed.arm == "bad" && timed.rows > 8);
}

INSTANTIATE_TEST_SUITE_P(
    Faults, Gate,
    testing::Values(
        GateCase{"wrong", [](ArmSpec& s) { s.wrong = [](Rows m) { return m > 8; }; }, Outcome::wrong_result},
        GateCase{"nan", [](ArmSpec& s) { s.writes_nan = [](Rows m) { return m > 8; }; }, Outcome::wrong_result},
        GateCase{"unwritten", [](ArmSpec& s) { s.writes_nothing = [](Rows m) { return m > 8; }; },
                 Outcome::wrong_result},
        GateCase{
            "ineligible",
            [](ArmSpec& s) { s.supports = [](Rows m) { return m > 8 ? Eligibility::no("rows > 8") : Eligibility{}; }; },
            Outcome::ineligible},
        GateCase{"launch_fails",
                 [](ArmSpec& s) {
                   s.on_launch = [](Rows m) {
                     return m > 8 ? Status{Status::Code::device_failed, 719, "unspecified launch failure"} : Status{};
                   };
                 },
                 Outcome::failed},
        GateCase{"launch_out_of_memory",
                 [](ArmSpec& s) {
                   s.on_launch = [](Rows m) { return m > 8 ? Status{Status::Code::out_of_memory, 0, ""} : Status{}; };
                 },
                 Outcome::out_of_memory}),
    [](const auto& each) { return each.param.name; });

TEST(Gate, EveryArmIsCheckedAtEveryRowCountBeforeItIsTimed) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.2e5)), arm("c", constant(1.1e5))});
  std::set<std::pair<std::string, Rows>> checked;
  bench.backend.tamper = [&](const Timed& timed, Timing&) {
    for (const Timed& run : bench.backend.runs) checked.emplace(run.arm, run.rows);
    EXPECT_TRUE(checked.contains({timed.arm, timed.rows}));
  };
  const crossover::Run run = bench.measure();
  for (const Sample& sample : run.samples) EXPECT_TRUE(sample.error.has_value());
}

TEST(Gate, AResultThatLooksRightButIsStaleIsCaught) {
  // Writes only in its first launch: without fresh poison the later checks would see the earlier output.
  Bench bench({arm("a", constant(1e5)), arm("lazy", constant(1e4))});
  bench.operation.spec("lazy").writes_nothing = [first = true](Rows) mutable { return !std::exchange(first, false); };
  const crossover::Run run = bench.measure();
  for (const Rows m : grid(64, {})) {
    if (m == 1) continue;
    ASSERT_NE(attempt_of(run, "lazy", m), nullptr);
    EXPECT_EQ(attempt_of(run, "lazy", m)->outcome, Outcome::wrong_result);
    EXPECT_THAT(attempt_of(run, "lazy", m)->detail, HasSubstr("never written"));
  }
}

TEST(Gate, AnErrorWithinTheBoundIsRecorded) {
  Bench bench({arm("a", constant(1e5)), arm("rounded", constant(1e5))});
  bench.operation.spec("rounded").numerics = "rounded";
  const crossover::Run run = bench.measure();
  EXPECT_EQ(run.arm_set.find("rounded")->numerics, "rounded");
  EXPECT_TRUE(sample_of(run, "rounded", 1)->error.has_value());
}

TEST(Gate, AnIneligibleArmIsOneAttemptWithItsReason) {
  Bench bench({arm("a", constant(1e5)), arm("never", constant(1e4))});
  bench.operation.spec("never").supports = [](Rows) { return Eligibility::no("N % 8 != 0 (N = 2113)"); };
  const crossover::Run run = bench.measure();
  ASSERT_THAT(run.attempts, SizeIs(1));
  EXPECT_EQ(run.attempts[0], (Attempt{0, "never", Outcome::ineligible, "N % 8 != 0 (N = 2113)"}));
}

TEST(Gate, AnArmThatCannotBeCapturedIsIneligibleInAGraph) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1e4))});
  bench.operation.spec("b").capture_safe = false;
  bench.backend.modes = {LaunchMode::graph, LaunchMode::eager};
  const crossover::Run graph = bench.measure();
  ASSERT_NE(attempt_of(graph, "b", 0), nullptr);
  EXPECT_EQ(attempt_of(graph, "b", 0)->outcome, Outcome::ineligible);
  bench.options.launch_mode = LaunchMode::eager;
  EXPECT_NE(sample_of(bench.measure(), "b", 1), nullptr);
}

TEST(Gate, NothingLeftToMeasureIsARunWithoutSamples) {
  Bench bench({arm("a", constant(1e5))});
  bench.operation.spec("a").wrong = [](Rows) { return true; };
  const crossover::Run run = bench.measure();
  EXPECT_THAT(run.samples, IsEmpty());
  EXPECT_THAT(run.attempts, SizeIs(grid(64, {}).size()));
}

// --- preparing ------------------------------------------------------------------------------------------------------

TEST(Prepare, FailuresAreRecordedAndTheOthersGoOn) {
  Bench bench(
      {arm("a", constant(1e5)), arm("throws", constant(1e4)), arm("dies", constant(1e4)), arm("b", constant(9e4))});
  bench.operation.spec("throws").on_prepare = [](std::string_view) { throw Failure("no kernel image"); };
  bench.operation.spec("dies").on_prepare = [](std::string_view) { throw std::bad_alloc(); };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(attempt_of(run, "throws", 0)->outcome, Outcome::failed);
  EXPECT_THAT(attempt_of(run, "throws", 0)->detail, HasSubstr("no kernel image"));
  EXPECT_EQ(attempt_of(run, "dies", 0)->outcome, Outcome::out_of_memory);
  EXPECT_NE(sample_of(run, "b", 64), nullptr);
  EXPECT_THAT(run.attempts, SizeIs(2));
}

TEST(Prepare, FlashinferIssue2357OneArmOutOfMemoryOthersGoOn) {
  Bench bench(
      {arm("a", constant(1e5)), arm("cached", constant(1e4)), arm("hungry", constant(1e4)), arm("b", constant(9e4))});
  bench.world->memory.limit_bytes = 1 << 20;
  bench.operation.spec("cached").cached_bytes = 10 << 20;
  bench.operation.spec("hungry").workspace_bytes = 2 << 20;
  const crossover::Run run = bench.measure();
  for (const char* name : {"cached", "hungry"}) {
    ASSERT_NE(attempt_of(run, name, 0), nullptr) << name;
    EXPECT_EQ(attempt_of(run, name, 0)->outcome, Outcome::out_of_memory) << name;
    EXPECT_THAT(attempt_of(run, name, 0)->detail, HasSubstr("MB")) << name;
    EXPECT_THAT(samples_of(run, name), IsEmpty());
  }
  EXPECT_NE(sample_of(run, "a", 64), nullptr);
  EXPECT_NE(sample_of(run, "b", 64), nullptr);
  EXPECT_EQ(bench.world->memory.live_blocks(), 0u);
}

TEST(Prepare, FewerCopiesWhereMemoryIsShort) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(9e4))});
  bench.operation.weight_bytes = 64 << 10;
  bench.backend.pool_bytes = 64 * (64 << 10);
  bench.world->memory.limit_bytes = 1 << 20;
  const crossover::Run run = bench.measure();
  const std::size_t pool = std::stoul(run.conditions.at("before").at("cold_pool_bytes"));
  EXPECT_LT(pool, bench.backend.pool_bytes / 4);
  EXPECT_GE(pool, 2u * (64 << 10));
  EXPECT_NE(sample_of(run, "b", 64), nullptr);
  // A device whose allocator says so only when it is asked.
  Bench late({arm("a", constant(1e5)), arm("b", constant(9e4))});
  late.operation.weight_bytes = 64 << 10;
  late.backend.pool_bytes = 8 * (64 << 10);
  late.world->memory.on_allocate = [&, count = 0](std::size_t) mutable {
    if (++count == 10) throw OutOfMemory("fragmented");
  };
  const crossover::Run second = late.measure();
  EXPECT_EQ(second.conditions.at("before").at("cold_pool_bytes"), std::to_string(4 * ((64 << 10) + 16)));
  EXPECT_EQ(late.world->memory.live_blocks(), 0u);
}

TEST(Prepare, FewerCopiesWhereMakingThemTakesLong) {
  Bench bench({arm("a", constant(1e5))});
  bench.options.max_rows = 4;
  bench.operation.weight_bytes = 1'000'000 - 64;
  bench.backend.pool_bytes = 200'000'000;
  bench.world->memory.on_fill = [&](std::size_t bytes) { bench.world->advance(static_cast<double>(bytes)); };
  bench.options.budget = std::chrono::duration<double>(1);  // 5% of it: 50 ms, at 1 byte/ns 50 copies
  EXPECT_EQ(bench.measure().conditions.at("before").at("cold_pool_bytes"), std::to_string(50 * (1'000'000 - 48)));
  bench.options.budget = std::chrono::duration<double>(1e-3);
  EXPECT_EQ(bench.measure().conditions.at("before").at("cold_pool_bytes"), std::to_string(1'000'000 - 48));
}

TEST(Prepare, NotEvenOneCopyIsOneClearSentence) {
  Bench bench({arm("a", constant(1e5))});
  bench.world->memory.limit_bytes = 1 << 20;
  bench.options.max_rows = 1 << 20;
  try {
    bench.measure();
    ADD_FAILURE() << "measured without memory";
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("1048576 rows"));
    EXPECT_THAT(error.what(), HasSubstr("16.8 MB"));
    EXPECT_THAT(error.what(), HasSubstr("1.0 MB are available"));
    EXPECT_THAT(error.advice(), HasSubstr("--max-rows"));
  }
  EXPECT_EQ(bench.world->memory.live_blocks(), 0u);
}

TEST(Prepare, ADefaultArmWithoutMemoryDoesNotStopTheOthers) {
  Bench bench({arm("small_m", constant(1e5)), arm("large_m", constant(1e5)), arm("b", constant(9e4))});
  bench.operation.defaults = {{8, "small_m"}, {kMaxRows, "large_m"}};
  bench.operation.spec("large_m").on_prepare = [](std::string_view) { throw OutOfMemory("no room for a cache"); };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(attempt_of(run, "large_m", 0)->outcome, Outcome::out_of_memory);
  EXPECT_NE(sample_of(run, "small_m", 8), nullptr);
  EXPECT_NE(sample_of(run, "b", 64), nullptr);
  EXPECT_EQ(bench.world->prepared, 0);
}

TEST(Prepare, ConfigsOfEarlierEvidenceAreRestored) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(9e4))});
  bench.operation.spec("b").finds_config = "algo 3";
  const crossover::Run first = bench.measure();
  EXPECT_EQ(sample_of(first, "b", 1)->config, "algo 3");

  bench.operation.spec("b").finds_config = "algo 9";
  std::vector<std::string> asked;
  bench.operation.spec("b").on_prepare = [&](std::string_view config) { asked.emplace_back(config); };
  const crossover::Run second = bench.measure({&first, 1});
  EXPECT_EQ(sample_of(second, "b", 1)->config, "algo 3");
  EXPECT_THAT(asked, testing::Each("algo 3"));

  bench.operation.spec("b").restores = [](std::string_view config) { return config != "algo 3"; };
  const crossover::Run third = bench.measure({&second, 1});
  EXPECT_EQ(sample_of(third, "b", 1)->config, "algo 9");
}

TEST(Prepare, AConfigOfOtherCodeOrAnOlderRunIsNot) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(9e4))});
  bench.operation.spec("b").finds_config = "new";
  crossover::Run older = bench.measure(), newer = older;
  for (Sample& sample : older.samples) sample.config = "old";
  newer.started_us += 1;
  for (Sample& sample : newer.samples) sample.config = "newer";
  for (const auto& known : {std::vector<crossover::Run>{older, newer}, std::vector<crossover::Run>{newer, older}})
    EXPECT_EQ(sample_of(bench.measure(known), "b", 1)->config, "newer");
  for (ArmRecord& record : newer.arm_set.arms) record.id.fingerprint = "other code";
  EXPECT_EQ(sample_of(bench.measure({&newer, 1}), "b", 1)->config, "new");
}

TEST(Prepare, AllCopiesOfAnArmHaveOneConfig) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(9e4))});
  int calls = 0;
  bench.operation.spec("b").on_prepare = [&](std::string_view config) {
    EXPECT_EQ(config.empty(), calls == 0);
    ++calls;
  };
  bench.measure();
  EXPECT_EQ(calls, 8);
}

// --- rounds ---------------------------------------------------------------------------------------------------------

TEST(Rounds, EachTimesEveryRowCountAndArmOnceAndThePlaceboToo) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1e5)), arm("c", constant(1.001e5))});
  bench.options.max_rows = 8;  // nothing is off the grid
  const crossover::Run run = bench.measure();
  const auto rounds = rounds_of(bench.backend, "a");
  ASSERT_GE(rounds.size(), 12u);
  std::set<std::vector<Rows>> orders;
  for (std::size_t r = 0; r < 12; ++r) {
    std::map<std::pair<std::string, Rows>, int> counts;
    std::vector<Rows> order;
    for (const Timed& timed : rounds[r]) {
      ++counts[{timed.arm, timed.rows}];
      if (order.empty() || order.back() != timed.rows) order.push_back(timed.rows);
    }
    EXPECT_THAT(order, SizeIs(8)) << "an M's arms are timed next to each other";
    orders.insert(order);
    for (Rows m = 1; m <= 8; ++m) {
      EXPECT_EQ((counts[{"a", m}]), 2);
      EXPECT_EQ((counts[{"b", m}]), 1);
      EXPECT_EQ((counts[{"c", m}]), 1);
    }
  }
  EXPECT_GE(orders.size(), 11u) << "M is shuffled anew in every round";
  for (Rows m = 1; m <= 8; ++m) EXPECT_NE(sample_of(run, "a", m, Role::placebo), nullptr);
}

TEST(Rounds, ArmsRotateSoThatEachIsEverywhereEquallyOften) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1e5)), arm("c", constant(1e5))});
  bench.options.max_rows = 4;
  bench.measure();
  const auto rounds = rounds_of(bench.backend, "a");
  ASSERT_GE(rounds.size(), 8u);
  for (Rows m = 1; m <= 4; ++m) {
    std::map<std::string, std::vector<int>> at;
    for (std::size_t r = 0; r < 8; ++r) {
      int position = 0;
      for (const Timed& timed : rounds[r])
        if (timed.rows == m) at[timed.arm].push_back(position++);
    }
    for (auto& [name, positions] : at) {
      std::sort(positions.begin(), positions.end());
      std::vector<int> expected;
      for (int position = 0; position < 4; ++position) expected.insert(expected.end(), name == "a" ? 4 : 2, position);
      EXPECT_EQ(positions, expected) << name;
    }
  }
}

TEST(Rounds, SamplesOfOneRoundShareItsNumber) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.2e5))});
  const crossover::Run run = bench.measure();
  for (const Sample& sample : run.samples) {
    std::set<std::uint32_t> numbers;
    for (const Round& round : sample.raw) EXPECT_TRUE(numbers.insert(round.number).second);
    if (sample.arm == "b" && sample.role == Role::grid) {
      EXPECT_EQ(paired_ratios(sample, *sample_of(run, "a", sample.m)).size(), sample.raw.size());
    }
  }
}

TEST(Rounds, EveryArmsRoundIsLongEnoughAndNoneIsMuchLonger) {
  Bench bench({arm("a", linear(20e3, 300)), arm("b", linear(5e3, 400)), arm("c", linear(50e3, 0))});
  bench.options.max_rows = 512;
  const crossover::Run run = bench.measure();
  for (const Sample& sample : run.samples) {
    for (const Round& round : sample.raw) {
      EXPECT_GT(round.total_ns, 0.95 * bench.backend.round_ns);
      if (sample.launches > 1) {
        EXPECT_LT(round.total_ns, 2.1 * bench.backend.round_ns);
      }
    }
  }
  EXPECT_GT(sample_of(run, "b", 1)->launches, sample_of(run, "a", 1)->launches);
  EXPECT_GT(sample_of(run, "b", 1)->launches, sample_of(run, "b", 512)->launches);
  // Never more than 256.
  Bench tiny({arm("a", constant(10))});
  for (const Sample& sample : tiny.measure().samples) EXPECT_EQ(sample.launches, 256u);
}

TEST(Rounds, ADefaultArmThatIsFarSlowerDoesNotMakeRoundsEndless) {
  Bench bench({arm("a", constant(10e6)), arm("b", constant(1e3))});
  bench.options.max_rows = 4;
  bench.options.budget = std::chrono::duration<double>(2);
  const crossover::Run run = bench.measure();
  EXPECT_EQ(sample_of(run, "a", 1)->launches, 1u);
  EXPECT_GE(counted(*sample_of(run, "a", 4)), 12u);
  EXPECT_LT(run.duration_us, 2'100'000);
}

TEST(Rounds, UnequalNumbersOfLaunchesRotateOverTheCopiesToo) {
  // 8 copies; 12 launches a round, 5, 2 and 1. Between two launches on one copy there are four others at least.
  Bench bench({arm("a", constant(17e3), 0), arm("b", constant(40e3), 0), arm("c", constant(120e3), 0),
               arm("d", constant(250e3), 0)});
  bench.options.max_rows = 16;
  bench.measure();
  std::map<const void*, std::size_t> last;
  std::map<std::string, std::set<const void*>> used;
  std::size_t launch = 0;
  for (const Timed& timed : bench.backend.times) {
    for (const void* weights : timed.weights) {
      const auto [found, first] = last.try_emplace(weights, launch);
      if (!first) {
        EXPECT_GE(launch - found->second, 4u) << timed.arm;
      }
      found->second = launch++;
      used[timed.arm].insert(weights);
    }
  }
  for (const auto& [name, copies] : used) EXPECT_THAT(copies, SizeIs(8)) << name;
}

TEST(Rounds, ColdDataRotateOverEveryCopyForEveryArm) {
  Bench bench({arm("a", constant(40e3), 0), arm("b", constant(50e3), 0)});
  bench.options.max_rows = 64;
  bench.measure();  // 8 copies, 5 and 4 launches a round
  std::map<std::string, std::map<const void*, int>> used;
  const void* last = nullptr;
  for (const Timed& timed : bench.backend.times) {
    EXPECT_TRUE(timed.copies_match);
    EXPECT_THAT(std::set<const void*>(timed.weights.begin(), timed.weights.end()), SizeIs(timed.arm == "a" ? 5 : 4));
    EXPECT_NE(timed.weights.front(), last) << "what the batch before has just touched";
    last = timed.weights.back();
    for (const void* weights : timed.weights) ++used[timed.arm][weights];
  }
  for (const auto& [name, copies] : used) EXPECT_THAT(copies, SizeIs(8)) << name;
}

TEST(Rounds, LongLaunchesRotateTooThoughARoundHasOne) {
  Bench bench({arm("a", constant(5e6)), arm("b", constant(6e6))});
  bench.options.max_rows = 1;
  bench.measure();
  const void* last = nullptr;
  std::set<const void*> used;
  for (const Timed& timed : bench.backend.times) {
    ASSERT_THAT(timed.weights, SizeIs(1));
    EXPECT_NE(timed.weights[0], last);
    last = timed.weights[0];
    used.insert(last);
  }
  EXPECT_THAT(used, SizeIs(8));
}

TEST(Rounds, HotDataAreOneCopyWarmedByTheArmItself) {
  Bench bench({arm("a", constant(5e6)), arm("b", constant(6e6))});
  bench.options.l2 = L2State::hot;
  bench.options.max_rows = 2;
  bench.measure();
  std::set<const void*> used;
  for (const Timed& timed : bench.backend.times) used.insert(timed.weights.begin(), timed.weights.end());
  EXPECT_THAT(used, SizeIs(1));
  EXPECT_GE(bench.backend.runs.size(), bench.backend.times.size());
}

TEST(Rounds, DriftDoesNotChangeTheOrderOfArms) {
  // The device slows down by 30% while it is measured, and one arm is 3% faster.
  Bench bench({arm("a", constant(1e6)), arm("b", constant(0.97e6))});
  bench.backend.clean_limits.mad_over_median = 1;
  const std::int64_t begin = bench.world->now_ns;
  bench.world->drift = [begin](std::int64_t now) { return 1 + 0.3 * static_cast<double>(now - begin) / 2e9; };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(run.dirty_mask, 0u);
  for (const Rows m : grid(64, {})) {
    const Ratio ratio = compare(paired_ratios(*sample_of(run, "b", m), *sample_of(run, "a", m)), 0.0125);
    EXPECT_EQ(ratio.comparison, Comparison::win) << m;
    EXPECT_NEAR(ratio.median, 0.97, 0.01) << m;
  }
}

// --- looks ----------------------------------------------------------------------------------------------------------

TEST(Looks, AClearCaseStopsAtTheFirst) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.5e5))});
  const crossover::Run run = bench.measure();
  for (const Sample& sample : run.samples) {
    if (sample.role != Role::held_out) {
      EXPECT_EQ(sample.raw.size(), 12u) << sample.arm << " at " << sample.m;
    }
  }
}

TEST(Looks, AnOpenRowCountGoesOnWhileDecidedOnesStop) {
  // Equal within 1.0% at 4 rows, where the interval straddles the edge of the band; clear elsewhere.
  Bench bench({arm("a", constant(1e5)), arm("b", [](Rows m) { return m == 4 ? 1.01e5 : 2e5; })});
  bench.options.max_rows = 8;
  const crossover::Run run = bench.measure();
  EXPECT_EQ(sample_of(run, "b", 4)->raw.size(), 96u);
  EXPECT_EQ(sample_of(run, "b", 8)->raw.size(), 12u);
  EXPECT_EQ(sample_of(run, "a", 8, Role::placebo)->raw.size(), 12u);
}

TEST(Looks, ALoserEverywhereIsDroppedAndItsSamplesKept) {
  // "b" is open against "a", so that rounds go on; "c" loses to both by 20%.
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.01e5)), arm("c", constant(1.2e5))});
  bench.options.max_rows = 8;
  const crossover::Run run = bench.measure();
  const Attempt* attempt = attempt_of(run, "c", 0);
  ASSERT_NE(attempt, nullptr);
  EXPECT_EQ(attempt->outcome, Outcome::dropped);
  EXPECT_THAT(attempt->detail, HasSubstr("slower than the best at every row count"));
  EXPECT_EQ(sample_of(run, "c", 1)->raw.size(), 12u);
  EXPECT_GT(sample_of(run, "b", 1)->raw.size(), 12u);
}

// "c" loses everywhere, but only to arms that a policy may forbid where it allows "c".
TEST(Looks, NoArmIsDroppedForOneThatItsPolicyMayForbid) {
  const auto drops_c = [](const std::function<void(ArmSpec&)>& loosen) {
    ArmSpec one = arm("one", constant(1e5)), two = arm("two", constant(1.01e5));  // open, so that rounds go on
    loosen(one);
    loosen(two);
    Bench bench({std::move(one), std::move(two), arm("c", constant(1.2e5))});
    bench.options.max_rows = 8;
    const crossover::Run run = bench.measure();
    EXPECT_GT(sample_of(run, "two", 1)->raw.size(), 12u);
    return attempt_of(run, "c", 0) != nullptr;
  };
  EXPECT_TRUE(drops_c([](ArmSpec&) {}));
  EXPECT_FALSE(drops_c([](ArmSpec& spec) { spec.numerics = "rounded"; }));
  EXPECT_FALSE(drops_c([](ArmSpec& spec) { spec.cached_bytes = 64; }));
  EXPECT_FALSE(drops_c([](ArmSpec& spec) { spec.workspace_bytes = 64; }));
  EXPECT_FALSE(drops_c([](ArmSpec& spec) { spec.batch_invariant = false; }));
}

TEST(Looks, NeitherTheDefaultNorWhatWasAskedForNorAWinnerSomewhereIsDropped) {
  Bench bench({arm("a", constant(1.3e5)), arm("b", constant(1e5)), arm("b2", constant(1.01e5)),
               arm("kept/1", constant(1.2e5)), arm("sometimes", [](Rows m) { return m == 8 ? 0.9e5 : 1.3e5; })});
  bench.options.max_rows = 8;
  bench.options.keep_arms = {"kept"};
  const crossover::Run run = bench.measure();
  EXPECT_EQ(run.attempts, std::vector<Attempt>{});
  EXPECT_EQ(sample_of(run, "a", 1)->raw.size(), sample_of(run, "b", 1)->raw.size());
  EXPECT_EQ(sample_of(run, "kept/1", 1)->raw.size(), sample_of(run, "b", 1)->raw.size());
}

TEST(Looks, AThoroughTuningOnlyCollects) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.5e5))});
  bench.options.max_rows = 4;
  bench.options.thorough = true;
  const crossover::Run run = bench.measure();
  for (const Sample& sample : run.samples) EXPECT_EQ(sample.raw.size(), 96u);
}

// --- far slower arms ------------------------------------------------------------------------------------------------

TEST(FarSlower, IsDroppedWithItsTimesAndNotStartedAgainWhereItsTimeGrows) {
  Bench bench({arm("a", linear(1e5, 1e3)), arm("near", linear(2e5, 2e3)), arm("slow", linear(1e6, 20e3))});
  const crossover::Run run = bench.measure();
  EXPECT_THAT(samples_of(run, "slow"), IsEmpty());
  for (const Rows m : grid(64, {})) {
    ASSERT_NE(attempt_of(run, "slow", m), nullptr) << m;
    EXPECT_EQ(attempt_of(run, "slow", m)->outcome, Outcome::dropped) << m;
  }
  const std::string& first = attempt_of(run, "slow", 1)->detail;
  EXPECT_EQ(std::count(first.begin(), first.end(), ','), 3) << first;  // three times and the best
  EXPECT_THAT(attempt_of(run, "slow", 64)->detail, HasSubstr("not started"));
  std::map<Rows, int> started;
  for (const Timed& timed : bench.backend.runs)
    if (timed.arm == "slow") ++started[timed.rows];
  EXPECT_FALSE(started.contains(64));
  for (const auto& [m, count] : started) EXPECT_GE(count, 3) << m;
}

TEST(FarSlower, IsTriedAgainWhereItsTimeDoesNotGrow) {
  // Six times slower at one row and flat: the winner at 64.
  Bench bench({arm("a", linear(1e5, 20e3)), arm("near", linear(2e5, 20e3)), arm("flat", constant(8e5))});
  const crossover::Run run = bench.measure();
  EXPECT_EQ(attempt_of(run, "flat", 1)->outcome, Outcome::dropped);
  ASSERT_NE(sample_of(run, "flat", 64), nullptr);
  EXPECT_LT(sample_of(run, "flat", 64)->median_ns, sample_of(run, "a", 64)->median_ns);
}

TEST(FarSlower, MIOpenSourceNotByOneProbe) {
  // The first launch pays for something once; all others are the fastest there are.
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.2e5)), arm("warms_up", constant(5e4))});
  bench.operation.spec("warms_up").ns = [launches = 0](Rows) mutable { return ++launches == 1 ? 5e7 : 5e4; };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(attempt_of(run, "warms_up", 1), nullptr);
  EXPECT_THAT(rows_of(run, "warms_up"), SizeIs(grid(64, {}).size()));
  // Within five times of the best no probe drops it at all.
  Bench near({arm("a", constant(1e5)), arm("b", constant(1.2e5)), arm("slower", constant(4.9e5))});
  near.options.max_rows = 4;
  EXPECT_THAT(samples_of(near.measure(), "slower"), SizeIs(4));
}

TEST(FarSlower, NeverTheDefaultNorWhatWasAskedFor) {
  Bench bench({arm("a", linear(1e6, 1e5)), arm("kept", linear(2e6, 2e5)), arm("fast", constant(1e4))});
  bench.options.keep_arms = {"kept"};
  bench.options.budget = std::chrono::duration<double>(1000);
  const crossover::Run run = bench.measure();
  EXPECT_THAT(run.attempts, IsEmpty());
  EXPECT_THAT(rows_of(run, "a"), SizeIs(grid(64, {}).size()));
  EXPECT_THAT(rows_of(run, "kept"), SizeIs(grid(64, {}).size()));
}

TEST(FarSlower, TheLastRivalStaysSoThatWithoutTheWinnerThereIsAnAnswer) {
  Bench bench({arm("a", constant(1e4)), arm("slow", constant(1e5)), arm("slower", constant(2e5))});
  bench.options.max_rows = 8;
  const crossover::Run run = bench.measure();
  EXPECT_THAT(rows_of(run, "slow"), SizeIs(8));
  EXPECT_THAT(samples_of(run, "slower"), IsEmpty());
  const EvidenceKey key{run.device, run.problem, run.regime};
  Policy without;
  without.disabled = {"a"};
  EXPECT_THAT(decide(key, {&run, 1}, without).segments, testing::ElementsAre(Segment{1, 8, "slow", "-"}));
}

TEST(FarSlower, ALaterArmIsTheMeasureToo) {
  // By name "quick" comes after "plodding": the best at an M is known only when all have been launched.
  Bench bench({arm("a", constant(1e6)), arm("plodding", constant(9e5)), arm("quick", constant(1e5))});
  bench.options.max_rows = 4;
  EXPECT_EQ(attempt_of(bench.measure(), "plodding", 1)->outcome, Outcome::dropped);
}

// --- budget ---------------------------------------------------------------------------------------------------------

double seconds(const Run& run) { return static_cast<double>(run.duration_us) * 1e-6; }

void expect_every_arm_accounted_for(const Bench& bench, const Run& run) {
  for (const Arm* each : bench.operation.arms()) {
    const std::string& name = each->id().name;
    if (attempt_of(run, name, 0) != nullptr) continue;
    for (const Rows m : grid(bench.options.max_rows, {}))
      EXPECT_TRUE(sample_of(run, name, m) != nullptr || attempt_of(run, name, m) != nullptr) << name << " at " << m;
  }
  for (const Sample& sample : run.samples) EXPECT_GE(counted(sample), 1u) << sample.arm << " at " << sample.m;
}

TEST(Budget, TwoHundredArmsOfATenthOfASecond) {
  std::vector<ArmSpec> specs;
  for (int i = 0; i < 200; ++i) specs.push_back(arm("arm_" + std::to_string(i), constant(100e6)));
  Bench bench(std::move(specs));
  bench.options.budget = std::chrono::duration<double>(2);
  bench.options.max_rows = 8192;
  const crossover::Run run = bench.measure();
  EXPECT_LT(seconds(run), 2.3);
  EXPECT_GT(seconds(run), 1.5);
  ASSERT_NE(sample_of(run, "arm_0", 1), nullptr);
  EXPECT_EQ(sample_of(run, "arm_0", 1)->dirty_mask, 0u);
  EXPECT_EQ(attempt_of(run, "arm_7", 0)->outcome, Outcome::over_budget);
  expect_every_arm_accounted_for(bench, run);
}

TEST(Budget, HoldsForAnyArms) {
  EXPECT_TRUE(rc::check("ends near its budget; every arm has a sample or a reason at every M; no empty row", [] {
    const auto seed = *rc::gen::inRange<std::uint64_t>(1, 1000000);
    const auto count = *rc::gen::inRange<int>(1, 12);
    std::vector<ArmSpec> specs;
    double slowest = 0;
    const Rows max_rows = *rc::gen::element<Rows>(1, 16, 100, 2048);
    for (int i = 0; i < count; ++i) {
      const double base = std::pow(10.0, *rc::gen::inRange<int>(3, 8)),
                   slope = std::pow(10.0, *rc::gen::inRange<int>(0, 5));
      slowest = std::max(slowest, base + slope * static_cast<double>(max_rows));
      specs.push_back(arm("arm_" + std::to_string(i), linear(base, slope), 0.01));
    }
    Bench bench(std::move(specs), seed);
    bench.options.max_rows = max_rows;
    const double budget = *rc::gen::element(0.5, 2.0, 10.0);
    bench.options.budget = std::chrono::duration<double>(budget);
    const crossover::Run run = bench.measure();
    // At worst the default arm's first visit (five launches), or one launch of an arm nobody knew.
    RC_ASSERT(seconds(run) <= 1.15 * budget + 6 * slowest * 1e-9 + 0.01);
    RC_ASSERT(!run.samples.empty());
    for (const Sample& sample : run.samples) RC_ASSERT(counted(sample) >= 1u);
    for (const Arm* each : bench.operation.arms()) {
      if (attempt_of(run, each->id().name, 0) != nullptr) continue;
      for (const Rows m : grid(max_rows, {}))
        RC_ASSERT(sample_of(run, each->id().name, m) != nullptr || attempt_of(run, each->id().name, m) != nullptr);
    }
  }));
}

TEST(Budget, ATightOneCoversTheRangeCoarselyWithEnoughRounds) {
  Bench bench({arm("a", linear(1e6, 2e3)), arm("b", linear(2e6, 1e3))});
  bench.options.max_rows = 1024;
  bench.options.budget = std::chrono::duration<double>(1);
  const crossover::Run run = bench.measure();
  EXPECT_LT(seconds(run), 1.15);
  EXPECT_TRUE(rows_of(run, "a").contains(1024));
  EXPECT_TRUE(rows_of(run, "b").contains(1024));
  EXPECT_LT(rows_of(run, "a").size(), grid(1024, {}).size());
  for (const Sample& sample : run.samples) EXPECT_GE(counted(sample), 11u) << sample.arm << " at " << sample.m;
  expect_every_arm_accounted_for(bench, run);
}

TEST(Budget, AnArmThatWouldTakeTheRestIsOverBudgetFromThere) {
  Bench bench({arm("a", linear(1e5, 1e2)), arm("steep", linear(2e5, 4e5))});
  bench.options.keep_arms = {"steep"};
  bench.options.max_rows = 4096;
  bench.options.budget = std::chrono::duration<double>(5);
  const crossover::Run run = bench.measure();
  EXPECT_NE(sample_of(run, "steep", 1), nullptr);
  ASSERT_NE(attempt_of(run, "steep", 4096), nullptr);
  EXPECT_EQ(attempt_of(run, "steep", 4096)->outcome, Outcome::over_budget);
  EXPECT_THAT(attempt_of(run, "steep", 4096)->detail, HasSubstr("expected to take"));
  EXPECT_NE(sample_of(run, "a", 4096), nullptr);
  EXPECT_LT(seconds(run), 5.75);
}

TEST(Budget, TheCostOfCheckingCounts) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.1e5))});
  bench.world->check_ns = [](Rows m) { return 1e6 * static_cast<double>(m); };
  bench.options.max_rows = 4096;
  bench.options.budget = std::chrono::duration<double>(2);
  EXPECT_LT(seconds(bench.measure()), 2.3);
}

TEST(Budget, HoldsThoughNoArmEverPassesTheGate) {
  Bench bench({arm("a", constant(100e6)), arm("b", constant(100e6))});
  for (const char* name : {"a", "b"}) bench.operation.spec(name).wrong = [](Rows) { return true; };
  bench.options.max_rows = 8192;
  bench.options.budget = std::chrono::duration<double>(1);
  const crossover::Run run = bench.measure();
  EXPECT_LT(seconds(run), 1.2);
  EXPECT_THAT(run.samples, IsEmpty());
  EXPECT_EQ(attempt_of(run, "a", 1)->outcome, Outcome::wrong_result);
  EXPECT_EQ(attempt_of(run, "a", 8192)->outcome, Outcome::over_budget);
  expect_every_arm_accounted_for(bench, run);
}

TEST(Budget, TheFirstRoundIsMeasuredHoweverSmallItIs) {
  Bench bench({arm("a", constant(50e6)), arm("b", constant(60e6))});
  bench.options.budget = std::chrono::duration<double>(1e-3);
  const crossover::Run run = bench.measure();
  ASSERT_THAT(samples_of(run, "a"), SizeIs(1));
  EXPECT_EQ(tuning::dirty_bits(*sample_of(run, "a", 1), CleanLimits{}), tuning::bit(Dirty::too_few_rounds));
  EXPECT_EQ(sample_of(run, "a", 1)->dirty_mask, tuning::bit(Dirty::too_few_rounds));
  EXPECT_EQ(attempt_of(run, "b", 0)->outcome, Outcome::over_budget);
  EXPECT_LT(seconds(run), 0.4);
}

// --- rounds that are not believed -----------------------------------------------------------------------------------

TEST(Discarded, IsRetriedWithBackOffAndKept) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.5e5))});
  bench.options.max_rows = 4;
  bench.backend.tamper = [count = 0](const Timed& timed, Timing& timing) mutable {
    timing.flags = timed.arm == "b" && timed.rows == 2 && ++count <= 2 ? kDiscarded : 0;
  };
  const crossover::Run run = bench.measure();
  const Sample& sample = *sample_of(run, "b", 2);
  ASSERT_GE(sample.raw.size(), 3u);
  EXPECT_EQ(sample.raw[0].flags, kDiscarded);
  EXPECT_EQ(sample.raw[1].flags, kDiscarded);
  EXPECT_EQ(sample.raw[2].flags, 0u);
  EXPECT_EQ(sample.raw[0].number, sample.raw[2].number);
  EXPECT_EQ(bench.backend.slept_ns, 150'000'000);
  EXPECT_EQ(sample.dirty_mask, 0u);
  EXPECT_EQ(counted(sample), sample.raw.size() - 2);
}

TEST(Discarded, AtMostThreeRetriesAndDirtyAboveAThird) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.5e5))});
  bench.options.max_rows = 4;
  int discards = 0, calls = 0;
  bench.backend.tamper = [&](const Timed& timed, Timing& timing) {
    if (timed.rows != 3) return;
    ++calls;
    timing.flags = calls % 8 < 4 ? kDiscarded : 0;  // four in a row: a round gives up
    discards += timing.flags != 0 ? 1 : 0;
  };
  const crossover::Run run = bench.measure();
  EXPECT_GT(discards, 0);
  for (const char* name : {"a", "b"}) {
    EXPECT_NE(sample_of(run, name, 3)->dirty_mask & tuning::bit(Dirty::discarded_rounds), 0u) << name;
    EXPECT_EQ(sample_of(run, name, 2)->dirty_mask, 0u) << name;
    for (const Sample& sample : run.samples) {
      std::map<std::uint32_t, int> tries;
      for (const Round& round : sample.raw) EXPECT_LE(++tries[round.number], 4);
    }
  }
}

TEST(Discarded, NvbenchIssue231EverythingThrottledIsNoEmptyRow) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.5e5))});
  bench.options.budget = std::chrono::duration<double>(3);
  bench.backend.tamper = [](const Timed&, Timing& timing) { timing.flags = kDiscarded; };
  const crossover::Run run = bench.measure();
  EXPECT_THAT(run.samples, IsEmpty());
  EXPECT_FALSE(run.attempts.empty());
  EXPECT_LT(seconds(run), 3.5);
  EXPECT_THAT(run.attempts, Contains(testing::Field(&Attempt::detail, HasSubstr("discarded by the back end"))));
  expect_every_arm_accounted_for(bench, run);
}

class Implausible : public testing::TestWithParam<double> {};

TEST_P(Implausible, PytorchIssue193658OneBadTimeMakesTheSampleDirty) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(0.5e5))});
  bench.options.max_rows = 4;
  bench.backend.tamper = [count = 0](const Timed& timed, Timing& timing) mutable {
    if (timed.arm == "b" && timed.rows == 2 && ++count == 5) timing.total_ns = GetParam();
  };
  const crossover::Run run = bench.measure();
  const Sample& sample = *sample_of(run, "b", 2);
  EXPECT_NE(sample.dirty_mask & tuning::bit(Dirty::implausible), 0u);
  EXPECT_TRUE(tuning::plausible(sample.median_ns));
  EXPECT_EQ(sample.raw[4].flags, kDiscarded);
  for (const Round& round : sample.raw) EXPECT_TRUE(std::isfinite(round.total_ns));
  EXPECT_EQ(sample_of(run, "b", 1)->dirty_mask, 0u);
}

TEST_P(Implausible, OnlyBadTimesAreNoSampleAtAll) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(0.5e5))});
  bench.options.max_rows = 4;
  bench.backend.tamper = [](const Timed& timed, Timing& timing) {
    if (timed.arm == "b" && timed.rows == 2) timing.total_ns = GetParam();
  };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(sample_of(run, "b", 2), nullptr);
  ASSERT_NE(attempt_of(run, "b", 2), nullptr);
  EXPECT_EQ(attempt_of(run, "b", 2)->outcome, Outcome::failed);
  EXPECT_THAT(attempt_of(run, "b", 2)->detail, HasSubstr("implausible"));
  EXPECT_NE(sample_of(run, "a", 2), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Times, Implausible,
                         testing::Values(0.0, -1e5, kNaN, std::numeric_limits<double>::infinity(),
                                         -std::numeric_limits<double>::infinity()));

TEST(Failing, AnArmThatStartsToFailWhileItIsTimedHasNoTimeThere) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(0.5e5))});
  bench.options.max_rows = 4;
  bench.operation.spec("b").on_launch = [count = 0](Rows m) mutable {
    return m == 2 && ++count > 20 ? Status{Status::Code::device_failed, 4, "lost"} : Status{};
  };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(sample_of(run, "b", 2), nullptr);
  EXPECT_EQ(attempt_of(run, "b", 2)->outcome, Outcome::failed);
  EXPECT_EQ(attempt_of(run, "b", 2)->detail, "lost (4)");
  EXPECT_NE(sample_of(run, "b", 4), nullptr);
  EXPECT_NE(sample_of(run, "a", 2), nullptr);
}

TEST(Failing, ABatchThatCannotBeBuiltIsData) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(0.5e5)), arm("c", constant(0.6e5))});
  bench.options.max_rows = 4;
  bench.backend.on_batch = [](const Timed& timed) {
    if (timed.arm == "b" && timed.rows == 2) throw Failure("capture was refused");
    if (timed.arm == "c" && timed.rows == 3) throw OutOfMemory("no room for a graph");
  };
  const crossover::Run run = bench.measure();
  EXPECT_EQ(attempt_of(run, "b", 2)->outcome, Outcome::failed);
  EXPECT_EQ(attempt_of(run, "c", 3)->outcome, Outcome::out_of_memory);
  EXPECT_EQ(sample_of(run, "b", 2), nullptr);
  EXPECT_NE(sample_of(run, "b", 3), nullptr);
}

// Slows the second of the default arm's two batches at every M, its placebo, by `factor`.
std::function<void(const Timed&, Timing&)> slow_placebo(double factor) {
  return [factor, seen = std::map<Rows, std::vector<const void*>>()](const Timed& timed, Timing& timing) mutable {
    if (timed.arm != "a") return;
    std::vector<const void*>& batches = seen[timed.rows];
    if (std::find(batches.begin(), batches.end(), timed.batch) == batches.end()) batches.push_back(timed.batch);
    if (batches.size() > 1 && timed.batch == batches[1]) timing.total_ns *= factor;
  };
}

TEST(Placebo, ADeviceThatTreatsTwoLabelsDifferentlyMakesTheRunDirty) {
  for (const double factor : {1.02, 0.98, 1.0}) {
    Bench bench({arm("a", constant(1e5)), arm("b", constant(1.5e5))});
    bench.options.max_rows = 16;
    bench.options.l2 = L2State::hot;  // one copy, so one batch for each label
    bench.backend.tamper = slow_placebo(factor);
    EXPECT_EQ(bench.measure().dirty_mask, factor == 1.0 ? 0u : tuning::bit(Dirty::placebo)) << factor;
  }
}

TEST(Placebo, WhereItIsMeasuredItIsTheDefaultArmThere) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1e5))});
  bench.operation.defaults = {{8, "a"}, {kMaxRows, "b"}};
  const crossover::Run run = bench.measure();
  for (const Rows m : grid(64, {})) {
    EXPECT_EQ(sample_of(run, "a", m, Role::placebo) != nullptr, m <= 8) << m;
    EXPECT_EQ(sample_of(run, "b", m, Role::placebo) != nullptr, m > 8) << m;
  }
}

// --- held-out -------------------------------------------------------------------------------------------------------

TEST(HeldOut, RowCountsOffTheGridWithEveryArmStillInTheRace) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(1.01e5)), arm("loser", constant(1.3e5))});
  bench.options.max_rows = 1000;
  const crossover::Run run = bench.measure();
  const std::set<Rows> rows = rows_of(run, "a", Role::held_out);
  EXPECT_GE(rows.size(), 3u);
  EXPECT_LE(rows.size(), 5u);
  EXPECT_EQ(rows_of(run, "b", Role::held_out), rows);
  EXPECT_EQ(attempt_of(run, "loser", 0)->outcome, Outcome::dropped);
  EXPECT_THAT(rows_of(run, "loser", Role::held_out), IsEmpty());
  const std::vector<Rows> on_grid = grid(1000, {});
  for (const Rows m : rows) {
    EXPECT_FALSE(std::binary_search(on_grid.begin(), on_grid.end(), m));
    EXPECT_LE(m, 1000);
    EXPECT_EQ(sample_of(run, "a", m, Role::held_out)->raw.size(), 12u);
    EXPECT_EQ(sample_of(run, "a", m, Role::held_out)->dirty_mask, 0u);
  }
}

TEST(HeldOut, AnArmThatIsNotStartedThereCostsNothing) {
  Bench bench({arm("a", constant(1e5)), arm("hopeless", linear(4e7, 1e7))});
  bench.options.max_rows = 1000;
  EXPECT_GE(rows_of(bench.measure(), "a", Role::held_out).size(), 3u);
}

TEST(HeldOut, NotWithoutTimeOrRoom) {
  Bench small({arm("a", constant(1e5))});
  small.options.max_rows = 16;
  EXPECT_THAT(rows_of(small.measure(), "a", Role::held_out), IsEmpty());
  Bench tight({arm("a", linear(1e6, 1e5)), arm("b", linear(1e6, 0.99e5))});
  tight.options.max_rows = 1000;
  tight.options.budget = std::chrono::duration<double>(1);
  const crossover::Run run = tight.measure();
  EXPECT_LT(seconds(run), 1.2);
}

// --- memory, exceptions, progress -----------------------------------------------------------------------------------

TEST(Release, MemoryIsFlatOverManyTunings) {
  Bench bench({arm("a", constant(1e5)), arm("b", constant(9e4))});
  bench.operation.spec("b").cached_bytes = 4096;
  bench.operation.spec("b").workspace_bytes = 100;
  bench.options.max_rows = 64;
  bench.measure();
  const std::size_t peak = bench.world->memory.peak_bytes();
  for (int i = 0; i < 5; ++i) bench.measure();
  EXPECT_EQ(bench.world->memory.peak_bytes(), peak);
  EXPECT_EQ(bench.world->memory.live_blocks(), 0u);
  EXPECT_EQ(bench.world->prepared, 0);
}

TEST(Release, EverythingGoesWhenSomethingThrows) {
  const auto expect_flat = [](Bench& bench, const OnProgress& progress = {}) {
    EXPECT_ANY_THROW(bench.measure({}, progress));
    EXPECT_EQ(bench.world->memory.live_blocks(), 0u);
    EXPECT_EQ(bench.world->prepared, 0);
  };
  const auto make = [] {
    auto bench = std::make_unique<Bench>(std::vector<ArmSpec>{arm("a", constant(1e5)), arm("b", constant(9e4))});
    bench->operation.spec("b").cached_bytes = 512;
    bench->operation.spec("a").workspace_bytes = 512;
    return bench;
  };
  auto in_workload = make();
  in_workload->operation.on_workload = [] { throw DeviceError("gone"); };
  expect_flat(*in_workload);
  auto in_time = make();
  in_time->backend.tamper = [count = 0](const Timed&, Timing&) mutable {
    if (++count == 50) throw DeviceError("gone");
  };
  expect_flat(*in_time);
  auto in_batch = make();
  in_batch->backend.on_batch = [](const Timed&) { throw DeviceError("gone"); };
  expect_flat(*in_batch);
  auto in_progress = make();
  expect_flat(*in_progress, [count = 0](const Progress&) mutable {
    if (++count == 2) throw std::runtime_error("interrupted");
  });
}

TEST(Release, AtEveryAllocation) {
  // Every allocation in turn is the first that fails: the result is a run or one OutOfMemory, and nothing stays.
  for (int fail_at = 1; fail_at <= 60; ++fail_at) {
    for (const bool for_ever : {false, true}) {
      Bench bench({arm("a", constant(1e5)), arm("b", constant(9e4))});
      bench.operation.spec("a").workspace_bytes = 512;
      bench.operation.spec("b").cached_bytes = 512;
      bench.options.max_rows = 4;
      bench.world->memory.on_allocate = [&, count = 0](std::size_t) mutable {
        ++count;
        if (for_ever ? count >= fail_at : count == fail_at) throw OutOfMemory("none left");
      };
      try {
        const crossover::Run run = bench.measure();
        EXPECT_FALSE(run.samples.empty()) << fail_at;
      } catch (const OutOfMemory&) {
      }
      EXPECT_EQ(bench.world->memory.live_blocks(), 0u) << fail_at;
      EXPECT_EQ(bench.world->prepared, 0) << fail_at;
    }
  }
}

TEST(Progress, AtMostTenTimesASecondFromNothingToAll) {
  Bench bench({arm("a", constant(1e6)), arm("b", constant(1.01e6))});
  bench.options.max_rows = 1000;
  std::vector<std::int64_t> at;
  std::set<std::string> stages;
  double last = 0;
  const crossover::Run run = bench.measure({}, [&](const Progress& progress) {
    at.push_back(bench.world->now_ns);
    stages.insert(progress.stage);
    EXPECT_GE(progress.fraction, last);
    EXPECT_LE(progress.fraction, 1);
    last = progress.fraction;
  });
  ASSERT_GE(at.size(), 5u);
  for (std::size_t i = 1; i < at.size(); ++i) EXPECT_GE(at[i] - at[i - 1], 100'000'000);
  EXPECT_THAT(stages, testing::IsSupersetOf({"preparing", "measuring"}));
}

TEST(Order, RegistrationMeansNothing) {
  Bench forward({arm("a", constant(1e5)), arm("b", constant(1.2e5)), arm("c", constant(1.1e5))}),
      backward({arm("c", constant(1.1e5)), arm("b", constant(1.2e5)), arm("a", constant(1e5))});
  backward.operation.defaults = {{kMaxRows, "a"}};
  EXPECT_EQ(forward.measure().samples, backward.measure().samples);
}

TEST(Rows, BeyondTwoToTheThirtyOneAreRowsLikeAnyOther) {
  // Only the schedule: such data do not fit here, and that is said in one sentence.
  Bench bench({arm("a", constant(1e5))});
  bench.options.max_rows = Rows{1} << 33;
  EXPECT_THROW(bench.measure(), OutOfMemory);
}

// Where the budget reaches only some arms of a row count, those are the fast ones, whatever their names and defaults.
TEST(Budget, SlowArmsAreTheFirstToGo) {
  std::vector<ArmSpec> arms{arm("z_fast", linear(1e3, 1e5))};
  for (const char* name : {"a", "b", "c", "d"}) arms.push_back(arm(name, linear(1e3, 4e5)));
  Bench bench(std::move(arms));
  bench.operation.defaults = {{8, "a"}, {16, "b"}, {32, "c"}, {kMaxRows, "d"}};
  bench.options.max_rows = 8192;
  bench.options.budget = std::chrono::seconds(20);
  const crossover::Run run = bench.measure();
  bool cut = false;
  for (const Rows m : {1024, 2048, 4096, 8192}) {
    const auto over_budget = [&](const char* name) {
      const Attempt* attempt = attempt_of(run, name, m);
      return attempt != nullptr && attempt->outcome == Outcome::over_budget;
    };
    for (const char* name : {"a", "b", "c"}) {
      cut = cut || over_budget(name);
      EXPECT_FALSE(sample_of(run, name, m) != nullptr && over_budget("z_fast")) << name << " at " << m;
    }
  }
  EXPECT_TRUE(cut) << "the budget was to be too short";
}

// --- measure_selected
// -------------------------------------------------------------------------------------------------

std::vector<ArmSpec> three() {
  return {arm("a", constant(1e5)), arm("b", constant(9e5)), arm("f/x", constant(3e5)), arm("f/y", constant(4e5))};
}

TEST(MeasureSelected, TimesTheseArmsAtTheseRowsAndNothingElse) {
  Bench bench(three());
  const crossover::Run run = measure_selected(bench.backend, bench.operation, bench.operation.problem(), bench.options,
                                              {"b", "f"}, {64, 3, 3});
  for (const char* name : {"b", "f/x", "f/y"}) EXPECT_EQ(rows_of(run, name), (std::set<Rows>{3, 64})) << name;
  EXPECT_EQ(rows_of(run, "b", Role::placebo), (std::set<Rows>{3, 64}));
  for (const Sample& sample : run.samples) {
    EXPECT_NE(sample.arm, "a");
    EXPECT_NE(sample.role, Role::held_out);
    EXPECT_EQ(sample.raw.size(), 96u) << sample.arm << ", to the last look though all is decided";
  }
  EXPECT_THAT(run.attempts, IsEmpty()) << "nothing is dropped, however slow";
  EXPECT_EQ(compare(paired_ratios(*sample_of(run, "f/x", 3), *sample_of(run, "b", 3)), 0.05).comparison,
            Comparison::win);
}

TEST(MeasureSelected, RefusesWhatItCannotCompare) {
  Bench bench(three());
  const auto selected = [&](const std::vector<std::string>& arms, const std::vector<Rows>& rows) {
    return measure_selected(bench.backend, bench.operation, bench.operation.problem(), bench.options, arms, rows);
  };
  EXPECT_THROW(selected({}, {1}), InvalidArgument);
  EXPECT_THROW(selected({"a"}, {}), InvalidArgument);
  EXPECT_THROW(selected({"f", "a"}, {1}), InvalidArgument) << "a family is not one arm to compare with";
  EXPECT_THROW(selected({"a", "nosuch"}, {1}), InvalidArgument);
  EXPECT_THROW(selected({"a", "b"}, {0}), InvalidArgument);
  EXPECT_THROW(selected({"a", "b"}, {5, -1}), InvalidArgument);
}

}  // namespace
}  // namespace crossover::fake
