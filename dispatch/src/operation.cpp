#include "crossover/dispatch/operation.hpp"

namespace crossover {

std::string_view family(std::string_view arm_name) noexcept { return arm_name.substr(0, arm_name.find('/')); }

bool names_arm(std::string_view name_or_family, std::string_view arm_name) noexcept {
  return name_or_family == arm_name || name_or_family == family(arm_name);
}

const Arm* Operation::find(std::string_view arm_name) const noexcept {
  for (const Arm* arm : arms())
    if (arm->id().name == arm_name) return arm;
  return nullptr;
}

const std::string& default_arm(std::span<const DefaultArm> defaults, Rows rows) {
  static const std::string kNone;
  for (const DefaultArm& entry : defaults)
    if (rows <= entry.up_to) return entry.arm;
  return defaults.empty() ? kNone : defaults.back().arm;
}

}  // namespace crossover
