#include "crossover/tuner/tuner.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "crossover/dispatch/resolve.hpp"

namespace crossover {
namespace {

constexpr std::ptrdiff_t kKnownRuns = 4;  // the newest, whose configs are restored
// After the first, the second and every later tuning in a row that failed or was inconclusive.
constexpr std::int64_t kSecondUs = 1'000'000;
constexpr std::array<std::int64_t, 3> kRetryAfterUs{600 * kSecondUs, 3600 * kSecondUs, 86'400 * kSecondUs};

std::vector<Run> loaded(Store& store, std::vector<Run> runs) {
  std::erase_if(runs, [&](Run& run) { return !store.load(run); });
  return runs;
}

// The segments of the newest stored verdict for the default policy that can be served, if every arm in them is still
// what it was.
std::vector<Segment> incumbent_segments(Store& store, const EvidenceKey& key, const ArmSet& now) {
  const std::vector<Verdict> verdicts = store.verdicts(key);
  for (auto verdict = verdicts.rbegin(); verdict != verdicts.rend(); ++verdict) {
    if (!(verdict->policy == Policy{}) || verdict->segments.empty() || verdict->status == VerdictStatus::inconclusive) {
      continue;
    }
    for (const Id& id : verdict->run_ids) {
      const std::optional<Run> run = store.run(id);
      if (!run) {
        return {};
      }
      for (const Segment& segment : verdict->segments) {
        const ArmRecord* old_arm = run->arm_set.find(segment.arm);
        const ArmRecord* new_arm = now.find(segment.arm);
        if (old_arm == nullptr || new_arm == nullptr || old_arm->id != new_arm->id) {
          return {};
        }
      }
    }
    return verdict->segments;
  }
  return {};
}

}  // namespace

Tuner::Tuner(Backend& backend, Store& store, TuneOptions options, OnProgress progress)
    : backend_(backend), store_(store), options_(std::move(options)), progress_(std::move(progress)) {}

Tuning Tuner::tune(const Operation& operation, const Problem& problem) { return tune(operation, problem, options_); }

Tuning Tuner::tune(const Operation& operation, const Problem& problem, const TuneOptions& options) {
  const std::lock_guard lock(mutex_);
  const EvidenceKey key{backend_.device(), operation.normalise(problem), regime_of(options)};
  const std::vector<Claim> claims = wait_for_claims(key, options);
  try {
    Tuning tuning = tune_locked(operation, key, options);
    settle_request(key, options.max_rows, &tuning);
    return tuning;
  } catch (...) {
    settle_request(key, options.max_rows, nullptr);
    throw;
  }
}

// The GPU first, then the key: whoever has the one and waits for the other holds up nobody who has more.
std::vector<Claim> Tuner::wait_for_claims(const EvidenceKey& key, const TuneOptions& options) {
  constexpr std::int64_t kStepNs = 50'000'000;
  const double deadline_ns = static_cast<double>(backend_.now_ns()) + options.patience.count() * 1e9;
  std::vector<Claim> claims;
  const auto wait = [&](const auto& take, const char* what) {
    for (;;) {
      if (std::optional<Claim> claim = take()) {
        claims.push_back(std::move(*claim));
        return;
      }
      if (static_cast<double>(backend_.now_ns()) >= deadline_ns) {
        throw Failure(std::string("another process is measuring ") + what + " and did not end",
                      "try again when it has ended");
      }
      if (progress_) progress_({"waiting for another process", 0, what});
      backend_.sleep_ns(kStepNs);
    }
  };
  wait([&] { return claim_gpu(backend_.gpu_uuid()); }, "on this GPU");
  wait([&] { return store_.claim(key); }, "this problem");
  return claims;
}

Regime Tuner::regime_of(const TuneOptions& options) const {
  return {options.launch_mode.value_or(backend_.launch_modes().front()), options.l2, "normal"};
}

std::optional<Request> Tuner::request_for(const EvidenceKey& key) {
  for (Request& request : store_.requests()) {
    if (request.key == key) {
      return std::move(request);
    }
  }
  return std::nullopt;
}

// A tuning that went as far as a request asked serves it. One that failed, or came to no conclusion, is tried again,
// but later each time; a failed one only if somebody asked for it: a lookup (`asked`), or a request.
void Tuner::settle_request(const EvidenceKey& key, Rows max_rows, const Tuning* tuning, bool asked) {
  try {
    const std::optional<Request> pending = request_for(key);
    const bool inconclusive = tuning != nullptr && tuning->verdict.status == VerdictStatus::inconclusive;
    if (tuning != nullptr && !inconclusive) {
      if (tuning->not_stored.empty() && pending && pending->max_m <= max_rows) {
        store_.served(key);
      }
      return;
    }
    if (!pending && !inconclusive && !asked) {
      return;
    }
    if (!pending) {
      store_.request({.key = key,
                      .max_m = max_rows,
                      .reason = inconclusive ? "inconclusive: " + tuning->verdict.why : "the first tuning failed",
                      .low_priority = inconclusive,
                      .count = 0,
                      .fails = 0,
                      .not_before_us = 0});
    }
    const auto fails = static_cast<std::size_t>(pending ? std::max(pending->fails, 0) : 0);
    store_.failed(key, backend_.unix_time_us() + kRetryAfterUs[std::min(fails, kRetryAfterUs.size() - 1)]);
  } catch (const StoreError&) {
    // What was measured, or the failure itself, is what to report.
  }
}

Tuning Tuner::tune_locked(const Operation& operation, const EvidenceKey& key, const TuneOptions& options) {
  const std::int64_t begin_ns = backend_.now_ns();
  std::vector<Run> known;
  try {
    known = store_.runs(key);
    if (std::ssize(known) > kKnownRuns) {
      known.erase(known.begin(), known.end() - kKnownRuns);
    }
    known = loaded(store_, std::move(known));
  } catch (const StoreError&) {
    known.clear();  // only configs to restore would come from it; writing will say what is wrong
  }

  Tuning tuning;
  tuning.run = options.measure ? options.measure(backend_, operation, key.problem, options, known, progress_)
                               : measure(backend_, operation, key.problem, options, known, progress_);
  try {
    tuning.run.id = store_.append(tuning.run);
    tuning.verdict = decided(key, tuning.run);
    tuning.verdict.id = store_.put(tuning.verdict);
  } catch (const StoreError& error) {
    tuning.not_stored = error.what();
    try {
      tuning.run.id = store_.keep(tuning.run);
      tuning.verdict = decided(key, tuning.run);
      tuning.verdict.id = store_.keep(tuning.verdict);
    } catch (const StoreError&) {  // no store would take it
      tuning.verdict = decide(key, {&tuning.run, 1}, Policy{});
    }
  }
  for (const Sample& sample : tuning.run.samples) {
    if (sample.role == Role::grid) {
      ++tuning.rows_measured;
      tuning.rows_dirty += sample.dirty_mask != 0 || tuning.run.dirty_mask != 0 ? 1 : 0;
    }
  }
  tuning.duration_s = static_cast<double>(backend_.now_ns() - begin_ns) * 1e-9;
  return tuning;
}

// The verdict for the default policy from everything that is evidence beside `run`, which the store has.
Verdict Tuner::decided(const EvidenceKey& key, const Run& run) {
  const Current current{backend_.device(), run.environment, backend_.conditions(), run.arm_set};
  std::vector<Run> evidence;
  std::vector<Segment> incumbent;
  try {
    evidence = loaded(store_, select_evidence(current, key, store_.runs(key)).runs);
    incumbent = incumbent_segments(store_, key, run.arm_set);
  } catch (const StoreError&) {  // it cannot be read either
    evidence.clear();
  }
  if (evidence.empty()) {
    evidence = {run};  // what was just measured, and if it is dirty, it is at least what the verdict is about
  }
  return decide(key, evidence, Policy{}, incumbent);
}

// Whether another thread or process has measured it since the lookup that missed.
bool Tuner::served_already(const Miss& miss, std::int64_t asked_us) {
  const std::vector<Run> runs = store_.runs(miss.key);
  if (miss.low_priority) {  // there was evidence before; only what is new counts
    return std::any_of(runs.begin(), runs.end(), [&](const Run& run) { return run.started_us >= asked_us; });
  }
  const Current current{backend_.device(), backend_.environment(), backend_.conditions(),
                        arm_set(*miss.operation, miss.key.problem, backend_.device())};
  const Evidence evidence = select_evidence(current, miss.key, runs);
  return !evidence.runs.empty() && evidence.stale.empty();
}

bool Tuner::tune(const Miss& miss) {
  if (miss.operation == nullptr) {
    throw InvalidArgument("a problem cannot be tuned without its operation");
  }
  if (miss.key.device != backend_.device()) {
    throw InvalidArgument("this tuner measures " + backend_.device().model + ", not " + miss.key.device.model);
  }
  if (miss.key.regime.fill != "normal") {
    throw InvalidArgument("activations can only be filled with normal values, not " + miss.key.regime.fill);
  }
  const std::int64_t asked_us = backend_.unix_time_us();
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  const std::optional<Claim> gpu = claim_gpu(backend_.gpu_uuid());
  if (!gpu) return false;
  const std::optional<Claim> own = store_.claim(miss.key);
  if (!own) return false;
  TuneOptions options = options_;
  options.launch_mode = miss.key.regime.launch_mode;
  options.l2 = miss.key.regime.l2;
  if (miss.max_rows > 0) {
    options.max_rows = miss.max_rows;
  }
  try {
    if (served_already(miss, asked_us)) {
      store_.served(miss.key);
      return true;
    }
    const std::optional<Request> pending = request_for(miss.key);
    if (pending && pending->not_before_us > backend_.unix_time_us()) {
      return true;  // it failed or was inconclusive a while ago: there is nothing to be had now
    }
    const Tuning tuning = tune_locked(*miss.operation, miss.key, options);
    settle_request(miss.key, options.max_rows, &tuning);
    if (!tuning.not_stored.empty()) {
      throw StoreError("what was measured stays in memory, because it could not be stored: " + tuning.not_stored);
    }
    return true;
  } catch (const StoreError&) {
    throw;
  } catch (...) {
    settle_request(miss.key, options.max_rows, nullptr, true);
    throw;
  }
}

void Tuner::record(const Miss& miss) {
  store_.request({.key = miss.key,
                  .max_m = miss.max_rows > 0 ? miss.max_rows : options_.max_rows,
                  .reason = miss.reason,
                  .low_priority = miss.low_priority,
                  .count = 0,
                  .fails = 0,
                  .not_before_us = 0});
}

}  // namespace crossover
