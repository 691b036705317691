#pragma once
// Facts as they were measured, and where they come from. Written once, never changed.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/dispatch/operation.hpp"
#include "crossover/dispatch/problem.hpp"

namespace crossover {

// The measuring protocol this build writes, and the oldest whose runs it still believes.
inline constexpr int kProtocol = 3;
inline constexpr int kMinProtocol = 1;

enum class Role : std::uint8_t { grid, placebo, held_out };
std::string_view to_string(Role role) noexcept;
std::optional<Role> role_from(std::string_view text) noexcept;

// Why a trial gave no sample. `dropped` and `over_budget` still keep the times that were seen, in `detail`.
enum class Outcome : std::uint8_t { ineligible, wrong_result, failed, timed_out, out_of_memory, dropped, over_budget };
std::string_view to_string(Outcome outcome) noexcept;
std::optional<Outcome> outcome_from(std::string_view text) noexcept;

// Reasons for which a sample or a run is kept but not believed: bits of dirty_mask. Never renumbered.
enum class Dirty : std::uint64_t {
  noisy = 1u << 0,             // MAD / median above the back end's limit
  outliers = 1u << 1,          // too many rounds far from the median
  too_few_rounds = 1u << 2,    // fewer than the protocol believes
  discarded_rounds = 1u << 3,  // over 30% of the rounds were discarded
  implausible = 1u << 4,       // a time that is not above 0 and finite, or is below the roofline
  throttled = 1u << 5,
  clock_moved = 1u << 6,
  contended = 1u << 7,  // other work on the device
  placebo = 1u << 8,    // the A/A comparison of the run came out different
  hardware = 1u << 9,   // an uncorrected ECC error
};
std::vector<std::string> dirty_reasons(std::uint64_t mask);  // names of the bits; unknown ones as "bit 17"

// One timed round of one sample.
struct Round {
  std::uint32_t number = 0;  // the run's round; samples of one run with the same number were taken together
  std::uint32_t flags = 0;   // kDiscarded and what the back end saw
  double total_ns = 0;       // all launches of the round
  double sm_clock_mhz = 0;   // 0: unknown
  bool operator==(const Round&) const = default;
};
// Bits of Round::flags. Never renumbered; readers ignore those that they do not know.
inline constexpr std::uint32_t kDiscarded = 1;  // not part of any statistic
inline constexpr std::uint32_t kThrottled = 2;  // the hardware slowed its clock to protect itself: why it is discarded
inline constexpr std::uint32_t kClockStep = 4;  // far off the clock of the sample's other rounds: why it is discarded
inline constexpr std::uint32_t kPowerCapped = 8;  // at the power limit; no fault
inline constexpr std::uint32_t kDeviceIdle = 16;  // the device called itself idle just after; no fault
bool counts(const Round& round) noexcept;         // part of the statistics: not discarded, and finite

struct Sample {
  Rows m = 0;
  std::string arm;  // its fingerprint is in the run's arm set
  Role role = Role::grid;
  std::string config;
  std::uint32_t launches = 1;  // per round; a round's time is total_ns / launches
  double median_ns = 0;        // per launch, over the rounds that count
  double mad_ns = 0;           // median absolute deviation of the same
  std::uint64_t dirty_mask = 0;
  std::optional<double> error;  // relative L2 against f64 at the correctness gate
  std::uint64_t workspace_bytes = 0;
  std::uint64_t cached_bytes = 0;
  std::vector<Round> raw;
  bool operator==(const Sample&) const = default;
};
// Median of total_ns / launches over the rounds that count; 0 if there are none. With an even count the mean of the two
// in the middle. These two are the definition of the stored columns.
double median_ns(const Sample& sample);
double mad_ns(const Sample& sample);

struct Attempt {
  Rows m = 0;  // 0: the arm as a whole
  std::string arm;
  Outcome outcome = Outcome::failed;
  std::string detail;  // for people
  bool operator==(const Attempt&) const = default;
};

// An arm as it was registered when a run was made.
struct ArmRecord {
  ArmId id;
  std::string numerics;
  bool batch_invariant = false;
  bool library = false;
  bool eligible = true;  // at some row count
  std::string reason;    // why not
  bool operator==(const ArmRecord&) const = default;
};

// All arms of the operation, whether eligible or not, with what decide() must know of the operation.
struct ArmSet {
  std::vector<ArmRecord> arms;
  std::vector<DefaultArm> defaults;
  std::vector<NumericsClass> numerics;
  const ArmRecord* find(std::string_view name) const noexcept;
  bool operator==(const ArmSet&) const = default;
};
// The arm set of `operation` now. An arm counts as eligible if it supports any of a fixed ladder of row counts, so that
// the answer does not depend on how far somebody tuned.
ArmSet arm_set(const Operation& operation, const Problem& problem, const Device& device);

// What a plan must know of an arm now and what evidence need not keep.
struct ArmFacts {
  RowDomain rows;                                    // where it is eligible
  std::size_t cached_bytes = 0;                      // as Cost has it
  std::function<std::size_t(Rows)> workspace_bytes;  // as Cost has it; more rows never need less. Empty: unknown
};
std::map<std::string, ArmFacts> arm_facts(const Operation& operation, const Problem& problem, const Device& device);

// One problem, measured once, by one process.
struct Run {
  Id id;  // set by the store
  Id process_uuid;
  Device device;
  Environment environment;
  Problem problem;
  Regime regime;
  ArmSet arm_set;
  std::string gpu_uuid, boot_id;  // empty: unknown
  std::string host;               // the store keeps a keyed hash of it, and gives that back
  bool received = false;          // came from another database
  int protocol = kProtocol;
  std::uint64_t seed = 0;
  std::int64_t started_us = 0;  // Unix time
  std::int64_t duration_us = 0;
  std::uint64_t dirty_mask = 0;
  std::map<std::string, Conditions> conditions;  // "before", "after" and, where it was watched, "during"
  std::vector<Sample> samples;
  std::vector<Attempt> attempts;
};

struct EvidenceKey {
  Device device;
  Problem problem;
  Regime regime;
  auto operator<=>(const EvidenceKey&) const = default;
  bool operator==(const EvidenceKey&) const = default;
};

struct Verdict;  // decide.hpp

// Where evidence comes from. Implemented by the store, and by tests. Calls from several threads are serialised inside.
class EvidenceSource {
 public:
  virtual ~EvidenceSource() = default;
  // Every run of the key that is intact, oldest first, without samples and attempts. Bad rows are skipped and reported
  // through warnings(). Throws StoreError only if nothing can be read at all.
  virtual std::vector<Run> runs(const EvidenceKey& key) = 0;
  // Fills in samples and attempts. False: the run's digest does not hold; the run is not evidence.
  virtual bool load(Run& run) = 0;
  // Verdicts stored for the key, oldest first: memos of decide(), and the ids that choices name.
  virtual std::vector<Verdict> verdicts(const EvidenceKey& key) = 0;
  // Changes when any process stored something; cheap (no more than a system call or two).
  virtual std::uint64_t generation() = 0;
  // The same for what belongs to one key; may change without cause. Far cheaper than looking the key up. Throws
  // StoreError.
  virtual std::uint64_t generation_of(const EvidenceKey& key) {
    static_cast<void>(key);
    return generation();
  }
  // Sentences for people about what could not be read since the last call, each once.
  virtual std::vector<std::string> warnings() = 0;
};

}  // namespace crossover
