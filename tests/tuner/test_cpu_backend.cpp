#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#include "bench.hpp"
#include "crossover/tuner/tuner.hpp"

#if defined(__has_feature)
#define HAS_FEATURE(name) __has_feature(name)
#else
#define HAS_FEATURE(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || HAS_FEATURE(address_sanitizer) || \
    HAS_FEATURE(thread_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

namespace crossover {
namespace {

TEST(CpuBackend, DeviceIsThisMachineAndStaysTheSame) {
  const auto backend = cpu_backend();
  const Device& device = backend->device();
  EXPECT_EQ(device.kind, "cpu");
  EXPECT_FALSE(device.model.empty());
  EXPECT_TRUE(device.compute_capability.starts_with("x86-64") || device.compute_capability == "generic");
  EXPECT_GE(device.sm_count, 1);
  EXPECT_GT(device.l2_bytes, 0);
  EXPECT_GE(device.memory_gib, 1);
  EXPECT_EQ(cpu_backend()->device(), device);
}

TEST(CpuBackend, CountsTheCpusOfTheAffinityMask) {
  cpu_set_t all;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  int first = 0;
  while (!CPU_ISSET(first, &all)) ++first;
  int count = 0;
  std::string condition;
  std::thread([&] {  // the mask of one thread
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
    const auto backend = cpu_backend();
    count = backend->device().sm_count;
    condition = backend->conditions().at("affinity_cpus");
  })
      .join();
  EXPECT_EQ(count, 1);
  EXPECT_EQ(condition, "1");
}

TEST(CpuBackend, EnvironmentNamesEveryFieldAndTakesMore) {
  const Environment plain = cpu_backend()->environment();
  for (const std::string_view name : {"driver", "cuda", "cublaslt", "crossover", "commit", "compiler", "os"}) {
    const auto found = plain.find(std::string(name));
    ASSERT_NE(found, plain.end()) << name;
    EXPECT_FALSE(found->second.empty()) << name;
  }
  EXPECT_EQ(plain.at("driver"), "none");
  EXPECT_FALSE(plain.contains("blas"));
  EXPECT_EQ(cpu_backend({{"blas", "Some BLAS 1.2"}})->environment().at("blas"), "Some BLAS 1.2");
}

TEST(CpuBackend, ConditionsAreReadNowAndNeverMadeUp) {
  const auto backend = cpu_backend();
  std::this_thread::sleep_for(std::chrono::milliseconds(60));
  const Conditions conditions = backend->conditions();
  EXPECT_TRUE(conditions.contains("load_average"));
  EXPECT_TRUE(conditions.contains("affinity_cpus"));
  const bool has_governor = access("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", R_OK) == 0;
  EXPECT_EQ(conditions.contains("governor"), has_governor);
  if (conditions.contains("steal_share")) {
    const double share = std::stod(conditions.at("steal_share"));
    EXPECT_GE(share, 0);
    EXPECT_LE(share, 1);
  }
  for (const auto& [name, value] : conditions) EXPECT_FALSE(value.empty()) << name;
}

TEST(CpuBackend, OnlyLaunchesEagerly) {
  const auto backend = cpu_backend();
  EXPECT_THAT(std::vector<LaunchMode>(backend->launch_modes().begin(), backend->launch_modes().end()),
              testing::ElementsAre(LaunchMode::eager));
  EXPECT_THROW(backend->batch(LaunchMode::graph, {}), InvalidArgument);
}

TEST(CpuMemory, IsAlignedAndWritable) {
  const auto backend = cpu_backend();
  Memory& memory = backend->memory();
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, std::size_t{255}, std::size_t{4097}, std::size_t{1} << 20}) {
    void* data = memory.allocate(bytes);
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 256, 0u);
    memory.fill(data, 0xab, bytes);
    std::vector<unsigned char> back(bytes);
    memory.download(back.data(), data, bytes);
    EXPECT_EQ(std::count(back.begin(), back.end(), 0xab), static_cast<std::ptrdiff_t>(bytes));
    memory.release(data);
  }
}

TEST(CpuMemory, RefusesMoreThanThereIs) {
  const auto backend = cpu_backend();
  Memory& memory = backend->memory();
  const std::size_t available = memory.available_bytes();
  EXPECT_GT(available, 0u);
  // Linux would hand it out all the same and kill somebody later.
  EXPECT_THROW(memory.allocate(available + (std::size_t{1} << 32)), OutOfMemory);
  EXPECT_THROW(memory.allocate(static_cast<std::size_t>(-1)), OutOfMemory);
  EXPECT_THROW(memory.allocate(static_cast<std::size_t>(-1) - 300), OutOfMemory);
}

TEST(CpuMemory, RespectsTheLimitOfTheAddressSpace) {
  if (SANITIZED) GTEST_SKIP() << "a sanitizer's shadow needs the whole address space";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto backend = cpu_backend();
    const rlimit limit{std::size_t{2} << 30, std::size_t{2} << 30};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(2);
    if (backend->memory().available_bytes() > std::size_t{2} << 30) _exit(3);
    try {
      backend->memory().allocate(std::size_t{3} << 30);
    } catch (const OutOfMemory&) {
      _exit(0);
    } catch (...) {
      _exit(4);
    }
    _exit(5);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(CpuBackend, PoolIsColdButModest) {
  const auto backend = cpu_backend();
  const std::size_t pool = backend->cold_pool_bytes();
  EXPECT_GT(pool, std::size_t{1} << 20);
  EXPECT_LE(pool, std::size_t{256} << 20);
  EXPECT_LE(pool, static_cast<std::size_t>(3 * backend->device().l2_bytes));
}

// Real work under the real clock: sums a buffer.
class Spin final : public Prepared {
 public:
  explicit Spin(std::int64_t ns) : ns_(ns) {}
  std::string config() const override { return "-"; }
  Status launch(const Arguments&, Rows, Workspace, Stream) noexcept override {
    const auto end = std::chrono::steady_clock::now() + std::chrono::nanoseconds(ns_);
    while (std::chrono::steady_clock::now() < end) {
    }
    return {};
  }

 private:
  std::int64_t ns_;
};

TEST(CpuBackend, TimesAllLaunchesOfABatchAndReportsTheFirstFailure) {
  const auto backend = cpu_backend();
  Spin spin(300'000);
  const Launch launch{&spin, {}, 1, {}};
  EXPECT_GE(backend->run(launch).total_ns, 300e3);
  const auto batch = backend->batch(LaunchMode::eager, {launch, launch, launch, launch});
  const Timing timing = backend->time(*batch);
  EXPECT_TRUE(timing.status.ok());
  EXPECT_GE(timing.total_ns, 1200e3);
  EXPECT_EQ(timing.flags, 0u);

  class Failing final : public Prepared {
   public:
    std::string config() const override { return "-"; }
    Status launch(const Arguments&, Rows, Workspace, Stream) noexcept override {
      return {Status::Code::unsupported, 7, "cannot"};
    }
  } failing;
  const auto mixed = backend->batch(LaunchMode::eager, {launch, {&failing, {}, 1, {}}, launch});
  const Timing failed = backend->time(*mixed);
  EXPECT_EQ(failed.status.code, Status::Code::unsupported);
  EXPECT_EQ(failed.status.detail, 7);
}

// The synthetic operation, but each launch takes its time on the real clock.
fake::ArmSpec spinning(std::string name, double ns) {
  fake::ArmSpec spec;
  spec.name = std::move(name);
  spec.ns = [](Rows) { return 0.0; };
  spec.on_launch = [ns](Rows) {
    Spin(static_cast<std::int64_t>(ns)).launch({}, 1, {}, {});
    return Status{};
  };
  return spec;
}

TEST(CpuBackend, MeasuresCleanRowsUnderItsOwnLimits) {
  auto world = std::make_shared<fake::World>();
  fake::FakeOperation operation(world, {spinning("slow", 60e3), spinning("fast", 20e3)});
  const auto backend = cpu_backend();
  TuneOptions options;
  options.max_rows = 8;
  options.budget = std::chrono::duration<double>(1.0);
  const crossover::Run run = measure(*backend, operation, operation.problem(), options);
  EXPECT_EQ(run.dirty_mask, 0u);
  ASSERT_FALSE(run.samples.empty());
  for (const Sample& sample : run.samples) EXPECT_EQ(sample.dirty_mask, 0u) << sample.arm << " " << sample.m;
  for (const Rows m : {1, 2, 4, 8}) {
    const Sample* slow = fake::sample_of(run, "slow", m);
    const Sample* fast = fake::sample_of(run, "fast", m);
    ASSERT_NE(slow, nullptr);
    ASSERT_NE(fast, nullptr);
    EXPECT_GT(slow->median_ns, 2 * fast->median_ns);
  }
}

TEST(CpuBackend, ABudgetOfTwoSecondsHoldsWithTwoHundredSlowArms) {
  std::vector<fake::ArmSpec> specs;
  for (int i = 0; i < 200; ++i) specs.push_back(spinning("arm_" + std::to_string(i), 100e6));
  auto world = std::make_shared<fake::World>();
  fake::FakeOperation operation(world, std::move(specs));
  const auto backend = cpu_backend();
  TuneOptions options;
  options.max_rows = 8192;
  options.budget = std::chrono::duration<double>(2);
  const auto begin = std::chrono::steady_clock::now();
  const crossover::Run run = measure(*backend, operation, operation.problem(), options);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), SANITIZED ? 6.0 : 3.0);
  EXPECT_GT(took.count(), 1.0);
  ASSERT_NE(fake::sample_of(run, "arm_0", 1), nullptr);
  for (const Sample& sample : run.samples) EXPECT_GE(fake::counted(sample), 1u);
}

}  // namespace
}  // namespace crossover
