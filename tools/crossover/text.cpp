#include "text.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "crossover/dispatch/error.hpp"

namespace crossover::program {
namespace {

// The number at the start of `text`, and what follows it.
template <typename Number>
std::optional<std::pair<Number, std::string_view>> leading_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  return std::pair{value, text.substr(static_cast<std::size_t>(end - text.data()))};
}

}  // namespace

std::optional<std::int64_t> integer_from(std::string_view text) noexcept {
  const auto number = leading_number<std::int64_t>(text);
  if (!number || !number->second.empty()) return std::nullopt;
  return number->first;
}

std::int64_t parse_integer(std::string_view option, std::string_view text, std::int64_t least) {
  const auto value = integer_from(text);
  if (!value || *value < least) {
    throw InvalidArgument(
        fmt::format("{} takes a whole number from {} to {}, not '{}'", option, least, kMaxRows, text));
  }
  return *value;
}

std::uint64_t parse_bytes(std::string_view option, std::string_view text) {
  static constexpr std::pair<std::string_view, int> kSuffixes[] = {{"", 0},   {"B", 0},    {"K", 10}, {"KiB", 10},
                                                                   {"M", 20}, {"MiB", 20}, {"G", 30}, {"GiB", 30},
                                                                   {"T", 40}, {"TiB", 40}};
  if (const auto number = leading_number<std::uint64_t>(text)) {
    for (const auto& [suffix, shift] : kSuffixes) {
      if (number->second == suffix && number->first <= (UINT64_MAX >> shift)) return number->first << shift;
    }
  }
  throw InvalidArgument(fmt::format("{} takes a number of bytes such as 4096, 64MiB or 2GiB, not '{}'", option, text));
}

std::chrono::duration<double> parse_duration(std::string_view option, std::string_view text) {
  static constexpr std::pair<std::string_view, double> kUnits[] = {{"", 1}, {"s", 1}, {"ms", 1e-3}, {"m", 60}};
  constexpr double kLongest = 24 * 3600;
  if (const auto number = leading_number<double>(text)) {
    for (const auto& [unit, seconds] : kUnits) {
      if (number->second != unit) continue;
      const double value = number->first * seconds;
      if (std::isfinite(value) && value > 0 && value <= kLongest) return std::chrono::duration<double>(value);
    }
  }
  throw InvalidArgument(
      fmt::format("{} takes a time of at most a day such as 10s, 500ms or 2m, not '{}'", option, text));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::string_view trimmed(std::string_view text) noexcept {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

std::vector<std::string> parse_names(std::string_view option, std::string_view text) {
  std::vector<std::string> names;
  for (const std::string& part : split(text, ',')) {
    names.emplace_back(trimmed(part));
    if (names.back().empty()) throw InvalidArgument(fmt::format("{} has an empty name in '{}'", option, text));
  }
  return names;
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts.begin(), parts.end(), separator));
}

std::string iso_time(std::int64_t unix_us) {
  using namespace std::chrono;
  const sys_seconds time = floor<seconds>(sys_time<microseconds>(microseconds(unix_us)));
  const sys_days day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), clock.hours().count(),
                     clock.minutes().count(), clock.seconds().count());
}

std::string age(std::int64_t unix_us) {
  using namespace std::chrono;
  const auto now = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  const std::int64_t s = (now - unix_us) / 1'000'000;
  if (now < unix_us) return "in the future";
  const auto say = [](std::int64_t count, std::string_view unit) {
    return fmt::format("{} {}{} ago", count, unit, count == 1 ? "" : "s");
  };
  if (s < 120) return say(s, "second");
  if (s < 7'200) return say(s / 60, "minute");
  if (s < 172'800) return say(s / 3'600, "hour");
  return say(s / 86'400, "day");
}

std::string in_microseconds(double ns) {
  const double us = ns / 1000;
  if (!std::isfinite(us)) return "?";
  return us < 10     ? fmt::format("{:.3f}", us)
         : us < 100  ? fmt::format("{:.2f}", us)
         : us < 1000 ? fmt::format("{:.1f}", us)
                     : fmt::format("{:.0f}", us);
}

std::string percent(double share) { return std::isfinite(share) ? fmt::format("{:.2f}%", share * 100) : "?"; }

std::string short_id(const Id& id) { return id.hex().substr(0, 12); }

std::string row_range(Rows from, Rows to) {
  if (to == kMaxRows) return from == 1 ? "all" : fmt::format("{} and more", from);
  return from == to ? fmt::format("{}", from) : fmt::format("{}-{}", from, to);
}

std::string describe(const Device& device) {
  return fmt::format("{}: {}, {}, {} {}", device.kind, device.model, device.compute_capability, device.sm_count,
                     device.kind == "cpu" ? "threads" : "SMs");
}

std::string describe(const Regime& regime) {
  return fmt::format("{}, {} L2, {} fill", to_string(regime.launch_mode), to_string(regime.l2), regime.fill);
}

std::string join(std::span<const StaleReason> reasons) {
  std::vector<std::string> parts;
  for (const StaleReason& reason : reasons) parts.push_back(to_string(reason));
  return join(parts, "; ");
}

}  // namespace crossover::program
