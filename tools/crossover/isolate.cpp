#include "isolate.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <new>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "crossover/dispatch/error.hpp"
#include "crossover/plugin.hpp"
#include "host.hpp"
#include "json.hpp"

namespace crossover::program {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSharedFile = 3;  // the helper's descriptor of the shared memory
constexpr std::size_t kTextBytes = 2048;
constexpr double kLeastShare = 0.25;      // of the budget, for each repetition
constexpr double kOutsideSeconds = 60;    // beside the budget: for what is no arm's, test data and reference above all
constexpr double kMemoryExhausted = 0.7;  // of the limit, resident when a signal came: memory is why
constexpr std::ptrdiff_t kKnownRuns = 4;  // the newest, whose configs are restored

enum class State : int { working, done, attempt, error };

// At the beginning of the shared memory; the work, as JSON, follows. The helper writes, the parent reads; what the
// atomics do not cover is written before `state`.
struct Shared {
  std::atomic<State> state{State::working};
  std::atomic<int> arm{-1};             // what is running: an index in Operation::arms(); -1: no arm
  std::atomic<std::int64_t> rows{0};    // with how many
  std::atomic<std::uint64_t> beats{0};  // counts the changes of the two
  std::atomic<double> fraction{0};      // of the budget
  int outcome = 0;                      // of an attempt
  int code = 0;                         // of an error
  int attempted = -1;                   // the arm that the attempt is about
  char text[kTextBytes] = {};           // the attempt's detail, the error's sentence
  char advice[kTextBytes] = {};
};
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<double>::is_always_lock_free &&
              std::atomic<State>::is_always_lock_free);

void put_text(char (&to)[kTextBytes], std::string_view text) {
  const std::size_t size = std::min(text.size(), kTextBytes - 1);
  std::memcpy(to, text.data(), size);
  to[size] = '\0';
}
std::string get_text(const char (&from)[kTextBytes]) { return {from, ::strnlen(from, kTextBytes)}; }

std::string signal_name(int number) {
  const char* const name = ::sigabbrev_np(number);
  return name != nullptr ? fmt::format("SIG{}", name) : fmt::format("signal {}", number);
}

std::string where_text(Rows rows) {
  return rows > 0 ? fmt::format("at {} {}", rows, rows == 1 ? "row" : "rows") : "outside a launch";
}

// How a helper ended.
struct Ending {
  bool hung = false;    // in an arm or, with arm = -1, outside of all
  int status = 0;       // as waitpid() has it
  double peak_rss = 0;  // bytes
  double seconds = 0;
};

// A helper and the memory that it shares with us. It never outlives this object, nor this process.
class Helper {
 public:
  explicit Helper(const Json& work) {
    const std::string text = work.dump();
    const int file = ::memfd_create("crossover", MFD_CLOEXEC);
    bytes_ = sizeof(Shared) + text.size();
    void* memory = MAP_FAILED;
    if (file >= 0 && ::ftruncate(file, static_cast<off_t>(bytes_)) == 0)
      memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
      if (file >= 0) ::close(file);
      throw Failure("no memory can be shared with a process for arms that are not trusted");
    }
    shared_ = new (memory) Shared;
    std::memcpy(static_cast<char*>(memory) + sizeof(Shared), text.data(), text.size());
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) become_helper(file, parent);
    ::close(file);
    if (pid_ < 0) {
      ::munmap(memory, bytes_);
      throw Failure("a process for arms that are not trusted cannot be made");
    }
  }
  ~Helper() {
    if (pid_ > 0) {
      kill_all();
      while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
    ::munmap(shared_, bytes_);
  }
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;

  const Shared& shared() const { return *shared_; }

  // Waits until it has ended. It is killed when an arm runs for longer than `arm_seconds` (`in_total`: all calls of it
  // together), or when no arm runs and nothing changes for `outside_seconds`.
  Ending wait(double arm_seconds, bool in_total, double outside_seconds, const std::function<void(double)>& tick = {}) {
    constexpr auto kStep = std::chrono::milliseconds(5);
    Ending ending;
    const auto begin = Clock::now();
    auto last = begin;
    double inside = 0, outside = 0;
    std::uint64_t beats = 0;
    for (;;) {
      rusage used{};
      const pid_t ended = ::wait4(pid_, &ending.status, WNOHANG, &used);
      if (ended == pid_ || (ended < 0 && errno != EINTR)) {
        ::kill(-pid_, SIGKILL);  // what it may have started itself
        pid_ = -1;
        ending.peak_rss = static_cast<double>(used.ru_maxrss) * 1024;
        break;
      }
      const auto now = Clock::now();
      const double step = std::chrono::duration<double>(now - last).count();
      last = now;
      const std::uint64_t beat = shared_->beats.load(std::memory_order_acquire);
      if (beat != beats) {
        beats = beat;
        outside = 0;
        if (!in_total) inside = 0;
      }
      double& spent = shared_->arm.load(std::memory_order_acquire) >= 0 ? inside : outside;
      spent += step;
      if (!ending.hung && (inside > arm_seconds || outside > outside_seconds)) {
        ending.hung = true;
        kill_all();
      }
      if (tick) tick(shared_->fraction.load(std::memory_order_relaxed));
      std::this_thread::sleep_for(kStep);
    }
    ending.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return ending;
  }

 private:
  // After fork(), in a process that may have had threads: system calls only.
  [[noreturn]] static void become_helper(int file, pid_t parent) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kFailed);
    ::setpgid(0, 0);
    const int nowhere = ::open("/dev/null", O_RDWR);
    const int kept = ::fcntl(file, F_DUPFD, 10);  // above all that is overwritten
    if (nowhere < 0 || kept < 0 || ::dup2(nowhere, STDIN_FILENO) < 0 || ::dup2(nowhere, STDOUT_FILENO) < 0 ||
        ::dup2(nowhere, STDERR_FILENO) < 0 || ::dup2(kept, kSharedFile) < 0 ||
        ::close_range(kSharedFile + 1, ~0U, 0) < 0)
      ::_exit(kFailed);
    char name[] = "crossover", command[] = "isolated-helper";
    char* const arguments[] = {name, command, nullptr};
    ::execv("/proc/self/exe", arguments);
    ::_exit(kFailed);
  }
  void kill_all() const {
    ::kill(-pid_, SIGKILL);
    ::kill(pid_, SIGKILL);
  }

  Shared* shared_ = nullptr;
  std::size_t bytes_ = 0;
  pid_t pid_ = -1;
};

// ---- The helper's side

void limit_address_space(std::uint64_t bytes) {
#ifndef CROSSOVER_SANITIZED  // a sanitizer needs all of it
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  rlimit limit{};
  if (!(statm >> pages) || ::getrlimit(RLIMIT_AS, &limit) != 0) return;
  const rlim_t most = pages * static_cast<rlim_t>(::getpagesize()) + bytes;
  if (limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < most) return;
  limit.rlim_cur = most;
  if (limit.rlim_max == RLIM_INFINITY || limit.rlim_max > most) limit.rlim_max = most;
  ::setrlimit(RLIMIT_AS, &limit);
#else
  static_cast<void>(bytes);
#endif
}

std::vector<Run> known_runs(Runtime& runtime, const EvidenceKey& key) {
  std::vector<Run> runs;
  try {
    runs = runtime.store().runs(key);
    if (std::ssize(runs) > kKnownRuns) runs.erase(runs.begin(), runs.end() - kKnownRuns);
    std::erase_if(runs, [&](Run& run) { return !runtime.store().load(run); });
  } catch (const StoreError&) {
    runs.clear();  // only configurations to restore would come from it
  }
  return runs;
}

TuneOptions options_from(const Json& work) {
  TuneOptions options;
  options.max_rows = work.at("max_rows");
  options.budget = std::chrono::duration<double>(work.at("budget").get<double>());
  options.thorough = work.at("thorough");
  options.interleaved = work.at("interleaved");
  options.seed = work.at("seed");
  options.l2 = l2_state_from(work.at("l2").get<std::string>()).value_or(L2State::cold);
  options.launch_mode = launch_mode_from(work.at("launch").get<std::string>());
  options.keep_arms = work.at("keep_arms").get<std::vector<std::string>>();
  for (const Json& each : work.at("excluded")) {
    options.excluded.push_back(
        {0, each.at("arm"), outcome_from(each.at("outcome").get<std::string>()).value(), each.at("detail")});
  }
  return options;
}

void help(const Json& work, Shared& shared, int& last_arm, Rows& last_rows) {
  const std::string kind = work.at("kind");
  const auto load = [&] {
    for (const std::string& file : work.at("plugins").get<std::vector<std::string>>())
      static_cast<void>(load_plugin(file));
  };
  if (kind == "load") {
    load();
    return;
  }
  Runtime runtime({.database = work.at("database").get<std::string>(),
                   .access = Store::Access::lookup_only,
                   .device = work.at("device"),
                   .overrides = Overrides{},
                   .on_miss = MissMode::fallback,
                   .warn = [](const std::string&) {}});
  runtime.backend().idle_partners = {::getppid()};  // it waits for us
  if (runtime.backend().device().kind == "cpu") {
    const std::uint64_t asked = work.at("memory");
    limit_address_space(asked != 0 ? asked : runtime.backend().memory().available_bytes() / 2);
  }
  load();
  // An arm that calls exit() ends the helper at once: what libraries do then need not work in the middle of a launch.
  ::on_exit([](int status, void*) { ::_exit(status); }, nullptr);
  const Operation& operation = Runtime::operation(work.at("operation").get<std::string>());
  const Problem problem{std::string(operation.name()), work.at("problem").get<std::map<std::string, std::string>>()};
  TuneOptions options = options_from(work);
  std::map<std::string, int, std::less<>> index;
  for (const Arm* arm : operation.arms()) index.emplace(arm->id().name, static_cast<int>(index.size()));
  options.on_arm = [&](std::string_view arm, Rows m) {
    const auto found = index.find(arm);
    const int now = found != index.end() ? found->second : -1;
    if (now >= 0) {
      last_arm = now;
      last_rows = m;
    }
    shared.rows.store(m, std::memory_order_relaxed);
    shared.arm.store(now, std::memory_order_release);
    shared.beats.fetch_add(1, std::memory_order_release);
  };
  if (kind == "probe") {
    const auto attempt = probe(runtime.backend(), operation, problem, options, work.at("arm"));
    if (!attempt) return;
    shared.outcome = static_cast<int>(attempt->outcome);
    shared.attempted = index.at(attempt->arm);
    put_text(shared.text, attempt->detail);
    shared.state.store(State::attempt, std::memory_order_release);
    ::_exit(kDone);
  }
  const OnProgress progress = [&](const Progress& now) { shared.fraction.store(now.fraction); };
  Run run;
  if (kind == "compare") {
    run = measure_selected(runtime.backend(), operation, problem, options, work.at("arms"),
                           work.at("rows").get<std::vector<Rows>>(), progress);
  } else {
    const EvidenceKey key{
        runtime.backend().device(),
        problem,
        {options.launch_mode.value_or(runtime.backend().launch_modes().front()), options.l2, Regime{}.fill}};
    run = measure(runtime.backend(), operation, problem, options, known_runs(runtime, key), progress);
  }
  Store::open(work.at("result").get<std::string>(), Store::Access::read_write)->append(run);
}

// ---- The parent's side

// Where the helper leaves its run. The folder is the helper's to make, and goes away with this object.
class ResultFile {
 public:
  ResultFile() {
    std::random_device random;
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("crossover-{}-{:08x}{:08x}", ::getpid(), random(), random());
  }
  ~ResultFile() {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  std::filesystem::path path() const { return folder_ / "run.db"; }

 private:
  std::filesystem::path folder_;
};

std::string this_host() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

Run run_in(const std::filesystem::path& path) {
  const auto store = Store::open(path, Store::Access::lookup_only);
  std::vector<Run> runs = store->all_runs();
  if (runs.size() != 1 || !store->load(runs.front()))
    throw Failure("the process that measured arms that are not trusted left no run");
  Run run = std::move(runs.front());
  run.id = {};
  run.host = this_host();  // that store gives back a hash
  return run;
}

[[noreturn]] void throw_error(const Shared& shared) {
  const std::string text = get_text(shared.text), advice = get_text(shared.advice);
  switch (static_cast<ErrorCode>(shared.code)) {
    case ErrorCode::invalid_argument:
      throw InvalidArgument(text, advice);
    case ErrorCode::out_of_memory:
      throw OutOfMemory(text, advice);
    case ErrorCode::device:
      throw DeviceError(text, advice);
    default:
      throw Failure(text, advice);
  }
}

// What became of the arm that was running when the helper ended, and where no arm was, of the whole.
struct Cause {
  Outcome outcome = Outcome::failed;
  std::string detail;
};

Cause cause_of(const Ending& ending, double arm_seconds, double memory_bytes) {
  if (ending.hung) return {Outcome::timed_out, fmt::format("did not come back within {:g} s", arm_seconds)};
  const bool exhausted = memory_bytes > 0 && ending.peak_rss >= kMemoryExhausted * memory_bytes;
  if (WIFSIGNALED(ending.status)) {
    const int number = WTERMSIG(ending.status);
    if (exhausted || number == SIGKILL)
      return {Outcome::out_of_memory,
              fmt::format("{} with {:.0f} MB in use", signal_name(number), ending.peak_rss / 1e6)};
    return {Outcome::failed, signal_name(number)};
  }
  return {Outcome::failed, fmt::format("it ended the process with exit code {}", WEXITSTATUS(ending.status))};
}

}  // namespace

int run_isolated_helper(const Arguments&) {
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  struct stat file {};
  if (::fstat(kSharedFile, &file) != 0 || static_cast<std::size_t>(file.st_size) <= sizeof(Shared) || ::getppid() == 1)
    throw InvalidArgument("this command is for crossover itself");
  const auto bytes = static_cast<std::size_t>(file.st_size);
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, kSharedFile, 0);
  if (memory == MAP_FAILED) throw InvalidArgument("this command is for crossover itself");
  ::close(kSharedFile);
  Shared& shared = *static_cast<Shared*>(memory);
  const char* const text = static_cast<const char*>(memory) + sizeof(Shared);
  int last_arm = -1;
  Rows last_rows = 0;
  const auto fail = [&](ErrorCode code, std::string_view what, std::string_view advice) {
    if (code == ErrorCode::device && last_arm >= 0) {  // nothing that runs in this process after it can be believed
      shared.outcome = static_cast<int>(Outcome::failed);
      shared.attempted = last_arm;
      put_text(shared.text, fmt::format("{} {}", what, where_text(last_rows)));
      shared.state.store(State::attempt, std::memory_order_release);
      return;
    }
    shared.code = static_cast<int>(code);
    put_text(shared.text, what);
    put_text(shared.advice, advice);
    shared.state.store(State::error, std::memory_order_release);
  };
  try {
    help(Json::parse(text, text + (bytes - sizeof(Shared))), shared, last_arm, last_rows);
    shared.state.store(State::done, std::memory_order_release);
  } catch (const Error& error) {
    fail(error.code(), error.what(), error.advice());
  } catch (const std::bad_alloc&) {
    fail(ErrorCode::out_of_memory, "out of memory: the problem is too large for this host or --arm-memory-limit", {});
  } catch (const std::exception& error) {
    fail(ErrorCode::failed, error.what(), {});
  }
  ::_exit(kDone);  // what was loaded has no say any more
}

void require_loadable(const std::filesystem::path& plugin, const IsolationLimits& limits) {
  Helper helper({{"kind", "load"}, {"plugins", {plugin.string()}}});
  const Ending ending = helper.wait(limits.seconds, true, limits.seconds);
  if (helper.shared().state.load(std::memory_order_acquire) != State::working) return;
  throw InvalidArgument(
      fmt::format("the plug-in {} cannot be loaded: {}", plugin.string(), cause_of(ending, limits.seconds, 0).detail));
}

struct Isolation::Work {
  Runtime& runtime;
  const Operation& operation;
  const Problem& problem;
  const TuneOptions& options;
  const OnProgress& progress;
  std::string device;             // as Runtime takes it
  std::vector<std::string> arms;  // to compare; empty: all are measured
  std::vector<Rows> rows;

  Json json(const char* kind, const std::vector<std::string>& plugins, const IsolationLimits& limits,
            std::span<const Attempt> excluded) const {
    Json bad = Json::array();
    for (const Attempt& each : excluded)
      bad.push_back({{"arm", each.arm}, {"outcome", to_string(each.outcome)}, {"detail", each.detail}});
    return {{"kind", kind},
            {"plugins", plugins},
            {"database", runtime.database().string()},
            {"device", device},
            {"memory", limits.memory_bytes},
            {"operation", operation.name()},
            {"problem", problem.attributes},
            {"max_rows", options.max_rows},
            {"budget", options.budget.count()},
            {"thorough", options.thorough},
            {"interleaved", options.interleaved},
            {"seed", options.seed},
            {"l2", to_string(options.l2)},
            {"launch", options.launch_mode ? std::string(to_string(*options.launch_mode)) : std::string()},
            {"keep_arms", options.keep_arms},
            {"excluded", std::move(bad)},
            {"arms", arms},
            {"rows", rows}};
  }
};

// Every arm that is measured runs in a helper of its own first.
void Isolation::probe_arms(const Work& work, std::vector<Attempt>& excluded) const {
  int number = 0;
  for (const Arm* arm : work.operation.arms()) {
    const int index = number++;
    const std::string& name = arm->id().name;
    const auto is_named = [&](const std::string& each) { return names_arm(each, name); };
    if (!work.arms.empty() && std::none_of(work.arms.begin(), work.arms.end(), is_named)) continue;
    if (work.progress) work.progress({"probing", 0, name});
    Json json = work.json("probe", plugins_, limits_, {});
    json["arm"] = name;
    Helper helper(json);
    const Ending ending = helper.wait(limits_.seconds, true, kOutsideSeconds + work.options.budget.count());
    const Shared& shared = helper.shared();
    const State state = shared.state.load(std::memory_order_acquire);
    if (state == State::done) continue;
    if (state == State::error) throw_error(shared);
    Attempt bad{0, name, static_cast<Outcome>(shared.outcome), get_text(shared.text)};
    if (state == State::working) {
      Cause cause = cause_of(ending, limits_.seconds, memory_limit(work));
      if (shared.arm.load() != index) {
        throw Failure(fmt::format("{} cannot be measured: the process that probed {} ended outside its arms: {}",
                                  to_string(work.problem), name, cause.detail));
      }
      bad.outcome = cause.outcome;
      bad.detail = fmt::format("{} {}", cause.detail, where_text(shared.rows.load()));
    }
    exclude(work, excluded, std::move(bad));
  }
}

double Isolation::memory_limit(const Work& work) const {
#ifndef CROSSOVER_SANITIZED
  if (work.runtime.backend().device().kind != "cpu") return 0;
  return limits_.memory_bytes != 0 ? static_cast<double>(limits_.memory_bytes)
                                   : static_cast<double>(work.runtime.backend().memory().available_bytes()) / 2;
#else
  static_cast<void>(work);
  return 0;
#endif
}

void Isolation::exclude(const Work& work, std::vector<Attempt>& excluded, Attempt attempt) {
  warn(fmt::format("{}, arm {} is left out: {}: {}", work.operation.name(), attempt.arm, to_string(attempt.outcome),
                   attempt.detail));
  excluded.push_back(std::move(attempt));
}

Run Isolation::supervise(const Work& work) const {
  std::vector<Attempt> excluded = work.options.excluded;
  probe_arms(work, excluded);
  const double budget = work.options.budget.count();
  double spent = 0;
  for (std::size_t tries = 0; tries <= work.operation.arms().size(); ++tries) {
    const ResultFile result;
    const double left = std::max(budget - spent, tries == 0 ? budget : kLeastShare * budget);
    Json json = work.json(work.arms.empty() ? "measure" : "compare", plugins_, limits_, excluded);
    json["budget"] = left;
    json["result"] = result.path().string();
    Helper helper(json);
    auto reported = Clock::now();
    const Ending ending = helper.wait(limits_.seconds, false, kOutsideSeconds + budget, [&](double fraction) {
      if (!work.progress || Clock::now() - reported < std::chrono::milliseconds(100)) return;
      reported = Clock::now();
      work.progress({"measuring", fraction, "in a process of its own"});
    });
    spent += ending.seconds - (ending.hung ? limits_.seconds : 0);
    const Shared& shared = helper.shared();
    const State state = shared.state.load(std::memory_order_acquire);
    if (state == State::done) {
      Run run = run_in(result.path());
      if (run.problem != work.problem || run.device != work.runtime.backend().device())
        throw Failure("the process that measured arms that are not trusted measured something else");
      return run;
    }
    if (state == State::error) throw_error(shared);
    const int arm = state == State::attempt ? shared.attempted : shared.arm.load();
    Attempt bad{0, {}, static_cast<Outcome>(shared.outcome), get_text(shared.text)};
    if (state == State::working) {
      const Cause cause = cause_of(ending, limits_.seconds, memory_limit(work));
      bad.outcome = cause.outcome;
      bad.detail =
          fmt::format("{} {}, while it was measured with the others", cause.detail, where_text(shared.rows.load()));
    }
    const auto arms = work.operation.arms();
    if (arm < 0 || arm >= std::ssize(arms)) {
      throw Failure(fmt::format("{} cannot be measured: the process that measured it ended outside its arms: {}",
                                to_string(work.problem), bad.detail));
    }
    bad.arm = arms[static_cast<std::size_t>(arm)]->id().name;
    exclude(work, excluded, std::move(bad));
  }
  throw Failure(fmt::format("{} cannot be measured: its arms end every process", to_string(work.problem)));
}

Measure Isolation::measure(Runtime& runtime) const {
  return [this, &runtime](Backend& backend, const Operation& operation, const Problem& problem,
                          const TuneOptions& options, std::span<const Run> known, const OnProgress& progress) {
    if (!covers(operation)) return crossover::measure(backend, operation, problem, options, known, progress);
    return supervise({runtime, operation, problem, options, progress, device_, {}, {}});
  };
}

Run Isolation::compare(Runtime& runtime, const Operation& operation, const Problem& problem, const TuneOptions& options,
                       const std::vector<std::string>& arms, const std::vector<Rows>& rows,
                       const OnProgress& progress) const {
  if (!covers(operation)) return measure_selected(runtime.backend(), operation, problem, options, arms, rows, progress);
  TuneOptions own = options;
  own.max_rows = *std::max_element(rows.begin(), rows.end());
  return supervise({runtime, operation, problem, own, progress, device_, arms, rows});
}

}  // namespace crossover::program
