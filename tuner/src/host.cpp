#include "host.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <fstream>
#include <mutex>
#include <random>

namespace crossover::tuning {
namespace {

std::uint64_t random_bits() {
  static std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}
std::mutex random_mutex;

}  // namespace

Id process_uuid() {
  static Id id;
  static pid_t owner = 0;
  const std::lock_guard lock(random_mutex);
  if (owner != getpid()) {
    for (std::size_t half = 0; half < 2; ++half) {
      const std::uint64_t bits = random_bits();
      for (std::size_t byte = 0; byte < 8; ++byte) {
        id.bytes[8 * half + byte] = static_cast<std::uint8_t>(bits >> (8 * byte));
      }
    }
    id.bytes[6] = static_cast<std::uint8_t>((id.bytes[6] & 0x0f) | 0x40);  // RFC 4122, version 4
    id.bytes[8] = static_cast<std::uint8_t>((id.bytes[8] & 0x3f) | 0x80);
    owner = getpid();
  }
  return id;
}

std::uint64_t random_seed() {
  const std::lock_guard lock(random_mutex);
  return (random_bits() >> 1) | 1;
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string boot_id() { return read_line("/proc/sys/kernel/random/boot_id").value_or(""); }

std::string kernel_release() {
  utsname names{};
  return uname(&names) == 0 ? std::string(names.sysname) + " " + names.release : "";
}

std::optional<std::string> read_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) {
    return std::nullopt;
  }
  return line;
}

std::optional<std::int64_t> whole_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) {
    text.remove_prefix(1);
  }
  std::int64_t value = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc{}) {
    return std::nullopt;
  }
  return value;
}

}  // namespace crossover::tuning
