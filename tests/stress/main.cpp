// Many processes with many threads that load the same problems at once from one database, while tuners are killed in
// the middle of their work. Afterwards every problem must have been tuned once, plus once for every tuner that was
// killed at it, nobody may have met an error, and the database must be whole.
//
//   crossover_stress [--processes N] [--threads N] [--problems N] [--rounds N] [--kills N] [--seed N]

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "crossover/db/store.hpp"
#include "crossover/dispatch/dispatcher.hpp"
#include "crossover/tuner/tuner.hpp"
#include "fake_backend.hpp"

namespace {

using namespace crossover;
using Clock = std::chrono::steady_clock;

struct Size {
  int processes = 16, threads = 8, problems = 60, rounds = 100, kills = 50, seed = 1;
};

constexpr auto kRoundLimit = std::chrono::seconds(120);
constexpr auto kTuningTakes =
    std::chrono::milliseconds(15);  // beside what the synthetic device needs: time to be killed in

// One line, written at once: lines of many processes do not mix.
class Log {
 public:
  explicit Log(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600)) {}
  ~Log() { ::close(descriptor_); }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;
  void line(char what, const std::string& text) {
    const std::string whole = std::string(1, what) + " " + std::to_string(::getpid()) + " " + text + "\n";
    if (::write(descriptor_, whole.data(), whole.size()) != static_cast<ssize_t>(whole.size())) std::abort();
  }

 private:
  int descriptor_;
};

thread_local std::string tuned_problem;  // of the tuning that this thread is in
thread_local bool started = false;

// The tuner, with a line in the log when it begins to measure and when what it measured is stored.
class Logged final : public OnMiss {
 public:
  Logged(Tuner& tuner, Log& log) : tuner_(tuner), log_(log) {}
  bool tune(const Miss& miss) override {
    tuned_problem = miss.key.problem.attributes.at("n");
    started = false;
    const bool done = tuner_.tune(miss);
    if (started) log_.line('E', tuned_problem);
    return done;
  }
  void record(const Miss& miss) override { tuner_.record(miss); }

 private:
  Tuner& tuner_;
  Log& log_;
};

fake::ArmSpec arm(std::string name, double base_ns, double per_row_ns) {
  fake::ArmSpec spec;
  spec.name = std::move(name);
  spec.ns = [=](Rows m) { return base_ns + per_row_ns * static_cast<double>(m); };
  spec.noise = 0.002;
  return spec;
}

// 0: every problem is served from evidence, and nothing was complained of.
int work(const Size& size, const std::filesystem::path& folder, int seed) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Log log(folder / "log");
  const auto world = std::make_shared<fake::World>(static_cast<std::uint64_t>(seed));
  fake::FakeOperation operation(world, {arm("a", 1e5, 1e4), arm("b", 3e5, 0)});
  operation.on_workload = [&] {
    started = true;
    log.line('S', tuned_problem);
    std::this_thread::sleep_for(kTuningTakes);
  };
  fake::FakeBackend backend(world);
  backend.uuid = "crossover-stress-" + folder.filename().string();
  const auto store = Store::open(folder / "tuning.db", Store::Access::read_write);
  TuneOptions tuning;
  tuning.max_rows = 32;
  Tuner tuner(backend, *store, tuning);
  Logged on_miss(tuner, log);
  std::atomic<int> complaints{0};
  Dispatcher dispatcher(backend, *store, &on_miss,
                        {.overrides = {},
                         .on_miss = MissMode::tune,
                         .max_rows = 32,
                         .assumptions = {},
                         .no_database = {},
                         .warn = [&](const std::string& text) {
                           ++complaints;
                           std::fprintf(stderr, "process %d: %s\n", ::getpid(), text.c_str());
                         }});
  const double weight = 3;
  const auto end = Clock::now() + kRoundLimit;
  std::atomic<bool> late{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < size.threads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(seed * 100 + t));
      std::vector<int> order;
      for (int n = 1; n <= size.problems; ++n) order.push_back(n);
      std::shuffle(order.begin(), order.end(), random);
      std::vector<Bound> bounds;
      for (const int n : order)
        bounds.push_back(dispatcher.bind(operation, operation.problem({{"n", std::to_string(n)}}), {{{&weight, 0}}}));
      const auto served = [](const Bound& bound) {
        return bound.select(1).origin == Origin::tuned && bound.select(1).arm->id().name == "a" &&
               bound.select(32).arm->id().name == "b";
      };
      while (!std::all_of(bounds.begin(), bounds.end(), served)) {
        if (Clock::now() > end) {
          late = true;
          return;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        dispatcher.refresh();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (late) std::fprintf(stderr, "process %d: a problem was not tuned in time\n", ::getpid());
  return late || complaints > 0 ? 1 : 0;
}

struct Seen {
  std::map<std::string, std::vector<pid_t>> begun, ended;  // by problem
  std::map<pid_t, std::string> at_work;
};

Seen read(const std::filesystem::path& log) {
  Seen seen;
  std::ifstream file(log);
  char what = 0;
  pid_t pid = 0;
  std::string problem;
  while (file >> what >> pid >> problem) {
    if (what == 'S') {
      seen.begun[problem].push_back(pid);
      seen.at_work[pid] = problem;
    } else {
      seen.ended[problem].push_back(pid);
      seen.at_work.erase(pid);
    }
  }
  return seen;
}

// The number of faults of one round; adds to `killed`.
int round(const Size& size, int number, int kills, int& killed_in_all) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("crossover-stress-" + std::to_string(::getpid()) + "-" + std::to_string(number));
  std::filesystem::create_directory(folder);
  std::set<pid_t> alive, killed;
  int seed = size.seed * 10'000 + number * 100, faults = 0;
  const auto start = [&] {
    const int own = ++seed;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(work(size, folder, own));
    alive.insert(child);
  };
  for (int i = 0; i < size.processes; ++i) start();
  std::mt19937 random(static_cast<unsigned>(seed));
  while (!alive.empty()) {
    int state = 0;
    const pid_t ended = ::waitpid(-1, &state, WNOHANG);
    if (ended > 0) {
      alive.erase(ended);
      const bool as_asked = killed.contains(ended) && WIFSIGNALED(state) && WTERMSIG(state) == SIGKILL;
      if (!as_asked && !(WIFEXITED(state) && WEXITSTATUS(state) == 0)) {
        std::fprintf(stderr, "round %d: process %d ended with state %d\n", number, ended, state);
        ++faults;
      }
      continue;
    }
    if (static_cast<int>(killed.size()) < kills) {
      for (const auto& [pid, problem] : read(folder / "log").at_work) {
        if (!alive.contains(pid) || killed.contains(pid)) continue;
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 8'000));
        ::kill(pid, SIGKILL);
        killed.insert(pid);
        start();
        break;
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  const Seen seen = read(folder / "log");
  const auto store = Store::open(folder / "tuning.db", Store::Access::lookup_only);
  std::map<std::string, int> stored;
  for (const Run& run : store->all_runs()) ++stored[run.problem.attributes.at("n")];
  const auto fault = [&](const std::string& text) {
    std::fprintf(stderr, "round %d: %s\n", number, text.c_str());
    ++faults;
  };
  for (int n = 1; n <= size.problems; ++n) {
    const std::string problem = std::to_string(n);
    std::vector<pid_t> unended = seen.begun.contains(problem) ? seen.begun.at(problem) : std::vector<pid_t>();
    const std::vector<pid_t> ends = seen.ended.contains(problem) ? seen.ended.at(problem) : std::vector<pid_t>();
    const std::size_t begun = unended.size();
    for (const pid_t pid : ends) unended.erase(std::find(unended.begin(), unended.end(), pid));
    for (const pid_t pid : unended)
      if (!killed.contains(pid)) fault("problem " + problem + " was begun by a process that lived and did not end it");
    // A tuner that was killed after it had stored its run, and before it said so, needs no successor.
    if (ends.size() > 1 || begun == 0 || stored[problem] != 1)
      fault("problem " + problem + ": " + std::to_string(begun) + " tunings begun, " + std::to_string(ends.size()) +
            " ended, " + std::to_string(unended.size()) + " killed, " + std::to_string(stored[problem]) + " stored");
  }
  for (const std::string& text : store->check()) fault(text);
  for (const std::string& text : store->warnings()) fault(text);
  killed_in_all += static_cast<int>(killed.size());
  std::filesystem::remove_all(folder);
  return faults;
}

}  // namespace

int main(int count, char** values) {
  Size size;
  const std::map<std::string, int*> options{{"--processes", &size.processes}, {"--threads", &size.threads},
                                            {"--problems", &size.problems},   {"--rounds", &size.rounds},
                                            {"--kills", &size.kills},         {"--seed", &size.seed}};
  for (int i = 1; i < count; i += 2) {
    const auto option = options.find(values[i]);
    const char* const text = i + 1 < count ? values[i + 1] : "";
    const char* const end = text + std::strlen(text);
    if (option == options.end() || std::from_chars(text, end, *option->second).ptr != end || end == text ||
        *option->second < (option->first == "--kills" ? 0 : 1)) {
      std::fprintf(stderr, "crossover_stress: %s takes a whole number above 0; options:", values[i]);
      for (const auto& [name, value] : options) std::fprintf(stderr, " %s", name.c_str());
      std::fprintf(stderr, "\n");
      return 2;
    }
  }
  ::unsetenv("CROSSOVER_DB");
  const auto begin = Clock::now();
  int faults = 0, killed = 0;
  for (int i = 0; i < size.rounds; ++i) {
    const int due = size.kills * (i + 1) / size.rounds - killed;
    faults += round(size, i, std::max(0, due), killed);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::printf("%d rounds of %d processes with %d threads, %d problems: %d tuners killed, %d faults, %.1f s\n",
              size.rounds, size.processes, size.threads, size.problems, killed, faults, seconds);
  return faults == 0 ? 0 : 1;
}
