// Times the CPU arms of fp8_block_linear side by side, outside the tuner: for kernel work.
//
//   crossover_arms_benchmark N K THREADS M...
//
// For each M and arm: the least and the median time of a launch over rounds that alternate between the arms, each
// launch on another copy of the data, 256 MiB of it. THREADS 1 takes the calling thread's CPU time, which a busy
// machine disturbs least, and is to be run with `taskset -c 0` and OPENBLAS_NUM_THREADS=1, so that there is no other
// thread; THREADS 0 takes wall time and each arm's own configuration.

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "crossover/dispatch/error.hpp"
#include "crossover/kernels/fp8_block_linear.hpp"

namespace {

using namespace crossover;

class HostMemory final : public Memory {
 public:
  void* allocate(std::size_t bytes) override { return ::operator new (bytes, std::align_val_t{256}); }
  void release(void* data) noexcept override { ::operator delete (data, std::align_val_t{256}); }
  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill(void* to, std::uint8_t byte, std::size_t bytes) override { std::memset(to, byte, bytes); }
  std::size_t available_bytes() override { return std::size_t{1} << 34; }
};

double now_us(bool cpu_time) {
  timespec time{};
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

struct Runner {
  const Arm* arm;
  std::string name;
  std::vector<std::unique_ptr<Prepared>> prepared;  // one per copy
  std::vector<double> times;
  Check check;
};

constexpr std::size_t kPoolBytes = std::size_t{256} << 20;
constexpr double kSeconds = 2;  // per M

void compare(std::int64_t n, std::int64_t k, bool one_thread, Rows rows) {
  const Operation& operation = fp8_block_linear();
  const Problem problem = Fp8BlockLinear{.n = n, .k = k}.problem();
  HostMemory memory;
  const int copies =
      static_cast<int>(std::clamp<std::size_t>(kPoolBytes / operation.workload_bytes_per_copy(problem, rows), 1, 256));
  const auto workload = operation.workload(problem, {}, memory, rows, copies, 1);

  std::vector<Runner> runners;
  std::size_t workspace_bytes = 0;
  const auto add = [&](std::string_view arm_name, const std::string& config) {
    const Arm* const arm = operation.find(arm_name);
    if (arm == nullptr) return;
    workspace_bytes = std::max(workspace_bytes, arm->cost(problem, rows).workspace_bytes);
    Runner runner{arm, std::string(arm_name), {}, {}, {}};
    for (int copy = 0; copy < copies; ++copy)
      runner.prepared.push_back(arm->prepare(problem, workload->weights(copy), config, rows));
    runner.name += " " + runner.prepared.front()->config();
    runners.push_back(std::move(runner));
  };
  if (one_thread) {
    for (const char* isa : {"avx512", "avx2", "portable"}) {
      try {
        add("host_vector", "isa=" + std::string(isa) + " threads=1");
      } catch (const ConfigNotRestorable&) {
        // Not on this processor.
      }
    }
  } else {
    add("host_vector", "");
  }
  add("host_dequant_blas", "");
  if (rows * n * k <= std::int64_t{1} << 26) add("host_reference", "");

  void* const workspace = memory.allocate(workspace_bytes);
  const auto launch = [&](Runner& runner, int copy) {
    const double start = now_us(one_thread);
    const Status status = runner.prepared[static_cast<std::size_t>(copy)]->launch(workload->arguments(rows, copy), rows,
                                                                                  {workspace, workspace_bytes}, {});
    const double time = now_us(one_thread) - start;
    if (!status.ok()) std::printf("%s: %s\n", runner.name.c_str(), status.message);
    return time;
  };
  for (Runner& runner : runners) {
    workload->poison(rows);
    launch(runner, 0);
    runner.check = workload->check(rows, runner.arm->numerics());
  }
  const double end = now_us(false) + kSeconds * 1e6;
  for (int round = 0; round < 5 || (now_us(false) < end && round < 2000); ++round) {
    for (Runner& runner : runners) {
      // The control would take all the time.
      if (runner.name.starts_with("host_reference") && runner.times.size() >= 3) continue;
      runner.times.push_back(launch(runner, (round + 1) % copies));
    }
  }
  for (Runner& runner : runners) {
    std::sort(runner.times.begin(), runner.times.end());
    const double best = runner.times.front(), median = runner.times[runner.times.size() / 2];
    std::printf(
        "%5lld x %-5lld M %-5lld least %10.1f us  median %10.1f us  %6.1f GB/s  %6.1f GFLOP/s  error %.2e %s  %s\n",
        static_cast<long long>(n), static_cast<long long>(k), static_cast<long long>(rows), best, median,
        static_cast<double>(n * k) / best * 1e-3, 2 * static_cast<double>(rows * n * k) / best * 1e-3,
        runner.check.error, runner.check.ok ? "right" : runner.check.detail.c_str(), runner.name.c_str());
  }
  memory.release(workspace);
}

std::int64_t number(const char* text) {
  std::int64_t value = -1;
  const char* const end = text + std::strlen(text);
  if (std::from_chars(text, end, value).ptr != end || value < 0)
    throw InvalidArgument("not a number: " + std::string(text));
  return value;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 5) {
    std::fprintf(stderr, "usage: %s N K THREADS M...   (THREADS: 1, or 0 for each arm's own)\n", arguments[0]);
    return 2;
  }
  try {
    for (int i = 4; i < count; ++i)
      compare(number(arguments[1]), number(arguments[2]), number(arguments[3]) == 1, number(arguments[i]));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code() == ErrorCode::invalid_argument ? 2 : 1;
  }
  return 0;
}
