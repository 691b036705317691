#pragma once
// Test data of fp8_block_linear for any device, its f64 reference, and the comparison.

#include <memory>

#include "crossover/dispatch/operation.hpp"
#include "crossover/kernels/fp8_block_linear.hpp"

namespace crossover::fp8_block_linear_detail {

std::size_t workload_bytes(const Fp8BlockLinear& problem, Rows max_rows);

std::unique_ptr<Workload> make_workload(const Fp8BlockLinear& problem, const Regime& regime, Memory& memory,
                                        Rows max_rows, int copies, std::uint64_t seed);

}  // namespace crossover::fp8_block_linear_detail
