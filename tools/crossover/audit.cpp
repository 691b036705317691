#include "audit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace crossover::program {

std::unique_ptr<Runtime> open_audited(const Options& options) {
  std::error_code error;
  if (options.has("db") && !std::filesystem::exists(std::filesystem::symlink_status(options.database(), error)) &&
      error == std::errc::no_such_file_or_directory) {
    throw InvalidArgument(fmt::format("there is no database {}", options.database().string()));
  }
  auto runtime = open_runtime(options, {.access = Store::Access::lookup_only, .overrides = Overrides{}}, true);
  require_database(*runtime);
  return runtime;
}

std::vector<Run> runs_of(Store& store, const Verdict& verdict) {
  std::vector<Run> runs;
  for (const Id& id : verdict.run_ids) {
    if (auto run = store.run(id)) runs.push_back(std::move(*run));
  }
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.started_us < b.started_us; });
  return runs;
}

std::optional<std::vector<StaleReason>> Staleness::of(const Verdict& verdict, const std::vector<Run>& runs) {
  if (verdict.key.device != runtime_.backend().device() || runs.empty()) return std::nullopt;
  const Problem& problem = verdict.key.problem;
  auto found = current_.find(problem);
  if (found == current_.end()) {
    std::optional<Current> current;
    try {
      const Operation& operation = Runtime::operation(problem.operation);
      if (operation.normalise(problem) == problem) current = runtime_.dispatcher().current(operation, problem);
    } catch (const InvalidArgument&) {
      // This build does not know the problem, so it cannot say what has changed.
    }
    found = current_.emplace(problem, std::move(current)).first;
  }
  if (!found->second) return std::nullopt;
  const Evidence evidence = select_evidence(*found->second, verdict.key, runs);
  if (evidence.runs.empty()) return std::vector<StaleReason>{{"evidence", "usable", evidence.why_not}};
  return evidence.stale;
}

}  // namespace crossover::program
