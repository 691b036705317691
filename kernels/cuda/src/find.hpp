#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace crossover::cuda {

// Index of the first of `count` 16-bit elements on the current device whose bits under `mask` are at least `least`;
// `count` if there is none. Waits for `stream`. Throws Error.
std::size_t find16(const void* data, std::size_t count, std::uint16_t mask, std::uint16_t least, cudaStream_t stream);

}  // namespace crossover::cuda
