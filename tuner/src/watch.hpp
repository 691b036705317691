#pragma once
// What the device says of itself before, while and after it is measured, and what that makes of a run.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "crossover/dispatch/problem.hpp"
#include "crossover/tuner/backend.hpp"

namespace crossover::tuning {

// A number among the conditions; nothing where it is absent, is no number, or is not finite. "0x…" is hexadecimal.
std::optional<double> number_of(const Conditions& conditions, std::string_view name);

// Adds a later reading to an earlier one: of what shows trouble by being high the highest, of a clock the lowest, of
// event reasons all bits, of everything else the latest. What a reading lacks stays as it was.
void merge(Conditions& all, const Conditions& reading);

// Bits of a run that its conditions justify (`before`, `during`, `after`; any may be missing). What was not read
// justifies none. contended: other processes at any time, or the device in use before the run began. hardware: an
// uncorrected ECC error in between. throttled: thermal slowdown for more than its share of the duration.
std::uint64_t condition_bits(const std::map<std::string, Conditions>& conditions, std::int64_t duration_us,
                             const CleanLimits& limits);

// Reads a device's conditions around and during a run. One thread.
class Watch {
 public:
  // Reads `before`. Waits up to `patience_ns` for the device to be idle: utilisation is an average over the last
  // second, which may have been this process's own.
  Watch(Backend& backend, std::int64_t patience_ns);
  // Reads `during` if the last reading is a second old. Never inside a timed round.
  void look();
  // Reads `during` now.
  void look_now();
  // Reads `after`, and gives all of it. Once.
  std::map<std::string, Conditions> finish();
  void add(std::string name, std::string value);  // to `before`

 private:
  Backend& backend_;
  std::map<std::string, Conditions> conditions_;
  std::int64_t read_ns_ = 0;
};

}  // namespace crossover::tuning
