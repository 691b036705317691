// The scaled weight as bf16 or f16: for each element one read, one product in f32, one rounding. A thread takes 16
// neighbouring codes of a row, 16 bytes in and two stores of 16 bytes out; they lie in one 128-K block, so one scale
// serves them.

#include <algorithm>

#include "device.cuh"

namespace crossover::fp8_block_linear_detail {
namespace {

constexpr int kThreads = 256;
constexpr int kMostBlocks = 132 * 64;  // plenty for any device; the rest is a loop

// Codes [column, column + 16) of a row, zero from k on.
__device__ __forceinline__ uint4 load_codes(const std::uint8_t* row, std::int64_t column, std::int64_t k, int granule) {
  if (granule == 16) return __ldg(reinterpret_cast<const uint4*>(row + column));
  std::uint32_t words[4] = {};
  if (granule >= 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (column + 4 * i < k) words[i] = __ldg(reinterpret_cast<const std::uint32_t*>(row + column) + i);
    }
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (column + i < k) words[i / 4] |= static_cast<std::uint32_t>(__ldg(row + column + i)) << (i % 4 * 8);
    }
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Rows go over blockIdx.y, runs of 16 columns over x.
template <typename T>
__global__ void __launch_bounds__(kThreads) dequantise_kernel(const DequantiseCall p) {
  const std::int64_t vectors = p.out_stride / 8;  // of 16 bytes a row of the output; the last run may be half a one
  const std::int64_t runs = (vectors + 1) / 2;
  for (std::int64_t row = blockIdx.y; row < p.n; row += gridDim.y) {
    const std::uint8_t* const codes = p.w + row * p.k;
    const float* const scales = p.scales + (p.n_first + row) / 128 * p.k_blocks;
    uint4* const out = reinterpret_cast<uint4*>(static_cast<T*>(p.out) + row * p.out_stride);
    for (std::int64_t run = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; run < runs;
         run += std::int64_t{gridDim.x} * kThreads) {
      const std::int64_t column = run * 16;
      const uint4 raw = column < p.k ? load_codes(codes, column, p.k, p.w_granule) : make_uint4(0, 0, 0, 0);
      const float scale = column < p.k ? __ldg(scales + column / 128) : 0.0f;
      const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
      std::uint32_t pairs[8];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        std::uint32_t pair0, pair1;
        decode_f16(words[i], pair0, pair1);
        const float2 a = f16_pair_to_float(pair0), b = f16_pair_to_float(pair1);
        pairs[2 * i] = Format<T>::pair(a.x * scale, a.y * scale);
        pairs[2 * i + 1] = Format<T>::pair(b.x * scale, b.y * scale);
      }
      if (p.w_granule < 16) {  // beyond k even an infinite scale gives zero
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (column + 2 * i >= p.k) pairs[i] = 0;
          if (column + 2 * i + 1 >= p.k) pairs[i] &= 0xFFFFu;
        }
      }
      out[2 * run] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      if (2 * run + 1 < vectors) out[2 * run + 1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
    }
  }
}

__global__ void __launch_bounds__(kThreads) scaled_range_kernel(const DequantiseCall p, std::uint32_t* range) {
  std::uint32_t smallest = 0x7F800000u, largest = 0;  // magnitudes of floats compare as integers
  for (std::int64_t row = blockIdx.y; row < p.n; row += gridDim.y) {
    const std::uint8_t* const codes = p.w + row * p.k;
    const float* const scales = p.scales + (p.n_first + row) / 128 * p.k_blocks;
    for (std::int64_t column = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * 16; column < p.k;
         column += std::int64_t{gridDim.x} * kThreads * 16) {
      const uint4 raw = load_codes(codes, column, p.k, p.w_granule);
      const float scale = __ldg(scales + column / 128);
      const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        std::uint32_t pair[2];
        decode_f16(words[i], pair[0], pair[1]);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float2 two = f16_pair_to_float(pair[j / 2]);
          const std::uint32_t bits = __float_as_uint(fabsf((j % 2 == 0 ? two.x : two.y) * scale));
          if (bits != 0 && bits < 0x7F800000u) {  // neither zero nor infinite nor NaN: those survive as they are
            smallest = min(smallest, bits);
            largest = max(largest, bits);
          }
        }
      }
    }
  }
  smallest = __reduce_min_sync(0xFFFFFFFFu, smallest);
  largest = __reduce_max_sync(0xFFFFFFFFu, largest);
  if (threadIdx.x % 32 == 0) {
    atomicMin(range, smallest);
    atomicMax(range + 1, largest);
  }
}

// The 16-byte vectors of `w` that lie whole in it, and the bytes before and after them.
__global__ void __launch_bounds__(kThreads)
    count_nan_codes_kernel(const std::uint8_t* w, std::int64_t bytes, unsigned long long* count) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x,
                     stride = std::int64_t{gridDim.x} * kThreads;
  const std::int64_t head = min(bytes, static_cast<std::int64_t>((16 - reinterpret_cast<std::uintptr_t>(w) % 16) % 16));
  const std::int64_t vectors = (bytes - head) / 16;
  unsigned long long found = 0;
  for (std::int64_t i = first; i < vectors; i += stride) {
    const uint4 raw = __ldg(reinterpret_cast<const uint4*>(w + head) + i);
    for (const std::uint32_t word : {raw.x, raw.y, raw.z, raw.w}) {
      found += static_cast<unsigned>(__popc(((word & 0x7F7F7F7Fu) + 0x01010101u) & 0x80808080u));
    }
  }
  for (std::int64_t i = first; i < bytes - vectors * 16; i += stride) {
    found += (__ldg(w + (i < head ? i : i + vectors * 16)) & 0x7Fu) == 0x7Fu ? 1u : 0u;
  }
  if (found != 0) atomicAdd(count, found);
}

template <typename T>
__global__ void __launch_bounds__(kThreads) narrow_kernel(const float* in, T* out, std::int64_t count) {
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    out[i] = Format<T>::from_float(in[i]);
  }
}

dim3 grid_for(std::int64_t rows, std::int64_t runs) {
  const std::int64_t x = std::min<std::int64_t>((runs + kThreads - 1) / kThreads, kMostBlocks);
  const std::int64_t y = std::min<std::int64_t>(rows, 65535);  // the most of any CUDA device
  return dim3(static_cast<unsigned>(x), static_cast<unsigned>(y));
}

}  // namespace

cudaError_t dequantise_launch(const DequantiseCall& call, bool bf16, cudaStream_t stream) {
  const dim3 grid = grid_for(call.n, (call.out_stride + 15) / 16);
  if (bf16) {
    dequantise_kernel<Bf16><<<grid, kThreads, 0, stream>>>(call);
  } else {
    dequantise_kernel<F16><<<grid, kThreads, 0, stream>>>(call);
  }
  return cudaGetLastError();
}

cudaError_t scaled_range_launch(const DequantiseCall& call, std::uint32_t* range, cudaStream_t stream) {
  scaled_range_kernel<<<grid_for(call.n, (call.k + 15) / 16), kThreads, 0, stream>>>(call, range);
  return cudaGetLastError();
}

cudaError_t count_nan_codes_launch(const std::uint8_t* w, std::int64_t bytes, unsigned long long* count,
                                   cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((bytes / 16 + kThreads) / kThreads, kMostBlocks));
  count_nan_codes_kernel<<<blocks, kThreads, 0, stream>>>(w, bytes, count);
  return cudaGetLastError();
}

cudaError_t narrow_launch(const float* in, void* out, std::int64_t count, bool bf16, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(std::min<std::int64_t>((count + kThreads - 1) / kThreads, kMostBlocks));
  if (bf16) {
    narrow_kernel<<<blocks, kThreads, 0, stream>>>(in, static_cast<Bf16*>(out), count);
  } else {
    narrow_kernel<<<blocks, kThreads, 0, stream>>>(in, static_cast<F16*>(out), count);
  }
  return cudaGetLastError();
}

}  // namespace crossover::fp8_block_linear_detail
