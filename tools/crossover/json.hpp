#pragma once
// The program's JSON: fields are added, never renamed.

#include <nlohmann/json.hpp>
#include <span>

#include "crossover/dispatch/decide.hpp"
#include "crossover/dispatch/evidence.hpp"
#include "crossover/dispatch/resolve.hpp"

namespace crossover::program {

using Json = nlohmann::ordered_json;

Json to_json(const Problem& problem);
Json to_json(const Device& device);
Json to_json(const Regime& regime);
Json to_json(const Policy& policy);
Json to_json(const Id& id);  // null if empty
Json to_json(std::span<const Segment> segments);
Json to_json(std::span<const Crossover> crossovers);
Json to_json(const std::optional<HeldOut>& held_out);
Json to_json(const std::optional<Rows>& rows);
Json to_json(const std::optional<double>& number);
Json to_json(std::span<const StaleReason> reasons);
Json to_json(std::span<const DefaultArm> defaults);
Json to_json(const ArmSet& set);
Json default_ranges(std::span<const DefaultArm> defaults, std::string_view arm);  // [{from, to}], to null: without end

}  // namespace crossover::program
