#include "tensor_core.cuh"

namespace crossover::fp8_block_linear_detail {

const TensorCoreFunctions kTensorCore64x32{&TensorCoreLauncher<2, 64, 16>::shared_bytes,
                                           &TensorCoreLauncher<2, 64, 16>::configure,
                                           &TensorCoreLauncher<2, 64, 16>::launch};

}  // namespace crossover::fp8_block_linear_detail
