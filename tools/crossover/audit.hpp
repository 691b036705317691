#pragma once
// What `audit list` and `audit show` share.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "host.hpp"

namespace crossover::program {

// This host, with a database to look at and never to change. Throws StoreError if it cannot be used, and
// InvalidArgument if --db names a file that is not there: to an auditor a typing error must not look like an empty
// database.
std::unique_ptr<Runtime> open_audited(const Options& options);

// The runs of a verdict, oldest first, not loaded. Runs that are gone or damaged are missing.
std::vector<Run> runs_of(Store& store, const Verdict& verdict);

// What has changed on this host since a verdict was measured. Empty: unknown, because it is another device's or because
// this build has no such operation.
class Staleness {
 public:
  explicit Staleness(Runtime& runtime) : runtime_(runtime) {}
  std::optional<std::vector<StaleReason>> of(const Verdict& verdict, const std::vector<Run>& runs);

 private:
  Runtime& runtime_;
  std::map<Problem, std::optional<Current>> current_;
};

}  // namespace crossover::program
