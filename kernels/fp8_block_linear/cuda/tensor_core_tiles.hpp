#pragma once
// The functions of each tile shape of tensor_core, each from a translation unit of its own.

#include "launch.hpp"

namespace crossover::fp8_block_linear_detail {

struct TensorCoreFunctions {
  std::size_t (*shared_bytes)(int stages);
  cudaError_t (*configure)(bool bf16, bool fast, const TensorCorePlan& plan);
  cudaError_t (*launch)(const LinearCall& call, bool bf16, bool fast, const TensorCorePlan& plan, cudaStream_t stream);
};
extern const TensorCoreFunctions kTensorCore32x32, kTensorCore32x64, kTensorCore64x32, kTensorCore64x64,
    kTensorCore64x128, kTensorCore128x64, kTensorCore128x128, kTensorCore128x256;

}  // namespace crossover::fp8_block_linear_detail
