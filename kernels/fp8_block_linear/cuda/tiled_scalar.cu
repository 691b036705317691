// tiled_scalar_pad4 and tiled_scalar_pad1: a textbook tile kernel without tensor cores, one output a thread, in two
// versions that differ in the row stride of the shared tiles only. Control arms: they show what padding is worth, and
// what a kernel without tensor cores costs.

#include <algorithm>

#include "device.cuh"

namespace crossover::fp8_block_linear_detail {
namespace {

constexpr int kTile = 32;  // outputs a side, and K a step

template <typename T, int kPadding>
__global__ void __launch_bounds__(kTile* kTile) tiled_scalar_kernel(const LinearCall p) {
  __shared__ __align__(16) float x_tile[kTile][kTile + kPadding];
  __shared__ __align__(16) float w_tile[kTile][kTile + kPadding];
  const int tx = static_cast<int>(threadIdx.x), ty = static_cast<int>(threadIdx.y);
  const std::int64_t n = std::int64_t{blockIdx.x} * kTile + tx;
  const std::int64_t w_row = std::int64_t{blockIdx.x} * kTile + ty;
  const float* const scale_row = p.scales + std::int64_t{blockIdx.x} * kTile / 128 * p.k_blocks;
  for (std::int64_t m0 = std::int64_t{blockIdx.y} * kTile; m0 < p.m; m0 += std::int64_t{gridDim.y} * kTile) {
    const std::int64_t m = m0 + ty;
    float sum = 0, part = 0;
    for (std::int64_t k0 = 0; k0 < p.k; k0 += kTile) {
      const std::int64_t k = k0 + tx;
      x_tile[ty][tx] = m < p.m && k < p.k ? Format<T>::to_float(static_cast<const T*>(p.x)[m * p.x_stride + k]) : 0.0f;
      std::uint32_t pair0 = 0, pair1 = 0;
      if (w_row < p.n && k < p.k) decode_f16(p.w[w_row * p.k + k], pair0, pair1);
      w_tile[ty][tx] = f16_pair_to_float(pair0).x;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kTile; ++i) part = fmaf(x_tile[ty][i], w_tile[tx][i], part);
      __syncthreads();
      if ((k0 + kTile) % 128 == 0 || k0 + kTile >= p.k) {
        sum = fmaf(__ldg(scale_row + k0 / 128), part, sum);
        part = 0;
      }
    }
    if (m < p.m && n < p.n) {
      static_cast<T*>(p.y)[m * p.y_stride + n] = Format<T>::from_float(sum + bias_at(p, n, T()));
    }
  }
}

}  // namespace

cudaError_t tiled_scalar_launch(const LinearCall& call, bool bf16, int padding, cudaStream_t stream) {
  constexpr std::int64_t kMostBlocksY = 65535;  // of any CUDA device
  const dim3 grid(static_cast<unsigned>((call.n + kTile - 1) / kTile),
                  static_cast<unsigned>(std::min((call.m + kTile - 1) / kTile, kMostBlocksY)));
  const auto kernel = bf16 ? (padding == 4 ? tiled_scalar_kernel<Bf16, 4> : tiled_scalar_kernel<Bf16, 1>)
                           : (padding == 4 ? tiled_scalar_kernel<F16, 4> : tiled_scalar_kernel<F16, 1>);
  kernel<<<grid, dim3(kTile, kTile), 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace crossover::fp8_block_linear_detail
