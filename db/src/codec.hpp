#pragma once
// Canonical JSON of what the database keeps: UTF-8, keys sorted by byte, no white space, integers as digits, doubles as
// the shortest text that reads back as the same double and that always has a '.' or an 'e'. Equal values give equal
// bytes on every machine. Needs no SQLite.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/dispatch/decide.hpp"
#include "crossover/dispatch/error.hpp"
#include "crossover/dispatch/evidence.hpp"

namespace crossover {

// Everything that decide() computed and what it computed it from; not `id` and `decided_us`.
std::string canonical_json(const Verdict& verdict);

namespace codec {

// Text that is not what it should be (decode), or a value that has no canonical form: not UTF-8, NaN, infinity
// (encode).
class Malformed : public StoreError {
 public:
  using StoreError::StoreError;
};

// Limits of what decode reads; a larger or deeper text is Malformed, as are unknown, missing and duplicate keys.
inline constexpr std::size_t kMaxBytes = 1'000'000;
inline constexpr std::size_t kMaxDepth = 8;

// An object under construction. Keys must come in ascending order.
class Object {
 public:
  Object() : text_("{") {}
  Object& field(std::string_view key, std::string_view value);
  Object& field(std::string_view key, const char* value) { return field(key, std::string_view(value)); }
  Object& field(std::string_view key, bool value);
  Object& field(std::string_view key, double value);
  Object& field(std::string_view key, std::int64_t value);
  Object& field(std::string_view key, std::uint64_t value);
  Object& field(std::string_view key, int value) { return field(key, static_cast<std::int64_t>(value)); }
  Object& field(std::string_view key, std::uint32_t value) { return field(key, static_cast<std::uint64_t>(value)); }
  Object& field(std::string_view key, const Id& value) { return json(key, '"' + value.hex() + '"'); }
  Object& null(std::string_view key) { return json(key, "null"); }
  Object& json(std::string_view key, std::string_view canonical);  // text that is canonical JSON already
  // The finished text; the object is then used up.
  std::string str() { return std::move(text_ += '}'); }

 private:
  void key(std::string_view key);
  std::string text_;
};

std::string encode(const Device& device);
std::string encode(const std::map<std::string, std::string>& fields);  // Environment, Conditions, attributes
std::string encode(const std::map<std::string, Conditions>& conditions);
std::string encode(const Problem& problem);
std::string encode(const Regime& regime);
std::string encode(const ArmSet& set);
std::string encode(const Policy& policy);
std::string encode(const std::vector<Segment>& segments);
std::string encode(const std::vector<Crossover>& crossovers);
std::string encode(const HeldOut& held_out);
std::string encode(const std::vector<Id>& ids);

// What encode made: a Device, a map, an ArmSet, a Policy, a HeldOut, a vector. Throws Malformed.
template <class Value>
Value decode(std::string_view text);

bool is_utf8(std::string_view text) noexcept;
// `text` with every byte that is not part of well-formed UTF-8 replaced by U+FFFD: for sentences, never for names.
std::string scrub_utf8(std::string_view text);

}  // namespace codec
}  // namespace crossover
