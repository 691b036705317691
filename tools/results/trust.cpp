#include "trust.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "crossover/db/store.hpp"
#include "crossover/dispatch/decide.hpp"
#include "text.hpp"

namespace crossover::program {
namespace {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

const std::string* arm_at(const Verdict& verdict, Rows m) {
  for (const Segment& segment : verdict.segments)
    if (segment.from <= m && m <= segment.to) return &segment.arm;
  return nullptr;
}

using Medians = std::map<Rows, std::map<std::string, double>>;

// The median, over the runs, of every allowed arm's medians, where at least half of the runs have one.
Medians pooled(std::span<const Run> runs) {
  std::map<Rows, std::map<std::string, std::vector<double>>> all;
  std::size_t clean = 0;
  for (const Run& run : runs) {
    if (run.dirty_mask != 0) continue;
    ++clean;
    for (const Sample& sample : run.samples) {
      const ArmRecord* arm = run.arm_set.find(sample.arm);
      if (sample.role == Role::grid && sample.dirty_mask == 0 && arm != nullptr &&
          allows(Policy{}, run.arm_set, *arm, sample))
        all[sample.m][sample.arm].push_back(sample.median_ns);
    }
  }
  Medians truth;
  for (const auto& [m, arms] : all)
    for (const auto& [arm, medians] : arms)
      if (2 * medians.size() >= clean) truth[m][arm] = median_of(medians);
  return truth;
}

std::string percent_of(std::size_t part, std::size_t whole) {
  return whole == 0
             ? "-"
             : fmt::format("{:.1f}% of {}", 100.0 * static_cast<double>(part) / static_cast<double>(whole), whole);
}

}  // namespace

Trust trust_of(std::span<const Run> runs) {
  Trust trust;
  trust.runs = runs.size();
  if (runs.empty()) return trust;
  const EvidenceKey key{runs[0].device, runs[0].problem, runs[0].regime};
  const Medians truth = pooled(runs);
  const Verdict together = decide(key, runs, Policy{});
  std::vector<Verdict> alone;
  std::vector<double> durations, regrets;
  for (const Run& run : runs) {
    durations.push_back(static_cast<double>(run.duration_us) * 1e-6);
    trust.dirty_runs += run.dirty_mask != 0 ? 1 : 0;
    for (const Sample& sample : run.samples) {
      if (sample.role != Role::grid) continue;
      ++trust.samples;
      trust.dirty_samples += sample.dirty_mask != 0 ? 1 : 0;
    }
    for (const Attempt& attempt : run.attempts) trust.over_budget += attempt.outcome == Outcome::over_budget ? 1 : 0;
    if (run.dirty_mask == 0) alone.push_back(decide(key, {&run, 1}, Policy{}));
  }
  for (const auto& [m, arms] : truth) {
    double best = 0;
    for (const auto& [arm, median] : arms) best = best == 0 ? median : std::min(best, median);
    std::map<std::string, std::size_t> votes;
    std::size_t plans = 0, most = 0;
    for (const Verdict& verdict : alone) {
      const std::string* arm = arm_at(verdict, m);
      if (arm == nullptr) continue;
      ++plans;
      most = std::max(most, ++votes[*arm]);
      const auto served = arms.find(*arm);
      if (served == arms.end()) continue;
      const double regret = served->second / best - 1;
      regrets.push_back(regret);
      if (regret > trust.max_regret) {
        trust.max_regret = regret;
        trust.worst_rows = m;
      }
    }
    trust.points += plans;
    trust.flips += plans - most;
  }
  for (const Verdict& verdict : alone) {
    if (verdict.held_out) trust.max_held_out = std::max(trust.max_held_out, verdict.held_out->max_regret);
    for (const Crossover& each : verdict.crossovers) {
      const auto same = std::find_if(together.crossovers.begin(), together.crossovers.end(), [&](const Crossover& all) {
        return all.from_arm == each.from_arm && all.to_arm == each.to_arm;
      });
      if (same == together.crossovers.end()) continue;
      ++trust.crossovers;
      trust.covered += each.m_low <= same->m && same->m <= each.m_high ? 1 : 0;
    }
  }
  trust.median_regret = median_of(regrets);
  trust.median_s = median_of(durations);
  trust.max_s = *std::max_element(durations.begin(), durations.end());
  return trust;
}

int write_trust(const char* database) {
  const auto store = Store::open(database, Store::Access::lookup_only);
  std::map<EvidenceKey, std::vector<Run>> problems;
  for (Run& run : store->all_runs()) {
    const EvidenceKey key{run.device, run.problem, run.regime};
    if (store->load(run)) problems[key].push_back(std::move(run));
  }
  Document document;
  Table table{{{"problem"},
               {"tunings", true},
               {"dirty runs", true},
               {"dirty samples", true},
               {"flips", true},
               {"regret, median", true},
               {"largest", true},
               {"largest off the grid", true},
               {"pooled crossover in the bounds", true},
               {"seconds, median", true},
               {"largest", true},
               {"over budget", true}},
              {}};
  for (const auto& [key, runs] : problems) {
    if (runs.size() < 2) continue;
    const Trust trust = trust_of(runs);
    table.rows.push_back(
        {to_string(key.problem), std::to_string(trust.runs), std::to_string(trust.dirty_runs),
         percent_of(trust.dirty_samples, trust.samples), percent_of(trust.flips, trust.points),
         percent(trust.median_regret), fmt::format("{} at M = {}", percent(trust.max_regret), trust.worst_rows),
         percent(trust.max_held_out), percent_of(trust.covered, trust.crossovers),
         fmt::format("{:.1f}", trust.median_s), fmt::format("{:.1f}", trust.max_s), std::to_string(trust.over_budget)});
  }
  document.blocks.emplace_back(std::move(table));
  write_output(render(document, Format::markdown));
  return 0;
}

}  // namespace crossover::program
