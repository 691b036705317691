#include "tensor_core.cuh"

namespace crossover::fp8_block_linear_detail {

const TensorCoreFunctions kTensorCore128x128{&TensorCoreLauncher<6, 64, 32>::shared_bytes,
                                             &TensorCoreLauncher<6, 64, 32>::configure,
                                             &TensorCoreLauncher<6, 64, 32>::launch};

}  // namespace crossover::fp8_block_linear_detail
