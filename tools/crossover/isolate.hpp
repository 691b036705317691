#pragma once
// Arms that are not trusted run in processes of their own: this program again, started through /proc/self/exe with a
// subcommand that no list shows. tuner/MEASURING.md, "Arms that are not trusted", says what is promised.

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "command.hpp"
#include "crossover/runtime.hpp"

namespace crossover::program {

inline constexpr std::string_view kHelperCommand = "isolated-helper";

struct IsolationLimits {
  double seconds = 5;              // that one arm may run without coming back; in a probe, all of its launches together
  std::uint64_t memory_bytes = 0;  // of address space, on the CPU; 0: half of what is available
};

// Loads the file in a process of its own. Throws InvalidArgument if that process ends or does not come back; a file
// that is refused in an orderly way is no error here, and will be one when it is loaded.
void require_loadable(const std::filesystem::path& plugin, const IsolationLimits& limits);

// Measures operations of plug-ins in helpers. One thread at a time.
class Isolation {
 public:
  // `operations`: the names of those that `plugins` brought. `device`: as RuntimeOptions has it.
  Isolation(std::vector<std::string> plugins, std::set<std::string> operations, std::string device,
            IsolationLimits limits)
      : plugins_(std::move(plugins)), operations_(std::move(operations)), device_(std::move(device)), limits_(limits) {}

  bool covers(const Operation& operation) const { return operations_.contains(std::string(operation.name())); }

  // For TuneOptions::measure, of any operation; what is not covered is measured in this process. `runtime` is the one
  // whose tuner calls it, and outlives it, as does this object.
  Measure measure(Runtime& runtime) const;
  // As measure_selected().
  Run compare(Runtime& runtime, const Operation& operation, const Problem& problem, const TuneOptions& options,
              const std::vector<std::string>& arms, const std::vector<Rows>& rows, const OnProgress& progress) const;

 private:
  struct Work;
  Run supervise(const Work& work) const;
  void probe_arms(const Work& work, std::vector<Attempt>& excluded) const;
  double memory_limit(const Work& work) const;  // bytes; 0: none
  static void exclude(const Work& work, std::vector<Attempt>& excluded, Attempt attempt);

  std::vector<std::string> plugins_;
  std::set<std::string> operations_;
  std::string device_;
  IsolationLimits limits_;
};

// What the helper does: its work is in the memory that descriptor 3 refers to, and so is its answer.
int run_isolated_helper(const Arguments& arguments);

}  // namespace crossover::program
