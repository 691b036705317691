#include <array>

#include "tensor_core_tiles.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

constexpr std::array<const TensorCoreFunctions*, kTensorCoreTileCount> kFunctions{
    &kTensorCore32x32,  &kTensorCore32x64,  &kTensorCore64x32,   &kTensorCore64x64,
    &kTensorCore64x128, &kTensorCore128x64, &kTensorCore128x128, &kTensorCore128x256};
const TensorCoreFunctions& functions(int tile) { return *kFunctions[static_cast<std::size_t>(tile)]; }

}  // namespace

std::size_t tensor_core_shared_bytes(int tile, int stages) { return functions(tile).shared_bytes(stages); }
cudaError_t tensor_core_configure(int tile, bool bf16, bool fast, const TensorCorePlan& plan) {
  return functions(tile).configure(bf16, fast, plan);
}
cudaError_t tensor_core_launch(int tile, const LinearCall& call, bool bf16, bool fast, const TensorCorePlan& plan,
                               cudaStream_t stream) {
  return functions(tile).launch(call, bf16, fast, plan, stream);
}

}  // namespace crossover::fp8_block_linear_detail
