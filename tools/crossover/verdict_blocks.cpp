#include "verdict_blocks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "text.hpp"

namespace crossover::program {
namespace {

const Segment* segment_at(std::span<const Segment> segments, Rows m) {
  const auto found = std::find_if(segments.begin(), segments.end(),
                                  [&](const Segment& each) { return m >= each.from && m <= each.to; });
  return found == segments.end() ? nullptr : &*found;
}

// A library's configuration may be a list of algorithms; all of it is in the JSON.
std::string shortened(const std::string& config) {
  constexpr std::size_t kMost = 48;
  if (config.size() <= kMost) return config;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(config[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return config.substr(0, end) + "...";
}

}  // namespace

Fields verdict_fields(const Verdict& verdict) {
  Fields fields;
  const auto add = [&](std::string name, std::string value) {
    fields.entries.emplace_back(std::move(name), std::move(value));
  };
  add("verdict", verdict.id.empty() ? "(not stored)" : short_id(verdict.id));
  add("status", fmt::format("{}{}", to_string(verdict.status), verdict.why.empty() ? "" : ": " + verdict.why));
  for (const Segment& each : verdict.segments) {
    add(fmt::format("M = {}", row_range(each.from, each.to)),
        each.config == "-" || each.config.empty() ? each.arm
                                                  : fmt::format("{} ({})", each.arm, shortened(each.config)));
  }
  for (const Crossover& each : verdict.crossovers) {
    add("crossover",
        fmt::format("M = {} (95%: {} to {}), {} to {}", each.m, each.m_low, each.m_high, each.from_arm, each.to_arm));
  }
  if (verdict.threshold) {
    add("threshold",
        fmt::format("M = {}: from there to the end of the grid {}", *verdict.threshold, verdict.library_arm));
  } else if (!verdict.library_arm.empty()) {
    add("threshold", fmt::format("none: {} does not own the end of the grid", verdict.library_arm));
  }
  if (verdict.first_win && verdict.first_win != verdict.threshold) {
    add("first win", fmt::format("M = {}: there {} is first beyond noise", *verdict.first_win, verdict.library_arm));
  }
  if (const auto& held_out = verdict.held_out) {
    add("regret between grid points", fmt::format("mean {}, max {}, at {} row counts", percent(held_out->mean_regret),
                                                  percent(held_out->max_regret), held_out->points));
  }
  return fields;
}

Table median_table(std::span<const Run> runs, std::span<const Segment> segments) {
  std::map<Rows, std::map<std::string, const Sample*>> grid;  // of several runs the newest counts
  std::set<std::string> arms;
  for (const Run& run : runs) {
    for (const Sample& sample : run.samples) {
      if (sample.role != Role::grid) continue;
      const Sample*& cell = grid[sample.m][sample.arm];
      if (cell == nullptr || sample.dirty_mask == 0 || cell->dirty_mask != 0) cell = &sample;
      arms.insert(sample.arm);
    }
  }
  Table table{{{"M", true}}, {}};
  for (const std::string& arm : arms) table.columns.push_back({arm + " us", true});
  for (const auto& [m, cells] : grid) {
    const Segment* segment = segment_at(segments, m);
    std::vector<std::string> row{std::to_string(m)};
    for (const std::string& arm : arms) {
      const auto cell = cells.find(arm);
      if (cell == cells.end()) {
        row.emplace_back("-");
        continue;
      }
      const bool served = segment != nullptr && segment->arm == arm;
      row.push_back(in_microseconds(cell->second->median_ns) + (cell->second->dirty_mask != 0 ? "!" : "") +
                    (served ? " *" : "  "));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table attempt_table(std::span<const Run> runs) {
  std::map<std::pair<std::string, std::string>, std::map<Rows, std::string>> groups;  // arm and outcome: detail by M
  std::set<std::string> timed;  // an attempt at all row counts of such an arm is about the rest of the rounds
  for (const Run& run : runs)
    for (const Sample& sample : run.samples) timed.insert(sample.arm);
  for (const Run& run : runs) {
    for (const Attempt& each : run.attempts) {
      groups[{each.arm, std::string(to_string(each.outcome))}].emplace(each.m, each.detail);
    }
  }
  Table table{{{"arm"}, {"not timed at"}, {"outcome"}, {"detail of the first"}}, {}};
  for (const auto& [group, details] : groups) {
    const auto& [arm, outcome] = group;
    std::vector<std::string> ranges;
    for (auto first = details.begin(); first != details.end();) {
      auto last = first;
      while (std::next(last) != details.end() && std::next(last)->first == last->first + 1) ++last;
      ranges.push_back(row_range(first->first, last->first));
      first = std::next(last);
    }
    std::string where = "M = " + join(ranges);
    if (details.begin()->first == 0) where = timed.contains(arm) ? "any M after a look" : "any M";
    table.rows.push_back({arm, where, outcome, details.begin()->second});
  }
  return table;
}

}  // namespace crossover::program
