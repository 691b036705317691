#pragma once
// What the kernels share: number formats, asynchronous copies, the tensor core instruction.
//
// Weights are decoded from e4m3 to f16 (exact for all 256 codes, NaN stays NaN), and for bf16 activations on to bf16
// through f32 (exact as well: three bits of mantissa, exponents of both formats suffice). Hopper converts 16 pairs a
// clock and multiprocessor, which is too slow for bf16; where the layer has no NaN code (weights never change, so that
// is looked at once), a code's bits are moved to bf16's places, which is its value times 2^-120, subnormals included,
// and multiplied by 2^120. Activations are never converted for the tensor cores.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "launch.hpp"

namespace crossover::fp8_block_linear_detail {

using Bf16 = __nv_bfloat16;
using F16 = __half;

// Two pairs of f16 from the four codes of a word, in order.
__device__ __forceinline__ void decode_f16(std::uint32_t word, std::uint32_t& pair0, std::uint32_t& pair1) {
#if __CUDA_ARCH__ >= 890
  asm("{\n .reg .b16 low, high;\n mov.b32 {low, high}, %2;\n cvt.rn.f16x2.e4m3x2 %0, low;\n"
      " cvt.rn.f16x2.e4m3x2 %1, high;\n}"
      : "=r"(pair0), "=r"(pair1)
      : "r"(word));
#else
  // A code's exponent and mantissa, moved to f16's place, are its value times 2^-8, subnormals included.
  const __half2 k256 = __float2half2_rn(256.0f);
  std::uint32_t pairs[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const std::uint32_t spread = __byte_perm(word, 0, i == 0 ? 0x1404 : 0x3424);  // a code in each half's high byte
    const std::uint32_t moved = (spread & 0x80008000u) | ((spread & 0x7F007F00u) >> 1);
    const __half2 value = __hmul2(*reinterpret_cast<const __half2*>(&moved), k256);
    const std::uint32_t nan = __vcmpeq2(spread & 0x7F007F00u, 0x7F007F00u);
    pairs[i] = *reinterpret_cast<const std::uint32_t*>(&value) | (nan & 0x7FFF7FFFu);
  }
  pair0 = pairs[0];
  pair1 = pairs[1];
#endif
}

__device__ __forceinline__ float2 f16_pair_to_float(std::uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// Four codes as two pairs: low = codes 0 and 2, high = codes 1 and 3, each times 2^-120.
__device__ __forceinline__ void move_bits_bf16(std::uint32_t word, std::uint32_t& low, std::uint32_t& high) {
  low = ((word << 4) & 0x07F007F0u) | ((word << 8) & 0x80008000u);
  high = ((word >> 4) & 0x07F007F0u) | (word & 0x80008000u);
}

__device__ __forceinline__ std::uint32_t multiply_bf16_pairs(std::uint32_t a, std::uint32_t b) {
  const __nv_bfloat162 product =
      __hmul2(*reinterpret_cast<const __nv_bfloat162*>(&a), *reinterpret_cast<const __nv_bfloat162*>(&b));
  return *reinterpret_cast<const std::uint32_t*>(&product);
}

// The factor by which a tensor core kernel multiplies a block's weights while it decodes them: a power of two, so that
// nothing is rounded, or what is left of a scale that has none: 0, an infinity, NaN. `rest` is what remains of the
// scale.
struct BlockFactor {
  float factor, rest;
};

template <typename T>
struct Format;

template <>
struct Format<F16> {
  // The order of the four elements is the codes' own, kFast or not.
  static constexpr bool kPermutes = false;
  template <bool kFast>
  static __device__ __forceinline__ void decode(std::uint32_t word, std::uint32_t& pair0, std::uint32_t& pair1) {
    decode_f16(word, pair0, pair1);
  }
  // Powers of two for which every code stays exact in f16. What is below 2^-100 cannot move an f16 output.
  static constexpr int kLowestExponent = -5, kHighestExponent = 7;
  static constexpr float kSmallestScale = 0x1p-100f;
  template <bool kFast>
  static __device__ __forceinline__ std::uint32_t factor_word(float factor) {
    return pair(factor, factor);
  }
  template <bool kFast>
  static __device__ __forceinline__ void decode_times(std::uint32_t word, std::uint32_t factor, std::uint32_t& pair0,
                                                      std::uint32_t& pair1) {
    decode_f16(word, pair0, pair1);
    const __half2 f = *reinterpret_cast<const __half2*>(&factor);
    const __half2 a = __hmul2(*reinterpret_cast<const __half2*>(&pair0), f);
    const __half2 b = __hmul2(*reinterpret_cast<const __half2*>(&pair1), f);
    pair0 = *reinterpret_cast<const std::uint32_t*>(&a);
    pair1 = *reinterpret_cast<const std::uint32_t*>(&b);
  }
  static __device__ __forceinline__ float to_float(F16 value) { return __half2float(value); }
  static __device__ __forceinline__ F16 from_float(float value) { return __float2half_rn(value); }
  static __device__ __forceinline__ std::uint32_t pair(float low, float high) {
    const __half2 value = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&value);
  }
};

template <>
struct Format<Bf16> {
  // decode<true> gives the elements in the order 0, 2, 1, 3.
  static constexpr bool kPermutes = true;
  template <bool kFast>
  static __device__ __forceinline__ void decode(std::uint32_t word, std::uint32_t& pair0, std::uint32_t& pair1) {
    if constexpr (kFast) {
      constexpr std::uint32_t kTwoTo120 = 0x7B807B80u;
      move_bits_bf16(word, pair0, pair1);
      pair0 = multiply_bf16_pairs(pair0, kTwoTo120);
      pair1 = multiply_bf16_pairs(pair1, kTwoTo120);
    } else {
      decode_f16(word, pair0, pair1);
      const float2 a = f16_pair_to_float(pair0), b = f16_pair_to_float(pair1);
      pair0 = pair(a.x, a.y);
      pair1 = pair(b.x, b.y);
    }
  }
  // 2^(7+120) is bf16's largest power of two; 2^-9 (the smallest code) · 2^-64 is far from its subnormals.
  static constexpr int kLowestExponent = -64, kHighestExponent = 7;
  static constexpr float kSmallestScale = 0.0f;
  template <bool kFast>
  static __device__ __forceinline__ std::uint32_t factor_word(float factor) {
    if constexpr (kFast) factor *= 0x1p120f;
    return pair(factor, factor);
  }
  // In the codes' own order, kFast or not.
  template <bool kFast>
  static __device__ __forceinline__ void decode_times(std::uint32_t word, std::uint32_t factor, std::uint32_t& pair0,
                                                      std::uint32_t& pair1) {
    if constexpr (kFast) {
      move_bits_bf16(__byte_perm(word, 0, 0x3120), pair0, pair1);
    } else {
      decode<false>(word, pair0, pair1);
    }
    pair0 = multiply_bf16_pairs(pair0, factor);
    pair1 = multiply_bf16_pairs(pair1, factor);
  }
  static __device__ __forceinline__ float to_float(Bf16 value) { return __bfloat162float(value); }
  static __device__ __forceinline__ Bf16 from_float(float value) { return __float2bfloat16_rn(value); }
  static __device__ __forceinline__ std::uint32_t pair(float low, float high) {
    const __nv_bfloat162 value = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&value);
  }
};

// `unit`: the rest of the block before; kept where the scale leaves none.
template <typename T>
__device__ __forceinline__ BlockFactor split_scale(float scale, float unit) {
  const std::uint32_t magnitude = __float_as_uint(scale) & 0x7FFFFFFFu;
  if (magnitude >= 0x7F800000u) return {scale, unit};
  if (magnitude == 0 || fabsf(scale) < Format<T>::kSmallestScale) return {0.0f, unit};
  const int exponent =
      min(max(static_cast<int>(magnitude >> 23) - 127, Format<T>::kLowestExponent), Format<T>::kHighestExponent);
  return {__uint_as_float(static_cast<std::uint32_t>(127 + exponent) << 23),
          scale * __uint_as_float(static_cast<std::uint32_t>(127 - exponent) << 23)};
}

// d += a · b, 16 x 8 x 16, row.col: a lane (g = lane / 4, t = lane % 4) holds a[g][2t…], a[g+8][2t…], a[g][2t+8…],
// a[g+8][2t+8…]; b[2t…][g], b[2t+8…][g]; d[g][2t], d[g][2t+1], d[g+8][2t], d[g+8][2t+1].
template <typename T>
__device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                         std::uint32_t b1);
template <>
__device__ __forceinline__ void multiply<Bf16>(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                               std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ __forceinline__ void multiply<F16>(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                              std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Transposes a matrix of 8 x 8 16-bit elements: a lane (g, t) gives [g][2t], [g][2t+1] and gets [2t][g],
// [2t+1][g].
__device__ __forceinline__ std::uint32_t transpose8x8(std::uint32_t pair) {
  std::uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(pair));
  return transposed;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// 16 bytes to shared memory, of which `bytes` (0 or 16) come from `source` and the rest is zero.
__device__ __forceinline__ void copy16_async(void* destination, const void* source, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(destination)), "l"(source),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void copy4_async(void* destination, const void* source, int bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(shared_address(destination)), "l"(source),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Not moved past other asm volatile statements: the order in which memory is asked for is part of a kernel's design.
__device__ __forceinline__ uint4 load16_in_order(const void* source) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(source));
  return v;
}

// 16 bytes of a row to shared memory: bytes [first, first + 16) of a row of `row_bytes`, of which every `granule`-th
// byte is aligned to `granule`. What lies beyond the row's end is zero. Any granule; 16 without a loop.
template <bool kFast>
__device__ __forceinline__ void stage16(void* destination, const unsigned char* row, std::int64_t first,
                                        std::int64_t row_bytes, bool row_valid, int granule) {
  if constexpr (kFast) {
    const bool valid = row_valid && first < row_bytes;
    copy16_async(destination, valid ? row + first : row, valid ? 16 : 0);
  } else {
    auto* const out = static_cast<unsigned char*>(destination);
    if (granule >= 16) {
      stage16<true>(destination, row, first, row_bytes, row_valid, granule);
    } else if (granule >= 4) {
#pragma unroll
      for (int i = 0; i < 16; i += 4) {
        const bool valid = row_valid && first + i < row_bytes;
        copy4_async(out + i, valid ? row + first + i : row, valid ? 4 : 0);
      }
    } else {
      std::uint32_t words[4] = {};
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        if (row_valid && first + i < row_bytes) {
          words[i / 4] |= static_cast<std::uint32_t>(__ldg(row + first + i)) << (i % 4 * 8);
        }
      }
      *reinterpret_cast<uint4*>(destination) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
}

__device__ __forceinline__ float bias_at(const LinearCall& call, std::int64_t n, Bf16) {
  if (call.bias_kind == BiasKind::none) return 0.0f;
  if (call.bias_kind == BiasKind::f32) return static_cast<const float*>(call.bias)[n];
  return __bfloat162float(static_cast<const Bf16*>(call.bias)[n]);
}
__device__ __forceinline__ float bias_at(const LinearCall& call, std::int64_t n, F16) {
  if (call.bias_kind == BiasKind::none) return 0.0f;
  if (call.bias_kind == BiasKind::f32) return static_cast<const float*>(call.bias)[n];
  return __half2float(static_cast<const F16*>(call.bias)[n]);
}

}  // namespace crossover::fp8_block_linear_detail
