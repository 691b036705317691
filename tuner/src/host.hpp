#pragma once
// What this process knows of itself and of the host. Empty or absent: could not be read.

#include <cstdint>
#include <optional>
#include <string>

#include "crossover/dispatch/problem.hpp"

namespace crossover::tuning {

Id process_uuid();            // random, once per process; a forked child has its own
std::uint64_t random_seed();  // 63 bits, never 0
std::string host_name();
std::string boot_id();
std::string kernel_release();

// The first line of a small text file without the newline.
std::optional<std::string> read_line(const std::string& path);
// A whole number at the beginning of `text`; nothing for anything else or what does not fit.
std::optional<std::int64_t> whole_number(std::string_view text);

}  // namespace crossover::tuning
