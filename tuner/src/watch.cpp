#include "watch.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>
#include <utility>

#include "clean.hpp"

namespace crossover::tuning {
namespace {

constexpr std::int64_t kPeriodNs = 1'000'000'000;    // between two readings
constexpr std::int64_t kIdleStepNs = 250'000'000;    // between two looks at whether the device is idle
constexpr std::int64_t kOwnTraceNs = 2'000'000'000;  // after a run, how long its load may still be seen

constexpr std::string_view kUtilisation = "utilization_percent";
constexpr std::string_view kOthers = "other_processes";
constexpr std::string_view kReasons = "clock_event_reasons";
constexpr std::array<std::string_view, 8> kHighest{kOthers,           "temperature_c",      "power_w",
                                                   "ecc_uncorrected", "load_average",       "steal_share",
                                                   kUtilisation,      "thermal_slowdown_ns"};
constexpr std::array<std::string_view, 2> kLowest{"sm_clock_mhz", "memory_clock_mhz"};

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

const Conditions& at(const std::map<std::string, Conditions>& conditions, const char* when) {
  static const Conditions kNothing;
  const auto found = conditions.find(when);
  return found == conditions.end() ? kNothing : found->second;
}

}  // namespace

std::optional<double> number_of(const Conditions& conditions, std::string_view name) {
  const auto found = conditions.find(std::string(name));
  if (found == conditions.end()) {
    return std::nullopt;
  }
  const char* begin = found->second.data();
  const char* const end = begin + found->second.size();
  if (found->second.starts_with("0x")) {
    std::uint64_t bits = 0;
    const auto [rest, error] = std::from_chars(begin + 2, end, bits, 16);
    return error == std::errc() && rest == end ? std::optional(static_cast<double>(bits)) : std::nullopt;
  }
  double value = 0;
  const auto [rest, error] = std::from_chars(begin, end, value);
  return error == std::errc() && rest == end && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

void merge(Conditions& all, const Conditions& reading) {
  for (const auto& [name, value] : reading) {
    const auto [found, inserted] = all.try_emplace(name, value);
    if (inserted) {
      continue;
    }
    const auto old_number = number_of(all, name), new_number = number_of(reading, name);
    if (!old_number || !new_number) {
      found->second = value;  // a word: the latest
    } else if (name == kReasons) {
      char text[32];
      std::snprintf(text, sizeof(text), "0x%llx",
                    static_cast<unsigned long long>(*old_number) | static_cast<unsigned long long>(*new_number));
      found->second = text;
    } else {
      const bool higher = *new_number > *old_number, lower = *new_number < *old_number;
      if (contains(kHighest, name) ? higher : lower || !contains(kLowest, name)) {
        found->second = value;
      }
    }
  }
}

std::uint64_t condition_bits(const std::map<std::string, Conditions>& conditions, std::int64_t duration_us,
                             const CleanLimits& limits) {
  std::uint64_t mask = 0;
  for (const auto& [when, reading] : conditions) {
    if (const auto others = number_of(reading, kOthers); others && *others > 0) {
      mask |= bit(Dirty::contended);
    }
  }
  const Conditions& before = at(conditions, "before");
  const Conditions& after = at(conditions, "after");
  if (const auto busy = number_of(before, kUtilisation); busy && *busy > 100 * limits.utilisation) {
    mask |= bit(Dirty::contended);
  }
  const auto grown = [&](std::string_view name) {
    const auto first = number_of(before, name), last = number_of(after, name);
    return first && last ? *last - *first : 0;
  };
  if (grown("ecc_uncorrected") > 0) {
    mask |= bit(Dirty::hardware);
  }
  if (grown("thermal_slowdown_ns") > limits.thermal_share * 1e3 * static_cast<double>(duration_us)) {
    mask |= bit(Dirty::throttled);
  }
  return mask;
}

Watch::Watch(Backend& backend, std::int64_t patience_ns) : backend_(backend) {
  const std::int64_t begin = backend.now_ns();
  Conditions before = backend.conditions();
  const auto busy = [&] {
    const auto share = number_of(before, kUtilisation);
    return share && *share > 100 * backend.limits().utilisation;
  };
  const auto patient = [&] {
    const std::int64_t now = backend.now_ns();
    const bool own_trace = backend.last_run_ended_ns && now - *backend.last_run_ended_ns < kOwnTraceNs;
    return own_trace || now - begin + kIdleStepNs <= patience_ns;
  };
  while (busy() && patient()) {
    backend.sleep_ns(kIdleStepNs);
    before = backend.conditions();
  }
  if (backend.is_shared() && !number_of(before, kOthers) && !number_of(before, kUtilisation)) {
    before["other_work"] = "unknown";
  }
  conditions_["before"] = std::move(before);
  read_ns_ = backend.now_ns();
}

void Watch::look() {
  if (backend_.now_ns() - read_ns_ >= kPeriodNs) {
    look_now();
  }
}

void Watch::look_now() {
  merge(conditions_["during"], backend_.conditions());
  read_ns_ = backend_.now_ns();
}

std::map<std::string, Conditions> Watch::finish() {
  conditions_["after"] = backend_.conditions();
  backend_.last_run_ended_ns = backend_.now_ns();
  return std::move(conditions_);
}

void Watch::add(std::string name, std::string value) { conditions_["before"][std::move(name)] = std::move(value); }

}  // namespace crossover::tuning
