#include "tensor_core.cuh"

namespace crossover::fp8_block_linear_detail {

const TensorCoreFunctions kTensorCore128x256{&TensorCoreLauncher<7, 128, 32>::shared_bytes,
                                             &TensorCoreLauncher<7, 128, 32>::configure,
                                             &TensorCoreLauncher<7, 128, 32>::launch};

}  // namespace crossover::fp8_block_linear_detail
