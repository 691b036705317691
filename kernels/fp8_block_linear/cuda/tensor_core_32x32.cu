#include "tensor_core.cuh"

namespace crossover::fp8_block_linear_detail {

const TensorCoreFunctions kTensorCore32x32{&TensorCoreLauncher<0, 32, 32>::shared_bytes,
                                           &TensorCoreLauncher<0, 32, 32>::configure,
                                           &TensorCoreLauncher<0, 32, 32>::launch};

}  // namespace crossover::fp8_block_linear_detail
