// gemv_warp: up to 16 rows of X, each weight read once.
//
// One persistent block per multiprocessor owns neighbouring rows of W, dealt in groups of 8, and all of K: its warps
// take every `warps`-th 128-K block each and add up at the end of a tile of rows. The weights are the 16-row operand of
// the tensor core instruction, eight rows of X the 8-column one. The order of K inside a 128-K block is free as long as
// both operands agree, so a lane (g = lane / 4, t = lane % 4) takes what it can load at once: of rows g and g + 8 of W
// the bytes [64 h + 16 t, + 16), h = 0, 1, which are its operand of four steps of 16 K each, and of row g of X the same
// 16 columns.
//
// Weights pass through a ring in shared memory of four slots a warp, 16 rows x 128 K each. A lane copies into its own
// bytes and reads only those, so the main loop has no barrier. X goes straight to registers, one K block ahead, and is
// asked for before the weights, behind which it would have to queue.

#include <algorithm>

#include "device.cuh"

namespace crossover::fp8_block_linear_detail {
namespace {

constexpr int kSlots = 4;
constexpr int kMaxWarps = 12;
constexpr int kSlotVectors = 4 * 32;  // of 16 bytes: (row g | g + 8) x (h = 0 | 1) x lane

template <typename T, int kMTiles, int kTokenTiles, bool kFast>
__global__ void __launch_bounds__(kMaxWarps * 32, 1) gemv_kernel(const LinearCall p, const int tile_groups) {
  extern __shared__ uint4 shared[];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x) / 32;
  const int g = lane / 4, t = lane % 4;
  uint4* const ring = shared + warp * (kSlots * kSlotVectors) + lane;
  float4* const sums = reinterpret_cast<float4*>(shared + warps * (kSlots * kSlotVectors));
  constexpr int kTileSums = kMTiles * kTokenTiles * 32;  // float4s that a warp contributes

  const std::int64_t groups = (p.n + 7) / 8;
  const std::int64_t first_group = groups * blockIdx.x / gridDim.x;
  const std::int64_t end_group = groups * (blockIdx.x + std::int64_t{1}) / gridDim.x;
  const std::int64_t tiles = (end_group - first_group + tile_groups - 1) / tile_groups;
  const std::int64_t scale_rows = (p.n + 127) / 128;

  std::uint32_t x[kTokenTiles][2][8], x_next[kTokenTiles][2][8];
  float scale0 = 0, scale1 = 0, scale0_next = 0, scale1_next = 0;

  // This lane's rows of X, at its columns of block 0.
  const T* x_rows[kTokenTiles];
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
    x_rows[n] = static_cast<const T*>(p.x) + min(std::int64_t{n * 8 + g}, p.m - 1) * p.x_stride + t * 16;
  }
  auto load_x = [&](int block, std::uint32_t(&to)[kTokenTiles][2][8]) {
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const T* const source = x_rows[n] + std::int64_t{block} * 128;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const bool token = n * 8 + g < p.m;
        const std::int64_t column = std::int64_t{block} * 128 + h * 64 + t * 16;
        if (kFast || p.x_granule == 16) {
          uint4 a = make_uint4(0, 0, 0, 0), b = a;
          if (token && column < p.k) {
            a = load16_in_order(source + h * 64);
            if (kFast || column + 8 < p.k) b = load16_in_order(source + h * 64 + 8);
          }
          const std::uint32_t words[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
          for (int i = 0; i < 8; ++i) to[n][h][i] = words[i];
        } else {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            std::uint32_t word = 0;
#pragma unroll
            for (int j = 0; j < 2; ++j) {
              if (token && column + 2 * i + j < p.k) {
                const auto* const bits = reinterpret_cast<const std::uint16_t*>(source + h * 64 + 2 * i + j);
                word |= static_cast<std::uint32_t>(__ldg(bits)) << (16 * j);
              }
            }
            to[n][h][i] = word;
          }
        }
      }
    }
  };
  // A tile has at most 64 rows, so it meets at most two rows of scales.
  auto load_scales = [&](std::int64_t tile, int block, float& s0, float& s1) {
    const std::int64_t row = (first_group + tile * tile_groups) / 16;
    const float* const source = p.scales + row * p.k_blocks + block;
    s0 = __ldg(source);
    s1 = row + 1 < scale_rows ? __ldg(source + p.k_blocks) : 0.0f;
  };

  // The next slot to be filled, in the order in which slots are used. kSlots is a multiple of kMTiles, so the slot that
  // becomes free at an m-tile is filled with the same m-tile of a later block.
  static_assert(kSlots % kMTiles == 0);
  std::int64_t ahead_tile = 0;
  int ahead_block = warp;
  const std::uint8_t* ahead = nullptr;  // this lane's bytes: row g of the m-tile to come, h = 0
  unsigned ahead_rows = 0;              // bit i: row g of the tile's 8-row group i is there
  const std::int64_t rows8 = 8 * p.k;
  auto begin_tile = [&] {
    const std::int64_t group = first_group + ahead_tile * tile_groups;
    const std::int64_t limit = min(end_group, group + tile_groups);
    ahead = p.w + (group * 8 + g) * p.k + std::int64_t{ahead_block} * 128 + 16 * t;
    ahead_rows = 0;
#pragma unroll
    for (int i = 0; i < 2 * kMTiles; ++i) {
      if (group + i < limit && (group + i) * 8 + g < p.n) ahead_rows |= 1u << i;
    }
  };
  auto fill = [&](int m_tile, uint4* slot) {
    if (ahead_tile < tiles) {
      const std::int64_t column = std::int64_t{ahead_block} * 128 + 16 * t;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((ahead_rows >> (2 * m_tile + i / 2) & 1u) == 0) continue;
        const std::uint8_t* const source = ahead + (i / 2) * rows8 + 64 * (i % 2);
        if constexpr (kFast) {
          copy16_async(slot + i * 32, source, column + 64 * (i % 2) < p.k ? 16 : 0);
        } else {
          const std::int64_t first = column + 64 * (i % 2);
          stage16<false>(slot + i * 32, source - first, first, p.k, true, p.w_granule);
        }
      }
      ahead += 2 * rows8;
      if (m_tile == kMTiles - 1) {
        ahead += warps * 128 - kMTiles * 2 * rows8;
        ahead_block += warps;
        if (ahead_block >= p.k_blocks) {
          ahead_block = warp;
          ++ahead_tile;
          begin_tile();
        }
      }
    }
    commit_copies();
  };

  if (warp >= p.k_blocks) ahead_tile = tiles;  // nothing for this warp
  begin_tile();
  if (tiles > 0 && warp < p.k_blocks) {
    load_x(warp, x_next);
    load_scales(0, warp, scale0_next, scale1_next);
  }
#pragma unroll
  for (int slot = 0; slot < kSlots; ++slot) fill(slot % kMTiles, ring + slot * kSlotVectors);

  int slot = 0;
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    const std::int64_t tile_group = first_group + tile * tile_groups;
    float sum[kMTiles][kTokenTiles][4] = {};
    for (int block = warp; block < p.k_blocks; block += warps) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 16; i += 2) {
          const std::uint32_t first = x_next[n][i / 8][i % 8], second = x_next[n][i / 8][i % 8 + 1];
          // Decoded weights come in this order.
          constexpr bool kPermute = kFast && Format<T>::kPermutes;
          x[n][i / 8][i % 8] = kPermute ? __byte_perm(first, second, 0x5410) : first;
          x[n][i / 8][i % 8 + 1] = kPermute ? __byte_perm(first, second, 0x7632) : second;
        }
      }
      scale0 = scale0_next;
      scale1 = scale1_next;
      {
        const bool same_tile = block + warps < p.k_blocks;
        if (same_tile || tile + 1 < tiles) {
          const int next = same_tile ? block + warps : warp;
          load_x(next, x_next);
          load_scales(same_tile ? tile : tile + 1, next, scale0_next, scale1_next);
        }
      }
#pragma unroll
      for (int m = 0; m < kMTiles; ++m) {
        wait_copies<kSlots - 1>();
        uint4 w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) w[i] = ring[slot * kSlotVectors + i * 32];
        float part[2][kTokenTiles][4] = {};  // of each h: shorter chains of products that wait for each other
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const std::uint32_t low[4] = {w[h].x, w[h].y, w[h].z, w[h].w};
          const std::uint32_t high[4] = {w[2 + h].x, w[2 + h].y, w[2 + h].z, w[2 + h].w};
#pragma unroll
          for (int step = 0; step < 4; ++step) {
            std::uint32_t a[4];
            Format<T>::template decode<kFast>(low[step], a[0], a[2]);
            Format<T>::template decode<kFast>(high[step], a[1], a[3]);
#pragma unroll
            for (int n = 0; n < kTokenTiles; ++n) multiply<T>(part[h][n], a, x[n][h][2 * step], x[n][h][2 * step + 1]);
          }
          // The slot is in registers: all of it was asked for before the first product.
          if (h == 0) fill(m, ring + slot * kSlotVectors);
        }
        slot = (slot + 1) % kSlots;
        const std::int64_t first_scale_row = tile_group / 16;
        const float scale_low = (tile_group + 2 * m) / 16 == first_scale_row ? scale0 : scale1;
        const float scale_high = (tile_group + 2 * m + 1) / 16 == first_scale_row ? scale0 : scale1;
#pragma unroll
        for (int n = 0; n < kTokenTiles; ++n) {
          sum[m][n][0] = fmaf(scale_low, part[0][n][0] + part[1][n][0], sum[m][n][0]);
          sum[m][n][1] = fmaf(scale_low, part[0][n][1] + part[1][n][1], sum[m][n][1]);
          sum[m][n][2] = fmaf(scale_high, part[0][n][2] + part[1][n][2], sum[m][n][2]);
          sum[m][n][3] = fmaf(scale_high, part[0][n][3] + part[1][n][3], sum[m][n][3]);
        }
      }
    }
    // Two buffers in turn: one barrier a tile. Whoever writes to a buffer again has passed the barrier of the tile in
    // between, which every reader of it reaches only after reading.
    float4* const buffer = sums + (tile % 2) * warps * kTileSums;
#pragma unroll
    for (int m = 0; m < kMTiles; ++m) {
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        buffer[warp * kTileSums + (m * kTokenTiles + n) * 32 + lane] =
            make_float4(sum[m][n][0], sum[m][n][1], sum[m][n][2], sum[m][n][3]);
      }
    }
    __syncthreads();
    const std::int64_t group_limit = min(end_group, tile_group + tile_groups);
    for (int item = static_cast<int>(threadIdx.x); item < kTileSums; item += static_cast<int>(blockDim.x)) {
      float4 total = buffer[item];
      for (int other = 1; other < warps; ++other) {
        const float4 more = buffer[other * kTileSums + item];
        total.x += more.x;
        total.y += more.y;
        total.z += more.z;
        total.w += more.w;
      }
      const int m = item / 32 / kTokenTiles, n = item / 32 % kTokenTiles;
      const int item_g = item % 32 / 4, item_t = item % 4;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int64_t group = tile_group + 2 * m + half, row = group * 8 + item_g;
        if (group >= group_limit || row >= p.n) continue;
        const float bias = bias_at(p, row, T());
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int token = n * 8 + item_t * 2 + j;
          const float value = half == 0 ? (j == 0 ? total.x : total.y) : (j == 0 ? total.z : total.w);
          if (token < p.m) static_cast<T*>(p.y)[token * p.y_stride + row] = Format<T>::from_float(value + bias);
        }
      }
    }
  }
}

using Kernel = void (*)(LinearCall, int);

template <typename T, bool kFast>
Kernel kernel_for(int m_tiles, int token_tiles) {
  if constexpr (kFast) {
    if (m_tiles == 1) return token_tiles == 1 ? gemv_kernel<T, 1, 1, true> : gemv_kernel<T, 1, 2, true>;
    if (m_tiles == 4) return token_tiles == 1 ? gemv_kernel<T, 4, 1, true> : gemv_kernel<T, 4, 2, true>;
  }
  return token_tiles == 1 ? gemv_kernel<T, 2, 1, kFast> : gemv_kernel<T, 2, 2, kFast>;
}

Kernel kernel_for(bool bf16, bool fast, const GemvPlan& plan, int token_tiles) {
  if (bf16) {
    return fast ? kernel_for<Bf16, true>(plan.m_tiles, token_tiles)
                : kernel_for<Bf16, false>(plan.m_tiles, token_tiles);
  }
  return fast ? kernel_for<F16, true>(plan.m_tiles, token_tiles) : kernel_for<F16, false>(plan.m_tiles, token_tiles);
}

}  // namespace

std::size_t gemv_shared_bytes(const GemvPlan& plan, int token_tiles) {
  const std::size_t warps = static_cast<std::size_t>(plan.warps);
  return warps * kSlots * kSlotVectors * 16 +
         2 * warps * static_cast<std::size_t>(plan.m_tiles * token_tiles) * 32 * sizeof(float4);
}

cudaError_t gemv_configure(bool bf16, bool fast, const GemvPlan& plan) {
  for (int token_tiles = 1; token_tiles <= 2; ++token_tiles) {
    const cudaError_t error =
        cudaFuncSetAttribute(kernel_for(bf16, fast, plan, token_tiles), cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(gemv_shared_bytes(plan, token_tiles)));
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t gemv_launch(const LinearCall& call, bool bf16, bool fast, const GemvPlan& plan, cudaStream_t stream) {
  const int token_tiles = call.m <= 8 ? 1 : 2;
  kernel_for(bf16, fast, plan,
             token_tiles)<<<plan.blocks, plan.warps * 32, gemv_shared_bytes(plan, token_tiles), stream>>>(call,
                                                                                                          plan.groups);
  return cudaGetLastError();
}

}  // namespace crossover::fp8_block_linear_detail
