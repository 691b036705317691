#pragma once
// What crossover_explain() and crossover_tune() give, as JSON text. Field names are those of the program's --json.

#include <string>

#include "crossover/runtime.hpp"

namespace crossover::c {

// What `rows` rows are answered with under `resolution`, and why.
std::string explanation(const Device& device, const Problem& problem, const Regime& regime,
                        const Resolution& resolution, Rows rows);
std::string report(const Tuning& tuning);

}  // namespace crossover::c
