#include "crossover/dispatch/resolve.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "crossover/dispatch/error.hpp"

namespace crossover {
namespace {

constexpr const char* kAbsent = "absent";
constexpr std::string_view kArmField = "arm ";

std::string value_or(const std::map<std::string, std::string>& map, std::string_view key, const char* otherwise) {
  const auto found = map.find(std::string(key));
  return found == map.end() ? otherwise : found->second;
}

const Conditions& conditions_of(const Run& run) {
  static const Conditions kNone;
  const auto found = run.conditions.find("before");
  return found == run.conditions.end() ? kNone : found->second;
}

std::string describe(const std::vector<DefaultArm>& defaults) {
  std::string text;
  for (const DefaultArm& entry : defaults)
    text +=
        (text.empty() ? "" : ", ") + entry.arm + (entry.up_to == kMaxRows ? "" : " to " + std::to_string(entry.up_to));
  return text;
}

// Eligible arms only: what cannot run cannot matter.
std::map<std::string, std::string> fingerprints(const ArmSet& set) {
  std::map<std::string, std::string> result;
  for (const ArmRecord& arm : set.arms)
    if (arm.eligible) result[arm.id.name] = arm.id.fingerprint;
  return result;
}

std::vector<StaleReason> differences(const Run& run, const Current& current) {
  std::vector<StaleReason> reasons;
  const auto compare = [&](std::string field, std::string old_value, std::string new_value) {
    if (old_value != new_value) reasons.push_back({std::move(field), std::move(old_value), std::move(new_value)});
  };
  for (const std::string_view field : kStalingEnvironment)
    compare(std::string(field), value_or(run.environment, field, "unknown"),
            value_or(current.environment, field, "unknown"));
  for (const std::string_view field : kStalingConditions) {
    const std::string old_value = value_or(conditions_of(run), field, "");
    const std::string new_value = value_or(current.conditions, field, "");
    if (!old_value.empty() && !new_value.empty()) compare(std::string(field), old_value, new_value);
  }
  const auto then = fingerprints(run.arm_set);
  const auto now = fingerprints(current.arm_set);
  std::set<std::string> names;
  for (const auto& [name, fingerprint] : then) names.insert(name);
  for (const auto& [name, fingerprint] : now) names.insert(name);
  for (const std::string& name : names)
    compare(std::string(kArmField) + name, value_or(then, name, kAbsent), value_or(now, name, kAbsent));
  compare("default arms", describe(run.arm_set.defaults), describe(current.arm_set.defaults));
  return reasons;
}

// Everything that makes two runs evidence of the same thing.
using GroupKey = std::tuple<bool, std::vector<std::string>, std::vector<std::string>,
                            std::map<std::string, std::string>, std::string>;
GroupKey group_key(const Run& run) {
  std::vector<std::string> environment, conditions;
  for (const std::string_view field : kStalingEnvironment)
    environment.push_back(value_or(run.environment, field, "unknown"));
  for (const std::string_view field : kStalingConditions) conditions.push_back(value_or(conditions_of(run), field, ""));
  return {run.received, environment, conditions, fingerprints(run.arm_set), describe(run.arm_set.defaults)};
}

std::string unusable(const Run& run) {
  if (run.protocol < kMinProtocol)
    return "it was measured by protocol " + std::to_string(run.protocol) + ", which is no longer believed";
  const std::vector<DefaultArm>& defaults = run.arm_set.defaults;
  const bool ascending = std::is_sorted(defaults.begin(), defaults.end(),
                                        [](const DefaultArm& a, const DefaultArm& b) { return a.up_to < b.up_to; });
  if (defaults.empty() || !ascending || defaults.back().up_to != kMaxRows)
    return "its default arms do not cover every row count";
  if (run.dirty_mask == 0) return "";
  std::string text = "its run is dirty: ";
  const char* separator = "";
  for (const std::string& reason : dirty_reasons(run.dirty_mask)) {
    text += separator + reason;
    separator = ", ";
  }
  return text;
}

// The largest row count at which the arm keeps to the policy's workspace; 0: it never does.
Rows most_rows(const Current& current, const Policy& policy, const std::string& arm) {
  constexpr Rows kMostAsked = 1 << 16;  // beyond it nothing is assumed to change
  const auto facts = current.facts.find(arm);
  if (facts == current.facts.end() || !facts->second.workspace_bytes) return kMaxRows;
  const auto fits = [&](Rows rows) { return facts->second.workspace_bytes(rows) <= policy.workspace_bytes; };
  Rows most = 0, too_many = std::min(facts->second.rows.max, kMostAsked);
  if (fits(too_many)) return kMaxRows;
  while (too_many - most > 1) {
    const Rows middle = most + (too_many - most) / 2;
    (fits(middle) ? most : too_many) = middle;
  }
  return most;
}

// The arms to run where nothing is known: the default arms, or what the policy leaves of them.
class Fallback {
 public:
  Fallback(const Current& current, const Policy& policy) : current_(current), set_(current.arm_set), policy_(policy) {
    for (const ArmRecord& arm : set_.arms) most_rows_[arm.id.name] = most_rows(current, policy, arm.id.name);
  }

  // Ascending; the last entry's up_to is kMaxRows.
  std::vector<DefaultArm> arms() const {
    std::vector<DefaultArm> result;
    if (set_.defaults.empty() || set_.defaults.back().up_to != kMaxRows)
      throw Failure("the operation names no default arm for every row count");
    if (policy_.batch_invariant) {
      // One arm for all row counts, so that a row's bits do not depend on the batch.
      result.push_back({kMaxRows, usable(set_.defaults.back().arm, kMaxRows)});
      return result;
    }
    std::set<Rows> ends;  // of ranges in which each arm keeps to the policy's workspace everywhere or nowhere
    for (const DefaultArm& entry : set_.defaults) ends.insert(entry.up_to);
    for (const auto& [arm, most] : most_rows_)
      if (most >= 1) ends.insert(most);
    for (const Rows end : ends) {
      std::string arm = usable(default_arm(set_.defaults, end), end);
      if (!result.empty() && result.back().arm == arm)
        result.back().up_to = end;
      else
        result.push_back({end, std::move(arm)});
    }
    return result;
  }

 private:
  // `name`, or where the policy forbids it another default arm, or else the first by name. One that keeps to the
  // policy's workspace up to `rows` goes before those that do not: it would be refused when it is launched.
  std::string usable(const std::string& name, Rows rows) const {
    std::vector<std::string> names;
    const auto consider = [&](const std::string& each) {
      const ArmRecord* arm = set_.find(each);
      if (arm != nullptr && arm->eligible && allows(policy_, set_, *arm) && (each == name || fits_everywhere(each)))
        names.push_back(each);
    };
    consider(name);
    for (const DefaultArm& other : set_.defaults) consider(other.arm);
    for (const ArmRecord& arm : set_.arms) consider(arm.id.name);
    if (names.empty())
      throw InvalidArgument("no arm is left: the policy and CROSSOVER_DISABLE_ARMS together forbid every eligible one");
    const auto roomy =
        std::find_if(names.begin(), names.end(), [&](const std::string& each) { return most_rows_.at(each) >= rows; });
    return roomy == names.end() ? names.front() : *roomy;
  }

  // A stand-in must take every row count, and keep no more memory than the policy grants.
  bool fits_everywhere(const std::string& name) const {
    const auto facts = current_.facts.find(name);
    return facts == current_.facts.end() ||
           (facts->second.rows == RowDomain{} && facts->second.cached_bytes <= policy_.cached_bytes);
  }

  const Current& current_;
  const ArmSet& set_;
  const Policy& policy_;
  std::map<std::string, Rows> most_rows_;  // by arm
};

void append(Plan& plan, PlanSegment segment) {
  if (!plan.empty() && plan.back().up_to >= segment.up_to) return;
  if (!plan.empty() && plan.back().arm == segment.arm && plan.back().config == segment.config &&
      plan.back().origin == segment.origin)
    plan.back().up_to = segment.up_to;
  else
    plan.push_back(std::move(segment));
}

Plan fallback_plan(const std::vector<DefaultArm>& defaults, Origin origin) {
  Plan plan;
  for (const DefaultArm& entry : defaults) append(plan, {entry.up_to, entry.arm, {}, origin});
  return plan;
}

// The part of `b` above `rows` behind the part of `a` up to it.
Plan spliced(const Plan& a, Rows rows, const Plan& b) {
  Plan plan;
  for (const PlanSegment& segment : a) {
    if (rows < 1) break;
    PlanSegment piece = segment;
    piece.up_to = std::min(piece.up_to, rows);
    append(plan, std::move(piece));
    if (segment.up_to >= rows) break;
  }
  for (const PlanSegment& segment : b)
    if (segment.up_to > rows) append(plan, segment);
  return plan;
}

// A verdict's segments as a plan. Where the default arm of today is among `changed` it is served instead. Above the
// segments up to `measured_to`, the evidence was there but may not be used: the default arm. Beyond that it is too, or
// what the policy says.
Plan tuned_plan(const std::vector<Segment>& segments, Rows measured_to, Origin origin,
                const std::vector<DefaultArm>& defaults, const Policy& policy, const std::set<std::string>& changed) {
  Plan tuned;
  for (const Segment& segment : segments) append(tuned, {segment.to, segment.arm, segment.config, origin});
  const Rows decided_to = tuned.back().up_to;

  Plan plan;
  Rows from = 1;
  for (const DefaultArm& entry : defaults) {
    const Rows to = std::min(entry.up_to, decided_to);
    if (to >= from) {
      if (changed.contains(entry.arm) && !policy.batch_invariant)
        append(plan, {to, entry.arm, {}, origin});
      else
        plan = spliced(plan, from - 1, spliced(tuned, to, {}));
    }
    from = entry.up_to == kMaxRows ? kMaxRows : entry.up_to + 1;
  }
  if (policy.extrapolate || policy.batch_invariant) {
    PlanSegment last = plan.back();
    last.up_to = kMaxRows;
    if (!policy.extrapolate) last.origin = Origin::out_of_range;
    append(plan, std::move(last));
    return plan;
  }
  const Origin unusable = origin == Origin::stale ? Origin::stale : Origin::fallback;
  plan = spliced(plan, decided_to, spliced(fallback_plan(defaults, unusable), std::max(measured_to, decided_to), {}));
  return spliced(plan, std::max(measured_to, decided_to), fallback_plan(defaults, Origin::out_of_range));
}

// Where a segment reaches beyond the row counts that its arm takes (an arm of at most 16 rows that won at 16, where 23
// was measured next), or beyond those at which a measured arm keeps to the policy's workspace, what is run there
// without evidence.
Plan within_domains(const Plan& plan, const Current& current, const Policy& policy,
                    const std::vector<DefaultArm>& defaults) {
  const Plan otherwise = fallback_plan(defaults, Origin::fallback);
  Plan result;
  Rows from = 1;
  for (const PlanSegment& segment : plan) {
    const auto facts = current.facts.find(segment.arm);
    const Rows low = facts == current.facts.end() ? 1 : facts->second.rows.min;
    Rows high = facts == current.facts.end() ? kMaxRows : facts->second.rows.max;
    if (!segment.config.empty() && !policy.batch_invariant)
      high = std::min(high, most_rows(current, policy, segment.arm));
    if (from < low) result = spliced(result, from - 1, spliced(otherwise, std::min(low - 1, segment.up_to), {}));
    if (low <= segment.up_to && from <= high) {
      PlanSegment inside = segment;
      inside.up_to = std::min(segment.up_to, high);
      append(result, std::move(inside));
    }
    if (high < segment.up_to) result = spliced(result, std::max(high, from - 1), spliced(otherwise, segment.up_to, {}));
    from = segment.up_to == kMaxRows ? kMaxRows : segment.up_to + 1;
  }
  return result;
}

std::vector<Id> ids_of(const std::vector<Run>& runs) {
  std::vector<Id> ids;
  for (const Run& run : runs) ids.push_back(run.id);
  std::sort(ids.begin(), ids.end());
  return ids;
}

// Whether a verdict can be served: a file may come from anywhere.
bool well_formed(const Verdict& verdict) {
  Rows next = 1;
  for (const Segment& segment : verdict.segments) {
    if (segment.from != next || segment.to < segment.from || segment.to == kMaxRows) return false;
    next = segment.to + 1;
  }
  return !verdict.segments.empty() || verdict.status == VerdictStatus::inconclusive;
}

// The stored verdict that these runs belong to: one made from exactly them, else the newest that used any of them.
std::optional<Verdict> stored_verdict(std::vector<Verdict> verdicts, const std::vector<Id>& ids) {
  std::optional<Verdict> best;
  bool exact = false;
  for (Verdict& verdict : verdicts) {
    if (!(verdict.policy == Policy{}) || verdict.rule > kRule || !well_formed(verdict)) continue;
    const bool same = verdict.run_ids == ids;
    const bool related = std::any_of(verdict.run_ids.begin(), verdict.run_ids.end(),
                                     [&](const Id& id) { return std::binary_search(ids.begin(), ids.end(), id); });
    if (same || (related && !exact)) {
      exact = exact || same;
      best = std::move(verdict);
    }
  }
  return best;
}

std::string config_of(const std::vector<Run>& runs, const std::string& arm) {
  for (auto run = runs.rbegin(); run != runs.rend(); ++run)
    for (const Sample& sample : run->samples)
      if (sample.arm == arm) return sample.config;
  return {};
}

// The arms that the name or family stands for and that can run.
std::vector<std::string> eligible_arms(const Current& current, const char* variable,
                                       const std::string& name_or_family) {
  std::vector<std::string> names;
  std::string reason;
  for (const ArmRecord& arm : current.arm_set.arms) {
    if (!names_arm(name_or_family, arm.id.name)) continue;
    if (arm.eligible)
      names.push_back(arm.id.name);
    else
      reason = arm.reason;
  }
  if (names.empty())
    throw InvalidArgument(std::string(variable) + " names " + name_or_family +
                          ", which cannot do this problem: " + reason);
  return names;
}

// Evidence for one resolution, loaded; decides for any policy.
class Decider {
 public:
  Decider(const Current& current, EvidenceSource& source, EvidenceKey key, const std::vector<std::string>& unrestorable)
      : key_(std::move(key)) {
    Evidence evidence = select_evidence(current, key_, source.runs(key_));
    runs_ = std::move(evidence.runs);
    stale_ = std::move(evidence.stale);
    why_not_ = std::move(evidence.why_not);
    // A verdict holds as long as what it was made from does, so the samples are looked at even where a memo will do.
    const bool found = !runs_.empty();
    std::erase_if(runs_, [&](Run& run) { return !source.load(run); });
    if (found && runs_.empty()) {
      stale_.clear();
      why_not_ = "what was measured is damaged";
    }
    for (const std::string& arm : unrestorable)
      stale_.push_back({std::string(kArmField) + arm, "configuration as measured", "not restorable"});
    for (const StaleReason& reason : stale_)
      if (reason.field.starts_with(kArmField)) changed_.insert(reason.field.substr(kArmField.size()));
    if (!runs_.empty()) stored_ = stored_verdict(source.verdicts(key_), ids_of(runs_));
  }

  bool none() const { return runs_.empty(); }
  const std::vector<StaleReason>& stale() const { return stale_; }
  const std::string& why_not() const { return why_not_; }
  const std::optional<Verdict>& stored() const { return stored_; }
  const std::set<std::string>& changed() const { return changed_; }
  std::vector<Run>& runs() { return runs_; }

  Origin origin() const {
    if (!stale_.empty()) return Origin::stale;
    const bool received = std::all_of(runs_.begin(), runs_.end(), [](const Run& run) { return run.received; });
    return received ? Origin::shipped : Origin::tuned;
  }

  Verdict decide_for(const Policy& policy) {
    Policy effective = policy;
    effective.disabled.insert(effective.disabled.end(), changed_.begin(), changed_.end());
    if (stored_ && stored_->rule == kRule && stored_->policy == effective && stored_->run_ids == ids_of(runs_))
      return *stored_;
    return decide(key_, runs_, effective,
                  stored_ ? std::span<const Segment>(stored_->incumbent) : std::span<const Segment>(), false);
  }

  // The largest row count that any arm was measured at.
  Rows measured_to() const {
    Rows most = 0;
    for (const Run& run : runs_)
      for (const Sample& sample : run.samples)
        if (sample.role == Role::grid) most = std::max(most, sample.m);
    return most;
  }

 private:
  EvidenceKey key_;
  std::vector<Run> runs_;
  std::vector<StaleReason> stale_;
  std::string why_not_;
  std::optional<Verdict> stored_;
  std::set<std::string> changed_;
};

// What the plan is without CROSSOVER_FORCE_ARM and CROSSOVER_THRESHOLD.
void plan_from_evidence(Decider& decider, const Current& current, const Policy& policy, Resolution& resolution) {
  const std::vector<DefaultArm> defaults = Fallback(current, policy).arms();
  if (decider.none()) {
    resolution.miss = true;
    resolution.why = decider.why_not();
    resolution.plan = fallback_plan(defaults, Origin::fallback);
    return;
  }
  resolution.decided = decider.decide_for(policy);
  const bool conclusive =
      resolution.decided.status != VerdictStatus::inconclusive && !resolution.decided.segments.empty();
  if (conclusive) {
    resolution.plan = tuned_plan(resolution.decided.segments, decider.measured_to(), decider.origin(), defaults, policy,
                                 decider.changed());
  } else if (!decider.changed().empty() && resolution.decided.segments.empty()) {
    resolution.plan = fallback_plan(defaults, Origin::stale);
  } else {
    resolution.plan = fallback_plan(defaults, Origin::fallback);
    resolution.why = "inconclusive: " + resolution.decided.why;
  }
  resolution.plan = within_domains(resolution.plan, current, policy, defaults);
  if (!decider.stale().empty()) {
    resolution.why = "stale: ";
    const char* separator = "";
    for (const StaleReason& reason : decider.stale()) {
      resolution.why += separator + to_string(reason);
      separator = "; ";
    }
  }
}

// The arm that an override names at every row count, measured there or not; of a family with several variants, its own
// plan. Every numerics class and all memory is allowed: naming the arm is the permission.
Plan forced_plan(Decider& decider, const Current& current, Policy policy, const char* variable,
                 const std::string& name_or_family, Resolution& resolution) {
  const std::vector<std::string> arms = eligible_arms(current, variable, name_or_family);
  if (arms.size() == 1) {
    plan_from_evidence(decider, current, policy, resolution);  // for what the resolution says beside the plan
    const std::string& arm = arms.front();
    // The configuration of an arm that has changed since is not this arm's.
    const std::string config = decider.changed().contains(arm) ? std::string() : config_of(decider.runs(), arm);
    return {{kMaxRows, arm, config, Origin::forced}};
  }
  policy.arms = arms;
  policy.allow.clear();
  for (const NumericsClass& numerics : current.arm_set.numerics) policy.allow.push_back(numerics.name);
  policy.cached_bytes = policy.workspace_bytes = std::numeric_limits<std::uint64_t>::max();
  plan_from_evidence(decider, current, policy, resolution);
  Plan plan = resolution.plan;
  for (PlanSegment& segment : plan) segment.origin = Origin::forced;
  return plan;
}

}  // namespace

std::vector<DefaultArm> fallback_arms(const Current& current, const Policy& policy) {
  return Fallback(current, policy).arms();
}

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case Origin::tuned:
      return "tuned";
    case Origin::stale:
      return "stale";
    case Origin::shipped:
      return "shipped";
    case Origin::forced:
      return "forced";
    case Origin::out_of_range:
      return "out_of_range";
    case Origin::fallback:
      break;
  }
  return "fallback";
}

std::string to_string(const StaleReason& reason) {
  return reason.field + ": " + reason.old_value + " -> " + reason.new_value;
}

void assume(Current& current, std::string_view key_value) {
  const std::size_t equals = key_value.find('=');
  const std::string key(key_value.substr(0, equals));
  const std::string value(equals == std::string_view::npos ? std::string_view() : key_value.substr(equals + 1));
  const auto fail = [&](const std::string& what) {
    throw InvalidArgument(
        "--assume " + std::string(key_value) + ": " + what +
        "; valid: driver, cuda, cublaslt, blas or sm_count=VALUE, arm:NAME=FINGERPRINT, arm:NAME=absent, new_arm=NAME");
  };
  if (value.empty()) fail("a value is missing");
  std::vector<ArmRecord>& arms = current.arm_set.arms;

  if (std::find(kStalingEnvironment.begin(), kStalingEnvironment.end(), key) != kStalingEnvironment.end()) {
    current.environment[key] = value;
  } else if (key == "sm_count") {
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), current.device.sm_count);
    if (error != std::errc() || end != value.data() + value.size() || current.device.sm_count < 1)
      fail("sm_count is a positive number");
  } else if (key == "new_arm") {
    if (current.arm_set.find(value) != nullptr) fail("the arm exists already");
    ArmRecord record;
    record.id = {value, "assumed"};
    if (!current.arm_set.numerics.empty()) record.numerics = current.arm_set.numerics.front().name;
    arms.push_back(std::move(record));
    std::sort(arms.begin(), arms.end(), [](const ArmRecord& a, const ArmRecord& b) { return a.id < b.id; });
  } else if (key.starts_with("arm:")) {
    const std::string name = key.substr(4);
    const auto found =
        std::find_if(arms.begin(), arms.end(), [&](const ArmRecord& arm) { return arm.id.name == name; });
    if (found == arms.end()) {
      std::string list;
      for (const ArmRecord& arm : arms) list += (list.empty() ? "" : ", ") + arm.id.name;
      fail("there is no arm '" + name + "' (arms: " + list + ")");
    }
    if (value == kAbsent)
      arms.erase(found);
    else
      found->id.fingerprint = value;
  } else {
    fail("'" + key + "' is not known");
  }
}

const PlanSegment& at(const Plan& plan, Rows rows) {
  for (const PlanSegment& segment : plan)
    if (rows <= segment.up_to) return segment;
  return plan.back();
}

Evidence select_evidence(const Current& current, const EvidenceKey& key, std::vector<Run> runs) {
  Evidence evidence;
  evidence.why_not = "nothing was ever measured for this problem on this device";
  std::erase_if(runs, [&](const Run& run) {
    return run.device != key.device || run.problem != key.problem || run.regime != key.regime;
  });
  std::stable_sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return std::tie(a.started_us, a.id) < std::tie(b.started_us, b.id);
  });

  std::map<GroupKey, std::vector<Run>> groups;
  for (Run& run : runs) {
    const std::string reason = unusable(run);
    if (!reason.empty())
      evidence.why_not = reason;
    else
      groups[group_key(run)].push_back(std::move(run));
  }
  // Least first: what was measured here, then what differs least from now, then the newest.
  using Rank = std::tuple<bool, std::size_t, std::int64_t>;
  std::optional<Rank> best;
  for (auto& [group, members] : groups) {
    std::vector<StaleReason> stale = differences(members.back(), current);
    const Rank rank{members.back().received, stale.size(), -members.back().started_us};
    if (best && !(rank < *best)) continue;
    best = rank;
    evidence.runs = std::move(members);
    evidence.stale = std::move(stale);
  }
  if (best) evidence.why_not.clear();
  return evidence;
}

Resolution resolve(const Current& current, EvidenceSource& source, const Problem& problem, const Regime& regime,
                   const Policy& policy, const Overrides& overrides, const std::vector<std::string>& unrestorable) {
  overrides.check(current.arm_set);
  Policy effective = policy;
  effective.disabled.insert(effective.disabled.end(), overrides.disable_arms.begin(), overrides.disable_arms.end());
  if (overrides.threshold) effective.disabled.push_back(overrides.threshold->arm);

  Decider decider(current, source, {current.device, problem, regime}, unrestorable);
  Resolution resolution;
  if (overrides.force_arm) {
    resolution.plan = forced_plan(decider, current, effective, "CROSSOVER_FORCE_ARM", *overrides.force_arm, resolution);
  } else {
    plan_from_evidence(decider, current, effective, resolution);
    if (overrides.threshold) {
      Resolution above;
      const Plan forced = forced_plan(decider, current, policy, "CROSSOVER_THRESHOLD", overrides.threshold->arm, above);
      resolution.plan = spliced(resolution.plan, overrides.threshold->rows - 1, forced);
    }
  }
  resolution.stale = decider.stale();
  resolution.stored = decider.stored();
  resolution.wants_tuning = resolution.miss || !resolution.stale.empty() || !resolution.stored ||
                            resolution.stored->status != VerdictStatus::confirmed;
  resolution.runs = std::move(decider.runs());
  return resolution;
}

}  // namespace crossover
