#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <barrier>
#include <filesystem>
#include <thread>

#include "bench.hpp"
#include "crossover/dispatch/dispatcher.hpp"

namespace crossover::fake {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// "a" wins to 16 rows and "b" from 23 on.
std::vector<ArmSpec> crossing() { return {arm("a", linear(1e5, 1e4)), arm("b", constant(3e5))}; }

struct TunedBench : Bench {
  std::unique_ptr<Store> store = Store::in_memory();
  explicit TunedBench(std::vector<ArmSpec> specs, std::uint64_t seed = 1) : Bench(std::move(specs), seed) {}
  Tuner tuner(const OnProgress& progress = {}) { return Tuner(backend, *store, options, progress); }
  EvidenceKey key() { return {backend.device(), operation.problem(), {backend.modes.front(), options.l2, "normal"}}; }
  Miss miss(bool low_priority = false) { return {&operation, key(), 64, "never measured", low_priority}; }
};

std::vector<std::string> arms_of(const Verdict& verdict) {
  std::vector<std::string> names;
  for (const Segment& segment : verdict.segments) names.push_back(segment.arm);
  return names;
}

TEST(Tuner, MeasuresDecidesAndStores) {
  TunedBench bench(crossing());
  Tuner tuner = bench.tuner();
  const Tuning tuning = tuner.tune(bench.operation, bench.operation.problem());
  EXPECT_EQ(tuning.not_stored, "");
  EXPECT_THAT(arms_of(tuning.verdict), ElementsAre("a", "b"));
  EXPECT_EQ(tuning.verdict.status, VerdictStatus::provisional);
  EXPECT_GT(tuning.verdict.segments[1].from, 16);
  EXPECT_LE(tuning.verdict.segments[1].from, 32);
  EXPECT_EQ(tuning.verdict.segments.back().to, 64);
  ASSERT_TRUE(tuning.verdict.held_out.has_value());
  EXPECT_LT(tuning.verdict.held_out->max_regret, 0.15);
  EXPECT_GT(tuning.rows_measured, 30u);
  EXPECT_EQ(tuning.rows_dirty, 0u);
  EXPECT_GT(tuning.duration_s, 0);

  // The store gives it all back.
  std::vector<crossover::Run> runs = bench.store->runs(bench.key());
  ASSERT_THAT(runs, SizeIs(1));
  ASSERT_TRUE(bench.store->load(runs[0]));
  EXPECT_EQ(runs[0].id, tuning.run.id);
  EXPECT_EQ(runs[0].samples, tuning.run.samples);
  EXPECT_EQ(runs[0].attempts, tuning.run.attempts);
  EXPECT_EQ(runs[0].conditions, tuning.run.conditions);
  const std::vector<Verdict> verdicts = bench.store->verdicts(bench.key());
  ASSERT_THAT(verdicts, SizeIs(1));
  EXPECT_EQ(verdicts[0].id, tuning.verdict.id);
  EXPECT_EQ(verdicts[0].segments, tuning.verdict.segments);
  EXPECT_EQ(verdicts[0].run_ids, std::vector<Id>{tuning.run.id});
}

TEST(Tuner, Sglang35343TwoIdenticalArmsAreATieAndTheSamePickTwice) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    TunedBench bench({arm("z_default", constant(1e5), 0.01), arm("identical", constant(1e5), 0.01)}, seed);
    bench.operation.defaults = {{kMaxRows, "z_default"}};
    Tuner tuner = bench.tuner();
    for (int again = 0; again < 2; ++again) {
      const Tuning tuning = tuner.tune(bench.operation, bench.operation.problem());
      EXPECT_THAT(arms_of(tuning.verdict), ElementsAre("z_default")) << seed;
      EXPECT_EQ(tuning.verdict.segments[0].to, 64);
    }
  }
}

TEST(Tuner, Flashinfer3537APickThatDoesNotBeatTheDefaultIsTheDefault) {
  TunedBench bench({arm("default", constant(1e5)), arm("half_a_percent", constant(0.995e5))});
  EXPECT_THAT(arms_of(bench.tuner().tune(bench.operation, bench.operation.problem()).verdict), ElementsAre("default"));
}

TEST(Tuner, AFailingArmNeverWinsTheRowsItFailsAt) {
  // CLBlast once gave a failed arm the score -1, which won.
  TunedBench bench({arm("default", constant(1e5)), arm("fast", constant(1e4))});
  bench.options.max_rows = 16;
  bench.operation.spec("fast").on_launch = [](Rows m) {
    return m >= 8 ? Status{Status::Code::device_failed, 1, "no"} : Status{};
  };
  const Tuning tuning = bench.tuner().tune(bench.operation, bench.operation.problem());
  ASSERT_THAT(arms_of(tuning.verdict), ElementsAre("fast", "default"));
  EXPECT_EQ(tuning.verdict.segments[0].to, 7);
}

TEST(Tuner, AnArmThatIsWrongEverywhereIsInNoSegment) {
  TunedBench bench({arm("default", constant(1e5)), arm("wrong", constant(1e3))});
  bench.operation.spec("wrong").wrong = [](Rows) { return true; };
  EXPECT_THAT(arms_of(bench.tuner().tune(bench.operation, bench.operation.problem()).verdict), ElementsAre("default"));
}

TEST(Tuner, ASecondTuningUsesTheFirstAsEvidenceAndRestoresItsConfigs) {
  TunedBench bench(crossing());
  bench.operation.spec("b").finds_config = "algo 1";
  Tuner tuner = bench.tuner();
  const Tuning first = tuner.tune(bench.operation, bench.operation.problem());
  bench.operation.spec("b").finds_config = "algo 2";
  const Tuning second = tuner.tune(bench.operation, bench.operation.problem());
  EXPECT_EQ(second.verdict.run_ids.size(), 2u);
  EXPECT_EQ(second.verdict.segments.back().config, "algo 1");
  EXPECT_THAT(bench.store->runs(bench.key()), SizeIs(2));
  // One process, whatever it measured: still nobody else's word for it.
  EXPECT_EQ(second.verdict.status, VerdictStatus::provisional);
}

TEST(Tuner, TiesStayWithTheIncumbentUnlessItsArmChanged) {
  TunedBench bench({arm("default", constant(1e5)), arm("other", constant(0.9e5))});
  bench.options.max_rows = 8;
  Tuner tuner = bench.tuner();
  EXPECT_THAT(arms_of(tuner.tune(bench.operation, bench.operation.problem()).verdict), ElementsAre("other"));
  // Another driver: the old times are no evidence, and now the two are the same.
  bench.backend.own_environment["driver"] = "2";
  bench.operation.spec("default").ns = constant(0.9e5);
  const Tuning tie = tuner.tune(bench.operation, bench.operation.problem());
  EXPECT_THAT(arms_of(tie.verdict), ElementsAre("other"));
  EXPECT_THAT(tie.verdict.incumbent, SizeIs(1));
  EXPECT_THAT(tie.verdict.run_ids, SizeIs(1));

  TunedBench changed({arm("default", constant(0.9e5)), arm("other", constant(0.9e5))});
  changed.options.max_rows = 8;
  changed.operation.spec("other").fingerprint = "2";
  FakeOperation recompiled(changed.world, {changed.operation.spec("default"), changed.operation.spec("other")});
  Tuner later(changed.backend, *bench.store, changed.options);
  const Tuning fresh = later.tune(recompiled, recompiled.problem());
  EXPECT_THAT(fresh.verdict.incumbent, IsEmpty());
  EXPECT_THAT(arms_of(fresh.verdict), ElementsAre("default"));
}

TEST(Tuner, ADirtyRunGivesAnInconclusiveVerdictAndIsKept) {
  TunedBench bench(crossing());
  bench.options.max_rows = 4;
  bench.options.budget = std::chrono::duration<double>(2);
  bench.backend.tamper = [](const Timed&, Timing& timing) { timing.flags = kDiscarded; };  // nvbench#231
  const Tuning tuning = bench.tuner().tune(bench.operation, bench.operation.problem());
  EXPECT_EQ(tuning.not_stored, "");
  EXPECT_EQ(tuning.verdict.status, VerdictStatus::inconclusive);
  EXPECT_THAT(tuning.verdict.run_ids, testing::ElementsAre(tuning.run.id));  // so that an auditor can see why
  EXPECT_THAT(tuning.verdict.segments, IsEmpty());
  EXPECT_FALSE(tuning.verdict.id.empty());
  EXPECT_THAT(bench.store->runs(bench.key()), SizeIs(1));
}

TEST(Tuner, ImplausibleTimesCanBeStored) {
  TunedBench bench(crossing());
  bench.options.max_rows = 4;
  int count = 0;
  bench.backend.tamper = [&](const Timed& timed, Timing& timing) {
    if (timed.arm != "b") return;
    const double bad[]{0, -1, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()};
    if (++count % 3 == 0) timing.total_ns = bad[count % 4];
  };
  const Tuning tuning = bench.tuner().tune(bench.operation, bench.operation.problem());
  EXPECT_EQ(tuning.not_stored, "");
  std::vector<crossover::Run> runs = bench.store->runs(bench.key());
  ASSERT_THAT(runs, SizeIs(1));
  ASSERT_TRUE(bench.store->load(runs[0]));
  EXPECT_EQ(runs[0].samples, tuning.run.samples);
  EXPECT_GT(tuning.rows_dirty, 0u);
  EXPECT_THAT(arms_of(tuning.verdict), ElementsAre("a"));
}

TEST(Tuner, WhatCannotBeStoredIsStillReturned) {
  TunedBench bench(crossing());
  const auto path = std::filesystem::temp_directory_path() / "crossover-nobody-creates-this.db";
  std::filesystem::remove(path);
  const auto read_only = Store::open(path, Store::Access::lookup_only);
  Tuner tuner(bench.backend, *read_only, bench.options);
  const Tuning tuning = tuner.tune(bench.operation, bench.operation.problem());
  EXPECT_FALSE(tuning.not_stored.empty());
  EXPECT_THAT(arms_of(tuning.verdict), ElementsAre("a", "b"));
  EXPECT_FALSE(tuning.run.samples.empty());
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(TunerMiss, Llmd1430WhatCannotBeStoredStaysInMemoryWithOneWarning) {
  TunedBench bench(crossing());
  const auto path = std::filesystem::temp_directory_path() / "crossover-nobody-creates-this-either.db";
  std::filesystem::remove(path);
  const auto read_only = Store::open(path, Store::Access::lookup_only);
  Tuner tuner(bench.backend, *read_only, bench.options);
  std::vector<std::string> warnings;
  DispatcherOptions options;
  options.max_rows = bench.options.max_rows;
  options.warn = [&](const std::string& text) { warnings.push_back(text); };
  Dispatcher dispatcher(bench.backend, *read_only, &tuner, options);
  const double weight = 3;
  for (int i = 0; i < 3; ++i) {
    const Bound bound = dispatcher.bind(bench.operation, bench.operation.problem(), {{{&weight, 0}}});
    EXPECT_EQ(bound.select(1).origin, Origin::tuned);
  }
  ASSERT_EQ(warnings.size(), 2u);  // the result, and that confirming it could not be asked for
  EXPECT_THAT(warnings[0], testing::HasSubstr("stays in memory"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Tuner, RefusesAnInvalidProblemBeforeItMeasures) {
  TunedBench bench(crossing());
  EXPECT_THROW(bench.tuner().tune(bench.operation, {"other", {}}), InvalidArgument);
  EXPECT_THAT(bench.backend.runs, IsEmpty());
  EXPECT_THAT(bench.store->all_verdicts(), IsEmpty());
}

// --- misses ---------------------------------------------------------------------------------------------------------

TEST(TunerMiss, IsMeasuredInItsRegimeAndItsRequestServed) {
  TunedBench bench(crossing());
  bench.backend.modes = {LaunchMode::graph, LaunchMode::eager};
  Tuner tuner = bench.tuner();
  Miss miss = bench.miss();
  miss.key.regime = {LaunchMode::eager, L2State::hot, "normal"};
  miss.max_rows = 32;
  tuner.record(miss);
  tuner.record(miss);
  std::vector<Request> requests = bench.store->requests();
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_EQ(requests[0].key, miss.key);
  EXPECT_EQ(requests[0].max_m, 32);
  EXPECT_EQ(requests[0].count, 2);
  EXPECT_EQ(requests[0].reason, "never measured");
  EXPECT_FALSE(requests[0].low_priority);

  tuner.tune(miss);
  EXPECT_THAT(bench.store->requests(), IsEmpty());
  std::vector<crossover::Run> runs = bench.store->runs(miss.key);
  ASSERT_THAT(runs, SizeIs(1));
  ASSERT_TRUE(bench.store->load(runs[0]));
  EXPECT_EQ(runs[0].regime, miss.key.regime);
  for (const Sample& sample : runs[0].samples) EXPECT_LE(sample.m, 32);
}

TEST(TunerMiss, AFailureIsCountedAndTheErrorIsReported) {
  TunedBench bench(crossing());
  Tuner tuner = bench.tuner();
  tuner.record(bench.miss());
  bench.operation.on_workload = [] { throw DeviceError("gone"); };
  EXPECT_THROW(tuner.tune(bench.miss()), DeviceError);
  const std::vector<Request> requests = bench.store->requests();
  ASSERT_THAT(requests, SizeIs(1));
  EXPECT_EQ(requests[0].fails, 1);
  EXPECT_EQ(requests[0].not_before_us, bench.world->unix_us + 600'000'000);
}

TEST(TunerMiss, EveryFailureInARowWaitsLongerAndASuccessForgetsThem) {
  TunedBench bench(crossing());
  Tuner tuner = bench.tuner();
  tuner.record(bench.miss());
  bench.operation.on_workload = [] { throw DeviceError("gone"); };
  for (const std::int64_t seconds : {600, 3600, 86'400, 86'400}) {
    EXPECT_THROW(tuner.tune(bench.miss()), DeviceError);
    ASSERT_THAT(bench.store->requests(), SizeIs(1));
    EXPECT_EQ(bench.store->requests()[0].not_before_us, bench.world->unix_us + seconds * 1'000'000);
    EXPECT_TRUE(tuner.tune(bench.miss())) << "not yet: nothing is measured, nothing fails";
    bench.world->advance(static_cast<double>(seconds) * 1e9);
  }
  bench.operation.on_workload = {};
  EXPECT_TRUE(tuner.tune(bench.miss()));
  EXPECT_THAT(bench.store->requests(), IsEmpty());
  EXPECT_THAT(bench.store->runs(bench.key()), SizeIs(1));
}

TEST(TunerMiss, AFailureThatNobodyAskedForInWritingIsPutOffToo) {
  TunedBench bench(crossing());
  Tuner tuner = bench.tuner();
  bench.operation.on_workload = [] { throw DeviceError("gone"); };
  EXPECT_THROW(tuner.tune(bench.miss()), DeviceError);
  EXPECT_THAT(bench.store->requests(), SizeIs(1));
  EXPECT_TRUE(tuner.tune(bench.miss()));
}

TEST(TunerMiss, WhoeverFindsAnotherAtWorkIsToldAtOnce) {
  TunedBench bench(crossing());
  const auto folder = std::filesystem::temp_directory_path() / ("crossover-claims-" + std::to_string(::getpid()));
  const auto path = folder / "tuning.db";
  const auto first = Store::open(path, Store::Access::read_write),
             second = Store::open(path, Store::Access::read_write);
  bench.backend.uuid = "GPU-of-this-test-" + std::to_string(::getpid());
  Tuner tuner(bench.backend, *second, bench.options);
  {
    const auto key = first->claim(bench.key());
    ASSERT_TRUE(key.has_value());
    EXPECT_FALSE(tuner.tune(bench.miss())) << "another has the key";
    TuneOptions impatient = bench.options;
    impatient.patience = std::chrono::duration<double>(2);
    EXPECT_THROW(tuner.tune(bench.operation, bench.operation.problem(), impatient), Failure);
    EXPECT_GE(bench.backend.slept_ns, 2'000'000'000);
  }
  {
    const auto gpu = claim_gpu(bench.backend.uuid);
    ASSERT_TRUE(gpu.has_value());
    EXPECT_FALSE(tuner.tune(bench.miss())) << "another has the GPU";
  }
  EXPECT_THAT(second->runs(bench.key()), IsEmpty());
  EXPECT_TRUE(tuner.tune(bench.miss()));
  EXPECT_THAT(second->runs(bench.key()), SizeIs(1));
  std::filesystem::remove_all(folder);
}

TEST(Tuner, AnInconclusiveTuningIsToBeTriedAgainLaterEachTime) {
  TunedBench bench(crossing());
  bench.backend.tamper = [](const Timed&, Timing& timing) { timing.flags = kDiscarded; };
  bench.options.max_rows = 4;
  Tuner tuner = bench.tuner();
  int fails = 0;
  for (const std::int64_t seconds : {600, 3600, 86'400}) {
    EXPECT_EQ(tuner.tune(bench.operation, bench.operation.problem()).verdict.status, VerdictStatus::inconclusive);
    const std::vector<Request> requests = bench.store->requests();
    ASSERT_THAT(requests, SizeIs(1));
    EXPECT_TRUE(requests[0].low_priority);
    EXPECT_EQ(requests[0].fails, ++fails);
    EXPECT_EQ(requests[0].not_before_us, bench.world->unix_us + seconds * 1'000'000);
    EXPECT_THAT(requests[0].reason, HasSubstr("inconclusive"));
  }
  bench.backend.tamper = {};
  EXPECT_EQ(tuner.tune(bench.operation, bench.operation.problem()).verdict.status, VerdictStatus::provisional);
  EXPECT_THAT(bench.store->requests(), IsEmpty());
}

TEST(TunerMiss, RefusesWhatItCannotMeasure) {
  TunedBench bench(crossing());
  Tuner tuner = bench.tuner();
  Miss other_device = bench.miss(), other_fill = bench.miss(), nothing = bench.miss();
  other_device.key.device.model = "another";
  other_fill.key.regime.fill = "uniform";
  nothing.operation = nullptr;
  EXPECT_THROW(tuner.tune(other_device), InvalidArgument);
  EXPECT_THROW(tuner.tune(other_fill), InvalidArgument);
  EXPECT_THROW(tuner.tune(nothing), InvalidArgument);
  EXPECT_THAT(bench.backend.runs, IsEmpty());
}

TEST(TunerMiss, WhatSomebodyElseHasMeasuredIsNotMeasuredAgain) {
  TunedBench bench(crossing());
  Tuner tuner = bench.tuner(), another = bench.tuner();
  tuner.tune(bench.miss());
  another.tune(bench.miss());
  EXPECT_THAT(bench.store->runs(bench.key()), SizeIs(1));
  another.tune(bench.miss(true));  // a confirmation
  EXPECT_THAT(bench.store->runs(bench.key()), SizeIs(2));
  bench.backend.own_environment["driver"] = "2";  // what there is has become stale
  another.tune(bench.miss());
  EXPECT_THAT(bench.store->runs(bench.key()), SizeIs(3));
}

TEST(TunerMiss, Triton11494EightThreadsColdTuneExactlyOnce) {
  for (int repeat = 0; repeat < 5; ++repeat) {
    TunedBench bench(crossing());
    bench.options.max_rows = 32;
    Tuner tuner = bench.tuner();
    DispatcherOptions options;
    options.max_rows = 32;
    options.warn = [](const std::string& text) { ADD_FAILURE() << text; };
    Dispatcher dispatcher(bench.backend, *bench.store, &tuner, options);
    const auto data = bench.operation.workload(bench.operation.problem(), {}, bench.world->memory, 32, 1, 1);
    std::barrier start(8);
    std::vector<std::thread> threads;
    std::vector<std::optional<Bound>> bound(8);
    for (std::size_t i = 0; i < bound.size(); ++i)
      threads.emplace_back([&, i] {
        start.arrive_and_wait();
        bound[i] = dispatcher.bind(bench.operation, bench.operation.problem(), data->weights(0));
        EXPECT_NE(bound[i]->select(32).arm, nullptr);
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(bench.store->runs(bench.key()), SizeIs(1));
    dispatcher.refresh();
    for (const auto& each : bound) {
      EXPECT_EQ(each->select(32).arm->id().name, "b");
      EXPECT_EQ(each->select(32).origin, Origin::tuned);
      EXPECT_EQ(each->select(1).arm->id().name, "a");
    }
    bound.clear();
    EXPECT_EQ(bench.world->prepared, 0);
  }
}

// What somebody else measured reaches a layer that was bound before, in the launch mode that was measured.
TEST(TunerMiss, ALayerThatIsBoundSeesWhatWasTunedSince) {
  TunedBench bench(crossing());
  bench.backend.modes = {LaunchMode::graph, LaunchMode::eager};
  Dispatcher dispatcher(bench.backend, *bench.store, nullptr, {.on_miss = MissMode::fallback});
  const auto data = bench.operation.workload(bench.operation.problem(), {}, bench.world->memory, 64, 1, 1);
  const Bound bound = dispatcher.bind(bench.operation, bench.operation.problem(), data->weights(0));
  EXPECT_EQ(bound.select(64, LaunchMode::graph).origin, Origin::fallback);
  const Tuning tuning = bench.tuner().tune(bench.operation, bench.operation.problem());
  EXPECT_EQ(tuning.not_stored, "");
  dispatcher.refresh();
  EXPECT_EQ(bound.select(64, LaunchMode::graph).origin, Origin::tuned) << bound.resolution(LaunchMode::graph).why;
  EXPECT_EQ(bound.select(64, LaunchMode::graph).arm->id().name, "b");
  EXPECT_EQ(bound.select(64, LaunchMode::eager).origin, Origin::fallback);
}

TEST(TunerMiss, VllmIssue52192RowsBeyondTheGridAreOutOfRange) {
  TunedBench bench(crossing());
  Tuner tuner = bench.tuner();
  DispatcherOptions options;
  options.max_rows = 8;
  Dispatcher dispatcher(bench.backend, *bench.store, &tuner, options);
  const auto data = bench.operation.workload(bench.operation.problem(), {}, bench.world->memory, 2048, 1, 1);
  const Bound bound = dispatcher.bind(bench.operation, bench.operation.problem(), data->weights(0));
  EXPECT_EQ(bound.select(8).origin, Origin::tuned);
  EXPECT_EQ(bound.select(2048).origin, Origin::out_of_range);
  EXPECT_EQ(bound.select(2048).arm->id().name, "a");
}

TEST(TunerMiss, Sglang38773ZeroRowsLaunchNothing) {
  TunedBench bench(crossing());
  Tuner tuner = bench.tuner();
  DispatcherOptions options;
  options.max_rows = 8;
  Dispatcher dispatcher(bench.backend, *bench.store, &tuner, options);
  const auto data = bench.operation.workload(bench.operation.problem(), {}, bench.world->memory, 8, 1, 1);
  const Bound bound = dispatcher.bind(bench.operation, bench.operation.problem(), data->weights(0));
  const std::int64_t before = bench.world->now_ns;
  EXPECT_TRUE(bound.launch(data->arguments(1, 0), 0).ok());
  EXPECT_EQ(bench.world->now_ns, before);
  std::vector<crossover::Run> runs = bench.store->runs(bench.key());
  ASSERT_TRUE(bench.store->load(runs.at(0)));
  for (const Sample& sample : runs[0].samples) EXPECT_GE(sample.m, 1);
}

}  // namespace
}  // namespace crossover::fake
