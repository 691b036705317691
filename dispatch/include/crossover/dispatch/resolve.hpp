#pragma once
// From stored evidence and what is true now to a plan: every origin, every kind of staleness, every override. All of it
// is pure except for reading through an EvidenceSource; nothing here measures, waits or writes.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/dispatch/decide.hpp"
#include "crossover/dispatch/evidence.hpp"

namespace crossover {

// How a choice came about.
enum class Origin : std::uint8_t {
  tuned,         // evidence that holds
  stale,         // evidence that something has changed under; `Resolution::stale` says what
  shipped,       // evidence that holds, measured on another host
  forced,        // CROSSOVER_FORCE_ARM or CROSSOVER_THRESHOLD
  out_of_range,  // more rows than were ever measured
  fallback,      // nothing is known
};
std::string_view to_string(Origin origin) noexcept;

// What is true now, to be compared with what was true when something was measured.
struct Current {
  Device device;
  Environment environment;
  Conditions conditions;
  ArmSet arm_set;
  std::map<std::string, ArmFacts> facts;  // by arm; of one that is missing nothing is assumed
};

// The arms to run where nothing is known: the default arms, or what the policy leaves of them; where one needs more
// workspace than the policy grants, another that does not, if there is one. Ascending, the last entry's up_to is
// kMaxRows. Throws InvalidArgument if the policy forbids every eligible arm.
std::vector<DefaultArm> fallback_arms(const Current& current, const Policy& policy);

// One what-if, "KEY=VALUE": driver, cuda, cublaslt, blas; sm_count; arm:NAME=FINGERPRINT; arm:NAME=absent;
// new_arm=NAME. Throws InvalidArgument on anything else, and lists what is valid.
void assume(Current& current, std::string_view key_value);

struct StaleReason {
  std::string field;      // "driver", "power_limit_w", "arm host_vector", …
  std::string old_value;  // "absent" for an arm that is new
  std::string new_value;  // "absent" for an arm that is gone
  bool operator==(const StaleReason&) const = default;
};
std::string to_string(const StaleReason& reason);  // "driver: 535 -> 999"

// What a lookup does where nothing is known.
enum class MissMode : std::uint8_t { tune, record, fallback, error };
std::string_view to_string(MissMode mode) noexcept;

// The environment variables of the same names. Each changes one thing.
struct Overrides {
  std::optional<MissMode> on_miss;        // CROSSOVER_ON_MISS
  std::vector<std::string> disable_arms;  // CROSSOVER_DISABLE_ARMS
  std::optional<std::string> force_arm;   // CROSSOVER_FORCE_ARM
  struct Threshold {
    std::string arm;
    Rows rows = 0;
  };
  std::optional<Threshold> threshold;  // CROSSOVER_THRESHOLD
  bool frozen = false;                 // CROSSOVER_FROZEN

  using Environ = std::function<std::optional<std::string>(const char* name)>;
  // Reads through `get` (secure_getenv by default). Throws InvalidArgument that names the variable and what is valid.
  static Overrides from_environment(const Environ& get = {});
  // Throws InvalidArgument for a name that `set` does not have (lists the valid ones) and for two that contradict.
  void check(const ArmSet& set) const;
};

// A piece of a plan: up to and including `up_to` rows. The last one's up_to is kMaxRows.
struct PlanSegment {
  Rows up_to = kMaxRows;
  std::string arm;
  std::string config;  // empty: not known, prepare() finds one
  Origin origin = Origin::fallback;
  bool operator==(const PlanSegment&) const = default;
};
using Plan = std::vector<PlanSegment>;
const PlanSegment& at(const Plan& plan, Rows rows);

struct Resolution {
  Plan plan;
  bool miss = false;          // no usable evidence: the whole plan is fallback (or forced)
  bool wants_tuning = false;  // missing, stale, provisional or inconclusive: worth a request
  std::string why;            // one sentence: why not tuned, where it is not
  std::vector<StaleReason> stale;
  std::optional<Verdict> stored;  // the stored verdict that this evidence belongs to, whatever the policy
  Verdict decided;                // what the plan was made from; decided.segments empty on a miss
  std::vector<Run> runs;          // the evidence, loaded
};

// Which of `runs` are evidence now: of the groups made under the same arms, environment and conditions one measured on
// this host before one received, then the one that differs least from `current`, then the most recent. Runs that cannot
// be evidence (protocol, dirty, another device) are left out and `why_not` says so of the newest.
struct Evidence {
  std::vector<Run> runs;           // oldest first
  std::vector<StaleReason> stale;  // of the group, against `current`
  std::string why_not;
};
Evidence select_evidence(const Current& current, const EvidenceKey& key, std::vector<Run> runs);

// `unrestorable`: arms whose stored config prepare() refused; their rows are dropped and the plan is stale.
Resolution resolve(const Current& current, EvidenceSource& source, const Problem& problem, const Regime& regime,
                   const Policy& policy, const Overrides& overrides, const std::vector<std::string>& unrestorable = {});

}  // namespace crossover
