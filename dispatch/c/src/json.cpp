#include "json.hpp"

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

namespace crossover::c {
namespace {

using Json = nlohmann::ordered_json;

template <typename Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json id_json(const Id& id) { return id.empty() ? Json(nullptr) : Json(id.hex()); }

// Unix microseconds as ISO 8601 in UTC.
Json time_json(std::int64_t us) {
  const std::time_t seconds = us / 1'000'000;
  std::tm parts{};
  std::array<char, 32> text{};
  if (gmtime_r(&seconds, &parts) == nullptr ||
      std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts) == 0)
    return nullptr;
  return text.data();
}

Json problem_json(const Problem& problem) {
  return {{"operation", problem.operation}, {"attributes", problem.attributes}};
}

Json device_json(const Device& device) {
  return {{"id", Store::id_of(device).hex()},
          {"kind", device.kind},
          {"model", device.model},
          {"compute_capability", device.compute_capability},
          {"sm_count", device.sm_count},
          {"l2_bytes", device.l2_bytes},
          {"memory_gib", device.memory_gib}};
}

Json regime_json(const Regime& regime) {
  return {{"launch_mode", to_string(regime.launch_mode)}, {"l2", to_string(regime.l2)}, {"fill", regime.fill}};
}

Json policy_json(const Policy& policy) {
  return {{"allow", policy.allow},
          {"cached_bytes", policy.cached_bytes},
          {"workspace_bytes", policy.workspace_bytes},
          {"batch_invariant", policy.batch_invariant},
          {"max_error", or_null(policy.max_error)},
          {"arms", policy.arms},
          {"disabled", policy.disabled},
          {"extrapolate", policy.extrapolate}};
}

Json segments_json(const std::vector<Segment>& segments) {
  Json result = Json::array();
  for (const Segment& each : segments)
    result.push_back({{"from", each.from}, {"to", each.to}, {"arm", each.arm}, {"config", each.config}});
  return result;
}

Json crossovers_json(const std::vector<Crossover>& crossovers) {
  Json result = Json::array();
  for (const Crossover& each : crossovers) {
    result.push_back({{"m", each.m},
                      {"m_low", each.m_low},
                      {"m_high", each.m_high},
                      {"from_arm", each.from_arm},
                      {"to_arm", each.to_arm}});
  }
  return result;
}

Json held_out_json(const std::optional<HeldOut>& held_out) {
  if (!held_out) return nullptr;
  return {{"mean_regret", held_out->mean_regret}, {"max_regret", held_out->max_regret}, {"points", held_out->points}};
}

// Texts of others (a CPU's model, a plug-in's reason) need not be UTF-8.
std::string written(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace

std::string explanation(const Device& device, const Problem& problem, const Regime& regime,
                        const Resolution& resolution, Rows rows) {
  const PlanSegment& chosen = at(resolution.plan, std::max<Rows>(rows, 1));
  const std::optional<Verdict>& stored = resolution.stored;
  Json stale = Json::array();
  for (const StaleReason& each : resolution.stale)
    stale.push_back({{"field", each.field}, {"old", each.old_value}, {"new", each.new_value}});

  const Run* newest = nullptr;
  for (const Run& run : resolution.runs)
    if (!run.samples.empty()) newest = &run;
  Verdict decided = resolution.decided;
  if (newest != nullptr && decided.segments.size() > 1 && decided.crossovers.empty())
    decided = decide(decided.key, resolution.runs, decided.policy, decided.incumbent);
  const Standings known =
      newest != nullptr ? standings(resolution.runs, decided.policy, std::max<Rows>(rows, 1)) : Standings{};
  const auto winner = std::find_if(known.arms.begin(), known.arms.end(),
                                   [&](const Standing& each) { return each.arm == chosen.arm && each.median_ns > 0; });
  const std::optional<double> winner_ns = winner != known.arms.end() ? std::optional(winner->median_ns) : std::nullopt;
  Json runners_up = Json::array();
  for (const Standing& each : known.arms) {
    if (each.arm == chosen.arm) continue;
    runners_up.push_back({{"arm", each.arm},
                          {"median_us", each.median_ns / 1000},
                          {"ratio", winner_ns ? Json(each.median_ns / *winner_ns) : Json(nullptr)},
                          {"error", or_null(each.error)},
                          {"config", each.config},
                          {"allowed", each.allowed},
                          {"why_not", each.why_not}});
  }
  return written({{"arm", chosen.arm},
                  {"config", chosen.config.empty() ? Json(nullptr) : Json(chosen.config)},
                  {"origin", to_string(chosen.origin)},
                  {"rows", rows},
                  {"problem", problem_json(problem)},
                  {"device", device_json(device)},
                  {"regime", regime_json(regime)},
                  {"verdict", stored ? id_json(stored->id) : Json(nullptr)},
                  {"status", stored ? Json(to_string(stored->status)) : Json(nullptr)},
                  {"stale", std::move(stale)},
                  {"why", resolution.why},
                  {"measured_rows", newest != nullptr ? Json(known.m) : Json(nullptr)},
                  {"median_us", winner_ns ? Json(*winner_ns / 1000) : Json(nullptr)},
                  {"runners_up", std::move(runners_up)},
                  {"segments", segments_json(decided.segments)},
                  {"crossovers", crossovers_json(decided.crossovers)},
                  {"held_out", held_out_json(decided.held_out)},
                  {"measured_at", newest != nullptr ? time_json(newest->started_us) : Json(nullptr)},
                  {"environment", newest != nullptr ? Json(newest->environment) : Json(nullptr)},
                  {"conditions", newest != nullptr ? Json(newest->conditions) : Json(nullptr)}});
}

std::string report(const Tuning& tuning) {
  const Verdict& verdict = tuning.verdict;
  const bool stored = tuning.not_stored.empty();
  return written({{"id", stored ? id_json(verdict.id) : Json(nullptr)},
                  {"problem", problem_json(verdict.key.problem)},
                  {"device", device_json(verdict.key.device)},
                  {"regime", regime_json(verdict.key.regime)},
                  {"policy", policy_json(verdict.policy)},
                  {"status", to_string(verdict.status)},
                  {"why", verdict.why},
                  {"segments", segments_json(verdict.segments)},
                  {"crossovers", crossovers_json(verdict.crossovers)},
                  {"threshold", or_null(verdict.threshold)},
                  {"first_win", or_null(verdict.first_win)},
                  {"library_arm", verdict.library_arm},
                  {"held_out", held_out_json(verdict.held_out)},
                  {"duration_s", tuning.duration_s},
                  {"rows_measured", tuning.rows_measured},
                  {"rows_dirty", tuning.rows_dirty},
                  {"not_stored", stored ? Json(nullptr) : Json(tuning.not_stored)}});
}

}  // namespace crossover::c
