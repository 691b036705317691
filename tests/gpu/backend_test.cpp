// The CUDA device as the tuner sees it, and a whole measurement on it.

#include <gmock/gmock.h>

#include <cmath>

#include "crossover/tuner/tuner.hpp"
#include "gpu_test.hpp"

namespace crossover::test {
namespace {

using testing::HasSubstr;

TEST(CudaBackend, KnowsItsDevice) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  const Device& device = gpu()->device();
  EXPECT_EQ(device.kind, "cuda");
  EXPECT_FALSE(device.model.empty());
  EXPECT_GT(device.sm_count, 0);
  EXPECT_GT(device.l2_bytes, 0);
  EXPECT_GT(device.memory_gib, 0);
  EXPECT_THAT(device.compute_capability, testing::MatchesRegex("[0-9]+\\.[0-9]+"));
  const Environment environment = gpu()->environment();
  for (const auto field : {environment_field::driver, environment_field::cuda, environment_field::cublaslt}) {
    EXPECT_FALSE(environment.at(std::string(field)).empty()) << field;
  }
  EXPECT_EQ(gpu()->launch_modes().size(), 2u);
  EXPECT_GE(gpu()->cold_pool_bytes(), 3 * static_cast<std::size_t>(device.l2_bytes));
}

TEST(CudaBackend, RefusesADeviceThatIsNotThere) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  EXPECT_THROW(cuda_backend(cuda_devices().count), InvalidArgument);
  EXPECT_THROW(cuda_backend(-1), InvalidArgument);
}

TEST(CudaBackend, MovesMemory) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  Memory& memory = gpu()->memory();
  std::vector<std::uint8_t> data(1000), back(1000);
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<std::uint8_t>(i * 7);
  const DeviceBytes a(1000), b(1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a.data()) % 256, 0u);
  memory.upload(a.data(), data.data(), 1000);
  memory.copy(b.data(), a.data(), 1000);
  memory.download(back.data(), b.data(), 1000);
  EXPECT_EQ(back, data);
  memory.fill(b.data(), 0x5A, 1000);
  memory.download(back.data(), b.data(), 1000);
  EXPECT_EQ(back, std::vector<std::uint8_t>(1000, 0x5A));
}

TEST(CudaBackend, FindsTheFirstElementWhereverItLies) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  Memory& memory = gpu()->memory();
  constexpr std::size_t kCount = 5'000'003;  // more than one round of the largest grid, and no multiple of four
  const DeviceBytes bytes(2 * (kCount + 1));
  for (const std::size_t offset : {0, 1}) {  // elements
    auto* const data = static_cast<std::uint16_t*>(bytes.data()) + offset;
    memory.fill(bytes.data(), 0x41, 2 * (kCount + 1));
    const auto find = [&](std::size_t count) { return memory.find16(data, count, 0x7FFF, 0x7F80); };
    EXPECT_EQ(find(kCount), kCount) << offset;
    const std::uint16_t nan = 0xFFC0;
    for (const std::size_t at :
         {kCount - 1, kCount - 2, std::size_t{4'194'304}, std::size_t{1'000'001}, std::size_t{0}}) {
      memory.upload(data + at, &nan, 2);  // and those after it stay
      EXPECT_EQ(find(kCount), at) << offset;
    }
    EXPECT_EQ(find(0), 0u);
  }
}

TEST(CudaBackend, SaysThatMemoryIsShort) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  try {
    gpu()->memory().allocate(std::size_t{1} << 50);
    FAIL();
  } catch (const OutOfMemory& error) {
    EXPECT_THAT(error.what(), HasSubstr("allocating 1125899906842624 bytes of device memory failed"));
  }
  const DeviceBytes works_again(1 << 20);
}

TEST(CudaBackend, TimesTwiceTheLaunchesAtTwiceTheTime) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  const Arm& arm = arm_named("tensor_core/64x64");
  const Problem problem = Fp8BlockLinear{.n = 4096, .k = 4096}.problem();
  const auto workload = fp8_block_linear().workload(problem, Regime{}, gpu()->memory(), 64, 1, 1);
  const auto prepared = arm.prepare(problem, workload->weights(0), "", 64);
  const Launch launch{prepared.get(), workload->arguments(64, 0), 64, {}};
  for (const LaunchMode mode : gpu()->launch_modes()) {
    const auto few = gpu()->batch(mode, std::vector<Launch>(50, launch));
    const auto many = gpu()->batch(mode, std::vector<Launch>(100, launch));
    for (int i = 0; i < 3; ++i) gpu()->time(*many);
    const Timing a = gpu()->time(*few), b = gpu()->time(*many);
    ASSERT_TRUE(a.status.ok() && b.status.ok());
    EXPECT_NEAR(b.total_ns / a.total_ns, 2, 0.4) << to_string(mode);
    EXPECT_GT(a.sm_clock_mhz, 100);
    EXPECT_LT(a.sm_clock_mhz, 5000);
  }
}

// A launch that fails leaves the stream usable and says why, in both modes.
TEST(CudaBackend, ReportsALaunchThatFails) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  Layer layer(Fp8BlockLinear{.n = 128, .k = 128}, 2);
  const DeviceLayer device(layer);
  const Arm& arm = arm_named("cached_cublaslt");
  const auto prepared = device.prepare(arm);
  const DeviceBytes x(1024), y(1024);
  const Fp8BlockLinearArguments arguments(x.data(), y.data());
  const Launch no_workspace{prepared.get(), arguments, 1, {}};
  for (const LaunchMode mode : gpu()->launch_modes()) {
    const auto batch = gpu()->batch(mode, {no_workspace});
    EXPECT_EQ(gpu()->time(*batch).status.code, Status::Code::workspace_too_small) << to_string(mode);
  }
  const DeviceBytes workspace(arm.cost(layer.p.problem(), 1).workspace_bytes);
  EXPECT_TRUE(gpu()->run({prepared.get(), arguments, 1, workspace}).status.ok());
}

TEST(CudaBackend, MeasuresEveryArm) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  const Operation& operation = fp8_block_linear();
  const Problem problem = operation.normalise(Fp8BlockLinear{.n = 1024, .k = 1024}.problem());
  TuneOptions options;
  options.max_rows = 64;
  options.budget = std::chrono::duration<double>(6);
  options.seed = 5;
  const crossover::Run run = measure(*gpu(), operation, problem, options);
  for (const Attempt& attempt : run.attempts) {
    EXPECT_NE(attempt.outcome, Outcome::wrong_result) << attempt.arm << ": " << attempt.detail;
    EXPECT_NE(attempt.outcome, Outcome::failed) << attempt.arm << ": " << attempt.detail;
  }
  for (const std::string& name : cuda_arm_names()) {
    if (!arm_named(name).supports(problem, 8, gpu()->device())) continue;
    const bool seen =
        std::any_of(run.samples.begin(), run.samples.end(), [&](const Sample& s) { return s.arm == name; }) ||
        std::any_of(run.attempts.begin(), run.attempts.end(), [&](const Attempt& a) { return a.arm == name; });
    EXPECT_TRUE(seen) << name;
  }
  for (const Sample& sample : run.samples) {
    EXPECT_TRUE(std::isfinite(sample.median_ns) && sample.median_ns > 0) << sample.arm << " at " << sample.m;
  }
}

// Rows that are no multiple of a tile must not fall to a slow path.
TEST(CudaBackend, OddRowCountsAreNotSlow) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  const Problem problem = Fp8BlockLinear{.n = 7168, .k = 2048}.problem();
  const auto workload = fp8_block_linear().workload(problem, Regime{}, gpu()->memory(), 8192, 4, 1);
  for (const std::string& name : cuda_arm_names()) {
    const Arm& arm = arm_named(name);
    if (name.starts_with("tiled_scalar") || !arm.supports(problem, 8192, gpu()->device())) continue;
    std::vector<std::unique_ptr<Prepared>> prepared;
    for (int copy = 0; copy < 4; ++copy) {
      prepared.push_back(arm.prepare(problem, workload->weights(copy), copy == 0 ? "" : prepared[0]->config(), 8192));
    }
    const DeviceBytes workspace(arm.cost(problem, 8192).workspace_bytes);
    for (const auto& [odd, even] : {std::pair<Rows, Rows>{8191, 8192}, {1001, 1000}}) {
      if (!arm.supports(problem, odd, gpu()->device())) continue;
      double best[2] = {1e300, 1e300};
      std::unique_ptr<Batch> batches[2];
      for (int i = 0; i < 2; ++i) {
        const Rows rows = i == 0 ? odd : even;
        std::vector<Launch> launches;
        for (std::size_t copy = 0; copy < 4; ++copy) {
          launches.push_back(
              {prepared[copy].get(), workload->arguments(rows, static_cast<int>(copy)), rows, workspace});
        }
        batches[i] = gpu()->batch(LaunchMode::graph, launches);
      }
      for (int repeat = 0; repeat < 8; ++repeat) {
        for (int i = 0; i < 2; ++i) {
          const Timing timing = gpu()->time(*batches[i]);
          ASSERT_TRUE(timing.status.ok()) << timing.status.message;
          best[i] = std::min(best[i], timing.total_ns);
        }
      }
      // cuBLASLt's block-scaled product takes multiples of 4 only: an odd row count is two products.
      const double most = name == "cublaslt_fp8_block" && odd < 4096 ? 1.3 : 1.1;
      EXPECT_LT(best[0] / best[1], most) << name << " at M = " << odd << " against " << even;
    }
  }
}

}  // namespace
}  // namespace crossover::test
