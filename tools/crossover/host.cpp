#include "host.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <set>

#include "text.hpp"

namespace crossover::program {
namespace {

constexpr std::array kCpuModes{LaunchMode::eager};
constexpr std::array kGpuModes{LaunchMode::graph, LaunchMode::eager};

// Ids of devices are hexadecimal, and no name of a device of this host is.
bool looks_like_id(std::string_view text) {
  return text.size() >= 4 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

void warn(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  if (seen.insert(text).second) write_error(fmt::format("crossover: warning: {}\n", printable(text)));
}

TerminalProgress::TerminalProgress() : terminal_(isatty(STDERR_FILENO) == 1) {}

OnProgress TerminalProgress::handler() {
  if (!terminal_) return {};
  return [this](const Progress& progress) {
    constexpr int kWidth = 24;
    const int done = static_cast<int>(std::clamp(progress.fraction, 0.0, 1.0) * kWidth);
    const std::string text = fmt::format("[{:<{}}] {} {} {}", std::string(static_cast<std::size_t>(done), '#'), kWidth,
                                         progress.stage, title_, progress.detail);
    write_error(fmt::format("\r\x1b[K{:.118}", printable(text)));
    drawn_ = true;
  };
}

void TerminalProgress::clear() {
  if (!drawn_) return;
  write_error("\r\x1b[K");
  drawn_ = false;
}

std::unique_ptr<Runtime> open_runtime(const Options& options, RuntimeOptions runtime, bool needs_database) {
  runtime.database = options.database();
  if (needs_database) {
    const std::filesystem::path path = runtime.database.empty() ? default_database_path() : runtime.database;
    if (path.empty()) throw StoreError("no path for the database: none of CROSSOVER_DB, XDG_DATA_HOME and HOME is set");
    static_cast<void>(Store::open(path, runtime.access));
  }
  runtime.device = looks_like_id(options.device()) ? std::string() : options.device();
  runtime.warn = warn;
  return std::make_unique<Runtime>(std::move(runtime));
}

void require_database(const Runtime& runtime) {
  if (!runtime.database_fault().empty()) throw StoreError(runtime.database_fault());
}

Target::Target(Runtime& runtime, const Options& options) : runtime_(runtime) {
  const std::string text = options.device();
  if (!looks_like_id(text)) return;
  const std::vector<Device> found = runtime.store().find_devices(text);
  if (found.size() == 1) {
    if (found[0] != runtime.backend().device()) stored_ = found[0];
    return;
  }
  if (Store::id_of(runtime.backend().device()).hex().starts_with(text) && found.empty()) return;
  std::vector<std::string> known;
  for (const Device& each : found.empty() ? runtime.store().devices() : found) {
    known.push_back(fmt::format("{} ({})", short_id(Store::id_of(each)), describe(each)));
  }
  throw InvalidArgument(fmt::format("{} device '{}'; the database has: {}", found.empty() ? "unknown" : "ambiguous",
                                    text, known.empty() ? "none" : join(known)));
}

const Device& Target::device() const { return stored_ ? *stored_ : runtime_.backend().device(); }

std::span<const LaunchMode> Target::launch_modes() const {
  if (!stored_) return runtime_.backend().launch_modes();
  if (stored_->kind == "cpu") return kCpuModes;
  return kGpuModes;
}

Regime Target::regime(const Options& options) const {
  return {choose_launch_mode(options.launch_mode(), launch_modes(), device().kind), options.l2(), Regime{}.fill};
}

Current Target::current(const Operation& operation, const Problem& problem, const Regime& regime) const {
  if (!stored_) return runtime_.dispatcher().current(operation, problem);
  Current current;
  current.device = *stored_;
  current.facts = arm_facts(operation, problem, *stored_);
  const std::optional<Run> newest = newest_run(problem, regime);
  if (!newest) {
    current.arm_set = arm_set(operation, problem, *stored_);
    return current;
  }
  current.environment = newest->environment;
  current.arm_set = newest->arm_set;
  const auto before = newest->conditions.find("before");
  if (before != newest->conditions.end()) current.conditions = before->second;
  return current;
}

std::optional<Run> Target::newest_run(const Problem& problem, const Regime& regime) const {
  const std::vector<Run> runs = runtime_.store().runs({*stored_, problem, regime});
  if (!runs.empty()) return runs.back();
  std::optional<Run> newest;
  for (const Verdict& verdict : runtime_.store().all_verdicts()) {
    if (verdict.key.device != *stored_ || verdict.key.problem.operation != problem.operation) continue;
    for (const Id& id : verdict.run_ids) {
      auto run = runtime_.store().run(id);
      if (run && (!newest || run->started_us > newest->started_us)) newest = std::move(run);
    }
  }
  return newest;
}

}  // namespace crossover::program
