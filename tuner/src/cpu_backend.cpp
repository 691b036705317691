// The host CPU as a device: everything read from Linux's /proc and /sys, nothing set.

#include <sched.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include "crossover/tuner/tuner.hpp"
#include "host.hpp"
#include "version.hpp"

namespace crossover {
namespace {

using namespace tuning;

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kLargestPool = std::size_t{256} << 20;

// The value of "key: value" or "key value" in a file of such lines.
std::optional<std::string> field(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) {
      continue;
    }
    const std::size_t begin = line.find_first_not_of(" \t:", key.size());
    const bool whole_key = line.size() > key.size() && std::strchr(" \t:", line[key.size()]) != nullptr;
    if (whole_key && begin != std::string::npos) {
      return line.substr(begin);
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> number_in(const std::string& path) {
  const std::optional<std::string> line = read_line(path);
  return line ? whole_number(*line) : std::nullopt;
}

std::string model() {
  if (std::optional<std::string> name = field("/proc/cpuinfo", "model name")) {
    return *name;
  }
  utsname names{};
  return uname(&names) == 0 ? std::string(names.machine) + " CPU" : "unknown CPU";
}

// The x86-64 level of the psABI, by the features that tell the levels apart.
std::string architecture_level() {
#if defined(__x86_64__)
  const bool v2 =
      __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
  return v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : v2 ? "x86-64-v2" : "x86-64";
#else
  return "generic";
#endif
}

// Hardware threads that this process may run on.
std::optional<int> affinity_count() {
  constexpr int kMostCpus = 16384;
  cpu_set_t* set = CPU_ALLOC(kMostCpus);
  if (set == nullptr) {
    return std::nullopt;
  }
  const std::size_t bytes = CPU_ALLOC_SIZE(kMostCpus);
  std::optional<int> count;
  if (sched_getaffinity(0, bytes, set) == 0) {
    count = CPU_COUNT_S(bytes, set);
  }
  CPU_FREE(set);
  return count;
}

// Of the first CPU; 0 if neither /sys nor the C library knows.
std::int64_t last_level_cache_bytes() {
  std::int64_t level = 0, bytes = 0;
  for (int index = 0; index < 16; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index);
    const auto own_level = number_in(folder + "/level");
    const auto size = read_line(folder + "/size");  // "266240K"
    const auto own_bytes = size ? whole_number(*size) : std::nullopt;
    if (own_level && own_bytes && *own_level > level && read_line(folder + "/type") != "Instruction") {
      level = *own_level;
      bytes = size->ends_with('M') ? *own_bytes << 20 : size->ends_with('K') ? *own_bytes << 10 : *own_bytes;
    }
  }
#if defined(_SC_LEVEL3_CACHE_SIZE)
  for (const int name : {_SC_LEVEL3_CACHE_SIZE, _SC_LEVEL2_CACHE_SIZE}) {
    if (bytes <= 0) {
      bytes = sysconf(name);
    }
  }
#endif
  return std::max<std::int64_t>(bytes, 0);
}

std::int64_t memory_gib() {
  const double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  return std::llround(bytes / double(1 << 30));
}

// What a memory controller still grants: limit - (usage - what it could drop at once). Every group up to the root has a
// say.
std::int64_t cgroup_available() {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) {
      continue;
    }
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find(",memory,") == std::string::npos) {
      continue;
    }
    const std::string root = unified ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory";
    for (std::string group = line.substr(second + 1);; group.resize(group.rfind('/'))) {
      const std::string folder = root + group + "/";
      const auto limit = number_in(folder + (unified ? "memory.max" : "memory.limit_in_bytes"));
      const auto usage = number_in(folder + (unified ? "memory.current" : "memory.usage_in_bytes"));
      const auto cached = field(folder + "memory.stat", "inactive_file");
      if (limit && usage) {
        const std::int64_t droppable = cached ? whole_number(*cached).value_or(0) : 0;
        least = std::min(least, *limit - (*usage - std::min(*usage, droppable)));
      }
      if (group.rfind('/') == std::string::npos) {
        break;
      }
    }
  }
  return std::max<std::int64_t>(least, 0);
}

std::int64_t address_space_available() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<std::int64_t>::max();
  }
  const std::int64_t used = number_in("/proc/self/statm").value_or(0) * sysconf(_SC_PAGESIZE);
  const auto most = static_cast<std::int64_t>(
      std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(std::numeric_limits<std::int64_t>::max())));
  return std::max<std::int64_t>(most - used, 0);
}

std::int64_t system_available() {
  const auto kib = field("/proc/meminfo", "MemAvailable");
  const auto value = kib ? whole_number(*kib) : std::nullopt;
  return value ? *value * 1024 : std::numeric_limits<std::int64_t>::max();
}

class CpuMemory final : public Memory {
 public:
  // Linux hands out more than it has and kills later, so what is available is asked first.
  void* allocate(std::size_t bytes) override {
    const std::size_t available = available_bytes();
    if (bytes > available || bytes > std::numeric_limits<std::size_t>::max() - kAlignment) {
      throw OutOfMemory(std::to_string(bytes) + " bytes of memory were asked for, " + std::to_string(available) +
                        " are available");
    }
    const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) {
      throw OutOfMemory(std::to_string(bytes) + " bytes of memory could not be allocated");
    }
    return data;
  }
  void release(void* data) noexcept override { std::free(data); }
  void upload(void* destination, const void* source, std::size_t bytes) override { copy(destination, source, bytes); }
  void download(void* destination, const void* source, std::size_t bytes) override { copy(destination, source, bytes); }
  void copy(void* destination, const void* source, std::size_t bytes) override {
    if (bytes > 0) {
      std::memcpy(destination, source, bytes);
    }
  }
  void fill(void* destination, std::uint8_t byte, std::size_t bytes) override {
    if (bytes > 0) {
      std::memset(destination, byte, bytes);
    }
  }
  std::size_t available_bytes() override {
    return static_cast<std::size_t>(std::min({system_available(), cgroup_available(), address_space_available()}));
  }
};

class CpuBatch final : public Batch {
 public:
  explicit CpuBatch(std::vector<Launch> list) : launches(std::move(list)) {}
  const std::vector<Launch> launches;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(Environment extra) : environment_(std::move(extra)) {
    device_.kind = "cpu";
    device_.model = model();
    device_.compute_capability = architecture_level();
    device_.sm_count = affinity_count().value_or(static_cast<int>(std::thread::hardware_concurrency()));
    device_.l2_bytes = last_level_cache_bytes();
    device_.memory_gib = memory_gib();
    const auto add = [&](std::string_view name, const std::string& value) {
      environment_.try_emplace(std::string(name), value);
    };
    add(environment_field::driver, "none");
    add(environment_field::cuda, "none");
    add(environment_field::cublaslt, "none");
    add(environment_field::crossover, kVersion);
    add(environment_field::commit, kCommit);
    add(environment_field::compiler, kCompiler);
    if (const std::string release = kernel_release(); !release.empty()) add(environment_field::os, release);
    conditions();  // steal time is counted from here
  }

  const Device& device() const override { return device_; }
  Environment environment() const override { return environment_; }
  std::span<const LaunchMode> launch_modes() const override {
    static constexpr LaunchMode kModes[]{LaunchMode::eager};
    return kModes;
  }

  // Any thread: a dispatcher reads them while another thread tunes.
  Conditions conditions() override {
    Conditions now;
    if (auto governor = read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")) {
      now["governor"] = *governor;
    }
    if (auto load = read_line("/proc/loadavg")) {
      now["load_average"] = load->substr(0, load->find(' '));
    }
    if (const auto count = affinity_count()) {
      now["affinity_cpus"] = std::to_string(*count);
    }
    if (const auto share = steal_share()) {
      char text[32];
      std::snprintf(text, sizeof(text), "%.4f", *share);
      now["steal_share"] = text;
    }
    return now;
  }

  Memory& memory() override { return memory_; }

  // Three times the last cache, as on a GPU, but no more than 256 MiB: a virtual machine reports the whole cache of a
  // server that it shares with others, and copies take time to make. And no more than an eighth of the available
  // memory.
  std::size_t cold_pool_bytes() override {
    const std::size_t cache = static_cast<std::size_t>(device_.l2_bytes > 0 ? device_.l2_bytes : 32 << 20);
    return std::min({3 * cache, kLargestPool, memory_.available_bytes() / 8});
  }

  Timing run(const Launch& launch) override { return time_all({&launch, 1}); }
  std::unique_ptr<Batch> batch(LaunchMode mode, std::vector<Launch> launches) override {
    if (mode != LaunchMode::eager) {
      throw InvalidArgument("the CPU has no launch mode " + std::string(to_string(mode)));
    }
    return std::make_unique<CpuBatch>(std::move(launches));
  }
  Timing time(Batch& batch) override { return time_all(dynamic_cast<CpuBatch&>(batch).launches); }

  // The clock resolves some 30 ns; a round of 200 µs keeps that and the loop below 0.1%.
  double min_round_ns() const override { return 200e3; }
  // Calibrated on a busy two-core virtual machine; tuner/MEASURING.md has the figures. Noise is no fault here: no MAD
  // exceeds its median, and no more than half of the rounds are beyond it.
  CleanLimits limits() const override {
    return {
        .mad_over_median = 1, .outlier_z = 200, .outlier_share = 0.5, .discarded_share = 0.30, .placebo_median = 0.25};
  }
  std::int64_t now_ns() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  std::int64_t unix_time_us() override {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  void sleep_ns(std::int64_t ns) override { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }

 private:
  Timing time_all(std::span<const Launch> launches) {
    Timing timing;
    const std::int64_t begin = now_ns();
    for (const Launch& launch : launches) {
      const Status status = launch.prepared->launch(launch.arguments, launch.rows, launch.workspace, Stream{});
      if (!status.ok()) {
        timing.status = status;
        break;
      }
    }
    timing.total_ns = static_cast<double>(now_ns() - begin);
    return timing;
  }

  // Of all CPU time since the last read, what the hypervisor gave to others.
  std::optional<double> steal_share() {
    const auto text = field("/proc/stat", "cpu");
    if (!text) {
      return std::nullopt;
    }
    std::istringstream numbers(*text);
    std::int64_t total = 0, steal = -1, value = 0;
    for (int index = 0; index < 8 && numbers >> value; ++index) {
      total += value;
      steal = index == 7 ? value : steal;
    }
    if (steal < 0) {
      return std::nullopt;
    }
    const std::lock_guard lock(mutex_);
    std::optional<double> share;
    if (last_total_ && total > *last_total_ && steal >= last_steal_) {
      share = static_cast<double>(steal - last_steal_) / static_cast<double>(total - *last_total_);
    }
    last_total_ = total;
    last_steal_ = steal;
    return share;
  }

  Device device_;
  Environment environment_;
  CpuMemory memory_;
  std::mutex mutex_;
  std::optional<std::int64_t> last_total_;
  std::int64_t last_steal_ = 0;
};

}  // namespace

std::unique_ptr<Backend> cpu_backend(Environment extra) { return std::make_unique<CpuBackend>(std::move(extra)); }

}  // namespace crossover
