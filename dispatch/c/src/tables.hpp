#pragma once
// What both directions across the C boundary share: structs that grow, texts, attributes, status codes.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "crossover/crossover.h"
#include "crossover/dispatch/error.hpp"

namespace crossover::c {

// No struct of ours will ever be larger: what says so was never initialised.
inline constexpr std::size_t kLargestStruct = 4096;

// A struct that a caller filled in, as this version knows it: fields that the caller does not know are 0. `least`: its
// size up to the last field without which it makes no sense. Throws InvalidArgument.
template <typename Table>
Table copied(const Table* given, std::size_t least, const char* type) {
  static_assert(std::is_trivially_copyable_v<Table> && sizeof(Table) <= kLargestStruct);
  if (given == nullptr) throw InvalidArgument(std::string(type) + " is NULL");
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < least || size > kLargestStruct) {
    throw InvalidArgument(std::string(type) + ".struct_size is " + std::to_string(size) + ", not sizeof(" + type +
                          "), which is " + std::to_string(sizeof(Table)) + " here");
  }
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(Table) &&
      std::any_of(bytes + sizeof(Table), bytes + size, [](unsigned char b) { return b != 0; })) {
    throw InvalidArgument(std::string("a field of ") + type + " is set that this version of the library does not know");
  }
  Table result{};
  std::memcpy(&result, given, std::min(size, sizeof(Table)));
  result.struct_size = sizeof(Table);
  return result;
}

// The size of a struct up to and including `field`.
#define CROSSOVER_SIZE_TO(table, field) (offsetof(table, field) + sizeof(table::field))

// A text that a caller passes. Throws InvalidArgument if it is NULL.
std::string required_text(const char* text, const char* name);
// "k=v,k=v" as attributes; "" has none. Throws InvalidArgument.
std::map<std::string, std::string> parse_attributes(std::string_view text);
// "a,b" as names; NULL or "" has none. Throws InvalidArgument for an empty name.
std::vector<std::string> parse_list(const char* text, const char* name);

const char* status_text(crossover_status status) noexcept;
// Throws what belongs to the status, which is not CROSSOVER_OK.
[[noreturn]] void raise(crossover_status status, const std::string& what, const std::string& message);

}  // namespace crossover::c
