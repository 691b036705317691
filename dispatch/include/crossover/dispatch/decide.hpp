#pragma once
// From evidence to a verdict: pure, and the same bytes on every machine. The rule is described in dispatch/DECIDE.md.

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/dispatch/evidence.hpp"

namespace crossover {

// The rule this build applies. Raised whenever decide() may give another answer for the same evidence; the rules
// before it can still be applied, so that what was stored can be verified.
inline constexpr int kRule = 2;

// What the caller allows. Filters only: never a reason to measure again.
struct Policy {
  std::vector<std::string> allow;  // numerics classes; empty: those the operation allows by default
  std::uint64_t cached_bytes = 0;  // bytes an arm may keep beside the weights
  std::uint64_t workspace_bytes = std::uint64_t{1} << 30;  // scratch an arm may ask for
  bool batch_invariant = false;                            // one arm for every M, whose rows do not depend on M
  std::optional<double> max_error;                         // relative L2 that an arm's error must not exceed
  std::vector<std::string> arms;                           // names or families; empty: all
  std::vector<std::string> disabled;                       // names or families, as if they were not registered
  bool extrapolate = false;                                // beyond the largest measured M serve the last segment
  bool operator==(const Policy&) const = default;
};
// Whether the policy lets `sample`, measured with `arm`, be served. Disabled and unlisted arms included.
bool allows(const Policy& policy, const ArmSet& set, const ArmRecord& arm, const Sample& sample);
// The part of `allows` that needs no sample: name and numerics class.
bool allows(const Policy& policy, const ArmSet& set, const ArmRecord& arm);

enum class VerdictStatus : std::uint8_t { provisional, confirmed, inconclusive };
std::string_view to_string(VerdictStatus status) noexcept;
std::optional<VerdictStatus> verdict_status_from(std::string_view text) noexcept;

struct Segment {
  Rows from = 1, to = 1;  // inclusive; the segments cover 1…the largest measured M without a gap
  std::string arm, config;
  bool operator==(const Segment&) const = default;
};

// Between two segments. m is the first row count of the second; the true crossover lies in [m_low, m_high] at 95%.
struct Crossover {
  Rows m = 0, m_low = 0, m_high = 0;
  std::string from_arm, to_arm;
  bool operator==(const Crossover&) const = default;
};

// Regret of the plan at row counts off the grid, against the best arm there: 0.01 is one per cent.
struct HeldOut {
  double mean_regret = 0, max_regret = 0;
  int points = 0;
  bool operator==(const HeldOut&) const = default;
};

struct Verdict {
  Id id;  // set by the store; empty while it is not stored
  EvidenceKey key;
  Policy policy;
  std::vector<Id> run_ids;         // ascending
  std::vector<Segment> incumbent;  // what ties stayed with; kept so that the verdict can be recomputed
  int rule = kRule;
  VerdictStatus status = VerdictStatus::inconclusive;
  std::string why;  // one sentence on the status, for people
  std::vector<Segment> segments;
  std::vector<Crossover> crossovers;
  std::optional<Rows> threshold;  // start of the last segment, if a library arm owns it to the end of the grid
  std::optional<Rows> first_win;  // smallest M at which that arm beats every other allowed one beyond noise
  std::string library_arm;        // the arm of the two fields above; empty if no library arm was allowed
  std::optional<HeldOut> held_out;
  std::int64_t decided_us = 0;  // Unix time; not part of what decide() computes, nor of the id
};

// A paired comparison: ratio of the times a/b over rounds that both have, with a sign-test interval for its median.
enum class Comparison : std::uint8_t { win, loss, tie, open };  // win: a is faster beyond noise
std::string_view to_string(Comparison comparison) noexcept;
struct Ratio {
  double median = 1, low = 0, high = 0;  // high is infinity and low 0 where there are too few rounds
  int pairs = 0;
  Comparison comparison = Comparison::open;
};
// `alpha` is two-sided, for one look; the caller divides it by the number of rivals.
Ratio compare(std::span<const double> a_over_b, double alpha);
// a/b of every round that counts in both and that both took together (same number). Times are per launch.
std::vector<double> paired_ratios(const Sample& a, const Sample& b);
// Per look of the protocol (MEASURING.md): four looks at 0.0125.
inline constexpr double kAlphaPerLook = 0.0125;
// Of one comparison at a look: shared among eight rivals, whether there are fewer or more, so that an arm more or less
// never changes what is known of two others.
inline constexpr double kAlphaPerComparison = kAlphaPerLook / 8;
inline constexpr double kTieBand = 0.01;

// What is known at one row count, best first.
struct Standing {
  std::string arm, config;
  double median_ns = 0;
  Ratio to_best;  // time / best time
  std::optional<double> error;
  bool allowed = true;  // by the policy
  std::string why_not;
};

// Pure functions of their arguments. `runs` must be loaded; dirty samples and the runs of other keys are ignored.
// `incumbent`: an earlier verdict's segments; ties stay with them. `bounds`: compute crossover intervals
// (milliseconds). `rule`: 1…kRule.
Verdict decide(const EvidenceKey& key, std::span<const Run> runs, const Policy& policy,
               std::span<const Segment> incumbent = {}, bool bounds = true, int rule = kRule);
// Standings at the measured row count nearest to `rows` from below (else the smallest).
struct Standings {
  Rows m = 0;
  std::vector<Standing> arms;
};
Standings standings(std::span<const Run> runs, const Policy& policy, Rows rows);

}  // namespace crossover
