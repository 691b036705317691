#pragma once
// Numbers and times, read from options and written for people.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/dispatch/problem.hpp"
#include "crossover/dispatch/resolve.hpp"

namespace crossover::program {

// Each throws InvalidArgument that names `option` and says what it takes.
std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t least);
std::uint64_t parse_bytes(std::string_view option, std::string_view text);                     // "4096", "64MiB", "2G"
std::chrono::duration<double> parse_duration(std::string_view option, std::string_view text);  // "10s", "500ms", "2m"

// A whole decimal number that fits; nothing before or after it.
std::optional<std::int64_t> integer_from(std::string_view text) noexcept;
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trimmed(std::string_view text) noexcept;
// Split at commas, trimmed. Throws InvalidArgument if a name is empty.
std::vector<std::string> parse_names(std::string_view option, std::string_view text);

std::string join(std::span<const std::string> parts, std::string_view separator = ", ");
std::string iso_time(std::int64_t unix_us);  // "2026-11-30T11:05:41Z"
std::string age(std::int64_t unix_us);       // "3 hours ago"
std::string in_microseconds(double ns);      // four significant digits
std::string percent(double share);           // 0.0123 → "1.23%"
std::string short_id(const Id& id);          // enough digits for `audit show`
std::string row_range(Rows from, Rows to);   // "1-8", "9 and more"
std::string describe(const Device& device);  // "cpu: AMD EPYC …, x86-64-v4, 2 threads"
std::string describe(const Regime& regime);  // "eager, cold L2, normal fill"
std::string join(std::span<const StaleReason> reasons);

}  // namespace crossover::program
