#include "crossover/dispatch/problem.hpp"

namespace crossover {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string Id::hex() const {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += kHexDigits[byte >> 4];
    text += kHexDigits[byte & 15];
  }
  return text;
}

std::optional<Id> Id::from_hex(std::string_view text) {
  Id id;
  if (text.size() != 2 * id.bytes.size()) return std::nullopt;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    const int high = hex_value(text[2 * i]);
    const int low = hex_value(text[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    id.bytes[i] = static_cast<std::uint8_t>(high * 16 + low);
  }
  return id;
}

std::string to_string(const Problem& problem) {
  std::string text = problem.operation + "(";
  const char* separator = "";
  for (const auto& [name, value] : problem.attributes) {
    text += separator + name + "=" + value;
    separator = ", ";
  }
  return text + ")";
}

std::string_view to_string(LaunchMode mode) noexcept { return mode == LaunchMode::graph ? "graph" : "eager"; }

std::string_view to_string(L2State state) noexcept { return state == L2State::hot ? "hot" : "cold"; }

std::optional<LaunchMode> launch_mode_from(std::string_view text) noexcept {
  if (text == "eager") return LaunchMode::eager;
  if (text == "graph") return LaunchMode::graph;
  return std::nullopt;
}

std::optional<L2State> l2_state_from(std::string_view text) noexcept {
  if (text == "cold") return L2State::cold;
  if (text == "hot") return L2State::hot;
  return std::nullopt;
}

}  // namespace crossover
