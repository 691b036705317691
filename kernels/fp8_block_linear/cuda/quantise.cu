// Activations to e4m3, each group of 128 columns of a row by its own scale. 16 lanes a group, 8 columns each: two
// groups a warp.

#include <cuda_fp8.h>

#include <algorithm>

#include "device.cuh"

namespace crossover::fp8_block_linear_detail {
namespace {

constexpr int kThreads = 256;
constexpr int kGroupLanes = 16;
constexpr float kLargestCode = 448.0f;

template <typename T>
__global__ void __launch_bounds__(kThreads) quantise_kernel(const QuantiseCall p) {
  const int lane = static_cast<int>(threadIdx.x) % kGroupLanes;
  const std::int64_t count = p.m_padded * p.k_blocks;
  // All lanes of a warp go round equally often: the shuffles need them.
  const std::int64_t stride = std::int64_t{gridDim.x} * (kThreads / kGroupLanes);
  for (std::int64_t first = std::int64_t{blockIdx.x} * (kThreads / kGroupLanes); first < count; first += stride) {
    const std::int64_t item = first + threadIdx.x / kGroupLanes;
    const std::int64_t row = item / p.k_blocks, block = item % p.k_blocks;
    const std::int64_t column = block * 128 + lane * 8;
    const bool inside = item < count && row < p.m && column < p.k;
    float values[8] = {};
    if (inside) {
      const T* const source = static_cast<const T*>(p.x) + row * p.x_stride + column;
      if (p.x_granule == 16) {
        const uint4 raw = __ldg(reinterpret_cast<const uint4*>(source));
        const T* const elements = reinterpret_cast<const T*>(&raw);
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = Format<T>::to_float(elements[i]);
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) values[i] = Format<T>::to_float(source[i]);
      }
    }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(values[i]));
#pragma unroll
    for (int distance = kGroupLanes / 2; distance >= 1; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, distance));
    }
    // A group of zeros keeps scale 1. The scale stays a normal number, so that dividing by it cannot overflow.
    const float scale = largest > 0 ? fmaxf(largest / kLargestCode, 1.17549435e-38f) : 1.0f;
    std::uint32_t words[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      words[i] = 0;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const std::uint32_t code = __nv_cvt_float_to_fp8(values[4 * i + j] / scale, __NV_SATFINITE, __NV_E4M3);
        words[i] |= code << (8 * j);
      }
    }
    if (item < count && column < p.k) {  // k % 16 = 0
      *reinterpret_cast<uint2*>(p.codes + row * p.k + column) = make_uint2(words[0], words[1]);
    }
    if (item < count && lane == 0) p.scales[block * p.m_padded + row] = scale;
  }
}

}  // namespace

cudaError_t quantise_launch(const QuantiseCall& call, bool bf16, cudaStream_t stream) {
  constexpr std::int64_t kMostBlocks = 132 * 64;
  const std::int64_t count = call.m_padded * call.k_blocks;
  const auto blocks = static_cast<unsigned>(
      std::min<std::int64_t>((count + kThreads / kGroupLanes - 1) / (kThreads / kGroupLanes), kMostBlocks));
  if (bf16) {
    quantise_kernel<Bf16><<<blocks, kThreads, 0, stream>>>(call);
  } else {
    quantise_kernel<F16><<<blocks, kThreads, 0, stream>>>(call);
  }
  return cudaGetLastError();
}

}  // namespace crossover::fp8_block_linear_detail
