#pragma once
// What is computed, where, and how it is launched: the three keys under which evidence is kept.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace crossover {

// The extent that varies at run time (tokens in a batch).
using Rows = std::int64_t;
inline constexpr Rows kMaxRows = std::numeric_limits<Rows>::max();

// 16 bytes that name a fact: the digest of its canonical content (see db/FORMAT.md), or a random UUID.
struct Id {
  std::array<std::uint8_t, 16> bytes{};
  auto operator<=>(const Id&) const = default;
  bool empty() const noexcept { return *this == Id{}; }
  std::string hex() const;                                   // 32 lower-case digits
  static std::optional<Id> from_hex(std::string_view text);  // exactly 32 hex digits
};

// An operation with every attribute an arm can see except the row count. Attribute values are canonical text (the
// operation's normalise() makes them so), hence two problems are the same exactly if they compare equal.
struct Problem {
  std::string operation;
  std::map<std::string, std::string> attributes;
  auto operator<=>(const Problem&) const = default;
  bool operator==(const Problem&) const = default;
};
std::string to_string(const Problem& problem);  // "fp8_block_linear(bias=none, dtype=bf16, k=1024, n=1024)"

// Hardware identity, and nothing that can change while the hardware stays the same.
struct Device {
  std::string kind;                // "cpu", "cuda"
  std::string model;               // as the driver or /proc/cpuinfo names it
  std::string compute_capability;  // "9.0"; on a CPU its x86-64 level or "generic"
  int sm_count = 0;                // streaming multiprocessors; on a CPU the hardware threads that this process may use
  std::int64_t l2_bytes = 0;       // L2; on a CPU the last-level cache
  std::int64_t memory_gib = 0;     // whole GiB, rounded to nearest
  auto operator<=>(const Device&) const = default;
  bool operator==(const Device&) const = default;
};

enum class LaunchMode : std::uint8_t { eager, graph };
enum class L2State : std::uint8_t { cold, hot };
inline constexpr std::size_t kLaunchModes = 2;
std::string_view to_string(LaunchMode mode) noexcept;  // "eager", "graph"
std::string_view to_string(L2State state) noexcept;    // "cold", "hot"
std::optional<LaunchMode> launch_mode_from(std::string_view text) noexcept;
std::optional<L2State> l2_state_from(std::string_view text) noexcept;

// How launches are issued and what they find in the caches: a key beside device and problem.
struct Regime {
  LaunchMode launch_mode = LaunchMode::eager;
  L2State l2 = L2State::cold;
  std::string fill = "normal";  // distribution of the activations
  auto operator<=>(const Regime&) const = default;
  bool operator==(const Regime&) const = default;
};

// Software under which something was measured: provenance. Field names are in namespace environment_field.
using Environment = std::map<std::string, std::string>;
namespace environment_field {
inline constexpr std::string_view driver = "driver", cuda = "cuda", cublaslt = "cublaslt", blas = "blas",
                                  crossover = "crossover", commit = "commit", compiler = "compiler", os = "os";
}
// The fields whose change makes evidence stale. Our own version, commit and compiler do not: what an arm executes is in
// its fingerprint. `os` is provenance only.
inline constexpr std::array<std::string_view, 4> kStalingEnvironment{
    environment_field::driver, environment_field::cuda, environment_field::cublaslt, environment_field::blas};

// State of the machine. What could not be read is absent, never zero.
using Conditions = std::map<std::string, std::string>;
// The conditions whose change makes evidence stale, where both sides know them.
inline constexpr std::array<std::string_view, 4> kStalingConditions{"power_limit_w", "ecc", "mig_profile", "governor"};

}  // namespace crossover
