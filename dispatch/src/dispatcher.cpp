#include "crossover/dispatch/dispatcher.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace crossover {
namespace {

// A plan with its arms prepared: what the hot path reads. Immutable once published.
struct Compiled {
  struct Entry {
    const Arm* arm = nullptr;
    Prepared* prepared = nullptr;
    Origin origin = Origin::fallback;
    RowDomain domain;
    std::uint32_t otherwise = 0;  // index into entries: the default arm there, for rows outside the domain
  };
  std::vector<Rows> up_to;     // ascending, the last is kMaxRows; parallel to the first entries
  std::vector<Entry> entries;  // one per up_to, then those that `otherwise` points to
  std::vector<std::shared_ptr<Prepared>> owners;
  Resolution resolution;
};

std::size_t index_of(LaunchMode mode) { return static_cast<std::size_t>(mode); }

// The database answered nothing: what a lookup does without one.
class NoEvidence final : public EvidenceSource {
 public:
  std::vector<Run> runs(const EvidenceKey&) override { return {}; }
  bool load(Run&) override { return false; }
  std::vector<Verdict> verdicts(const EvidenceKey&) override { return {}; }
  std::uint64_t generation() override { return 0; }
  std::vector<std::string> warnings() override { return {}; }
};

}  // namespace

struct Bound::State {
  std::array<std::atomic<const Compiled*>, kLaunchModes> plans{};
  std::atomic<Rows> largest_out_of_range{0};
  LaunchMode default_mode = LaunchMode::eager;
  bool frozen = false;
  bool flatten = false;

  const Operation* operation = nullptr;
  Problem problem;
  Weights weights;
  Policy policy;
  Rows max_rows = 0;
  std::vector<LaunchMode> modes;
  L2State l2 = L2State::cold;

  std::mutex mutex;                                        // everything below
  std::uint64_t generation = 0;                            // of the source when the plans were made
  std::map<LaunchMode, std::uint64_t> known;               // of the source for the key, when its plan was made
  int failures = 0;                                        // in a row, to make a plan anew
  std::set<LaunchMode> refused;                            // missed, and somebody else was measuring
  std::vector<std::unique_ptr<const Compiled>> published;  // current and former plans: a thread may still read one
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Prepared>> prepared;  // by arm and config

  const Compiled& plan(LaunchMode mode) const noexcept {
    return *plans[index_of(mode)].load(std::memory_order_acquire);
  }

  // Prepares at most once per arm and config. The caller holds the mutex.
  std::shared_ptr<Prepared> prepare(const Arm& arm, const std::string& config) {
    std::shared_ptr<Prepared>& entry = prepared[{arm.id().name, config}];
    if (!entry) {
      try {
        entry = arm.prepare(problem, weights, config, max_rows);
      } catch (...) {
        prepared.erase({arm.id().name, config});
        throw;
      }
    }
    return entry;
  }
};

Choice Bound::select(Rows rows, LaunchMode mode) const noexcept {
  const Compiled& plan = state_->plan(mode);
  std::size_t i = 0;
  while (rows > plan.up_to[i]) ++i;
  const Compiled::Entry* entry = &plan.entries[i];
  if (!entry->domain.contains(rows) && rows >= 1) entry = &plan.entries[entry->otherwise];
  if (entry->origin == Origin::out_of_range) {
    Rows seen = state_->largest_out_of_range.load(std::memory_order_relaxed);
    while (rows > seen && !state_->largest_out_of_range.compare_exchange_weak(seen, rows, std::memory_order_relaxed)) {
    }
  }
  return {entry->arm, entry->prepared, entry->origin};
}

Choice Bound::select(Rows rows) const noexcept { return select(rows, state_->default_mode); }

Status Bound::launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream stream) const noexcept {
  return launch(arguments, rows, workspace, stream, state_->default_mode);
}

Status Bound::launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream stream,
                     LaunchMode mode) const noexcept {
  if (rows == 0) return {};
  if (rows < 0) return {Status::Code::invalid, 0, "the row count is negative"};
  const Choice choice = select(rows, mode);
  const bool settled =
      choice.origin == Origin::tuned || choice.origin == Origin::shipped || choice.origin == Origin::forced;
  if (state_->frozen && !settled)
    return {Status::Code::unsupported, 0, "CROSSOVER_FROZEN is set and nothing holds at this row count"};
  return choice.prepared->launch(arguments, rows, workspace, stream);
}

Status Bound::launch_batched(const BatchedArguments& arguments, Workspace workspace, Stream stream) const noexcept {
  return launch_batched(arguments, workspace, stream, state_->default_mode);
}

bool Bound::flattens() const noexcept { return state_->flatten; }

std::size_t Bound::workspace_bytes(Rows rows) const {
  std::size_t bytes = 0;
  for (const LaunchMode mode : state_->modes) {
    const Compiled& plan = state_->plan(mode);
    for (std::size_t i = 0; i < plan.entries.size(); ++i) {
      const Rows most = i < plan.up_to.size() ? std::min(rows, plan.up_to[i]) : rows;
      if (most >= 1) bytes = std::max(bytes, plan.entries[i].arm->cost(state_->problem, most).workspace_bytes);
    }
  }
  constexpr std::size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Rows Bound::largest_out_of_range() const noexcept {
  return state_->largest_out_of_range.load(std::memory_order_relaxed);
}
const Resolution& Bound::resolution(LaunchMode mode) const { return state_->plan(mode).resolution; }
const Problem& Bound::problem() const noexcept { return state_->problem; }

struct Dispatcher::State {
  State(Machine& a_machine, EvidenceSource& a_source, OnMiss* handler, DispatcherOptions some_options)
      : machine(a_machine), source(a_source), on_miss(handler), options(std::move(some_options)) {}

  Machine& machine;
  EvidenceSource& source;
  OnMiss* on_miss;
  DispatcherOptions options;

  std::mutex retrying;  // held by the thread that tunes what was refused
  std::mutex mutex;     // everything below
  std::set<EvidenceKey> tuning;
  std::vector<std::weak_ptr<Bound::State>> bounds;
  std::set<std::string> warned;
  std::chrono::steady_clock::time_point refreshed{};

  MissMode mode() const { return options.overrides.on_miss.value_or(options.on_miss); }

  void warn(const std::string& text) {
    {
      const std::lock_guard lock(mutex);
      if (!warned.insert(text).second) return;
    }
    if (options.warn)
      options.warn(text);
    else
      std::fprintf(stderr, "crossover: warning: %s\n", text.c_str());
  }

  Current current(const Operation& operation, const Problem& problem) const {
    Current now{.device = machine.device(),
                .environment = machine.environment(),
                .conditions = machine.conditions(),
                .arm_set = {}};
    now.arm_set = arm_set(operation, problem, now.device);
    now.facts = arm_facts(operation, problem, now.device);
    for (const std::string& assumption : options.assumptions) assume(now, assumption);
    return now;
  }

  // As resolve(); what the database cannot answer is as if it were empty.
  Resolution resolved(const Operation& operation, const Problem& problem, const Regime& regime, const Policy& policy,
                      const std::vector<std::string>& unrestorable = {}) {
    try {
      Resolution resolution = resolved_from(source, operation, problem, regime, policy, unrestorable);
      if (resolution.miss && !options.no_database.empty()) resolution.why = options.no_database;
      return resolution;
    } catch (const StoreError& error) {
      warn(error.what());
      NoEvidence nothing;
      Resolution resolution = resolved_from(nothing, operation, problem, regime, policy, unrestorable);
      resolution.why = error.what();
      return resolution;
    }
  }

  Resolution resolved_from(EvidenceSource& from, const Operation& operation, const Problem& problem,
                           const Regime& regime, const Policy& policy, const std::vector<std::string>& unrestorable) {
    Resolution resolution =
        resolve(current(operation, problem), from, problem, regime, policy, options.overrides, unrestorable);
    for (const std::string& text : from.warnings()) warn(text);
    return resolution;
  }

  // One thread tunes a key, the others go on with what they have. True: there may be something new. False: somebody
  // else is at it.
  bool tune_once(const Miss& miss) {
    {
      const std::lock_guard lock(mutex);
      if (!tuning.insert(miss.key).second) return false;
    }
    bool done = true;
    try {
      done = on_miss->tune(miss);
    } catch (const std::exception& error) {
      warn("tuning " + to_string(miss.key.problem) + ": " + error.what());  // there may be a result all the same
    }
    const std::lock_guard lock(mutex);
    tuning.erase(miss.key);
    return done;
  }

  void record(const Miss& miss) {
    try {
      on_miss->record(miss);
    } catch (const std::exception& error) {
      warn(std::string("a tuning request could not be recorded: ") + error.what());
    }
  }

  // What came of a miss under MissMode::tune.
  struct Tried {
    bool tuned = false;    // this call measured
    bool refused = false;  // somebody else is measuring
  };

  // Resolves, and does about a miss what the mode says.
  Resolution lookup(const Operation& operation, const Problem& problem, const Regime& regime, const Policy& policy,
                    Tried& tried) {
    Resolution resolution = resolved(operation, problem, regime, policy);
    const bool can_act =
        on_miss != nullptr && !options.overrides.frozen && (mode() == MissMode::tune || mode() == MissMode::record);
    if (resolution.wants_tuning && can_act) {
      Device device = machine.device();
      const Miss miss{.operation = &operation,
                      .key = {std::move(device), problem, regime},
                      .max_rows = options.max_rows,
                      .reason = resolution.why,
                      .low_priority = !resolution.miss};
      if (resolution.miss && mode() == MissMode::tune) {
        tried.tuned = tune_once(miss);
        tried.refused = !tried.tuned;
        if (tried.tuned) return resolved(operation, problem, regime, policy);
      } else {
        record(miss);
      }
    }
    if (resolution.miss && mode() == MissMode::error && !options.overrides.force_arm)
      throw NoVerdict("no verdict for " + to_string(problem) + ": " + resolution.why,
                      std::string(options.no_database.empty() ? "run `crossover tune`" : "name another database") +
                          ", or set CROSSOVER_ON_MISS=fallback");
    return resolution;
  }

  // Builds the plan of one launch mode; throws what preparing the default arm throws. The caller holds bound.mutex.
  std::unique_ptr<const Compiled> compile(Bound::State& bound, const Regime& regime, Resolution resolution) {
    std::vector<std::string> unrestorable;
    const Current now = current(*bound.operation, bound.problem);
    for (;;) {
      auto compiled = std::make_unique<Compiled>();
      std::string failed;
      try {
        for (const PlanSegment& segment : resolution.plan) {
          failed = segment.config.empty() ? std::string() : segment.arm;
          compiled->up_to.push_back(segment.up_to);
          compiled->entries.push_back(entry_for(bound, *compiled, segment, now.facts));
        }
        failed.clear();
        add_alternatives(bound, *compiled, now);
      } catch (const Error& error) {
        // An arm that was measured and cannot be had again is as good as changed. What nobody measured has no
        // substitute.
        const bool again = std::find(unrestorable.begin(), unrestorable.end(), failed) != unrestorable.end();
        if (failed.empty() || again) throw;
        warn("arm " + failed + " cannot be prepared as it was measured: " + error.what());
        unrestorable.push_back(failed);
        resolution = resolved(*bound.operation, bound.problem, regime, bound.policy, unrestorable);
        continue;
      }
      compiled->resolution = std::move(resolution);
      return compiled;
    }
  }

  Compiled::Entry entry_for(Bound::State& bound, Compiled& compiled, const PlanSegment& segment,
                            const std::map<std::string, ArmFacts>& facts) {
    const Arm* arm = bound.operation->find(segment.arm);
    if (arm == nullptr) throw Failure("the plan names the arm " + segment.arm + ", which is not registered");
    compiled.owners.push_back(bound.prepare(*arm, segment.config));
    Compiled::Entry entry{
        .arm = arm, .prepared = compiled.owners.back().get(), .origin = segment.origin, .domain = {}, .otherwise = 0};
    // The plan ends where the arm's row counts do; what is left to look at per call is their multiple. An arm that is
    // forced answers for itself.
    const auto own = facts.find(segment.arm);
    if (own != facts.end() && segment.origin != Origin::forced) entry.domain.multiple = own->second.rows.multiple;
    return entry;
  }

  // For every segment whose arm takes only multiples of something: what runs at the other row counts. Where that
  // changes on the way, the segment is cut.
  void add_alternatives(Bound::State& bound, Compiled& compiled, const Current& now) {
    const auto takes_all = [](const Compiled::Entry& entry) { return entry.domain.multiple == 1; };
    if (std::all_of(compiled.entries.begin(), compiled.entries.end(), takes_all)) return;
    Policy policy = bound.policy;
    const auto& disabled = options.overrides.disable_arms;
    policy.disabled.insert(policy.disabled.end(), disabled.begin(), disabled.end());
    const std::vector<DefaultArm> stand_ins = fallback_arms(now, policy);
    const auto first_row = [&](std::size_t i) { return i == 0 ? 1 : compiled.up_to[i - 1] + 1; };
    for (std::size_t i = 0; i < compiled.up_to.size(); ++i) {
      const auto stand_in = std::find_if(stand_ins.begin(), stand_ins.end(),
                                         [&](const DefaultArm& each) { return each.up_to >= first_row(i); });
      if (takes_all(compiled.entries[i]) || stand_in->up_to >= compiled.up_to[i]) continue;
      const auto at = static_cast<std::ptrdiff_t>(i);
      compiled.up_to.insert(compiled.up_to.begin() + at, stand_in->up_to);
      compiled.entries.insert(compiled.entries.begin() + at, Compiled::Entry(compiled.entries[i]));
    }
    for (std::size_t i = 0; i < compiled.up_to.size(); ++i) {
      if (takes_all(compiled.entries[i])) continue;
      const PlanSegment otherwise{
          .up_to = kMaxRows, .arm = default_arm(stand_ins, first_row(i)), .config = {}, .origin = Origin::fallback};
      compiled.entries[i].otherwise = static_cast<std::uint32_t>(compiled.entries.size());
      compiled.entries.push_back(entry_for(bound, compiled, otherwise, {}));
    }
  }

  void publish(Bound::State& bound, LaunchMode mode, std::unique_ptr<const Compiled> compiled) {
    const Compiled* plan = compiled.get();
    bound.published.push_back(std::move(compiled));
    bound.plans[index_of(mode)].store(plan, std::memory_order_release);
  }

  // `forced`: even if the last one was a moment ago. `retry`: measures what was refused.
  void refresh(bool forced, bool retry) {
    std::vector<std::shared_ptr<Bound::State>> live;
    {
      const std::lock_guard lock(mutex);
      const auto now = std::chrono::steady_clock::now();
      if (!forced && now - refreshed < std::chrono::seconds(1)) return;
      refreshed = now;
      std::erase_if(bounds, [](const auto& bound) { return bound.expired(); });
      for (const auto& bound : bounds)
        if (auto state = bound.lock()) live.push_back(std::move(state));
    }
    const auto renew_all = [&] {
      const std::uint64_t stored = generation();
      Resolved resolved_now;
      for (const auto& bound : live) renew(*bound, stored, resolved_now);
    };
    renew_all();
    // One thread at a time, and only until somebody else turns out to be measuring: so it is for the others as well.
    const std::unique_lock turn = retry ? std::unique_lock(retrying, std::try_to_lock) : std::unique_lock<std::mutex>();
    if (!turn.owns_lock()) return;
    bool tuned = false;
    for (const auto& bound : live) {
      tuned = try_again(*bound) || tuned;
      const std::lock_guard lock(bound->mutex);
      if (!bound->refused.empty()) break;
    }
    if (tuned) renew_all();
  }

  // Tunes what the bound was refused and still misses. True: there is something new.
  bool try_again(Bound::State& bound) {
    std::map<LaunchMode, std::string> missed;
    {
      const std::lock_guard lock(bound.mutex);
      for (const LaunchMode mode : bound.refused)
        if (const Resolution& known = bound.plan(mode).resolution; known.miss) missed[mode] = known.why;
      bound.refused.clear();
    }
    bool tuned = false;
    for (const auto& [mode, why] : missed) {
      const EvidenceKey key{machine.device(), bound.problem, {.launch_mode = mode, .l2 = bound.l2}};
      if (tune_once({bound.operation, key, options.max_rows, why, false})) {
        tuned = true;
        continue;
      }
      const std::lock_guard lock(bound.mutex);
      bound.refused.insert(mode);
    }
    return tuned;
  }

  // 0 where the database does not answer; the next lookup says why.
  std::uint64_t generation() {
    try {
      return source.generation();
    } catch (const Error&) {
      return 0;
    }
  }

  std::optional<std::uint64_t> generation_of(const EvidenceKey& key) {
    try {
      return source.generation_of(key);
    } catch (const Error&) {
      return std::nullopt;
    }
  }

  // What one refresh has looked up so far: many layers of a model are the same problem. `generation` is that of the key
  // before it was looked up: what was stored in between must not count as seen by the next layer.
  struct Seen {
    std::uint64_t generation = 0;
    Policy policy;
    Resolution resolution;
  };
  using Resolved = std::map<EvidenceKey, std::vector<Seen>>;

  const Resolution& resolved_once(const Bound::State& bound, const Regime& regime, std::uint64_t own,
                                  Resolved& resolved_now) {
    std::vector<Seen>& same_key = resolved_now[{machine.device(), bound.problem, regime}];
    for (const Seen& seen : same_key)
      if (seen.generation == own && seen.policy == bound.policy) return seen.resolution;
    same_key.push_back(
        {own, bound.policy, resolved_from(source, *bound.operation, bound.problem, regime, bound.policy, {})});
    return same_key.back().resolution;
  }

  // A plan that cannot be made anew stays as it is, and is tried again at the next refresh. That a database is locked
  // for once is nothing to complain of.
  void renew(Bound::State& bound, std::uint64_t stored, Resolved& resolved_now) {
    constexpr int kPersistent = 3;
    const std::lock_guard lock(bound.mutex);
    if (bound.generation == stored) return;
    bool done = true;
    for (const LaunchMode mode : bound.modes) {
      try {
        const Regime regime{.launch_mode = mode, .l2 = bound.l2};
        const std::uint64_t own = source.generation_of({machine.device(), bound.problem, regime});
        if (const auto known = bound.known.find(mode); known != bound.known.end() && known->second == own) continue;
        Resolution resolution = resolved_once(bound, regime, own, resolved_now);
        if (resolution.plan != bound.plan(mode).resolution.plan)
          publish(bound, mode, compile(bound, regime, std::move(resolution)));
        bound.known[mode] = own;
      } catch (const std::exception& error) {
        done = false;
        if (++bound.failures >= kPersistent)
          warn("the plan of " + to_string(bound.problem) + " stays as it is: " + error.what());
      }
    }
    if (!done) return;
    bound.generation = stored;
    bound.failures = 0;
  }
};

Dispatcher::Dispatcher(Machine& machine, EvidenceSource& source, OnMiss* on_miss, DispatcherOptions options)
    : state_(std::make_unique<State>(machine, source, on_miss, std::move(options))) {}

Dispatcher::~Dispatcher() = default;

Current Dispatcher::current(const Operation& operation, const Problem& normalised) const {
  return state_->current(operation, normalised);
}

Resolution Dispatcher::lookup(const Operation& operation, const Problem& problem, const Regime& regime,
                              const Policy& policy) {
  State::Tried tried;
  Resolution resolution = state_->lookup(operation, operation.normalise(problem), regime, policy, tried);
  if (tried.tuned) state_->refresh(true, false);
  return resolution;
}

Bound Dispatcher::bind(const Operation& operation, const Problem& problem, const Weights& weights,
                       const Policy& policy) {
  state_->refresh(false, true);
  auto bound = std::make_shared<Bound::State>();
  bound->operation = &operation;
  bound->problem = operation.normalise(problem);
  bound->weights = weights;
  bound->policy = policy;
  bound->max_rows = state_->options.max_rows;
  bound->l2 = state_->options.l2;
  bound->frozen = state_->options.overrides.frozen;
  bound->flatten = state_->options.flatten.value_or(state_->machine.device().kind == "cuda");
  const auto modes = state_->machine.launch_modes();
  bound->modes.assign(modes.begin(), modes.end());
  bound->default_mode = modes.front();
  bound->generation = state_->generation();

  bool tuned = false;
  for (const LaunchMode mode : bound->modes) {
    const Regime regime{.launch_mode = mode, .l2 = bound->l2};
    if (const auto known = state_->generation_of({state_->machine.device(), bound->problem, regime}))
      bound->known[mode] = *known;
    State::Tried tried;
    Resolution resolution = state_->lookup(operation, bound->problem, regime, policy, tried);
    tuned = tuned || tried.tuned;
    if (tried.refused) bound->refused.insert(mode);
    if (bound->frozen && mode == bound->default_mode) {
      for (const PlanSegment& segment : resolution.plan)
        if (segment.origin == Origin::stale || segment.origin == Origin::fallback)
          throw NoVerdict("CROSSOVER_FROZEN is set and " + to_string(bound->problem) + " is answered by " +
                          std::string(to_string(segment.origin)) + ": " + resolution.why);
    }
    const std::lock_guard lock(bound->mutex);
    state_->publish(*bound, mode, state_->compile(*bound, regime, std::move(resolution)));
  }
  // A launch mode that the machine does not have is answered as its default one.
  for (std::atomic<const Compiled*>& plan : bound->plans)
    if (plan.load() == nullptr) plan.store(bound->plans[index_of(bound->default_mode)].load());
  {
    const std::lock_guard lock(state_->mutex);
    state_->bounds.push_back(bound);
  }
  if (tuned) state_->refresh(true, false);
  State::Resolved nothing_yet;
  state_->renew(*bound, state_->generation(),
                nothing_yet);  // what another thread stored before this one was on the list
  return Bound(std::move(bound));
}

void Dispatcher::refresh() { state_->refresh(true, true); }

}  // namespace crossover
