#include "crossover/dispatch/evidence.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace crossover {
namespace {

template <typename Enum, std::size_t kCount>
using Names = std::array<std::pair<Enum, std::string_view>, kCount>;

constexpr Names<Role, 3> kRoles{{{Role::grid, "grid"}, {Role::placebo, "placebo"}, {Role::held_out, "held_out"}}};

constexpr Names<Outcome, 7> kOutcomes{{{Outcome::ineligible, "ineligible"},
                                       {Outcome::wrong_result, "wrong_result"},
                                       {Outcome::failed, "failed"},
                                       {Outcome::timed_out, "timed_out"},
                                       {Outcome::out_of_memory, "out_of_memory"},
                                       {Outcome::dropped, "dropped"},
                                       {Outcome::over_budget, "over_budget"}}};

constexpr Names<Dirty, 10> kDirty{{{Dirty::noisy, "noisy"},
                                   {Dirty::outliers, "outliers"},
                                   {Dirty::too_few_rounds, "too few rounds"},
                                   {Dirty::discarded_rounds, "discarded rounds"},
                                   {Dirty::implausible, "implausible time"},
                                   {Dirty::throttled, "throttled"},
                                   {Dirty::clock_moved, "clock moved"},
                                   {Dirty::contended, "contended"},
                                   {Dirty::placebo, "A/A placebo differs"},
                                   {Dirty::hardware, "hardware event"}}};

template <typename Enum, std::size_t kCount>
constexpr std::string_view name_of(const Names<Enum, kCount>& names, Enum value) {
  for (const auto& [candidate, name] : names)
    if (candidate == value) return name;
  return "unknown";
}

template <typename Enum, std::size_t kCount>
constexpr std::optional<Enum> value_of(const Names<Enum, kCount>& names, std::string_view text) {
  for (const auto& [value, name] : names)
    if (name == text) return value;
  return std::nullopt;
}

// Small ones one by one, then multiples of every power of two up to 64 Ki and their neighbours.
constexpr std::array<Rows, 30> kEligibilityLadder{1,   2,   3,   4,    5,    6,    7,    8,     9,     12,
                                                  15,  16,  17,  24,   32,   33,   48,   64,    65,    128,
                                                  129, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536};

std::vector<double> counted_times(const Sample& sample) {
  std::vector<double> times;
  times.reserve(sample.raw.size());
  for (const Round& round : sample.raw)
    if (counts(round)) times.push_back(round.total_ns / sample.launches);
  return times;
}

double median(std::vector<double>& values) {
  if (values.empty()) return 0;
  const std::size_t half = values.size() / 2;
  std::sort(values.begin(), values.end());
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

bool counts(const Round& round) noexcept { return (round.flags & kDiscarded) == 0 && std::isfinite(round.total_ns); }

std::string_view to_string(Role role) noexcept { return name_of(kRoles, role); }
std::optional<Role> role_from(std::string_view text) noexcept { return value_of(kRoles, text); }
std::string_view to_string(Outcome outcome) noexcept { return name_of(kOutcomes, outcome); }
std::optional<Outcome> outcome_from(std::string_view text) noexcept { return value_of(kOutcomes, text); }

std::vector<std::string> dirty_reasons(std::uint64_t mask) {
  std::vector<std::string> reasons;
  for (unsigned bit = 0; bit < 64; ++bit) {
    const std::uint64_t value = std::uint64_t{1} << bit;
    if ((mask & value) == 0) continue;
    const std::string_view name = name_of(kDirty, static_cast<Dirty>(value));
    reasons.emplace_back(name == "unknown" ? "bit " + std::to_string(bit) : std::string(name));
  }
  return reasons;
}

double median_ns(const Sample& sample) {
  std::vector<double> times = counted_times(sample);
  return median(times);
}

double mad_ns(const Sample& sample) {
  std::vector<double> times = counted_times(sample);
  const double centre = median(times);
  for (double& time : times) time = std::fabs(time - centre);
  return median(times);
}

const ArmRecord* ArmSet::find(std::string_view name) const noexcept {
  for (const ArmRecord& arm : arms)
    if (arm.id.name == name) return &arm;
  return nullptr;
}

ArmSet arm_set(const Operation& operation, const Problem& problem, const Device& device) {
  ArmSet set;
  for (const Arm* arm : operation.arms()) {
    ArmRecord record{.id = arm->id(),
                     .numerics = std::string(arm->numerics()),
                     .batch_invariant = arm->batch_invariant(),
                     .library = arm->library(),
                     .eligible = false,
                     .reason = {}};
    for (const Rows m : kEligibilityLadder) {
      Eligibility eligibility = arm->supports(problem, m, device);
      if (eligibility) {
        record.eligible = true;
        record.reason.clear();
        break;
      }
      if (record.reason.empty()) record.reason = std::move(eligibility.reason);
    }
    set.arms.push_back(std::move(record));
  }
  std::sort(set.arms.begin(), set.arms.end(), [](const ArmRecord& a, const ArmRecord& b) { return a.id < b.id; });
  set.defaults = operation.default_arms(problem, device);
  set.numerics.assign(operation.numerics().begin(), operation.numerics().end());
  return set;
}

std::map<std::string, ArmFacts> arm_facts(const Operation& operation, const Problem& problem, const Device& device) {
  std::map<std::string, ArmFacts> facts;
  for (const Arm* arm : operation.arms())
    for (const Rows m : kEligibilityLadder)
      if (const Eligibility eligibility = arm->supports(problem, m, device); eligibility) {
        facts[arm->id().name] = {eligibility.rows, arm->cost(problem, m).cached_bytes,
                                 [arm, problem](Rows rows) { return arm->cost(problem, rows).workspace_bytes; }};
        break;
      }
  return facts;
}

}  // namespace crossover
