// crossover tune: measures problems, stores each as it is done, and prints what came out.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <exception>
#include <iterator>
#include <new>
#include <set>

#include "command.hpp"
#include "host.hpp"
#include "json.hpp"
#include "shapes.hpp"
#include "text.hpp"
#include "verdict_blocks.hpp"

namespace po = boost::program_options;

namespace crossover::program {
namespace {

constexpr Usage kTuneUsage{"crossover tune --shape N,K | --problem k=v,... | --shapes FILE.csv | --pending [options]",
                           "Measures every eligible arm of each problem on this host and stores the evidence and the "
                           "verdict. A policy (--allow,\n"
                           "--arms, --cache-bytes, ...) never changes what is measured, only which verdict is printed; "
                           "arms that --arms names are\n"
                           "measured however slow they are. The device should be idle.",
                           "crossover tune --shape 1024,1024 --max-rows 256 --budget 5s"};

// One problem to measure, and for a pending one the request that it serves.
struct Task {
  const Operation* operation = nullptr;
  Problem problem;  // normalised
  std::string label;
  TuneOptions options;
  std::optional<EvidenceKey> request;
};

std::vector<Task> shape_tasks(const Options& options, const std::filesystem::path& path) {
  const Operation& operation = options.operation();
  std::vector<Task> tasks;
  std::set<Problem> seen;
  for (Shape& shape : read_shapes(path)) {
    try {
      Task task{&operation,
                operation.normalise(options.with_common_attributes(std::move(shape.problem))),
                std::move(shape.label),
                {},
                {}};
      if (seen.insert(task.problem).second) tasks.push_back(std::move(task));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(fmt::format("{}, line {}: {}", path.string(), shape.line, error.what()));
    }
  }
  return tasks;
}

void warn_left(const Problem& problem, const char* why) {
  warn(fmt::format("the request for {} is left: {}", to_string(problem), why));
}

// What is pending for this device and may be tried now. Counts in `left` what this build cannot do and another may, and
// in `waiting` what has failed and is not to be tried again yet.
std::vector<Task> pending_tasks(Runtime& runtime, std::size_t& left, std::size_t& waiting) {
  std::vector<Task> tasks;
  const auto now_us = runtime.backend().unix_time_us();
  for (const Request& request : runtime.store().requests()) {
    if (request.key.device != runtime.backend().device()) continue;
    if (request.not_before_us > now_us) {
      warn(fmt::format("the request for {} failed and waits until {}", to_string(request.key.problem),
                       iso_time(request.not_before_us)));
      ++waiting;
      continue;
    }
    Task task;
    try {
      task.operation = &Runtime::operation(request.key.problem.operation);
      task.problem = task.operation->normalise(request.key.problem);
      if (request.key.regime.fill != Regime{}.fill)
        throw InvalidArgument("activations cannot be filled with " + request.key.regime.fill + " values");
    } catch (const InvalidArgument& error) {
      warn_left(request.key.problem, error.what());
      ++left;
      continue;
    }
    task.options.max_rows = request.max_m;
    task.options.l2 = request.key.regime.l2;
    task.options.launch_mode = request.key.regime.launch_mode;
    task.request = request.key;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

// Measuring takes its time: what can be known before must not be found out after it.
void require_writable(Runtime& runtime) {
  require_database(runtime);
  const std::filesystem::path& path = runtime.database();
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
  while (!std::filesystem::exists(folder, error) && folder != folder.parent_path()) folder = folder.parent_path();
  if (::access(folder.c_str(), W_OK) != 0) {
    throw StoreError(fmt::format("{} cannot be written: the folder {} is read-only", path.string(), folder.string()),
                     "name another file with --db or CROSSOVER_DB");
  }
  runtime.store().require_writable();
}

// What is stored for this device and ought to be confirmed or measured again: stale, or measured by one process only.
// What has a request of its own is left out. In the order in which it was first measured.
std::vector<Task> unsettled_tasks(Runtime& runtime) {
  Store& store = runtime.store();
  std::set<EvidenceKey> seen;
  for (const Request& request : store.requests()) seen.insert(request.key);
  std::vector<Task> tasks;
  for (const Run& run : store.all_runs()) {
    const EvidenceKey key{run.device, run.problem, run.regime};
    if (key.device != runtime.backend().device() || !seen.insert(key).second || key.regime.fill != Regime{}.fill) {
      continue;
    }
    Task task;
    try {
      task.operation = &Runtime::operation(key.problem.operation);
      task.problem = task.operation->normalise(key.problem);
    } catch (const InvalidArgument&) {
      continue;  // of another build, which can measure it
    }
    const Current now = runtime.dispatcher().current(*task.operation, task.problem);
    const Resolution resolution = resolve(now, store, task.problem, key.regime, Policy{}, Overrides{});
    std::set<Id> processes;
    Rows largest = 0;
    for (const Run& each : resolution.runs) {
      processes.insert(each.process_uuid);
      for (const Sample& sample : each.samples) largest = std::max(largest, sample.m);
    }
    if (!resolution.wants_tuning || largest < 1 || (resolution.stale.empty() && processes.size() > 1)) continue;
    task.options.max_rows = largest;
    task.options.l2 = key.regime.l2;
    task.options.launch_mode = key.regime.launch_mode;
    tasks.push_back(std::move(task));
  }
  return tasks;
}

// Measures in `count` processes of their own before this one does. The code to exit with where one failed; it has said
// why. Called before anything opens a device or a file: a child goes on from here as the program would, and prints
// nothing.
std::optional<int> measure_in_children(int count) {
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child < 0) throw Failure("a process of its own for a thorough tuning cannot be made");
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      const int nowhere = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
      if (nowhere < 0 || ::dup2(nowhere, STDOUT_FILENO) < 0) ::_exit(kFailed);
      return std::nullopt;
    }
    int state = 0;
    while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
    }
    if (WIFSIGNALED(state))
      throw Failure(fmt::format("a process of the tuning was ended by signal {}", WTERMSIG(state)));
    if (WEXITSTATUS(state) != kDone) return WEXITSTATUS(state);
  }
  return std::nullopt;
}

// The verdict for the policy that was asked for, and the evidence it was decided from.
struct Shown {
  Verdict verdict;
  std::vector<Run> runs;
};

Shown shown(Runtime& runtime, const Task& task, const Tuning& tuning, const Policy& policy) {
  if (policy == Policy{} || !tuning.not_stored.empty()) {
    Shown result{tuning.verdict, {tuning.run}};
    if (policy == Policy{}) return result;
    result.verdict = decide(tuning.verdict.key, result.runs, policy);
    return result;
  }
  Current current = runtime.dispatcher().current(*task.operation, task.problem);
  Resolution resolution = resolve(current, runtime.store(), task.problem, tuning.run.regime, policy, Overrides{});
  for (Run& run : resolution.runs) {
    if (run.samples.empty()) runtime.store().load(run);
  }
  Shown result{decide(tuning.verdict.key, resolution.runs, policy), {tuning.run}};
  result.verdict.id = runtime.store().put(result.verdict);
  return result;
}

Json json_of(const Shown& shown, const Tuning& tuning) {
  const Verdict& verdict = shown.verdict;
  return {{"id", tuning.not_stored.empty() ? to_json(verdict.id) : Json(nullptr)},
          {"problem", to_json(verdict.key.problem)},
          {"device", to_json(verdict.key.device)},
          {"regime", to_json(verdict.key.regime)},
          {"policy", to_json(verdict.policy)},
          {"status", to_string(verdict.status)},
          {"why", verdict.why},
          {"segments", to_json(std::span<const Segment>(verdict.segments))},
          {"crossovers", to_json(std::span<const Crossover>(verdict.crossovers))},
          {"threshold", to_json(verdict.threshold)},
          {"first_win", to_json(verdict.first_win)},
          {"library_arm", verdict.library_arm},
          {"held_out", to_json(verdict.held_out)},
          {"duration_s", tuning.duration_s},
          {"rows_measured", tuning.rows_measured},
          {"rows_dirty", tuning.rows_dirty}};
}

void add_blocks(Document& document, const Task& task, const Shown& shown, const Tuning& tuning) {
  const std::string name = to_string(task.problem);
  document.blocks.emplace_back(Heading{task.label.empty() ? name : fmt::format("{}: {}", task.label, name)});
  Table medians = median_table(shown.runs, shown.verdict.segments);
  if (!medians.rows.empty()) {
    document.blocks.emplace_back(std::move(medians));
    document.blocks.emplace_back(
        Paragraph{"* is served by the verdict; ! was measured but is not believed; - was not timed."});
  }
  Table attempts = attempt_table(shown.runs);
  if (!attempts.rows.empty()) document.blocks.emplace_back(std::move(attempts));
  Fields fields = verdict_fields(shown.verdict);
  fields.entries.emplace_back("measured", fmt::format("{} samples in {:.1f} s, {} of them dirty", tuning.rows_measured,
                                                      tuning.duration_s, tuning.rows_dirty));
  if (!tuning.not_stored.empty()) fields.entries.emplace_back("not stored", tuning.not_stored);
  document.blocks.emplace_back(std::move(fields));
}

void describe_tune(Described& options) {
  options.add_options()("shapes", po::value<std::string>()->value_name("FILE"),
                        "a CSV file of problems: lines N,K, or columns N and K that a header names")(
      "pending",
      "what lookups asked for and did not get, and what is stored but stale or measured by one process only");
  add_problem_options(options);
  add_isolation_options(options);
  add_tuning_options(options);
  add_policy_options(options);
  add_regime_options(options);
  add_device_option(options, false);
  add_database_option(options);
  add_output_options(options);
}

int run_tune(const Arguments& arguments) {
  const auto options = Options::parse(kTuneCommand, arguments);
  if (!options) return kDone;
  const Format format = options->format();

  // All of it is judged before anything is measured.
  const bool pending = options->has("pending");
  const auto file = options->text("shapes");
  const auto single = options->problem();
  if (static_cast<int>(pending) + static_cast<int>(file.has_value()) + static_cast<int>(single.has_value()) != 1) {
    throw InvalidArgument("tune takes one of --shape (or --problem), --shapes and --pending");
  }
  if (pending) {
    for (const char* name : {"dtype", "bias", "launch", "l2", "max-rows"}) {
      if (options->has(name)) {
        throw InvalidArgument(
            fmt::format("--pending and --{} contradict each other: a request says what it wants", name));
      }
    }
  }
  TuneOptions tuning = options->tuning();
  if (tuning.thorough && !pending) {  // what is pending is confirmed by the next process that serves it
    constexpr int kProcesses = 3;
    tuning.budget /= kProcesses;
    if (const auto code = measure_in_children(kProcesses - 1)) return *code;
  }
  std::vector<Task> tasks;
  if (file) tasks = shape_tasks(*options, *file);
  if (single) tasks.push_back({&options->operation(), options->operation().normalise(*single), {}, {}, {}});

  TerminalProgress progress;
  const Overrides overrides = Overrides::from_environment();
  const auto runtime = open_runtime(
      *options,
      {.overrides = overrides, .on_miss = MissMode::fallback, .tuning = tuning, .progress = progress.handler()}, true);
  const Target target(*runtime, *options);
  if (target.stored()) {
    throw InvalidArgument(fmt::format("{} is not here: tune measures on this host", describe(target.device())));
  }
  const std::optional<Isolation> isolation = options->isolation();
  if (isolation) tuning.measure = isolation->measure(*runtime);
  if (!pending) tuning.launch_mode = target.regime(*options).launch_mode;
  require_writable(*runtime);
  std::size_t left = 0, waiting = 0;  // requests that could not be served
  if (pending) {
    tasks = pending_tasks(*runtime, left, waiting);
    std::vector<Task> unsettled = unsettled_tasks(*runtime);
    std::move(unsettled.begin(), unsettled.end(), std::back_inserter(tasks));
  }
  std::vector<Policy> policies;
  for (Task& task : tasks) {
    const ArmSet arms = runtime->dispatcher().current(*task.operation, task.problem).arm_set;
    overrides.check(arms);  // tune measures as if they were not set, but says if they make no sense
    policies.push_back(options->policy(arms));
    if (pending) {
      task.options.budget = tuning.budget;
      task.options.thorough = tuning.thorough;
      task.options.measure = tuning.measure;
    } else {
      task.options = tuning;
    }
    task.options.keep_arms = policies.back().arms;
  }

  Document document;
  document.json["verdicts"] = Json::array();
  std::exception_ptr failure;
  std::vector<std::string> not_stored;
  for (std::size_t i = 0; i < tasks.size() && (pending || !failure); ++i) {
    const Task& task = tasks[i];
    progress.title(fmt::format("{}/{} {}", i + 1, tasks.size(), to_string(task.problem)));
    try {
      const Tuning result = runtime->tuner().tune(*task.operation, task.problem, task.options);
      progress.clear();
      const Shown out = shown(*runtime, task, result, policies[i]);
      document.json["verdicts"].push_back(json_of(out, result));
      Document part;
      add_blocks(part, task, out, result);
      // A table at a time for people, who wait; programs get one document at the end.
      const bool first = document.json["verdicts"].size() == 1;
      if (format != Format::json) write_output((first ? "" : "\n") + render(part, format));
      if (!result.not_stored.empty()) not_stored.push_back(result.not_stored);
    } catch (const std::exception& error) {
      progress.clear();
      failure = std::current_exception();
      if (task.request) {
        const bool memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
        warn_left(task.problem, memory ? "out of memory" : error.what());
        ++left;
      }
    }
  }
  for (const std::string& text : runtime->store().warnings()) warn(text);
  if (format == Format::json) {
    if (!failure || !document.json["verdicts"].empty()) write_output(render(document, format));
  } else if (tasks.empty() && left == 0) {
    write_output(waiting == 0
                     ? "Nothing is pending for this device.\n"
                     : fmt::format("Nothing can be measured now: {} requests wait after a failure.\n", waiting));
  }
  if (left > 0) {
    const std::size_t all = document.json["verdicts"].size() + left;
    throw Failure(fmt::format("{} of {} requests could not be served", left, all));
  }
  if (failure) std::rethrow_exception(failure);
  if (!not_stored.empty())
    throw StoreError(fmt::format("what was measured could not be stored: {}", not_stored.front()));
  return kDone;
}

}  // namespace

constinit const Command kTuneCommand{"tune",     "", "measures every eligible arm of a problem and stores the verdict",
                                     kTuneUsage, "", describe_tune,
                                     run_tune};

}  // namespace crossover::program
