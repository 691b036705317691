#include <charconv>
#include <cstdlib>

#include "crossover/dispatch/error.hpp"
#include "crossover/dispatch/resolve.hpp"

namespace crossover {
namespace {

std::string known_arms(const ArmSet& set) {
  std::string list;
  for (const ArmRecord& arm : set.arms) list += (list.empty() ? "" : ", ") + arm.id.name;
  return list;
}

bool known(const ArmSet& set, const std::string& name_or_family) {
  for (const ArmRecord& arm : set.arms)
    if (names_arm(name_or_family, arm.id.name)) return true;
  return false;
}

void require_known(const ArmSet& set, const char* variable, const std::string& name) {
  if (!known(set, name))
    throw InvalidArgument(std::string(variable) + " names the arm '" + name +
                          "', which does not exist; valid: " + known_arms(set));
}

// Whether an arm that `a` names is also named by `b`.
bool overlap(const ArmSet& set, const std::string& a, const std::string& b) {
  for (const ArmRecord& arm : set.arms)
    if (names_arm(a, arm.id.name) && names_arm(b, arm.id.name)) return true;
  return false;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::optional<MissMode> miss_mode_from(std::string_view text) {
  for (const MissMode mode : {MissMode::tune, MissMode::record, MissMode::fallback, MissMode::error})
    if (to_string(mode) == text) return mode;
  return std::nullopt;
}

Overrides::Threshold threshold_from(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Overrides::Threshold threshold;
  if (colon != std::string::npos && colon > 0) {
    threshold.arm = text.substr(0, colon);
    const char* end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data() + colon + 1, end, threshold.rows);
    if (error == std::errc() && last == end && threshold.rows >= 1) return threshold;
  }
  throw InvalidArgument("CROSSOVER_THRESHOLD is '" + text +
                        "'; valid: ARM:ROWS with ROWS of at least 1, as in dequant_cublaslt:512");
}

}  // namespace

std::string_view to_string(MissMode mode) noexcept {
  switch (mode) {
    case MissMode::tune:
      return "tune";
    case MissMode::record:
      return "record";
    case MissMode::fallback:
      return "fallback";
    case MissMode::error:
      break;
  }
  return "error";
}

Overrides Overrides::from_environment(const Environ& get) {
  const auto read = [&](const char* name) -> std::optional<std::string> {
    std::optional<std::string> value;
    if (get) {
      value = get(name);
    } else if (const char* text = secure_getenv(name); text != nullptr) {
      value = text;
    }
    return value && !value->empty() ? value : std::nullopt;  // set to nothing is not set
  };
  Overrides overrides;
  if (const auto text = read("CROSSOVER_ON_MISS")) {
    overrides.on_miss = miss_mode_from(*text);
    if (!overrides.on_miss)
      throw InvalidArgument("CROSSOVER_ON_MISS is '" + *text + "'; valid: tune, record, fallback, error");
  }
  if (const auto text = read("CROSSOVER_DISABLE_ARMS")) {
    overrides.disable_arms = split(*text);
    for (const std::string& name : overrides.disable_arms)
      if (name.empty())
        throw InvalidArgument("CROSSOVER_DISABLE_ARMS is '" + *text +
                              "'; valid: arms or families, separated by commas");
  }
  overrides.force_arm = read("CROSSOVER_FORCE_ARM");
  if (const auto text = read("CROSSOVER_THRESHOLD")) overrides.threshold = threshold_from(*text);
  if (const auto text = read("CROSSOVER_FROZEN")) {
    if (*text != "0" && *text != "1") throw InvalidArgument("CROSSOVER_FROZEN is '" + *text + "'; valid: 0, 1");
    overrides.frozen = *text == "1";
  }
  return overrides;
}

void Overrides::check(const ArmSet& set) const {
  for (const std::string& name : disable_arms) require_known(set, "CROSSOVER_DISABLE_ARMS", name);
  if (force_arm) require_known(set, "CROSSOVER_FORCE_ARM", *force_arm);
  if (threshold) require_known(set, "CROSSOVER_THRESHOLD", threshold->arm);
  if (force_arm && threshold)
    throw InvalidArgument("CROSSOVER_FORCE_ARM and CROSSOVER_THRESHOLD contradict each other; set one of them");
  for (const std::string& name : disable_arms) {
    if (force_arm && overlap(set, *force_arm, name))
      throw InvalidArgument("CROSSOVER_FORCE_ARM and CROSSOVER_DISABLE_ARMS both name " + *force_arm +
                            "; valid is only one of the two");
    if (threshold && overlap(set, threshold->arm, name))
      throw InvalidArgument("CROSSOVER_THRESHOLD and CROSSOVER_DISABLE_ARMS both name " + threshold->arm +
                            "; valid is only one of the two");
  }
}

}  // namespace crossover
