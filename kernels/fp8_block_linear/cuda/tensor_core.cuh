#pragma once
// tensor_core: a tile of kTileM rows of X times kTileN rows of W a block, mma.sync, weights decoded in registers.
//
// A stage of the pipeline holds kGroups 128-K blocks of both operands; each of kGroups groups of warps multiplies its
// own block, so that small tiles, too, give a block enough warps and enough bytes in flight. The groups add up at the
// end of a tile. Blocks are persistent, and loading runs ahead across tiles.
//
// In shared memory (16-byte vectors; a row of X has 16 of them a block, a row of W has 8):
//
//   X: vector c of row r at r * 16 + (c ^ (r & 1))        W: vector c of row r at r * 8 + (c ^ ((r & 1) << 2))
//
// The weights are the 16-row operand of the instruction, eight rows of X the 8-column one: its registers are then two
// neighbours of what one load brought, and decoding writes the four of the other where they are needed; the other way
// round every product would need four moves. The order of K inside a 128-K block is free as long as both operands
// agree. A lane (g = lane / 4, t = lane % 4) takes the 16 columns [64 h + 16 t, + 16), h = 0, 1: one vector each of W's
// rows g and g + 8, the vectors 8 h + 2 t and 8 h + 2 t + 1 of X's row g; that is four steps of the instruction. Eight
// lanes are served at once: two neighbouring rows, of which the exclusive or puts one's vectors between the other's, so
// all eight lie in different banks.
//
// Block scales are applied without a second set of sums: a scale is a power of two, by which the weights are multiplied
// as they are decoded (exact), times a rest in [1, 2); the sums are kept in units of the current block's rest, that is,
// multiplied by the quotient of two rests between blocks, in f32, and by the last rest at the end. Scales without such
// a power (0, infinity, NaN) are factors of the weights and leave the unit alone. Nothing is rounded to 16 bits but Y.

#include "device.cuh"
#include "tensor_core_tiles.hpp"

namespace crossover::fp8_block_linear_detail {

template <int kTileM, int kTileN, int kWarpM, int kWarpN, int kGroups>
struct TensorCoreShape {
  static constexpr int kWarpsM = kTileM / kWarpM, kWarpsN = kTileN / kWarpN;
  static constexpr int kGroupWarps = kWarpsM * kWarpsN;
  static constexpr int kThreads = kGroupWarps * kGroups * 32;
  static constexpr int kBlockVectors = kTileM * 16 + kTileN * 8;  // of one 128-K block
  static constexpr int kStageVectors = kBlockVectors * kGroups;
  static constexpr int kSumVectors = kGroups > 1 ? kTileM* kTileN / 4 * (kGroups / 2) : 0;
  static constexpr std::size_t shared_bytes(int stages) {
    return std::size_t{16} * static_cast<std::size_t>(kStageVectors * stages + kSumVectors);
  }
};

// Where a tile lies. Tiles of eight neighbouring row ranges of X are taken together, so that blocks which run at the
// same time share both operands in L2.
struct TileOrder {
  std::int64_t tiles_m, tiles_n;
  __device__ std::int64_t count() const { return tiles_m * tiles_n; }
  __device__ void at(std::int64_t tile, std::int64_t& m, std::int64_t& n) const {
    constexpr std::int64_t kTogether = 8;
    const std::int64_t per_group = kTogether * tiles_n, group = tile / per_group;
    const std::int64_t first_m = group * kTogether, size = min(kTogether, tiles_m - first_m);
    const std::int64_t rest = tile - group * per_group;
    m = first_m + rest % size;
    n = rest / size;
  }
};

template <typename T, int kTileM, int kTileN, int kWarpM, int kWarpN, int kGroups, bool kFast>
__global__ void __launch_bounds__(TensorCoreShape<kTileM, kTileN, kWarpM, kWarpN, kGroups>::kThreads, 1)
    tensor_core_kernel(const LinearCall p, const int stages) {
  using Shape = TensorCoreShape<kTileM, kTileN, kWarpM, kWarpN, kGroups>;
  constexpr int kThreads = Shape::kThreads, kMmaM = kWarpM / 8, kMmaN = kWarpN / 16;
  static_assert(128 % kWarpN == 0, "a warp's columns must lie in one row of scales");
  static_assert((kGroups & (kGroups - 1)) == 0);
  extern __shared__ uint4 shared[];
  uint4* const sums = shared + stages * Shape::kStageVectors;

  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
  const int g = lane / 4, t = lane % 4;
  const int group = warp / Shape::kGroupWarps, warp_in_group = warp % Shape::kGroupWarps;
  const int warp_m = warp_in_group / Shape::kWarpsN * kWarpM, warp_n = warp_in_group % Shape::kWarpsN * kWarpN;

  const TileOrder order{(p.m + kTileM - 1) / kTileM, (p.n + kTileN - 1) / kTileN};
  const std::int64_t tile_count = order.count();
  const int steps = (p.k_blocks + kGroups - 1) / kGroups;  // of a tile

  // Loading, ahead of the products. A thread always loads the same vector of a row, of every kRowsX-th row of X and
  // every kRowsW-th row of W, so that little is left to compute for each copy.
  constexpr int kRowsX = kThreads / 16, kRowsW = kThreads / 8;
  constexpr int kPassesX = kTileM / kRowsX, kPassesW = kTileN / kRowsW;  // of a 128-K block
  static_assert(kTileM % kRowsX == 0 && kTileN % kRowsW == 0 && kRowsX % 2 == 0 && kRowsW % 2 == 0);
  const int row_x = thread / 16, vector_x = thread % 16, row_w = thread / 8, vector_w = thread % 8;
  const int to_x = row_x * 16 + (vector_x ^ (row_x & 1)), to_w = row_w * 8 + (vector_w ^ ((row_w & 1) << 2));
  const std::int64_t step_x = kRowsX * p.x_stride * 2, step_w = kRowsW * p.k;  // bytes
  std::int64_t load_tile = blockIdx.x;
  int load_step = 0, load_stage = 0;
  const unsigned char *from_x = nullptr, *from_w = nullptr;  // first row, at the vector of the step to come
  unsigned rows_x = 0, rows_w = 0;                           // bit i: the row of pass i is there
  auto begin_tile = [&] {
    std::int64_t tile_m = 0, tile_n = 0;
    order.at(load_tile, tile_m, tile_n);
    const std::int64_t m = tile_m * kTileM + row_x, n = tile_n * kTileN + row_w;
    from_x = reinterpret_cast<const unsigned char*>(static_cast<const T*>(p.x) + m * p.x_stride) + vector_x * 16;
    from_w = p.w + n * p.k + vector_w * 16;
    rows_x = rows_w = 0;
#pragma unroll
    for (int i = 0; i < kPassesX; ++i) rows_x |= m + i * kRowsX < p.m ? 1u << i : 0u;
#pragma unroll
    for (int i = 0; i < kPassesW; ++i) rows_w |= n + i * kRowsW < p.n ? 1u << i : 0u;
  };
  if (load_tile < tile_count) begin_tile();
  auto load = [&] {
    if (load_tile < tile_count) {
      uint4* const stage = shared + load_stage * Shape::kStageVectors;
      const std::int64_t first = std::int64_t{load_step} * kGroups * 128;  // columns
#pragma unroll
      for (int block = 0; block < kGroups; ++block) {
        uint4* const to = stage + block * Shape::kBlockVectors;
        const bool inside_x = first + block * 128 + vector_x * 8 < p.k,
                   inside_w = first + block * 128 + vector_w * 16 < p.k;
        const unsigned char *x = from_x + block * 256, *w = from_w + block * 128;
#pragma unroll
        for (int i = 0; i < kPassesX; ++i, x += step_x) {
          uint4* const target = to + to_x + i * kRowsX * 16;
          if constexpr (kFast) {
            copy16_async(target, x, inside_x && (rows_x >> i & 1u) != 0 ? 16 : 0);
          } else {
            const std::int64_t byte = (first + block * 128) * 2 + vector_x * 16;
            stage16<false>(target, x - byte, byte, p.k * 2, (rows_x >> i & 1u) != 0, p.x_granule);
          }
        }
#pragma unroll
        for (int i = 0; i < kPassesW; ++i, w += step_w) {
          uint4* const target = to + kTileM * 16 + to_w + i * kRowsW * 8;
          if constexpr (kFast) {
            copy16_async(target, w, inside_w && (rows_w >> i & 1u) != 0 ? 16 : 0);
          } else {
            const std::int64_t byte = first + block * 128 + vector_w * 16;
            stage16<false>(target, w - byte, byte, p.k, (rows_w >> i & 1u) != 0, p.w_granule);
          }
        }
      }
      from_x += kGroups * 256;
      from_w += kGroups * 128;
      load_stage = load_stage + 1 == stages ? 0 : load_stage + 1;
      if (++load_step == steps) {
        load_step = 0;
        load_tile += gridDim.x;
        if (load_tile < tile_count) begin_tile();
      }
    }
    commit_copies();
  };
  for (int i = 0; i < stages - 1; ++i) load();
  if (stages == 3) {
    wait_copies<1>();
  } else if (stages > 3) {
    wait_copies<2>();
  }
  __syncthreads();

  int stage_index = 0;
  for (std::int64_t tile = blockIdx.x; tile < tile_count; tile += gridDim.x) {
    std::int64_t tile_m = 0, tile_n = 0;
    order.at(tile, tile_m, tile_n);
    // Columns beyond N have no row of scales; what they compute is not stored.
    const std::int64_t first_column = min(tile_n * kTileN + warp_n, p.n - 1);
    const float* const scale_row = p.scales + first_column / 128 * p.k_blocks;
    const auto scale_of = [&](int step) {
      const int block = step * kGroups + group;
      return block < p.k_blocks ? __ldg(scale_row + block) : 0.0f;
    };
    float unit = 1, next_scale = scale_of(0);
    float sum[kMmaM][kMmaN][4] = {};
    for (int step = 0; step < steps; ++step) {
      const float scale = next_scale;
      if (step + 1 < steps) next_scale = scale_of(step + 1);
      if (stages == 2) {
        wait_copies<0>();
        __syncthreads();  // everybody's part of this stage is there, and everybody is done with the one before it
        load();
      }
      const uint4* const x_stage = shared + stage_index * Shape::kStageVectors + group * Shape::kBlockVectors;
      const uint4* const w_stage = x_stage + kTileM * 16;
      stage_index = stage_index + 1 == stages ? 0 : stage_index + 1;

      const BlockFactor split = split_scale<T>(scale, unit);
      const std::uint32_t factor = Format<T>::template factor_word<kFast>(split.factor);
      const float rescale = __fdividef(unit, split.rest);
      unit = split.rest;
#pragma unroll
      for (int m = 0; m < kMmaM; ++m) {
#pragma unroll
        for (int n = 0; n < kMmaN; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[m][n][i] *= rescale;
        }
      }
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        uint4 w[kMmaN][2];
#pragma unroll
        for (int i = 0; i < 2 * kMmaN; ++i) {
          const int row = warp_n + i * 8 + g;
          w[i / 2][i % 2] = w_stage[row * 8 + ((4 * h + t) ^ ((row & 1) << 2))];
        }
        // Half-way through a stage, so that no warp waits between two: the next stage is there, and everybody is done
        // with the one before this.
        if (h == 1 && stages > 2) {
          if (stages == 3) {
            wait_copies<0>();
          } else {
            wait_copies<1>();
          }
          __syncthreads();
          load();
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {  // two steps of the instruction
          std::uint32_t a[kMmaN][2][4];
#pragma unroll
          for (int n = 0; n < kMmaN; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const uint4& v = w[n][i % 2];
              const std::uint32_t word = half == 0 ? (i / 2 == 0 ? v.x : v.y) : (i / 2 == 0 ? v.z : v.w);
              Format<T>::template decode_times<kFast>(word, factor, a[n][i / 2][i % 2], a[n][i / 2][i % 2 + 2]);
            }
          }
#pragma unroll
          for (int m = 0; m < kMmaM; ++m) {
            const uint4 x = x_stage[(warp_m + m * 8 + g) * 16 + ((8 * h + 2 * t + half) ^ (g & 1))];
#pragma unroll
            for (int n = 0; n < kMmaN; ++n) multiply<T>(sum[m][n], a[n][0], x.x, x.y);
#pragma unroll
            for (int n = 0; n < kMmaN; ++n) multiply<T>(sum[m][n], a[n][1], x.z, x.w);
          }
        }
      }
    }
#pragma unroll
    for (int m = 0; m < kMmaM; ++m) {
#pragma unroll
      for (int n = 0; n < kMmaN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[m][n][i] *= unit;
      }
    }

    // The upper half of the groups hands its sums to the lower half, and so on: always in the same order.
#pragma unroll
    for (int half = kGroups / 2; half >= 1; half /= 2) {
      constexpr int kWarpVectors = kMmaM * kMmaN * 32;
      if (group >= half && group < 2 * half) {
        float4* const to = reinterpret_cast<float4*>(sums) +
                           ((group - half) * Shape::kGroupWarps + warp_in_group) * kWarpVectors + lane;
#pragma unroll
        for (int i = 0; i < kMmaM * kMmaN; ++i) {
          const float(&s)[4] = sum[i / kMmaN][i % kMmaN];
          to[i * 32] = make_float4(s[0], s[1], s[2], s[3]);
        }
      }
      __syncthreads();
      if (group < half) {
        const float4* const from =
            reinterpret_cast<const float4*>(sums) + (group * Shape::kGroupWarps + warp_in_group) * kWarpVectors + lane;
#pragma unroll
        for (int i = 0; i < kMmaM * kMmaN; ++i) {
          const float4 more = from[i * 32];
          float(&s)[4] = sum[i / kMmaN][i % kMmaN];
          s[0] += more.x;
          s[1] += more.y;
          s[2] += more.z;
          s[3] += more.w;
        }
      }
      if (half > 1) __syncthreads();
    }
    if (group != 0) continue;

      // A lane has two rows of X for each of two columns of Y; transposed, eight by eight, it has two neighbouring
      // columns.
#pragma unroll
    for (int n = 0; n < 2 * kMmaN; ++n) {
      const std::int64_t first = tile_n * kTileN + warp_n + n * 8, column = first + 2 * t;
      const float bias = first + g < p.n ? bias_at(p, first + g, T()) : 0.0f;
#pragma unroll
      for (int m = 0; m < kMmaM; ++m) {
        const float(&s)[4] = sum[m][n / 2];
        const std::uint32_t pair = transpose8x8(Format<T>::pair(s[n % 2 * 2] + bias, s[n % 2 * 2 + 1] + bias));
        const std::int64_t row = tile_m * kTileM + warp_m + m * 8 + g;
        if (row >= p.m || column >= p.n) continue;
        auto* const y = reinterpret_cast<std::uint16_t*>(static_cast<T*>(p.y) + row * p.y_stride + column);
        if (p.y_pairs && column + 1 < p.n) {
          *reinterpret_cast<std::uint32_t*>(y) = pair;
        } else {
          y[0] = static_cast<std::uint16_t>(pair);
          if (column + 1 < p.n) y[1] = static_cast<std::uint16_t>(pair >> 16);
        }
      }
    }
  }
}

// One instantiation of all kernels of a tile, in a translation unit of its own.
template <int kTile, int kWarpM, int kWarpN>
struct TensorCoreLauncher {
  static constexpr TensorCoreTile kShape = kTensorCoreTiles[kTile];
  using Shape = TensorCoreShape<kShape.m, kShape.n, kWarpM, kWarpN, kShape.k_groups>;
  using Kernel = void (*)(LinearCall, int);

  static Kernel kernel(bool bf16, bool fast) {
    if (!fast) {
      return bf16 ? tensor_core_kernel<Bf16, kShape.m, kShape.n, kWarpM, kWarpN, kShape.k_groups, false>
                  : tensor_core_kernel<F16, kShape.m, kShape.n, kWarpM, kWarpN, kShape.k_groups, false>;
    }
    return bf16 ? tensor_core_kernel<Bf16, kShape.m, kShape.n, kWarpM, kWarpN, kShape.k_groups, true>
                : tensor_core_kernel<F16, kShape.m, kShape.n, kWarpM, kWarpN, kShape.k_groups, true>;
  }
  static std::size_t shared_bytes(int stages) { return Shape::shared_bytes(stages); }
  static cudaError_t configure(bool bf16, bool fast, const TensorCorePlan& plan) {
    return cudaFuncSetAttribute(kernel(bf16, fast), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(shared_bytes(plan.stages)));
  }
  static cudaError_t launch(const LinearCall& call, bool bf16, bool fast, const TensorCorePlan& plan,
                            cudaStream_t stream) {
    const std::int64_t tiles = ((call.m + kShape.m - 1) / kShape.m) * ((call.n + kShape.n - 1) / kShape.n);
    const unsigned blocks = static_cast<unsigned>(tiles < plan.blocks ? tiles : plan.blocks);
    kernel(bf16, fast)<<<blocks, Shape::kThreads, shared_bytes(plan.stages), stream>>>(call, plan.stages);
    return cudaGetLastError();
  }
};

}  // namespace crossover::fp8_block_linear_detail
