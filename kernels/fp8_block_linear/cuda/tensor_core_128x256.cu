#include "tensor_core.cuh"

namespace crossover::fp8_block_linear_detail {

const TensorCoreFunctions kTensorCore128x256{&TensorCoreLauncher<7, 64, 64>::shared_bytes,
                                           &TensorCoreLauncher<7, 64, 64>::configure,
                                           &TensorCoreLauncher<7, 64, 64>::launch};

}  // namespace crossover::fp8_block_linear_detail
