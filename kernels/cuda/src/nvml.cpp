#include "nvml.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>

#include "crossover/dispatch/evidence.hpp"

namespace crossover::cuda {
namespace {

// NVML's binary interface, as far as it is used here: all of it has been stable since version 5 of the library, and a
// function that a driver lacks is simply not found.
using Return = int;
constexpr Return kSuccess = 0, kInsufficientSize = 7;
using DeviceHandle = void*;
struct Utilization {
  unsigned gpu, memory;
};
struct ProcessInfo {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
};
struct ViolationTime {
  unsigned long long reference_us, violation_ns;
};
constexpr int kPolicyThermal = 1;
// Clock event reasons.
constexpr unsigned long long kGpuIdle = 0x1, kSwPowerCap = 0x4, kHwSlowdown = 0x8, kSwThermal = 0x20, kHwThermal = 0x40,
                             kHwPowerBrake = 0x80;
constexpr int kClockSm = 1, kClockMemory = 2;
constexpr int kTemperatureGpu = 0;
constexpr int kFeatureEnabled = 1;
constexpr int kEccUncorrected = 1, kEccVolatile = 0;

using Init = Return (*)();
using Text = Return (*)(DeviceHandle, char*, unsigned);
using SystemText = Return (*)(char*, unsigned);
using ByBusId = Return (*)(const char*, DeviceHandle*);
using Number = Return (*)(DeviceHandle, unsigned*);
using IndexedNumber = Return (*)(DeviceHandle, int, unsigned*);
using TwoNumbers = Return (*)(DeviceHandle, unsigned*, unsigned*);
using Wide = Return (*)(DeviceHandle, unsigned long long*);
using EccErrors = Return (*)(DeviceHandle, int, int, unsigned long long*);
using UtilizationRates = Return (*)(DeviceHandle, Utilization*);
using Violations = Return (*)(DeviceHandle, int, ViolationTime*);
using Processes = Return (*)(DeviceHandle, unsigned*, ProcessInfo*);

}  // namespace

template <typename Function>
Function Nvml::find(const char* name) const {
  return library_ == nullptr ? nullptr : reinterpret_cast<Function>(dlsym(library_, name));
}

Nvml::~Nvml() {
  if (library_ == nullptr) return;
  if (const auto shutdown = find<Init>("nvmlShutdown")) shutdown();
  dlclose(library_);
}

void Nvml::open(const std::string& bus_id) {
  library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  const auto init = find<Init>("nvmlInit_v2");
  const auto by_bus_id = find<ByBusId>("nvmlDeviceGetHandleByPciBusId_v2");
  if (init == nullptr || by_bus_id == nullptr || init() != kSuccess) {
    if (library_ != nullptr) dlclose(library_);
    library_ = nullptr;
    return;
  }
  if (by_bus_id(bus_id.c_str(), &device_) != kSuccess) device_ = nullptr;
}

std::string Nvml::driver_version() const {
  const auto read = find<SystemText>("nvmlSystemGetDriverVersion");
  std::array<char, 96> text{};
  return read != nullptr && read(text.data(), text.size()) == kSuccess ? text.data() : "";
}

std::string Nvml::uuid() const {
  const auto read = find<Text>("nvmlDeviceGetUUID");
  std::array<char, 96> text{};
  return read != nullptr && device_ != nullptr && read(device_, text.data(), text.size()) == kSuccess ? text.data()
                                                                                                      : "";
}

Conditions Nvml::conditions(std::span<const int> idle_partners) {
  const std::lock_guard lock(mutex_);
  Conditions now;
  if (device_ == nullptr) return now;
  const auto number = [&](const char* name, const char* function, double scale = 1) {
    unsigned value = 0;
    const auto read = find<Number>(function);
    if (read == nullptr || read(device_, &value) != kSuccess) return;
    char text[32];
    std::snprintf(text, sizeof(text), "%.10g", static_cast<double>(value) * scale);
    now[name] = text;
  };
  const auto indexed = [&](const char* name, const char* function, int index) {
    unsigned value = 0;
    const auto read = find<IndexedNumber>(function);
    if (read != nullptr && read(device_, index, &value) == kSuccess) now[name] = std::to_string(value);
  };
  number("power_limit_w", "nvmlDeviceGetEnforcedPowerLimit", 1e-3);
  number("power_w", "nvmlDeviceGetPowerUsage", 1e-3);
  indexed("temperature_c", "nvmlDeviceGetTemperature", kTemperatureGpu);
  indexed("sm_clock_mhz", "nvmlDeviceGetClockInfo", kClockSm);
  indexed("memory_clock_mhz", "nvmlDeviceGetClockInfo", kClockMemory);
  indexed("max_sm_clock_mhz", "nvmlDeviceGetMaxClockInfo", kClockSm);
  number("persistence", "nvmlDeviceGetPersistenceMode");

  unsigned current = 0, pending = 0;
  if (const auto read = find<TwoNumbers>("nvmlDeviceGetEccMode");
      read != nullptr && read(device_, &current, &pending) == kSuccess) {
    now["ecc"] = current == kFeatureEnabled ? "on" : "off";
  }
  if (const auto read = find<TwoNumbers>("nvmlDeviceGetMigMode");
      read != nullptr && read(device_, &current, &pending) == kSuccess) {
    now["mig_profile"] = current == kFeatureEnabled ? "on" : "off";
  }
  unsigned long long errors = 0;
  if (const auto read = find<EccErrors>("nvmlDeviceGetTotalEccErrors");
      read != nullptr && read(device_, kEccUncorrected, kEccVolatile, &errors) == kSuccess) {
    now["ecc_uncorrected"] = std::to_string(errors);
  }
  if (const auto reasons = event_reasons()) {
    char text[32];
    std::snprintf(text, sizeof(text), "0x%llx", *reasons);
    now["clock_event_reasons"] = text;
  }
  ViolationTime thermal{};
  if (const auto read = find<Violations>("nvmlDeviceGetViolationStatus");
      read != nullptr && read(device_, kPolicyThermal, &thermal) == kSuccess) {
    now["thermal_slowdown_ns"] = std::to_string(thermal.violation_ns);
  }
  Utilization utilization{};
  if (const auto read = find<UtilizationRates>("nvmlDeviceGetUtilizationRates");
      read != nullptr && read(device_, &utilization) == kSuccess) {
    now["utilization_percent"] = std::to_string(utilization.gpu);
  }
  read_processes(now, idle_partners);
  return now;
}

// This process holds a context on the device, so NVML lists it where it sees it by the number that it has here. Where
// it does not (a container that numbers processes on its own), one of those that are listed may be this one: then all
// but one are surely others, and one alone says nothing.
void Nvml::read_processes(Conditions& now, std::span<const int> idle_partners) const {
  const auto read = find<Processes>("nvmlDeviceGetComputeRunningProcesses_v3");
  if (read == nullptr) return;
  std::array<ProcessInfo, 64> processes{};
  unsigned count = processes.size();
  const Return result = read(device_, &count, processes.data());
  if (result == kInsufficientSize) {
    now["other_processes"] = std::to_string(count - 1);
    return;
  }
  if (result != kSuccess) return;
  const auto partner = [&](const ProcessInfo& process) {
    return std::find(idle_partners.begin(), idle_partners.end(), static_cast<int>(process.pid)) != idle_partners.end();
  };
  count =
      static_cast<unsigned>(std::remove_if(processes.begin(), processes.begin() + count, partner) - processes.begin());
  const auto self = std::find_if(processes.begin(), processes.begin() + count, [](const ProcessInfo& process) {
    return process.pid == static_cast<unsigned>(getpid());
  });
  if (self != processes.begin() + count || count > 1) now["other_processes"] = std::to_string(count - 1);
}

std::optional<unsigned long long> Nvml::event_reasons() const {
  unsigned long long reasons = 0;
  auto read = find<Wide>("nvmlDeviceGetCurrentClocksEventReasons");
  if (read == nullptr) read = find<Wide>("nvmlDeviceGetCurrentClocksThrottleReasons");  // its older name
  if (read == nullptr || device_ == nullptr || read(device_, &reasons) != kSuccess) return std::nullopt;
  return reasons;
}

std::uint32_t Nvml::round_flags() {
  const std::lock_guard lock(mutex_);
  const auto reasons = event_reasons();
  if (!reasons) return 0;
  std::uint32_t flags = 0;
  if ((*reasons & (kHwSlowdown | kSwThermal | kHwThermal | kHwPowerBrake)) != 0) flags |= kDiscarded | kThrottled;
  if ((*reasons & kSwPowerCap) != 0) flags |= kPowerCapped;
  if ((*reasons & kGpuIdle) != 0) flags |= kDeviceIdle;
  return flags;
}

}  // namespace crossover::cuda
