// One problem, measured once. tuner/MEASURING.md describes the protocol; the names of the steps are the same here.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "clean.hpp"
#include "crossover/tuner/tuner.hpp"
#include "grid.hpp"
#include "host.hpp"
#include "watch.hpp"

namespace crossover {
namespace {

using namespace tuning;

constexpr std::array<int, 4> kLooks{12, 24, 48, 96};  // rounds after which comparisons are looked at
constexpr int kWarmUps = 3;                           // launches of an arm at an M before it is timed or dropped
constexpr double kLongLaunchNs = 10e6;                // from here an arm that is warm already needs but one launch more
constexpr int kMaxLaunches = 256;                     // per round of one sample
constexpr int kMaxCopies = 256;                       // of the operands
constexpr double kFarSlower = 5;                      // times the best at an M: dropped there
constexpr double kLastRivalShare = 0.05;              // of the budget, for the last rival's rounds at one M
constexpr double kRaceMargin = 1.03;                  // slower at every M than one that may be served instead: dropped
constexpr int kRetries = 3;                           // of a discarded round
constexpr std::int64_t kFirstBackoffNs = 50'000'000;  // doubles
constexpr int kHopeless = 3;                          // rounds given up in a row, after which none is tried again
constexpr std::size_t kFewestClocks = 5;              // rounds of a sample from which its usual clock is known
constexpr double kFirstLookShare = 0.90;              // of the budget, for what is begun before the first look
constexpr double kGridShare = 0.85;     // of the budget, for the rounds after it; the rest is for the held-out rows
constexpr double kHeldOutShare = 0.05;  // of the budget that must be left to begin with them
constexpr double kOverrun = 1.15;       // of the budget, up to which the first rounds are completed
constexpr int kHeldOutPoints = 5;
constexpr double kCopiesShare = 0.05;  // of the budget that making copies of the operands may take
constexpr double kSettleShare = 0.10;  // of the budget that waiting for the clock may take
constexpr double kSettleMostNs = 3e9, kSettleLeastNs = 0.5e9, kSettleWindowNs = 0.25e9;
constexpr double kSettled = 0.01;                                     // change of the clock between two windows
constexpr double kIdlePatienceNs = 1.5e9, kIdlePatienceShare = 0.10;  // for the device to become idle
constexpr int kRefinements = 6;       // times that row counts are added, one to every crossover
constexpr double kMemoryShare = 0.5;  // of the available bytes that copies and what arms derive from them may take

std::string milliseconds(double ns) {
  char text[48];
  std::snprintf(text, sizeof(text), "%.4g ms", ns / 1e6);
  return text;
}

std::string times(const std::vector<double>& ns) {
  std::string text;
  for (const double time : ns) {
    text += (text.empty() ? "" : ", ") + milliseconds(time);
  }
  return text;
}

std::string row_text(Rows m) { return std::to_string(m) + (m == 1 ? " row" : " rows"); }

std::string bytes_text(double bytes) {
  char text[48];
  std::snprintf(text, sizeof(text), bytes < 1e9 ? "%.1f MB" : "%.1f GB", bytes < 1e9 ? bytes / 1e6 : bytes / 1e9);
  return text;
}

// A block of device memory.
class Block {
 public:
  Block() = default;
  Block(Memory& memory, std::size_t bytes) : memory_(&memory), data_(memory.allocate(bytes)), bytes_(bytes) {}
  ~Block() {
    if (data_ != nullptr) {
      memory_->release(data_);
    }
  }
  Block(Block&& other) noexcept { *this = std::move(other); }
  Block& operator=(Block&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Workspace workspace() const { return {data_, bytes_}; }

 private:
  Memory* memory_ = nullptr;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// What measure_selected() measures, in place of every arm and the grid.
struct Selection {
  const Arm* reference = nullptr;
  std::vector<Rows> rows;  // ascending, unique
};

// An arm in this run.
struct Candidate {
  const Arm* arm = nullptr;
  bool is_default = false;                          // at some M
  bool keep = false;                                // asked for by name: never dropped
  bool out = false;                                 // as a whole; an attempt with m = 0 says why
  bool raced = false;                               // dropped by a look
  Cost largest;                                     // workspace and cached bytes, the most over the grid
  std::string config;                               // what it settled on, or what earlier evidence asks it to restore
  std::vector<std::unique_ptr<Prepared>> prepared;  // one per copy of the operands
  std::map<Rows, double> launch_ns;                 // best warm-up time by M
  std::map<Rows, double> dropped;                   // by the 5× rule: its time over the best, by M
  const std::string& name() const { return arm->id().name; }
};

// While it lives, a function of the arm may be running: TuneOptions::on_arm is told.
class Inside {
 public:
  Inside(const TuneOptions& options, const Arm& arm, Rows m = 0) : options_(options) {
    if (options_.on_arm) {
      options_.on_arm(arm.id().name, m);
    }
  }
  ~Inside() {
    if (options_.on_arm) {
      options_.on_arm({}, 0);
    }
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  const TuneOptions& options_;
};

// One sample in the making.
struct Entry {
  Candidate* candidate = nullptr;
  Sample sample;
  double launch_ns = 0;                                   // expected
  double floor_ns = 0;                                    // by the bytes it must move; 0: unknown
  std::map<std::size_t, std::unique_ptr<Batch>> batches;  // by the copy they begin with
  bool alive = true;                                      // still timed
  bool failed = false;                                    // an attempt takes the sample's place
};

// All samples of one M.
struct Point {
  Rows m = 0;
  Role role = Role::grid;
  std::vector<Entry> entries;
  bool measuring = true;
  double round_ns = 0;  // expected time of one round of all its entries
};

class Measurement {
 public:
  // `selection`: of options.keep_arms; null: everything.
  Measurement(Backend& backend, const Operation& operation, const Problem& problem, const TuneOptions& options,
              std::span<const Run> known, const OnProgress& progress, const Selection* selection = nullptr)
      : backend_(backend),
        operation_(operation),
        problem_(problem),
        options_(options),
        progress_(progress),
        selection_(selection),
        begin_ns_(backend.now_ns()),
        budget_ns_(checked_budget_ns(options)),
        watch_(backend, static_cast<std::int64_t>(std::min(kIdlePatienceNs, kIdlePatienceShare * budget_ns_))) {
    check_options();
    run_.started_us = backend.unix_time_us();
    run_.process_uuid = process_uuid();
    run_.device = backend.device();
    run_.environment = backend.environment();
    run_.problem = problem;
    run_.regime = {options.launch_mode.value_or(backend.launch_modes().front()), options.l2, "normal"};
    run_.gpu_uuid = backend.gpu_uuid();
    run_.boot_id = boot_id();
    run_.host = host_name();
    run_.seed = options.seed != 0 ? options.seed : random_seed();
    rows_ = selection != nullptr ? selection->rows : grid(options.max_rows, operation.tile_edges(problem));
    run_.arm_set = arm_set(operation, problem, run_.device);
    if (selection != nullptr) {
      run_.arm_set.defaults = {{kMaxRows, selection->reference->id().name}};
    }
    random_ = Random(run_.seed);
    find_candidates(known);
  }
  ~Measurement() { release_prepared(); }
  Measurement(const Measurement&) = delete;
  Measurement& operator=(const Measurement&) = delete;

  // The selection's reference alone, at its row counts, each checked and none timed.
  std::optional<Attempt> probe() {
    const auto found = std::find_if(candidates_.begin(), candidates_.end(),
                                    [&](const Candidate& each) { return each.arm == selection_->reference; });
    Candidate candidate = std::move(*found);
    candidates_.clear();
    candidates_.push_back(std::move(candidate));
    Candidate& alone = candidates_.front();
    exclude_ineligible();
    if (alone.out) {
      return std::nullopt;
    }
    allocate_workspace();
    workload_ = operation_.workload(problem_, run_.regime, backend_.memory(), options_.max_rows, 1, run_.seed);
    for (const Rows m : rows_) {
      if (alone.out || !supports(alone, m)) {
        continue;
      }
      try {
        pass_gate(alone, m, true);
      } catch (const OutOfMemory& error) {
        note(m, alone, Outcome::out_of_memory, error.what());
      } catch (const std::bad_alloc&) {
        note(m, alone, Outcome::out_of_memory, "host memory");
      } catch (const Error& error) {
        note(m, alone, Outcome::failed, error.what());
      }
      if (!attempts_.empty()) {
        Attempt attempt = attempts_.begin()->second;
        attempt.detail = (attempt.m > 0 ? row_text(attempt.m) + ": " : std::string()) + attempt.detail;
        attempt.m = 0;
        return attempt;
      }
    }
    return std::nullopt;
  }

  Run measure() {
    report("preparing", "");
    exclude_ineligible();
    allocate();
    std::vector<Point> points;
    promise_share_ = selection_ != nullptr ? 1 : kFirstLookShare - (backend_.reads_clock() ? kSettleShare / 2 : 0);
    for (const Rows m : coarse_to_fine(rows_)) {
      open(points, m, Role::grid);
    }
    if (backend_.reads_clock()) {
      settle(points);
    }
    if (options_.interleaved) {
      int rounds = 0;
      for (const int look : kLooks) {
        time_rounds(points, rounds, look);
        rounds = look;
        if (selection_ == nullptr) {
          refine(points, rounds);
        }
      }
    } else {
      time_in_sequence(points);
    }
    finish(points, true);
    if (selection_ == nullptr && left_ns(1) >= kHeldOutShare * budget_ns_) {
      measure_held_out();
    }
    collect_attempts();
    std::sort(run_.samples.begin(), run_.samples.end(), [](const Sample& a, const Sample& b) {
      return std::tie(a.m, a.arm, a.role) < std::tie(b.m, b.arm, b.role);
    });
    run_.conditions = watch_.finish();
    run_.duration_us = std::max<std::int64_t>(1, (backend_.now_ns() - begin_ns_) / 1000);
    const CleanLimits limits = backend_.limits();
    run_.dirty_mask |= condition_bits(run_.conditions, run_.duration_us, limits) | clock_bits(run_.samples, limits);
    return std::move(run_);
  }

 private:
  static double checked_budget_ns(const TuneOptions& options) {
    const double seconds = options.budget.count();
    if (!(seconds > 0) || !std::isfinite(seconds) || seconds > 1e6) {
      throw InvalidArgument("the tuning budget must be above 0 and at most 1000000 seconds");
    }
    return seconds * 1e9;
  }

  void check_options() {
    const auto modes = backend_.launch_modes();
    if (modes.empty()) {
      throw DeviceError("the device offers no launch mode");
    }
    if (options_.launch_mode && std::find(modes.begin(), modes.end(), *options_.launch_mode) == modes.end()) {
      std::string valid;
      for (const LaunchMode mode : modes) {
        valid += (valid.empty() ? "" : ", ") + std::string(to_string(mode));
      }
      throw InvalidArgument("this device has no launch mode " + std::string(to_string(*options_.launch_mode)) +
                            "; it has: " + valid);
    }
    for (const std::string& name : options_.keep_arms) {
      std::string valid;
      bool known = false;
      for (const Arm* arm : operation_.arms()) {
        known = known || names_arm(name, arm->id().name);
        valid += (valid.empty() ? "" : ", ") + arm->id().name;
      }
      if (!known) {
        throw InvalidArgument("no arm or family is named " + name + "; there are: " + valid);
      }
    }
  }

  void find_candidates(std::span<const Run> known) {
    for (const Arm* arm : operation_.arms()) {
      Candidate candidate;
      candidate.arm = arm;
      for (const Rows m : rows_) {
        candidate.is_default = candidate.is_default || default_arm(run_.arm_set.defaults, m) == arm->id().name;
      }
      candidate.keep = std::any_of(options_.keep_arms.begin(), options_.keep_arms.end(),
                                   [&](const std::string& name) { return names_arm(name, arm->id().name); });
      if (selection_ != nullptr && !candidate.keep) {
        continue;
      }
      const auto bad = std::find_if(options_.excluded.begin(), options_.excluded.end(),
                                    [&](const Attempt& attempt) { return attempt.arm == arm->id().name; });
      if (bad != options_.excluded.end()) {
        if (candidate.is_default) {
          throw Failure(to_string(problem_) + " cannot be measured without its default arm " + bad->arm + ": " +
                        std::string(to_string(bad->outcome)) + ", " + bad->detail);
        }
        give_up(candidate, bad->outcome, bad->detail);
      } else {
        candidate.config = known_config(known, arm->id());
        candidate.largest = largest_cost(*arm);
      }
      candidates_.push_back(std::move(candidate));
    }
    std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
      return a.is_default != b.is_default ? a.is_default : a.name() < b.name();
    });
  }

  // What the newest of `known` (any order) restored the arm from, if it was this very arm.
  static std::string known_config(std::span<const Run> known, const ArmId& id) {
    std::string config;
    std::int64_t newest = 0;
    for (const Run& run : known) {
      const ArmRecord* record = run.arm_set.find(id.name);
      if (record == nullptr || record->id != id || (!config.empty() && run.started_us <= newest)) {
        continue;
      }
      for (const Sample& sample : run.samples) {
        if (sample.arm == id.name && !sample.config.empty()) {
          config = sample.config;
          newest = run.started_us;
          break;
        }
      }
    }
    return config;
  }

  // --- what failed is data ------------------------------------------------------------------------------------------

  void note(Rows m, const Candidate& candidate, Outcome outcome, std::string detail) {
    attempts_.try_emplace({m, candidate.name()}, Attempt{m, candidate.name(), outcome, std::move(detail)});
  }
  void give_up(Candidate& candidate, Outcome outcome, std::string detail) {
    candidate.out = true;
    release_prepared(candidate);
    note(0, candidate, outcome, std::move(detail));
  }

  void release_prepared(Candidate& candidate) {
    if (!candidate.prepared.empty()) {
      const Inside inside(options_, *candidate.arm);
      candidate.prepared.clear();
    }
  }
  void release_prepared() {
    for (Candidate& candidate : candidates_) {
      release_prepared(candidate);
    }
  }

  Eligibility supports(const Candidate& candidate, Rows m) const {
    const Inside inside(options_, *candidate.arm);
    return candidate.arm->supports(problem_, m, run_.device);
  }
  Cost cost(const Candidate& candidate, Rows m) const {
    const Inside inside(options_, *candidate.arm);
    return candidate.arm->cost(problem_, m);
  }
  Timing run(const Candidate& candidate, Rows m, std::size_t copy) {
    const Launch launch = launch_of(candidate, m, copy);
    const Inside inside(options_, *candidate.arm, m);
    return backend_.run(launch);
  }

  // In order; an arm for which the budget reached no row count has one attempt instead of one per row count.
  void collect_attempts() {
    for (const Candidate& candidate : candidates_) {
      const bool unreached = std::all_of(rows_.begin(), rows_.end(), [&](Rows m) {
        const auto found = attempts_.find({m, candidate.name()});
        return found != attempts_.end() && found->second.outcome == Outcome::over_budget;
      });
      if (unreached) {
        const std::string detail = attempts_.at({rows_.front(), candidate.name()}).detail;
        std::erase_if(attempts_, [&](const auto& attempt) { return attempt.first.second == candidate.name(); });
        note(0, candidate, Outcome::over_budget, detail);
      }
    }
    for (const auto& [key, attempt] : attempts_) {
      run_.attempts.push_back(attempt);
    }
  }

  // Arms that cannot do any row count of the grid, and those that the launch mode excludes.
  void exclude_ineligible() {
    for (Candidate& candidate : candidates_) {
      if (candidate.out) {
        continue;
      }
      std::string reason;
      const bool eligible = std::any_of(rows_.begin(), rows_.end(), [&](Rows m) {
        const Eligibility eligibility = supports(candidate, m);
        if (!eligibility && reason.empty()) {
          reason = eligibility.reason;
        }
        return eligibility.eligible;
      });
      if (!eligible) {
        give_up(candidate, Outcome::ineligible, reason);
      } else if (run_.regime.launch_mode == LaunchMode::graph && !candidate.arm->capture_safe()) {
        give_up(candidate, Outcome::ineligible, "its launches cannot be captured into a graph");
      }
    }
  }

  Cost largest_cost(const Arm& arm) const {
    Cost largest;
    const Inside inside(options_, arm);
    for (const Rows m : rows_) {
      if (arm.supports(problem_, m, run_.device)) {
        const Cost cost = arm.cost(problem_, m);
        largest.workspace_bytes = std::max(largest.workspace_bytes, cost.workspace_bytes);
        largest.cached_bytes = std::max(largest.cached_bytes, cost.cached_bytes);
      }
    }
    return largest;
  }

  // --- memory -------------------------------------------------------------------------------------------------------

  // Workspace, data, and the default arms on every copy. Fewer copies where memory is short.
  void allocate() {
    allocate_workspace();
    const std::size_t copy_bytes = operation_.workload_bytes_per_copy(problem_, options_.max_rows);
    int copies = planned_copies(copy_bytes);
    for (;; copies /= 2) {
      try {
        workload_ = operation_.workload(problem_, run_.regime, backend_.memory(), options_.max_rows, copies, run_.seed);
        copies_ = static_cast<std::size_t>(copies);
        for (Candidate& candidate : candidates_) {
          if (candidate.is_default && !candidate.out) {
            prepare(candidate, copies_, copies > 1);
          }
        }
        break;
      } catch (const OutOfMemory&) {
        release_data();
      } catch (const std::bad_alloc&) {
        release_data();
      }
      if (copies == 1) {
        throw OutOfMemory("not enough memory to measure " + to_string(problem_) + " at up to " +
                              std::to_string(options_.max_rows) + " rows: one copy of its operands takes " +
                              bytes_text(static_cast<double>(copy_bytes)) + ", " +
                              bytes_text(static_cast<double>(backend_.memory().available_bytes())) + " are available",
                          "ask for fewer rows (--max-rows)");
      }
    }
    if (run_.regime.l2 == L2State::cold) {
      watch_.add("cold_pool_bytes", std::to_string(copies_ * touched_bytes()));
    }
  }

  void release_data() {
    release_prepared();
    workload_.reset();
  }

  // One for all arms: they never run at the same time. The arm that asks for more than there is goes without.
  void allocate_workspace() {
    for (;;) {
      Candidate* hungriest = nullptr;
      std::size_t bytes = 0;
      for (Candidate& candidate : candidates_) {
        const std::size_t own = candidate.out ? 0 : candidate.largest.workspace_bytes;
        if (own > bytes) {
          hungriest = &candidate;
          bytes = own;
        }
      }
      if (hungriest == nullptr) {
        return;
      }
      try {
        workspace_ = Block(backend_.memory(), bytes);
        return;
      } catch (const OutOfMemory& error) {
        if (hungriest->is_default) {
          throw;
        }
        give_up(*hungriest, Outcome::out_of_memory,
                bytes_text(static_cast<double>(bytes)) + " of workspace: " + error.what());
      }
    }
  }

  // Least bytes a launch reads of one copy: those at one row.
  std::size_t touched_bytes() const {
    return std::max<std::size_t>(1, operation_.workload_bytes_per_copy(problem_, 1));
  }

  int planned_copies(std::size_t copy_bytes) {
    if (run_.regime.l2 == L2State::hot) {
      return 1;
    }
    double each = static_cast<double>(copy_bytes);
    for (const Candidate& candidate : candidates_) {
      each += candidate.out ? 0 : static_cast<double>(candidate.largest.cached_bytes);
    }
    const double wanted =
        std::ceil(static_cast<double>(backend_.cold_pool_bytes()) / static_cast<double>(touched_bytes()));
    const double fit = kMemoryShare * static_cast<double>(backend_.memory().available_bytes()) / std::max(each, 1.0);
    const double in_time =
        kCopiesShare * budget_ns_ / std::max(fill_ns_per_byte() * static_cast<double>(copy_bytes), 1e-3);
    return static_cast<int>(std::clamp(std::min({wanted, fit, in_time}), 1.0, static_cast<double>(kMaxCopies)));
  }

  // What writing fresh memory costs here and now; the best of three tries.
  double fill_ns_per_byte() {
    constexpr std::size_t kProbeBytes = std::size_t{4} << 20;
    double best = std::numeric_limits<double>::infinity();
    try {
      for (int i = 0; i < 3; ++i) {
        const std::int64_t begin = backend_.now_ns();
        const Block block(backend_.memory(), kProbeBytes);
        backend_.memory().fill(block.workspace().data, 0, kProbeBytes);
        best = std::min(best, static_cast<double>(backend_.now_ns() - begin) / static_cast<double>(kProbeBytes));
      }
    } catch (const OutOfMemory&) {
      return 0;  // memory is what limits the copies
    }
    return best;
  }

  // Makes the arm ready on the first `copies` copies, all with the config of the first. False: an attempt says why.
  // `fewer_may_do`: OutOfMemory is thrown instead.
  bool prepare(Candidate& candidate, std::size_t copies, bool fewer_may_do = false) {
    try {
      while (candidate.prepared.size() < copies) {
        const std::size_t needed = candidate.largest.cached_bytes;
        if (needed > backend_.memory().available_bytes()) {
          throw OutOfMemory("it keeps " + bytes_text(static_cast<double>(needed)) + " beside each copy of the weights");
        }
        candidate.prepared.push_back(prepare_one(candidate, static_cast<int>(candidate.prepared.size())));
        if (candidate.prepared.back() == nullptr) {
          throw Failure("prepare() returned nothing");
        }
        candidate.config = candidate.prepared.back()->config();
      }
      return true;
    } catch (const OutOfMemory& error) {
      if (fewer_may_do) {
        throw;
      }
      give_up(candidate, Outcome::out_of_memory, error.what());
    } catch (const std::bad_alloc&) {
      if (fewer_may_do) {
        throw;
      }
      give_up(candidate, Outcome::out_of_memory, "host memory");
    } catch (const std::exception& error) {
      give_up(candidate, Outcome::failed, std::string("prepare: ") + error.what());
    }
    return false;
  }

  std::unique_ptr<Prepared> prepare_one(const Candidate& candidate, int copy) {
    const Weights& weights = workload_->weights(copy);
    const Inside inside(options_, *candidate.arm);
    if (copy == 0 && !candidate.config.empty()) {
      try {
        return candidate.arm->prepare(problem_, weights, candidate.config, options_.max_rows);
      } catch (const ConfigNotRestorable&) {
        return candidate.arm->prepare(problem_, weights, "", options_.max_rows);
      }
    }
    return candidate.arm->prepare(problem_, weights, copy == 0 ? "" : candidate.config, options_.max_rows);
  }

  // --- budget -------------------------------------------------------------------------------------------------------

  double spent_ns() const { return static_cast<double>(backend_.now_ns() - begin_ns_); }
  double left_ns(double share) const { return share * budget_ns_ - spent_ns(); }

  // Time of one launch that is to be expected: never less than at a smaller M; between two known M that of the larger.
  double expected_ns(const Candidate& candidate, Rows m) const {
    const auto above = candidate.launch_ns.lower_bound(m);
    if (above != candidate.launch_ns.end()) {
      return above->second;
    }
    if (above == candidate.launch_ns.begin()) {
      return 0;
    }
    const auto below = std::prev(above);
    return below->second * static_cast<double>(m) / static_cast<double>(below->first);
  }
  static double expected_check_ns(const std::map<Rows, double>& known, Rows m) {
    const auto above = known.lower_bound(m);
    if (above != known.end()) {
      return above->second;
    }
    return known.empty() ? 0
                         : known.rbegin()->second * static_cast<double>(m) / static_cast<double>(known.rbegin()->first);
  }

  // What may still be promised to row counts that are opened now.
  double left_to_promise_ns() const { return left_ns(promise_share_); }

  // Launches per round of an arm: as many as its round needs for the clock's resolution not to matter. What a round
  // costs beside its launches is then the same share of every arm's time, and a slow arm takes no longer than a fast
  // one.
  std::uint32_t launches_for(double launch_ns) const {
    const double enough = launch_ns > 0 ? std::ceil(backend_.min_round_ns() / launch_ns) : 1;
    return static_cast<std::uint32_t>(std::clamp(enough, 1.0, static_cast<double>(kMaxLaunches)));
  }
  // Rounds of one arm until the first look.
  double rounds_ns(const Candidate& candidate, Rows m, bool with_placebo) const {
    return (with_placebo ? 2 : 1) * kLooks.front() * std::max(expected_ns(candidate, m), backend_.min_round_ns());
  }
  // Whether the arm can be checked at M (`check_ns`), warmed up, and then timed until the first look, beside all that
  // was promised already.
  bool affordable(const Candidate& candidate, Rows m, bool with_placebo, double check_ns) const {
    if (with_placebo && m == rows_.front()) {
      return true;  // something must be measured
    }
    const double launch = expected_ns(candidate, m);
    const double warm_up = (launch < kLongLaunchNs ? kWarmUps : 1) * launch;
    return check_ns + warm_up + rounds_ns(candidate, m, with_placebo) + reserved_ns_ <= left_to_promise_ns();
  }

  std::string over_budget_detail(const Candidate& candidate, Rows m) const {
    const double launch = expected_ns(candidate, m);
    return (launch > 0 ? "a launch is expected to take " + milliseconds(launch) + "; " : std::string()) +
           milliseconds(std::max(0.0, left_to_promise_ns())) + " of the budget were left to promise, " +
           milliseconds(reserved_ns_) + " of them promised";
  }

  // --- gate and warm-up ---------------------------------------------------------------------------------------------

  // Checks every arm at M, warms it up, and adds the point if there is something to time.
  void open(std::vector<Point>& points, Rows m, Role role) {
    Point point{.m = m, .role = role, .entries = {}, .measuring = true, .round_ns = 0};
    const std::string& default_name = default_arm(run_.arm_set.defaults, m);
    std::vector<Candidate*> order;
    for (Candidate& candidate : candidates_) {
      order.push_back(&candidate);
    }
    // The default arm first, then as fast as they are expected to be: where the budget ends, the slow ones are left
    // out.
    std::stable_sort(order.begin(), order.end(), [&](const Candidate* a, const Candidate* b) {
      const auto rank = [&](const Candidate* c) { return std::pair(c->name() != default_name, expected_ns(*c, m)); };
      return rank(a) < rank(b);
    });

    const double reserved_before = reserved_ns_;
    bool affordable_point = true;
    bool first = true;
    std::vector<std::pair<Candidate*, std::vector<double>>> warm;
    std::map<const Candidate*, double> errors;
    for (Candidate* candidate : order) {
      if (candidate->out || candidate->raced) {
        continue;
      }
      const bool is_default = candidate->name() == default_name;
      const bool with_placebo = is_default && role == Role::grid;
      if (const Eligibility eligibility = supports(*candidate, m); !eligibility) {
        note(m, *candidate, Outcome::ineligible, eligibility.reason);
        continue;
      }
      if (const std::string reason = not_started(*candidate, m); !reason.empty() && !is_default) {
        note(m, *candidate, Outcome::dropped, reason);
        continue;
      }
      const double check_ns = expected_check_ns(first ? first_check_ns_ : later_check_ns_, m);
      if (!affordable_point || !affordable(*candidate, m, with_placebo, check_ns)) {
        affordable_point = affordable_point && !is_default;  // without its default arm an M is worth nothing
        if (role == Role::grid) {
          note(m, *candidate, Outcome::over_budget, over_budget_detail(*candidate, m));
        }
        continue;
      }
      report("checking", candidate->name() + " at " + std::to_string(m) + " rows");
      const std::optional<double> error = pass_gate(*candidate, m, first);
      if (!error) {
        continue;
      }
      first = false;
      errors[candidate] = *error;
      if (!affordable(*candidate, m, with_placebo, 0)) {
        if (role == Role::grid) {
          note(m, *candidate, Outcome::over_budget,
               "its first launch took " + milliseconds(gate_launch_ns_) + "; " + over_budget_detail(*candidate, m));
        }
        continue;
      }
      std::vector<double> launches = warm_up(*candidate, m);
      if (!launches.empty()) {
        warm.emplace_back(candidate, std::move(launches));
        reserved_ns_ += rounds_ns(*candidate, m, with_placebo);
      }
    }
    reserved_ns_ = reserved_before;
    add_entries(point, warm, errors, default_name);
    if (run_.regime.launch_mode == LaunchMode::graph) {
      calibrate(point);
    }
    reserved_ns_ += kLooks.front() * point.round_ns;
    if (!point.entries.empty()) {
      points.push_back(std::move(point));
    }
  }

  // Why the arm is not started at `m` (5× rule), or empty. It was far slower at two smaller row counts at least, and
  // between them its time grew no less than that of the best.
  std::string not_started(const Candidate& candidate, Rows m) const {
    if (candidate.keep || candidate.is_default) {
      return "";
    }
    const auto end = candidate.dropped.lower_bound(m);
    if (candidate.dropped.empty() || end == candidate.dropped.begin() || std::prev(end) == candidate.dropped.begin()) {
      return "";
    }
    const auto [first_m, first_factor] = *candidate.dropped.begin();
    const auto [last_m, last_factor] = *std::prev(end);
    const double first_ns = candidate.launch_ns.at(first_m), last_ns = candidate.launch_ns.at(last_m);
    if (!(last_ns > 1.25 * first_ns) || !(last_factor > 0.9 * first_factor)) {
      return "";
    }
    char text[160];
    std::snprintf(text, sizeof(text), "not started: %.3g times the best at %lld rows (%s), %.3g at %lld (%s)",
                  first_factor, static_cast<long long>(first_m), milliseconds(first_ns).c_str(), last_factor,
                  static_cast<long long>(last_m), milliseconds(last_ns).c_str());
    return text;
  }

  Launch launch_of(const Candidate& candidate, Rows m, std::size_t copy) const {
    return {candidate.prepared[copy].get(), workload_->arguments(m, static_cast<int>(copy)), m, workspace_.workspace()};
  }

  static std::string status_text(const Status& status) {
    std::string text = *status.message != '\0' ? status.message : "launch failed";
    return status.detail != 0 ? text + " (" + std::to_string(status.detail) + ")" : text;
  }

  // Launches once over poisoned outputs and compares. The error, or nothing: an attempt says why.
  std::optional<double> pass_gate(Candidate& candidate, Rows m, bool first) {
    if (!prepare(candidate, 1)) {
      return std::nullopt;
    }
    const std::int64_t begin = backend_.now_ns();
    workload_->poison(m);
    const Timing timing = run(candidate, m, 0);
    gate_launch_ns_ = timing.total_ns;
    if (plausible(timing.total_ns)) {
      candidate.launch_ns[m] = timing.total_ns;  // what it costs is known whether it is right or not
    }
    if (!timing.status.ok()) {
      note(m, candidate, timing.status.code == Status::Code::out_of_memory ? Outcome::out_of_memory : Outcome::failed,
           status_text(timing.status));
      return std::nullopt;
    }
    const Check check = workload_->check(m, candidate.arm->numerics());
    const double check_ns =
        static_cast<double>(backend_.now_ns() - begin) - (plausible(timing.total_ns) ? timing.total_ns : 0);
    (first ? first_check_ns_ : later_check_ns_)[m] = std::max(0.0, check_ns);
    if (!check.ok || !std::isfinite(check.error) || check.error < 0) {
      note(m, candidate, Outcome::wrong_result, check.detail.empty() ? "its error is not a number" : check.detail);
      return std::nullopt;
    }
    return check.error;
  }

  // Times of the arm's untimed launches at M, that of the gate among them; empty if one failed. At least three, except
  // for long launches of an arm that is warm from smaller row counts.
  std::vector<double> warm_up(Candidate& candidate, Rows m) {
    if (!prepare(candidate, copies_)) {
      return {};
    }
    std::vector<double> launches{gate_launch_ns_};
    const bool is_warm = !candidate.launch_ns.empty() && candidate.launch_ns.begin()->first < m;
    while (launches.size() < static_cast<std::size_t>(kWarmUps)) {
      if (is_warm && launches.front() >= kLongLaunchNs && !far_slower(candidate, launches.front(), m)) {
        break;
      }
      const Timing timing = run(candidate, m, launches.size() % copies_);
      if (!timing.status.ok()) {
        note(m, candidate, Outcome::failed, status_text(timing.status));
        return {};
      }
      launches.push_back(timing.total_ns);
    }
    double best = 0;
    for (const double time : launches) {
      if (plausible(time) && (best == 0 || time < best)) {
        best = time;
      }
    }
    candidate.launch_ns[m] = best;
    best_ns_[m] = best_ns_.contains(m) && best_ns_[m] > 0 && (best == 0 || best_ns_[m] < best) ? best_ns_[m] : best;
    return launches;
  }

  bool far_slower(const Candidate& candidate, double time, Rows m) const {
    const auto best = best_ns_.find(m);
    return !candidate.keep && !candidate.is_default && best != best_ns_.end() && best->second > 0 &&
           time > kFarSlower * best->second;
  }

  // The arms whose every launch was far slower than the best at `m`, to be dropped there. Where nothing would be left
  // beside the best, the fastest of them stays, unless it is too slow for the budget: without the best one (disabled,
  // or gone from a build) the stored rows must still have an answer.
  std::set<const Candidate*> far_slower_ones(
      Rows m, const std::vector<std::pair<Candidate*, std::vector<double>>>& warm) const {
    std::set<const Candidate*> far;
    for (const auto& [candidate, launches] : warm) {
      if (launches.size() >= static_cast<std::size_t>(kWarmUps) &&
          std::all_of(launches.begin(), launches.end(),
                      [&, c = candidate](double time) { return far_slower(*c, time, m); })) {
        far.insert(candidate);
      }
    }
    if (!far.empty() && far.size() + 1 == warm.size()) {
      const Candidate* rival = *std::min_element(far.begin(), far.end(), [&](const Candidate* a, const Candidate* b) {
        return std::pair(a->launch_ns.at(m), a->name()) < std::pair(b->launch_ns.at(m), b->name());
      });
      if (kLooks.front() * rival->launch_ns.at(m) <= kLastRivalShare * budget_ns_) {
        far.erase(rival);
      }
    }
    return far;
  }

  void add_entries(Point& point, const std::vector<std::pair<Candidate*, std::vector<double>>>& warm,
                   const std::map<const Candidate*, double>& errors, const std::string& default_name) {
    const double best = best_ns_.contains(point.m) ? best_ns_[point.m] : 0;
    const std::set<const Candidate*> far = far_slower_ones(point.m, warm);
    for (const auto& [candidate, launches] : warm) {
      if (far.contains(candidate)) {
        candidate->dropped[point.m] = candidate->launch_ns[point.m] / best;
        note(point.m, *candidate, Outcome::dropped,
             times(launches) + ": over " + std::to_string(static_cast<int>(kFarSlower)) + " times the best, " +
                 milliseconds(best));
        continue;
      }
      Entry entry;
      entry.candidate = candidate;
      entry.launch_ns = candidate->launch_ns[point.m];
      const Cost cost = this->cost(*candidate, point.m);
      entry.floor_ns = floor_ns(cost);
      entry.sample = {.m = point.m,
                      .arm = candidate->name(),
                      .role = point.role,
                      .config = candidate->config,
                      .launches = 1,
                      .median_ns = 0,
                      .mad_ns = 0,
                      .dirty_mask = 0,
                      .error = errors.at(candidate),
                      .workspace_bytes = cost.workspace_bytes,
                      .cached_bytes = cost.cached_bytes,
                      .raw = {}};
      const bool placebo = point.role == Role::grid && candidate->name() == default_name;
      point.entries.push_back(std::move(entry));
      if (placebo) {
        Entry second;
        second.candidate = candidate;
        second.launch_ns = point.entries.back().launch_ns;
        second.floor_ns = point.entries.back().floor_ns;
        second.sample = point.entries.back().sample;
        second.sample.role = Role::placebo;
        point.entries.push_back(std::move(second));
      }
    }
    set_launches(point);
  }

  void set_launches(Point& point) const {
    for (Entry& entry : point.entries) {
      entry.sample.launches = launches_for(entry.launch_ns);
    }
    update_expected(point);
  }

  // The single launches of the gate and the warm-up are eager; in a graph a short one takes less. One batch of each arm
  // says how much, and a second count of launches follows from it.
  void calibrate(Point& point) {
    for (Entry& entry : point.entries) {
      if (entry.sample.role == Role::placebo) {
        continue;
      }
      const Timing timing = guarded(entry, [&] { return backend_.time(next_batch(point, entry)); });
      if (entry.failed || !plausible(timing.total_ns)) {
        continue;
      }
      entry.launch_ns = timing.total_ns / entry.sample.launches;
      entry.candidate->launch_ns[point.m] = entry.launch_ns;
    }
    for (Entry& entry : point.entries) {
      if (entry.sample.role == Role::placebo) {
        entry.launch_ns = entry.candidate->launch_ns[point.m];
      }
      entry.batches.clear();  // of the first count
    }
    set_launches(point);
  }

  // The time that device memory needs for what a launch moves at least; 0 where it is not known, or where the operands
  // may be in the cache.
  double floor_ns(const Cost& cost) const {
    const bool cold = run_.regime.l2 == L2State::cold && static_cast<double>(copies_ * touched_bytes()) >=
                                                             0.75 * static_cast<double>(backend_.cold_pool_bytes());
    const double peak = backend_.peak_bytes_per_second();
    return cold && peak > 0 && std::isfinite(cost.bytes_moved) && cost.bytes_moved > 0 ? cost.bytes_moved / peak * 1e9
                                                                                       : 0;
  }

  // --- clock and conditions -----------------------------------------------------------------------------------------

  // Load of all kinds, untimed, until the clock has settled: two windows whose median clocks differ by less than 1%.
  void settle(std::vector<Point>& points) {
    std::vector<std::pair<Point*, Entry*>> load;
    for (Point& point : points) {
      for (Entry& entry : point.entries) {
        if (entry.alive && entry.sample.launches * entry.launch_ns <= kSettleWindowNs / 8) {
          load.emplace_back(&point, &entry);
        }
      }
    }
    if (load.empty()) {
      return;
    }
    report("warming up", "");
    const double begin = spent_ns();
    const double most = std::min(kSettleMostNs, kSettleShare * budget_ns_);
    double window_begin = begin, last = 0;
    std::vector<double> clocks;
    for (std::size_t i = 0; spent_ns() - begin < most; ++i) {
      const auto& [point, entry] = load[i * 7919 % load.size()];  // a prime: small and large row counts mixed
      if (!entry->alive) {
        if (std::none_of(load.begin(), load.end(), [](const auto& each) { return each.second->alive; })) {
          return;
        }
        continue;
      }
      const Timing timing = guarded(*entry, [&, p = point, e = entry] { return backend_.time(next_batch(*p, *e)); });
      if (timing.sm_clock_mhz > 0) {
        clocks.push_back(timing.sm_clock_mhz);
      }
      if (spent_ns() - window_begin < kSettleWindowNs) {
        continue;
      }
      if (clocks.empty()) {
        return;  // the clock cannot be read
      }
      std::nth_element(clocks.begin(), clocks.begin() + std::ssize(clocks) / 2, clocks.end());
      const double clock = clocks[clocks.size() / 2];
      if (spent_ns() - begin >= kSettleLeastNs && last > 0 && std::fabs(clock / last - 1) < kSettled) {
        return;
      }
      last = clock;
      clocks.clear();
      window_begin = spent_ns();
    }
  }

  // Whether the round's clock is far from that of the sample's other rounds. (Not from other arms': a heavy arm runs at
  // a lower clock than a light one beside it.)
  bool clock_stepped(const Sample& sample, double clock_mhz) const {
    std::vector<double> clocks;
    for (const Round& round : sample.raw) {
      if (counts(round) && round.sm_clock_mhz > 0) {
        clocks.push_back(round.sm_clock_mhz);
      }
    }
    if (clock_mhz <= 0 || clocks.size() < kFewestClocks) {
      return false;
    }
    std::nth_element(clocks.begin(), clocks.begin() + std::ssize(clocks) / 2, clocks.end());
    return std::fabs(clock_mhz / clocks[clocks.size() / 2] - 1) > backend_.limits().clock_step;
  }

  // Runs `work` for the entry; what fails becomes its attempt, and a lost device ends everything.
  template <typename Work>
  Timing guarded(Entry& entry, const Work& work) {
    try {
      const Timing timing = [&] {
        const Inside inside(options_, *entry.candidate->arm, entry.sample.m);
        return work();
      }();
      if (!timing.status.ok()) {
        drop_entry(entry, Outcome::failed, status_text(timing.status));
      }
      return timing;
    } catch (const OutOfMemory& error) {
      drop_entry(entry, Outcome::out_of_memory, error.what());
    } catch (const std::bad_alloc&) {
      drop_entry(entry, Outcome::out_of_memory, "host memory");
    } catch (const DeviceError&) {
      throw;  // nothing that runs after it can be believed
    } catch (const Error& error) {
      drop_entry(entry, Outcome::failed, error.what());
    }
    return {};
  }

  static void update_expected(Point& point) {
    point.round_ns = 0;
    for (const Entry& entry : point.entries) {
      point.round_ns += entry.alive ? entry.sample.launches * entry.launch_ns : 0;
    }
  }

  // --- rounds -------------------------------------------------------------------------------------------------------

  // Times every entry once per round, all with the same number, until nothing is left to learn, the round `end`, or the
  // end of the budget. `all`: every point of the grid, where `points` are some of them only.
  void time_rounds(std::vector<Point>& points, int begin, int end, bool all = true) {
    for (int round = begin; round < end; ++round) {
      std::vector<Point*> order;
      for (Point& point : points) {
        if (point.measuring) {
          order.push_back(&point);
        }
      }
      if (order.empty()) {
        return;
      }
      for (std::size_t i = order.size(); i > 1; --i) {
        std::swap(order[i - 1], order[random_.below(i)]);
      }
      ++round_number_;
      const bool is_grid = order.front()->role == Role::grid;
      const double share = round < kMinRounds ? kOverrun : round < kLooks.front() || !is_grid ? 1 : kGridShare;
      bool timed = false;
      for (Point* point : order) {
        if (point->round_ns <= left_ns(share)) {
          time_point(*point, static_cast<std::uint64_t>(round));
          timed = true;
        }
      }
      if (!timed && round == 0) {  // nothing at all would be worse than a little more time
        time_point(**std::min_element(order.begin(), order.end(),
                                      [](const Point* a, const Point* b) { return a->round_ns < b->round_ns; }),
                   0);
      }
      if (!timed) {
        return;
      }
      if (std::find(kLooks.begin(), kLooks.end(), round + 1) != kLooks.end() && is_grid) {
        look(points, all);
      }
      watch_.look();
    }
  }

  // One arm after another over all row counts, as most benchmarks do: what drift makes of the same arms. No evidence.
  void time_in_sequence(std::vector<Point>& points) {
    std::size_t arms = 0;
    for (const Point& point : points) {
      arms = std::max(arms, point.entries.size());
    }
    const auto rounds = static_cast<std::uint32_t>(kLooks.back());
    for (std::size_t arm = 0; arm < arms; ++arm) {
      for (std::size_t i = 0; i < points.size(); ++i) {
        if (arm >= points[i].entries.size()) {
          continue;
        }
        Entry& entry = points[i].entries[arm];
        round_number_ = static_cast<std::uint32_t>(i) * rounds;
        for (std::uint32_t round = 0;
             round < rounds && entry.alive && entry.sample.launches * entry.launch_ns <= left_ns(1); ++round) {
          ++round_number_;
          time_entry(points[i], entry);
        }
      }
    }
  }

  void time_point(Point& point, std::uint64_t round) {
    std::vector<Entry*> alive;
    for (Entry& entry : point.entries) {
      if (entry.alive) {
        alive.push_back(&entry);
      }
    }
    report(point.role == Role::grid ? "measuring" : "held-out", std::to_string(point.m) + " rows");
    for (const std::size_t index : rotation(alive.size(), round)) {
      time_entry(point, *alive[index]);
    }
    update_expected(point);
    point.measuring =
        std::any_of(point.entries.begin(), point.entries.end(), [](const Entry& entry) { return entry.alive; });
  }

  void time_entry(Point& point, Entry& entry) {
    for (int attempt = 0; entry.alive; ++attempt) {
      const Timing timing = guarded(entry, [&] {
        Batch& batch = next_batch(point, entry);
        if (run_.regime.l2 == L2State::hot) {
          backend_.run(launch_of(*entry.candidate, point.m, 0));  // what ran before was another arm's
        }
        return backend_.time(batch);
      });
      if (entry.failed) {
        return;
      }
      Round round{round_number_, timing.flags, timing.total_ns,
                  std::isfinite(timing.sm_clock_mhz) ? timing.sm_clock_mhz : 0};
      if (!plausible(timing.total_ns)) {
        // Never retried and never part of a statistic: a clock that lies once is not to be believed the next time.
        round.flags |= kDiscarded;
        round.total_ns = std::isfinite(timing.total_ns) ? timing.total_ns : 0;
        entry.sample.raw.push_back(round);
        return;
      }
      if (clock_stepped(entry.sample, round.sm_clock_mhz)) {
        round.flags |= kDiscarded | kClockStep;
      }
      entry.sample.raw.push_back(round);
      if (counts(round)) {
        given_up_ = 0;
        return;
      }
      const std::int64_t pause = kFirstBackoffNs << attempt;
      if (attempt == kRetries || given_up_ >= kHopeless || static_cast<double>(pause) > left_ns(1)) {
        ++given_up_;
        return;
      }
      backend_.sleep_ns(pause);
    }
  }

  void drop_entry(Entry& entry, Outcome outcome, std::string detail) {
    entry.alive = false;
    entry.failed = true;
    entry.batches.clear();
    note(entry.sample.m, *entry.candidate, outcome, std::move(detail));
  }

  // The batch whose launches come next in the rotation over the copies. One cursor for all arms: what comes next was
  // touched longest ago. So that an arm has few batches, its own begin at every n-th copy, n being its launches (but at
  // two places at least). Fewer copies are passed over than are then touched, so half of the pool at least is touched
  // between two launches on one copy.
  Batch& next_batch(const Point& point, Entry& entry) {
    const std::size_t launches = entry.sample.launches;
    const std::size_t step = std::max<std::size_t>(1, std::min(launches, copies_ / 2));
    std::size_t begin = (cursor_ + step - 1) / step * step;
    begin = begin < copies_ ? begin : 0;
    cursor_ = (begin + launches) % copies_;
    std::unique_ptr<Batch>& batch = entry.batches[begin];
    if (batch == nullptr) {
      std::vector<Launch> list;
      list.reserve(launches);
      for (std::size_t i = 0; i < launches; ++i) {
        list.push_back(launch_of(*entry.candidate, point.m, (begin + i) % copies_));
      }
      batch = backend_.batch(run_.regime.launch_mode, std::move(list));
    }
    return *batch;
  }

  // --- looks --------------------------------------------------------------------------------------------------------

  // The fastest at the point; with `among`, of those that may be served wherever that one may.
  const Entry* leader_of(const Point& point, const Entry* among = nullptr) const {
    const Entry* leader = nullptr;
    double best = 0;
    for (const Entry& entry : point.entries) {
      const double median = median_ns(entry.sample);
      if (entry.sample.role != Role::placebo && !entry.failed && plausible(median) &&
          (among == nullptr || serves_wherever(entry, *among)) && (leader == nullptr || median < best)) {
        leader = &entry;
        best = median;
      }
    }
    return leader;
  }

  // Whether every policy that allows `other` allows `entry` too: no other policy may lose an arm to one that it
  // forbids.
  bool serves_wherever(const Entry& entry, const Entry& other) const {
    const auto rank = [&](const Entry& each) {
      const auto& classes = run_.arm_set.numerics;
      return std::find_if(classes.begin(), classes.end(),
                          [&](const NumericsClass& c) { return c.name == each.candidate->arm->numerics(); }) -
             classes.begin();
    };
    return rank(entry) <= rank(other) && entry.sample.cached_bytes <= other.sample.cached_bytes &&
           entry.sample.workspace_bytes <= other.sample.workspace_bytes &&
           (entry.candidate->arm->batch_invariant() || !other.candidate->arm->batch_invariant());
  }

  // Stops row counts where all is decided and, with `race`, arms that lose everywhere. A thorough tuning only collects.
  void look(std::vector<Point>& points, bool race) {
    if (options_.thorough) {
      return;
    }
    // Smallest lower bound, over the row counts, of the time over that of the fastest that may be served instead.
    std::map<Candidate*, double> closest;
    for (Point& point : points) {
      const Entry* leader = leader_of(point);
      if (leader == nullptr) {
        continue;
      }
      const std::string& default_name = default_arm(run_.arm_set.defaults, point.m);
      const Entry* reference = nullptr;
      for (const Entry& entry : point.entries) {
        if (entry.sample.role != Role::placebo && !entry.failed && entry.sample.arm == default_name) {
          reference = &entry;
        }
      }
      constexpr double alpha = kAlphaPerComparison;
      bool decided = true;
      for (const Entry& entry : point.entries) {
        if (entry.sample.role == Role::placebo || entry.failed) {
          continue;
        }
        const Ratio to_leader = compare(paired_ratios(entry.sample, leader->sample), alpha);
        if (&entry != leader) {
          decided = decided && to_leader.comparison != Comparison::open;
        }
        if (reference != nullptr && &entry != reference) {
          const Ratio to_default = compare(paired_ratios(entry.sample, reference->sample), alpha);
          decided = decided && to_default.comparison != Comparison::open;
        }
        const Entry* rival = leader_of(point, &entry);
        double low = 1;
        if (rival != nullptr && rival != &entry) {
          low = compare(paired_ratios(entry.sample, rival->sample), alpha).low;
        }
        const auto [found, inserted] = closest.try_emplace(entry.candidate, low);
        found->second = inserted ? low : std::min(found->second, low);
      }
      point.measuring = point.measuring && !decided;
    }
    for (const auto& [candidate, low] : closest) {
      if (!race || candidate->is_default || candidate->keep || candidate->raced || !(low > kRaceMargin)) {
        continue;
      }
      candidate->raced = true;
      char text[128];
      std::snprintf(text, sizeof(text), "slower than the best at every row count, by %.3g%% at least", 100 * (low - 1));
      note(0, *candidate, Outcome::dropped, text);
      for (Point& point : points) {
        for (Entry& entry : point.entries) {
          entry.alive = entry.alive && entry.candidate != candidate;
        }
        update_expected(point);
      }
    }
  }

  // --- results ------------------------------------------------------------------------------------------------------

  // Samples that have a round that counts, with their statistics and dirty bits; attempts for the others.
  void finish(std::vector<Point>& points, bool is_grid) {
    const CleanLimits limits = backend_.limits();
    std::vector<double> placebo_ratios;
    for (Point& point : points) {
      std::vector<const Sample*> samples;
      const Sample* placebo = nullptr;
      for (const Entry& entry : point.entries) {
        if (!entry.failed) {
          samples.push_back(&entry.sample);
          placebo = entry.sample.role == Role::placebo ? &entry.sample : placebo;
        }
      }
      if (placebo != nullptr) {
        for (const Sample* sample : samples) {
          if (sample->role == Role::grid && sample->arm == placebo->arm) {
            const std::vector<double> ratios = paired_ratios(*sample, *placebo);
            placebo_ratios.insert(placebo_ratios.end(), ratios.begin(), ratios.end());
          }
        }
      }
      const std::uint64_t point_bits = discard_bits(samples, limits);
      const RoundSpeeds speeds = round_speeds(samples);
      for (Entry& entry : point.entries) {
        emit(entry, point_bits, speeds, limits);
      }
    }
    if (is_grid) {
      run_.dirty_mask |= placebo_bits(placebo_ratios, limits);
    }
  }

  void emit(Entry& entry, std::uint64_t point_bits, const RoundSpeeds& speeds, const CleanLimits& limits) {
    Sample& sample = entry.sample;
    const bool placebo = sample.role == Role::placebo;
    sample.median_ns = median_ns(sample);
    sample.mad_ns = mad_ns(sample);
    entry.batches.clear();
    if (entry.failed) {
      return;
    }
    if (plausible(sample.median_ns)) {
      sample.dirty_mask = dirty_bits(sample, limits, speeds) | point_bits;
      if (!(sample.median_ns >= limits.roofline * entry.floor_ns)) {
        sample.dirty_mask |= bit(Dirty::implausible);
      }
      run_.samples.push_back(std::move(sample));
      return;
    }
    if (placebo) {
      return;
    }
    if (sample.raw.empty()) {
      if (sample.role == Role::grid) {
        note(sample.m, *entry.candidate, Outcome::over_budget, "the budget ended before its first round");
      }
      return;
    }
    const bool lied = (dirty_bits(sample, limits) & bit(Dirty::implausible)) != 0 &&
                      std::any_of(sample.raw.begin(), sample.raw.end(),
                                  [](const Round& round) { return !plausible(round.total_ns); });
    note(sample.m, *entry.candidate, Outcome::failed,
         lied ? "implausible: no round had a time that is finite and above zero"
              : "all " + std::to_string(sample.raw.size()) + " rounds were discarded by the back end");
  }

  // Row counts off the grid, with every arm that is still in the race.
  void measure_held_out() {
    Rows largest = 0;
    for (const Sample& sample : run_.samples) {
      largest = std::max(largest, sample.m);
    }
    std::vector<Point> points;
    reserved_ns_ = 0;
    promise_share_ = 1;
    for (const Rows m : off_grid(largest, rows_, kHeldOutPoints, random_)) {
      if (!fits(m, 1)) {
        break;
      }
      open(points, m, Role::held_out);
    }
    time_rounds(points, 0, kLooks.front());
    finish(points, false);
  }

  // Whether another row count can have its first look within that share of the budget.
  bool fits(Rows m, double share) const {
    double round = 0;
    for (const Candidate& candidate : candidates_) {
      const bool skipped = candidate.out || candidate.raced || !not_started(candidate, m).empty();
      round += skipped ? 0 : std::max(expected_ns(candidate, m), backend_.min_round_ns());
    }
    return kLooks.front() * round + reserved_ns_ <= left_ns(share);
  }

  // Adds row counts where the plan crosses from one arm to another, each in the widest gap that the crossover's bounds
  // leave, as long as it matters and the budget has room.
  // A crossover may show only after some looks, so this is asked after each; `rounds` is how many the others have had.
  void refine(std::vector<Point>& points, int rounds) {
    promise_share_ = kGridShare;
    while (refinements_ < kRefinements) {
      reserved_ns_ = 0;
      std::vector<Point> fresh;
      for (const Rows m : crossover_gaps(so_far(points), rows_)) {
        if (fits(m, kGridShare)) {
          open(fresh, m, Role::grid);
        }
      }
      if (fresh.empty()) {
        return;
      }
      ++refinements_;
      for (const Point& point : fresh) {
        rows_.insert(std::upper_bound(rows_.begin(), rows_.end(), point.m), point.m);
      }
      time_rounds(fresh, 0, rounds, false);
      std::move(fresh.begin(), fresh.end(), std::back_inserter(points));
    }
  }

  // The run as it would be stored now, without its attempts.
  Run so_far(const std::vector<Point>& points) const {
    Run run = run_;
    run.id.bytes.back() = 1;  // any id: a verdict on one run
    for (const Point& point : points) {
      for (const Entry& entry : point.entries) {
        if (!entry.failed && entry.sample.role == Role::grid && plausible(median_ns(entry.sample))) {
          run.samples.push_back(entry.sample);
          run.samples.back().median_ns = median_ns(entry.sample);
          run.samples.back().mad_ns = mad_ns(entry.sample);
        }
      }
    }
    return run;
  }

  void report(const char* stage, const std::string& detail) {
    if (!progress_) {
      return;
    }
    const std::int64_t now = backend_.now_ns();
    if (reported_ns_ && now - *reported_ns_ < 100'000'000) {
      return;
    }
    reported_ns_ = now;
    progress_({stage, std::clamp(spent_ns() / budget_ns_, 0.0, 1.0), detail});
  }

  Backend& backend_;
  const Operation& operation_;
  const Problem& problem_;
  const TuneOptions& options_;
  const OnProgress& progress_;
  const Selection* const selection_;
  const std::int64_t begin_ns_;
  const double budget_ns_;
  Watch watch_;
  Run run_;
  std::vector<Rows> rows_;
  Random random_{0};
  std::map<std::pair<Rows, std::string>, Attempt> attempts_;
  std::map<Rows, double> best_ns_, first_check_ns_, later_check_ns_;
  double gate_launch_ns_ = 0;
  double promise_share_ = 1;  // of the budget, that row counts opened now may be promised
  double reserved_ns_ = 0;    // promised to points that are open, until the first look
  std::uint32_t round_number_ = 0;
  int refinements_ = 0;
  int given_up_ = 0;  // rounds in a row that stayed discarded
  std::size_t cursor_ = 0, copies_ = 1;
  std::optional<std::int64_t> reported_ns_;
  // Released in the reverse order: what arms derived goes before the weights, and all before the workspace.
  Block workspace_;
  std::unique_ptr<Workload> workload_;
  std::vector<Candidate> candidates_;
};

}  // namespace

Run measure(Backend& backend, const Operation& operation, const Problem& problem, const TuneOptions& options,
            std::span<const Run> known, const OnProgress& progress) {
  return Measurement(backend, operation, problem, options, known, progress).measure();
}

std::optional<Attempt> probe(Backend& backend, const Operation& operation, const Problem& problem,
                             const TuneOptions& options, const std::string& arm) {
  Selection selection{operation.find(arm), {}};
  if (selection.reference == nullptr) {
    throw InvalidArgument("no arm is named " + arm);
  }
  const std::vector<Rows> edges = operation.tile_edges(problem);
  std::vector<Rows> able = grid(options.max_rows, edges);
  {
    const Inside inside(options, *selection.reference);
    std::erase_if(able, [&](Rows m) { return !selection.reference->supports(problem, m, backend.device()); });
  }
  if (able.empty()) {
    return std::nullopt;
  }
  const auto is_edge = [&](Rows m) { return std::find(edges.begin(), edges.end(), m) != edges.end(); };
  const auto edge = std::find_if(able.begin() + std::ssize(able) / 2, able.end(), is_edge);
  const auto any_edge = edge != able.end() ? edge : std::find_if(able.begin(), able.end(), is_edge);
  selection.rows = {able.front(), any_edge != able.end() ? *any_edge : able[able.size() / 2], able.back()};
  selection.rows.erase(std::unique(selection.rows.begin(), selection.rows.end()), selection.rows.end());
  TuneOptions own = options;
  own.keep_arms = {arm};
  own.excluded.clear();
  return Measurement(backend, operation, problem, own, {}, {}, &selection).probe();
}

Run measure_selected(Backend& backend, const Operation& operation, const Problem& problem, const TuneOptions& options,
                     const std::vector<std::string>& arms, const std::vector<Rows>& rows, const OnProgress& progress) {
  if (arms.empty() || rows.empty()) {
    throw InvalidArgument("a comparison needs arms and row counts");
  }
  Selection selection{operation.find(arms.front()), rows};
  if (selection.reference == nullptr) {
    throw InvalidArgument("no arm is named " + arms.front() + ": the first arm is what the others are compared with");
  }
  std::sort(selection.rows.begin(), selection.rows.end());
  selection.rows.erase(std::unique(selection.rows.begin(), selection.rows.end()), selection.rows.end());
  if (selection.rows.front() < 1) {
    throw InvalidArgument("row counts begin at 1");
  }
  TuneOptions own = options;
  own.max_rows = selection.rows.back();
  own.keep_arms = arms;
  own.thorough = true;
  return Measurement(backend, operation, problem, own, {}, progress, &selection).measure();
}

}  // namespace crossover
