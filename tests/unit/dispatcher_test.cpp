#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "synthetic.hpp"

namespace crossover {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

// y[i] = 2·x[i] for rows of 8 floats. Two arms that do it alike; the third takes even row counts only.
class Twice final : public Operation {
 public:
  struct Arm2 final : Arm {
    Arm2(ArmId id, Twice& operation, RowDomain domain = {})
        : id_(std::move(id)), operation_(operation), domain_(domain) {}
    const ArmId& id() const noexcept override { return id_; }
    std::string_view numerics() const noexcept override { return "a16"; }
    bool batch_invariant() const noexcept override { return true; }
    Eligibility supports(const Problem&, Rows rows, const Device&) const override {
      if (!domain_.contains(rows)) return Eligibility::no("odd row count");
      return {true, "", domain_};
    }
    Cost cost(const Problem&, Rows rows) const override {
      return {.workspace_bytes = static_cast<std::size_t>(rows * workspace_per_row_)};
    }
    std::unique_ptr<Prepared> prepare(const Problem&, const Weights&, std::string_view config, Rows) const override {
      ++operation_.prepared;
      if (operation_.refuse == id_.name && !config.empty())
        throw ConfigNotRestorable("the configuration " + std::string(config) + " is gone");
      struct Doubler final : Prepared {
        std::string config() const override { return "-"; }
        Status launch(const Arguments& arguments, Rows rows, Workspace, Stream) noexcept override {
          const auto* x = static_cast<const float*>(arguments.inputs[0].data);
          auto* y = static_cast<float*>(arguments.outputs[0].data);
          for (Rows i = 0; i < 8 * rows; ++i) y[i] = 2 * x[i];
          return {};
        }
      };
      return std::make_unique<Doubler>();
    }
    ArmId id_;
    Twice& operation_;
    RowDomain domain_;
    Rows workspace_per_row_ = 1;
  };

  std::string_view name() const noexcept override { return "twice"; }
  std::span<const Arm* const> arms() const noexcept override { return list_; }
  std::span<const NumericsClass> numerics() const noexcept override { return numerics_; }
  std::vector<DefaultArm> default_arms(const Problem&, const Device&) const override { return {{kMaxRows, "small"}}; }
  Problem normalise(const Problem& problem) const override {
    if (problem.operation != "twice") throw InvalidArgument("this is not twice");
    return problem;
  }
  std::size_t workload_bytes_per_copy(const Problem&, Rows) const override { return 0; }
  std::unique_ptr<Workload> workload(const Problem&, const Regime&, Memory&, Rows, int, std::uint64_t) const override {
    return nullptr;
  }

  mutable std::atomic<int> prepared{0};
  std::string refuse;
  Arm2 small_{{"small", "f1"}, *this};
  Arm2 large_{{"large", "f1"}, *this};
  std::vector<const Arm*> list_{&large_, &small_};
  std::vector<NumericsClass> numerics_{{"a16", true}, {"w16", true}, {"a8", false}};
};

class TestMachine final : public Machine {
 public:
  const Device& device() const override { return device_; }
  Environment environment() const override { return synthetic::environment(); }
  Conditions conditions() override { return {{"governor", "performance"}}; }
  std::span<const LaunchMode> launch_modes() const override { return modes_; }
  Device device_ = synthetic::device();
  std::vector<LaunchMode> modes_{LaunchMode::eager};
};

class TestMiss final : public OnMiss {
 public:
  explicit TestMiss(std::function<void()> on_tune) : on_tune_(std::move(on_tune)) {}
  bool tune(const Miss&) override {
    ++asked;
    if (busy) return false;
    ++tuned;
    on_tune_();
    return true;
  }
  void record(const Miss& miss) override {
    ++recorded;
    low_priority = miss.low_priority;
  }
  std::atomic<int> asked{0}, tuned{0}, recorded{0};
  std::atomic<bool> busy{false};  // somebody else is measuring
  bool low_priority = false;

 private:
  std::function<void()> on_tune_;
};

struct DispatcherTest : testing::Test {
  void learn() {
    source.add(synthetic::run(spec));
    source.conclude();
  }
  DispatcherOptions options(MissMode mode = MissMode::fallback) {
    return {.on_miss = mode, .warn = [this](const std::string& text) { warnings.push_back(text); }};
  }
  synthetic::RunSpec spec = synthetic::two_arms();
  Twice twice;
  TestMachine machine;
  synthetic::Source source;
  TestMiss on_miss{[this] { learn(); }};
  std::vector<std::string> warnings;
};

TEST_F(DispatcherTest, SelectsAndLaunches) {
  learn();
  Dispatcher dispatcher(machine, source, &on_miss, options());
  const Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
  EXPECT_EQ(bound.select(1).arm->id().name, "small");
  EXPECT_EQ(bound.select(32).arm->id().name, "small");
  EXPECT_EQ(bound.select(64).arm->id().name, "large");
  EXPECT_EQ(bound.select(64).origin, Origin::tuned);
  EXPECT_EQ(bound.select(257).origin, Origin::out_of_range);
  EXPECT_EQ(bound.select(0).arm->id().name, "small");
  EXPECT_EQ(bound.select(-5).arm->id().name, "small");
  EXPECT_EQ(bound.largest_out_of_range(), 257);
  EXPECT_EQ(bound.select(64, LaunchMode::graph).arm->id().name, "large");  // a mode that the machine does not have
  EXPECT_EQ(bound.workspace_bytes(1000), 1024U);

  std::vector<float> x(16, 3), y(16, 0);
  const ConstOperand in{x.data()};
  const Operand out{y.data()};
  EXPECT_TRUE(bound.launch({{&in, 1}, {&out, 1}}, 2).ok());
  EXPECT_EQ(y[15], 6);
  y.assign(16, -1);
  EXPECT_TRUE(bound.launch({{&in, 1}, {&out, 1}}, 0).ok());
  EXPECT_EQ(y[0], -1);
  EXPECT_EQ(bound.launch({{&in, 1}, {&out, 1}}, -1).code, Status::Code::invalid);
}

TEST_F(DispatcherTest, MissModes) {
  {
    Dispatcher dispatcher(machine, source, &on_miss, options(MissMode::fallback));
    EXPECT_EQ(dispatcher.bind(twice, synthetic::problem(), {}).select(64).origin, Origin::fallback);
    EXPECT_EQ(on_miss.recorded + on_miss.tuned, 0);
  }
  {
    Dispatcher dispatcher(machine, source, &on_miss, options(MissMode::record));
    EXPECT_EQ(dispatcher.bind(twice, synthetic::problem(), {}).select(64).origin, Origin::fallback);
    EXPECT_EQ(on_miss.recorded, 1);
    EXPECT_FALSE(on_miss.low_priority);
  }
  {
    Dispatcher dispatcher(machine, source, &on_miss, options(MissMode::error));
    EXPECT_THROW(dispatcher.bind(twice, synthetic::problem(), {}), NoVerdict);
  }
  {
    Dispatcher dispatcher(machine, source, &on_miss, options(MissMode::tune));
    EXPECT_EQ(dispatcher.bind(twice, synthetic::problem(), {}).select(64).origin, Origin::tuned);
    EXPECT_EQ(on_miss.tuned, 1);
    // The second time there is an answer; provisional, so confirming it is requested, not done.
    EXPECT_EQ(dispatcher.bind(twice, synthetic::problem(), {}).select(64).origin, Origin::tuned);
    EXPECT_EQ(on_miss.tuned, 1);
    EXPECT_EQ(on_miss.recorded, 2);
    EXPECT_TRUE(on_miss.low_priority);
  }
}

TEST_F(DispatcherTest, OverridesBeatTheOptions) {
  DispatcherOptions some = options(MissMode::tune);
  some.overrides.on_miss = MissMode::error;
  Dispatcher dispatcher(machine, source, &on_miss, some);
  EXPECT_THROW(dispatcher.bind(twice, synthetic::problem(), {}), NoVerdict);
}

TEST_F(DispatcherTest, ColdThreadsTuneOnceAndNobodyWaits) {
  std::atomic<bool> release{false};
  TestMiss slow{[&] {
    while (!release) std::this_thread::yield();
    learn();
  }};
  Dispatcher dispatcher(machine, source, &slow, options(MissMode::tune));
  std::vector<Bound> bounds;
  std::mutex mutex;
  std::vector<std::thread> threads;
  std::atomic<int> done{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
      const std::lock_guard lock(mutex);
      bounds.push_back(std::move(bound));
      ++done;
    });
  while (done < 7) std::this_thread::yield();  // all but the one that tunes
  {
    const std::lock_guard lock(mutex);
    for (const Bound& bound : bounds) EXPECT_EQ(bound.select(64).origin, Origin::fallback);
  }
  release = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(slow.tuned, 1);
  for (const Bound& bound : bounds) EXPECT_EQ(bound.select(64).origin, Origin::tuned);
}

TEST_F(DispatcherTest, RefreshPublishesWhatOthersStored) {
  Dispatcher dispatcher(machine, source, &on_miss, options());
  const Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
  EXPECT_EQ(bound.select(64).arm->id().name, "small");
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      const Choice choice = bound.select(64);
      ASSERT_NE(choice.prepared, nullptr);
    }
  });
  learn();
  dispatcher.refresh();
  EXPECT_EQ(bound.select(64).arm->id().name, "large");
  EXPECT_EQ(bound.resolution(LaunchMode::eager).plan[1].arm, "large");
  stop = true;
  reader.join();
}

TEST_F(DispatcherTest, PreparesOnceAndRestoresTheMeasuredConfig) {
  learn();
  Dispatcher dispatcher(machine, source, &on_miss, options());
  const Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
  EXPECT_EQ(twice.prepared, 3);  // small as measured, large as measured, small beyond the grid
  EXPECT_EQ(bound.select(1).prepared->config(), "-");
}

TEST_F(DispatcherTest, AnArmThatCannotBeRestoredIsNotServed) {
  learn();
  twice.refuse = "large";
  Dispatcher dispatcher(machine, source, &on_miss, options());
  const Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
  EXPECT_EQ(bound.select(64).arm->id().name, "small");
  EXPECT_EQ(bound.select(64).origin, Origin::stale);
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0], HasSubstr("is gone"));
}

TEST_F(DispatcherTest, RowsOutsideAnArmsDomainGoToTheDefaultArm) {
  twice.large_.domain_ = {.min = 2, .max = kMaxRows, .multiple = 2};
  learn();
  Dispatcher dispatcher(machine, source, &on_miss, options());
  const Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
  EXPECT_EQ(bound.select(100).arm->id().name, "large");
  EXPECT_EQ(bound.select(101).arm->id().name, "small");
  EXPECT_EQ(bound.select(101).origin, Origin::fallback);
}

TEST_F(DispatcherTest, OutsideAnArmsDomainTheWorkspaceIsKeptToAsWell) {
  Twice::Arm2 spare{{"spare", "f1"}, twice};
  spare.workspace_per_row_ = twice.large_.workspace_per_row_ = 0;
  twice.large_.domain_ = {.min = 2, .max = kMaxRows, .multiple = 2};
  twice.list_.push_back(&spare);
  spec.arms.push_back({.name = "spare", .time_ns = synthetic::line(90000, 100)});
  learn();
  Dispatcher dispatcher(machine, source, &on_miss, options());
  const Bound bound = dispatcher.bind(twice, synthetic::problem(), {}, {.workspace_bytes = 100});
  for (const Rows rows : {64, 66, 100, 102, 256}) EXPECT_EQ(bound.select(rows).arm->id().name, "large") << rows;
  for (const Rows rows : {65, 99}) EXPECT_EQ(bound.select(rows).arm->id().name, "small") << rows;
  for (const Rows rows : {101, 255, 257}) EXPECT_EQ(bound.select(rows).arm->id().name, "spare") << rows;
}

TEST_F(DispatcherTest, ABrokenDatabaseCostsNothingButTheTuning) {
  source.broken = true;
  Dispatcher dispatcher(machine, source, &on_miss, options());
  for (int i = 0; i < 3; ++i) {
    const Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
    EXPECT_EQ(bound.select(64).arm->id().name, "small");
    EXPECT_EQ(bound.select(64).origin, Origin::fallback);
  }
  EXPECT_THAT(warnings, testing::ElementsAre("the database is broken"));
}

TEST_F(DispatcherTest, AMissWithoutADatabaseSaysWhyThereIsNone) {
  DispatcherOptions without = options(MissMode::error);
  without.no_database = "the database is a folder";
  const auto complaint = [&] {
    try {
      Dispatcher(machine, source, &on_miss, without).bind(twice, synthetic::problem(), {});
    } catch (const NoVerdict& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(complaint(), HasSubstr("the database is a folder"));
  without.on_miss = MissMode::fallback;
  without.overrides.frozen = true;
  EXPECT_THAT(complaint(), HasSubstr("the database is a folder"));
  learn();  // what is measured stays in memory, and is no miss
  EXPECT_EQ(complaint(), "");
}

TEST_F(DispatcherTest, WhatAnotherProcessMeasuresIsServedWhenItIsThere) {
  on_miss.busy = true;
  Dispatcher dispatcher(machine, source, &on_miss, options(MissMode::tune));
  const Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
  EXPECT_EQ(bound.select(64).origin, Origin::fallback) << "nobody waits";
  EXPECT_EQ(on_miss.tuned, 0);
  learn();  // the other one has stored it
  dispatcher.refresh();
  EXPECT_EQ(bound.select(64).origin, Origin::tuned);
  EXPECT_EQ(on_miss.tuned, 0);
  const int asked = on_miss.asked;
  dispatcher.refresh();
  EXPECT_EQ(on_miss.asked, asked) << "there is nothing left to ask for";
}

TEST_F(DispatcherTest, WhatADeadProcessLeftIsTakenOverAtARefresh) {
  on_miss.busy = true;
  Dispatcher dispatcher(machine, source, &on_miss, options(MissMode::tune));
  const Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
  dispatcher.refresh();
  EXPECT_EQ(bound.select(64).origin, Origin::fallback);
  on_miss.busy = false;  // it is gone, and has stored nothing
  dispatcher.refresh();
  EXPECT_EQ(on_miss.tuned, 1);
  EXPECT_EQ(bound.select(64).origin, Origin::tuned);
  dispatcher.refresh();
  EXPECT_EQ(on_miss.tuned, 1);
}

TEST_F(DispatcherTest, AFailingTunerCostsNothingButTheTuning) {
  TestMiss failing{[] { throw std::runtime_error("no memory"); }};
  Dispatcher dispatcher(machine, source, &failing, options(MissMode::tune));
  EXPECT_EQ(dispatcher.bind(twice, synthetic::problem(), {}).select(64).origin, Origin::fallback);
  ASSERT_THAT(warnings, SizeIs(1));
  EXPECT_THAT(warnings[0], HasSubstr("no memory"));
}

TEST_F(DispatcherTest, FrozenAcceptsOnlyWhatHolds) {
  DispatcherOptions frozen = options();
  frozen.overrides.frozen = true;
  {
    Dispatcher dispatcher(machine, source, &on_miss, frozen);
    EXPECT_THROW(dispatcher.bind(twice, synthetic::problem(), {}), NoVerdict);
  }
  learn();
  {
    Dispatcher dispatcher(machine, source, &on_miss, frozen);
    const Bound bound = dispatcher.bind(twice, synthetic::problem(), {});
    const ConstOperand in{};
    const Operand out{};
    EXPECT_FALSE(bound.launch({{&in, 1}, {&out, 1}}, 300).ok());  // beyond what was measured
  }
  frozen.assumptions = {"driver=999"};
  {
    Dispatcher dispatcher(machine, source, &on_miss, frozen);
    EXPECT_THROW(dispatcher.bind(twice, synthetic::problem(), {}), NoVerdict);
  }
  frozen.overrides.force_arm = "large";
  Dispatcher dispatcher(machine, source, &on_miss, frozen);
  EXPECT_EQ(dispatcher.bind(twice, synthetic::problem(), {}).select(5).origin, Origin::forced);
}

TEST_F(DispatcherTest, FrozenNeitherMeasuresNorRecords) {
  for (const MissMode mode : {MissMode::tune, MissMode::record}) {
    DispatcherOptions frozen = options(mode);
    frozen.overrides.frozen = true;
    source.stored.clear();
    source.made.clear();
    EXPECT_THROW(Dispatcher(machine, source, &on_miss, frozen).bind(twice, synthetic::problem(), {}), NoVerdict);
    learn();  // provisional
    Dispatcher(machine, source, &on_miss, frozen).bind(twice, synthetic::problem(), {});
    EXPECT_EQ(on_miss.tuned + on_miss.recorded, 0);
  }
}

TEST_F(DispatcherTest, BoundOutlivesTheDispatcher) {
  learn();
  auto dispatcher = std::make_unique<Dispatcher>(machine, source, &on_miss, options());
  const Bound bound = dispatcher->bind(twice, synthetic::problem(), {});
  dispatcher.reset();
  EXPECT_EQ(bound.select(64).arm->id().name, "large");
}

TEST_F(DispatcherTest, RegistrationOrderDoesNotMatter) {
  learn();
  Dispatcher dispatcher(machine, source, &on_miss, options());
  const Bound before = dispatcher.bind(twice, synthetic::problem(), {});
  std::swap(twice.list_[0], twice.list_[1]);
  const Bound after = dispatcher.bind(twice, synthetic::problem(), {});
  for (const Rows rows : {1, 63, 64, 256, 257}) {
    EXPECT_EQ(before.select(rows).arm, after.select(rows).arm);
    EXPECT_EQ(before.select(rows).origin, after.select(rows).origin);
  }
  twice.list_ = {&twice.small_};  // an arm removed from the build
  const Bound without = dispatcher.bind(twice, synthetic::problem(), {});
  EXPECT_EQ(without.select(64).arm->id().name, "small");
  EXPECT_EQ(without.select(64).origin, Origin::stale);
}

}  // namespace
}  // namespace crossover
