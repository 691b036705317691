#pragma once
// What all arms of fp8_block_linear share: operands as plain pointers, and their checks.

#include <cstdint>
#include <string_view>

#include "crossover/kernels/fp8_block_linear.hpp"

namespace crossover::fp8_block_linear_detail {

inline constexpr std::string_view kName = "fp8_block_linear";

constexpr std::int64_t element_bytes(Element element) {
  return element == Element::none ? 0 : element == Element::f32 ? 4 : 2;
}

struct LayerWeights {
  const std::uint8_t* w = nullptr;
  const float* scales = nullptr;
  const void* bias = nullptr;  // null exactly if the problem has none
};
// Throws InvalidArgument if the weights do not fit the problem. Does not look at the data.
LayerWeights layer_weights(const Fp8BlockLinear& problem, const Weights& weights);

// Whether a launch's arguments fit the problem. Looks at pointers and strides only.
Status check_launch(const Fp8BlockLinear& problem, const Arguments& arguments, Rows rows) noexcept;

// The label of a launch without workspace and cache.
Cost base_cost(const Fp8BlockLinear& problem, Rows rows);

}  // namespace crossover::fp8_block_linear_detail
