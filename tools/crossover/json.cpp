#include "json.hpp"

#include "crossover/db/store.hpp"

namespace crossover::program {

Json to_json(const Problem& problem) { return {{"operation", problem.operation}, {"attributes", problem.attributes}}; }

Json to_json(const Device& device) {
  return {{"id", Store::id_of(device).hex()},
          {"kind", device.kind},
          {"model", device.model},
          {"compute_capability", device.compute_capability},
          {"sm_count", device.sm_count},
          {"l2_bytes", device.l2_bytes},
          {"memory_gib", device.memory_gib}};
}

Json to_json(const Regime& regime) {
  return {{"launch_mode", to_string(regime.launch_mode)}, {"l2", to_string(regime.l2)}, {"fill", regime.fill}};
}

Json to_json(const Policy& policy) {
  return {{"allow", policy.allow},
          {"cached_bytes", policy.cached_bytes},
          {"workspace_bytes", policy.workspace_bytes},
          {"batch_invariant", policy.batch_invariant},
          {"max_error", to_json(policy.max_error)},
          {"arms", policy.arms},
          {"disabled", policy.disabled},
          {"extrapolate", policy.extrapolate}};
}

Json to_json(const Id& id) { return id.empty() ? Json(nullptr) : Json(id.hex()); }

Json to_json(std::span<const Segment> segments) {
  Json result = Json::array();
  for (const Segment& segment : segments) {
    result.push_back({{"from", segment.from}, {"to", segment.to}, {"arm", segment.arm}, {"config", segment.config}});
  }
  return result;
}

Json to_json(std::span<const Crossover> crossovers) {
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

Json to_json(const std::optional<HeldOut>& held_out) {
  if (!held_out) return nullptr;
  return {{"mean_regret", held_out->mean_regret}, {"max_regret", held_out->max_regret}, {"points", held_out->points}};
}

Json to_json(const std::optional<Rows>& rows) { return rows ? Json(*rows) : Json(nullptr); }

Json to_json(const std::optional<double>& number) { return number ? Json(*number) : Json(nullptr); }

Json to_json(std::span<const StaleReason> reasons) {
  Json result = Json::array();
  for (const StaleReason& reason : reasons) {
    result.push_back({{"field", reason.field}, {"old", reason.old_value}, {"new", reason.new_value}});
  }
  return result;
}

Json default_ranges(std::span<const DefaultArm> defaults, std::string_view arm) {
  Json result = Json::array();
  Rows from = 1;
  for (const DefaultArm& each : defaults) {
    if (each.arm == arm) {
      result.push_back({{"from", from}, {"to", each.up_to == kMaxRows ? Json(nullptr) : Json(each.up_to)}});
    }
    if (each.up_to == kMaxRows) break;
    from = each.up_to + 1;
  }
  return result;
}

Json to_json(std::span<const DefaultArm> defaults) {
  Json result = Json::array();
  Rows from = 1;
  for (const DefaultArm& each : defaults) {
    const bool last = each.up_to == kMaxRows;
    result.push_back({{"from", from}, {"to", last ? Json(nullptr) : Json(each.up_to)}, {"arm", each.arm}});
    if (last) break;
    from = each.up_to + 1;
  }
  return result;
}

Json to_json(const ArmSet& set) {
  Json arms = Json::array();
  for (const ArmRecord& arm : set.arms) {
    arms.push_back({{"name", arm.id.name},
                    {"fingerprint", arm.id.fingerprint},
                    {"numerics", arm.numerics},
                    {"batch_invariant", arm.batch_invariant},
                    {"library", arm.library},
                    {"eligible", arm.eligible},
                    {"reason", arm.reason}});
  }
  return {{"arms", std::move(arms)}, {"defaults", to_json(std::span<const DefaultArm>(set.defaults))}};
}

}  // namespace crossover::program
