#include "constant.hpp"

#include <fmt/format.h>

#include <set>

#include "text.hpp"

namespace crossover::program {

std::vector<ConstantAt> constant_costs(std::span<const Run> runs, const Policy& policy, std::string_view arm,
                                       Rows from) {
  std::set<Rows> rows;
  for (const Run& run : runs)
    for (const Sample& sample : run.samples)
      if (sample.role == Role::grid) rows.insert(sample.m);
  std::vector<ConstantAt> costs;
  for (const Rows m : rows) {
    const Standings at = standings(runs, policy, m);
    if (at.m != m) continue;  // nothing clean was timed there
    const Standing *chosen = nullptr, *other = nullptr;
    for (const Standing& each : at.arms) {  // best first
      const bool named = names_arm(arm, each.arm);
      if (named && chosen == nullptr) chosen = &each;
      if (!named && each.allowed && other == nullptr) other = &each;
    }
    const Standing* best = other;
    if (best == nullptr || (chosen != nullptr && chosen->median_ns < best->median_ns)) best = chosen;
    if (best == nullptr) continue;
    const Standing* picked = m >= from ? chosen : other;
    costs.push_back({m, best->arm, picked != nullptr ? picked->arm : "", best->median_ns,
                     picked != nullptr ? picked->median_ns : 0});
  }
  return costs;
}

const ConstantAt* worst(std::span<const ConstantAt> costs) {
  const ConstantAt* found = nullptr;
  for (const ConstantAt& each : costs) {
    if (!each.picked.empty() && (found == nullptr || each.cost() > found->cost())) found = &each;
  }
  return found;
}

Table constant_table(std::span<const ConstantAt> costs) {
  Table table{{{"M", true}, {"best"}, {"us", true}, {"the constant's"}, {"us", true}, {"cost", true}}, {}};
  for (const ConstantAt& each : costs) {
    const bool timed = !each.picked.empty();
    table.rows.push_back({std::to_string(each.m), each.best, in_microseconds(each.best_ns), timed ? each.picked : "-",
                          timed ? in_microseconds(each.picked_ns) : "-",
                          timed ? fmt::format("{:.3f}", each.cost()) : "-"});
  }
  return table;
}

}  // namespace crossover::program
