#pragma once
// What NVML says of a device. The library is looked for at run time: a build needs no driver, and a host without it
// only knows less.

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "crossover/dispatch/problem.hpp"

namespace crossover::cuda {

class Nvml {
 public:
  Nvml() = default;
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  void open(const std::string& bus_id);  // does nothing where NVML cannot be used
  std::string driver_version() const;    // empty: unknown
  std::string uuid() const;              // empty: unknown
  // What could be read now; thread-safe. `idle_partners`: numbers of processes that do not count as others.
  Conditions conditions(std::span<const int> idle_partners = {});
  // Bits of Round::flags that the device's clock event reasons mean now; 0 where they cannot be read. Thread-safe.
  std::uint32_t round_flags();

 private:
  template <typename Function>
  Function find(const char* name) const;
  // The mutex is held.
  std::optional<unsigned long long> event_reasons() const;
  void read_processes(Conditions& now, std::span<const int> idle_partners) const;

  std::mutex mutex_;
  void* library_ = nullptr;
  void* device_ = nullptr;
};

}  // namespace crossover::cuda
