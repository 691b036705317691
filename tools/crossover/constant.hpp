#pragma once
// What an engine's constant ("this arm from M = 512 on") costs against measured times.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "crossover/dispatch/decide.hpp"
#include "document.hpp"

namespace crossover::program {

struct ConstantAt {
  Rows m = 0;
  std::string best, picked;  // arms; picked: what the constant leads to, empty if that was not timed
  double best_ns = 0, picked_ns = 0;
  double cost() const { return picked_ns / best_ns; }  // 1: nothing lost
};

// At every measured row count: `arm` from `from` rows on, below it the fastest of the others that the policy allows, as
// if the engine had chosen well there. The best is the fastest of both, so that a cost is never below 1. `runs` are
// loaded; row counts without an allowed arm are left out.
std::vector<ConstantAt> constant_costs(std::span<const Run> runs, const Policy& policy, std::string_view arm,
                                       Rows from);

// The row with the largest cost; null where nothing the constant picks was timed.
const ConstantAt* worst(std::span<const ConstantAt> costs);

// A line for each row count.
Table constant_table(std::span<const ConstantAt> costs);

}  // namespace crossover::program
