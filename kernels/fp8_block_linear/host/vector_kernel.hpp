#pragma once
// The inner loops of the host arms over an abstract vector V. Included once by each instruction set's translation unit;
// everything has internal linkage.
//
// Order of accumulation, the same for every tile and row count, which is what makes a row's bits independent of the
// others:
//   lanes run along K; within a 128-K block a vector sum goes from low to high K; it is multiplied by the block's scale
//   into the vector sum of the chunk of 1024 K; that one's lanes are added as a tree; chunks are added in order; the
//   bias last. All in f32.
//
// V has: F, kLanes; kStep (codes decoded at once, a multiple of kLanes that divides 64); kPanelRows;
// direct_columns(rows);
//   zero, load, store, broadcast, fma, mul; sums4(four vectors, four floats): adds the lanes of each;
//   Decoder: packed(codes, F[kStep / kLanes]) in V's own order, natural(codes, F[]) in memory order;
//   expand(64 values, f16, 64 floats): 16-bit to f32 in the order of Decoder::packed;
//   widen(kLanes values, f16) -> F and narrow(F, f16, kLanes values) in memory order.

#include <cstdint>
#include <cstring>

#include "crossover/kernels/formats.hpp"
#include "vector_isa.hpp"

// Loops over registers must be gone before registers are allocated.
#if defined(__clang__)
#define CROSSOVER_UNROLL _Pragma("clang loop unroll(full)")
#else
#define CROSSOVER_UNROLL _Pragma("GCC unroll 64")
#endif

namespace crossover::fp8_block_linear_detail {
namespace {

constexpr std::int64_t kBlock = 128;

constexpr std::int64_t smaller(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

[[gnu::always_inline]] inline float bias_at(const void* bias, BiasType type, std::int64_t i) {
  if (type == BiasType::none) return 0.0f;
  if (type == BiasType::f32) return static_cast<const float*>(bias)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(bias)[i];
  return type == BiasType::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

template <class V>
void narrow_row(const float* values, const void* bias, BiasType bias_type, std::int64_t first, bool f16,
                std::int64_t count, std::uint16_t* y) {
  alignas(64) float sums[V::kLanes];
  for (std::int64_t i = 0; i < count; i += V::kLanes) {
    const std::int64_t part = smaller(V::kLanes, count - i);
    if (bias_type == BiasType::none && part == V::kLanes) {
      V::narrow(V::load(values + i), f16, y + i);
      continue;
    }
    for (std::int64_t j = 0; j < V::kLanes; ++j) {
      sums[j] = j >= part                     ? 0.0f
                : bias_type == BiasType::none ? values[i + j]
                                              : values[i + j] + bias_at(bias, bias_type, first + i + j);
    }
    std::uint16_t rounded[V::kLanes];
    V::narrow(V::load(sums), f16, rounded);
    std::memcpy(y + i, rounded, static_cast<std::size_t>(part) * 2);
  }
}

template <class V>
void widen_row(const std::uint16_t* x, bool f16, std::int64_t count, float* out) {
  std::int64_t i = 0;
  for (; i + V::kLanes <= count; i += V::kLanes) V::store(out + i, V::widen(x + i, f16));
  if (i == count) return;
  std::uint16_t tail[V::kLanes] = {};
  std::memcpy(tail, x + i, static_cast<std::size_t>(count - i) * 2);
  float values[V::kLanes];
  V::store(values, V::widen(tail, f16));
  std::memcpy(out + i, values, static_cast<std::size_t>(count - i) * 4);
}

template <class V>
void pack_rows(const std::uint16_t* x, std::int64_t x_row_stride, bool f16, std::int64_t k, std::int64_t rows,
               std::int64_t row_begin, std::int64_t row_end, float* packed) {
  for (std::int64_t r = row_begin; r < row_end; ++r) {
    const std::uint16_t* const row = x + r * x_row_stride;
    for (std::int64_t i = 0; i < k; i += 64) {
      float* const out = packed + ((i / kChunk) * rows + r) * kRowFloats + i % kChunk;
      if (i + 64 <= k) {
        V::expand(row + i, f16, out);
      } else {
        std::uint16_t tail[64] = {};
        std::memcpy(tail, row + i, static_cast<std::size_t>(k - i) * 2);
        V::expand(tail, f16, out);
      }
    }
  }
}

template <class V>
void dequantise_rows(const std::uint8_t* w, const float* scales, std::int64_t k, std::int64_t k_blocks,
                     std::int64_t n_begin, std::int64_t n_end, float* out) {
  using F = typename V::F;
  constexpr int kVectors = V::kStep / V::kLanes;
  const typename V::Decoder decoder;
  for (std::int64_t n = n_begin; n < n_end; ++n, out += k) {
    const std::uint8_t* const row = w + n * k;
    const float* const scale_row = scales + n / kBlock * k_blocks;
    std::int64_t i = 0;
    F values[kVectors];
    for (; i + V::kStep <= k; i += V::kStep) {
      const F scale = V::broadcast(scale_row[i / kBlock]);
      decoder.natural(row + i, values);
      for (int v = 0; v < kVectors; ++v) V::store(out + i + v * V::kLanes, V::mul(values[v], scale));
    }
    if (i == k) continue;
    std::uint8_t codes[V::kStep] = {};
    float scaled[V::kStep];
    std::memcpy(codes, row + i, static_cast<std::size_t>(k - i));
    decoder.natural(codes, values);
    const F scale = V::broadcast(scale_row[i / kBlock]);
    for (int v = 0; v < kVectors; ++v) V::store(scaled + v * V::kLanes, V::mul(values[v], scale));
    std::memcpy(out + i, scaled, static_cast<std::size_t>(k - i) * 4);
  }
}

// sums[i] += the lanes of vectors[i].
template <class V, int kCount>
[[gnu::always_inline]] inline void add_lanes(const typename V::F (&vectors)[kCount], float* sums) {
  CROSSOVER_UNROLL
  for (int i = 0; i < kCount; i += 4) {
    typename V::F four[4];
    float lanes[4];
    CROSSOVER_UNROLL
    for (int j = 0; j < 4; ++j) four[j] = vectors[i + j < kCount ? i + j : kCount - 1];
    V::sums4(four, lanes);
    CROSSOVER_UNROLL
    for (int j = 0; j < 4; ++j) {
      if (i + j < kCount) sums[i + j] += lanes[j];
    }
  }
}

// kRows rows of X, kColumns columns at a time; every weight is decoded once, in registers.
template <class V, int kRows, int kColumns>
void multiply_direct(const VectorTask& t, std::int64_t n_begin, std::int64_t n_end) {
  static_assert(kColumnStep % kColumns == 0);
  using F = typename V::F;
  constexpr int kVectors = V::kStep / V::kLanes;
  const typename V::Decoder decoder;
  for (std::int64_t n = n_begin; n < n_end; n += kColumns) {
    const std::uint8_t* w[kColumns];
    for (int c = 0; c < kColumns; ++c) w[c] = t.w + smaller(n + c, n_end - 1) * t.k;
    const float* const scale_row = t.scales + n / kBlock * t.k_blocks;
    float sums[kRows * kColumns] = {};
    for (std::int64_t chunk = 0; chunk < t.k; chunk += kChunk) {
      const float* const x = t.x + chunk / kChunk * t.rows * kRowFloats;
      F totals[kRows * kColumns];
      CROSSOVER_UNROLL
      for (int i = 0; i < kRows * kColumns; ++i) totals[i] = V::zero();
      for (std::int64_t block = chunk; block < smaller(chunk + kChunk, t.k); block += kBlock) {
        F acc[kRows * kColumns];
        CROSSOVER_UNROLL
        for (int i = 0; i < kRows * kColumns; ++i) acc[i] = V::zero();
        const auto step = [&](const std::uint8_t* const(&codes)[kColumns], const float* x_step)
            __attribute__((always_inline)) {
          CROSSOVER_UNROLL
          for (int c = 0; c < kColumns; ++c) {
            F weights[kVectors];
            decoder.packed(codes[c], weights);
            CROSSOVER_UNROLL
            for (int v = 0; v < kVectors; ++v) {
              CROSSOVER_UNROLL
              for (int r = 0; r < kRows; ++r) {
                acc[r * kColumns + c] =
                    V::fma(V::load(x_step + r * kRowFloats + v * V::kLanes), weights[v], acc[r * kColumns + c]);
              }
            }
          }
        };
        const std::int64_t end = smaller(block + kBlock, t.k);
        // The rows of W that come next. Hardware follows one stream in a page, not kColumns short ones. Addresses past
        // the end of W are not accessed.
        for (int c = 0; c < kColumns; ++c) {
          for (std::int64_t line = block; line < end; line += 64) {
            __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(w[c]) +
                                                             static_cast<std::uintptr_t>(line + kColumns * t.k)),
                               0, 2);
          }
        }
        std::int64_t i = block;
        for (; i + V::kStep <= end; i += V::kStep) {
          const std::uint8_t* codes[kColumns];
          CROSSOVER_UNROLL
          for (int c = 0; c < kColumns; ++c) codes[c] = w[c] + i;
          step(codes, x + (i - chunk));
        }
        if (i < end) {
          std::uint8_t tails[kColumns][V::kStep] = {};
          const std::uint8_t* codes[kColumns];
          for (int c = 0; c < kColumns; ++c) {
            std::memcpy(tails[c], w[c] + i, static_cast<std::size_t>(end - i));
            codes[c] = tails[c];
          }
          step(codes, x + (i - chunk));
        }
        const F scale = V::broadcast(scale_row[block / kBlock]);
        CROSSOVER_UNROLL
        for (int j = 0; j < kRows * kColumns; ++j) totals[j] = V::fma(scale, acc[j], totals[j]);
      }
      add_lanes<V>(totals, sums);
    }
    const std::int64_t columns = smaller(kColumns, n_end - n);
    for (int r = 0; r < kRows; ++r) {
      narrow_row<V>(sums + r * kColumns, t.bias, t.bias_type, n, t.f16, columns, t.y + r * t.y_row_stride + n);
    }
  }
}

constexpr int kPanelColumns = 4;

// kRows rows of X by all columns of a decoded panel, over one chunk.
template <class V, int kRows>
void multiply_panel_rows(const float* x, const float* panel, std::int64_t columns, std::int64_t length,
                         const VectorTask& t, std::int64_t n_begin, std::int64_t first_block, float* partial) {
  using F = typename V::F;
  constexpr int kTile = kRows * kPanelColumns;
  for (std::int64_t column = 0; column < columns; column += kPanelColumns, panel += kPanelColumns * kRowFloats) {
    const float* const scales = t.scales + (n_begin + column) / kBlock * t.k_blocks + first_block;
    F totals[kTile];
    CROSSOVER_UNROLL
    for (int i = 0; i < kTile; ++i) totals[i] = V::zero();
    for (std::int64_t block = 0; block < length; block += kBlock) {
      F acc[kTile];
      CROSSOVER_UNROLL
      for (int i = 0; i < kTile; ++i) acc[i] = V::zero();
      // Whole decoding steps, as the direct tiles take them; what lies beyond K is zero on both sides.
      const std::int64_t end = block + round_up(smaller(kBlock, length - block), V::kStep);
      for (std::int64_t i = block; i < end; i += V::kLanes) {
        F weights[kPanelColumns];
        CROSSOVER_UNROLL
        for (int c = 0; c < kPanelColumns; ++c) weights[c] = V::load(panel + c * kRowFloats + i);
        CROSSOVER_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const F value = V::load(x + r * kRowFloats + i);
          CROSSOVER_UNROLL
          for (int c = 0; c < kPanelColumns; ++c) {
            acc[r * kPanelColumns + c] = V::fma(value, weights[c], acc[r * kPanelColumns + c]);
          }
        }
      }
      const F scale = V::broadcast(scales[block / kBlock]);
      CROSSOVER_UNROLL
      for (int j = 0; j < kTile; ++j) totals[j] = V::fma(scale, acc[j], totals[j]);
    }
    float sums[kTile] = {};
    add_lanes<V>(totals, sums);
    CROSSOVER_UNROLL
    for (int r = 0; r < kRows; ++r) {
      CROSSOVER_UNROLL
      for (int c = 0; c < kPanelColumns; ++c) {
        partial[r * kTileColumns + column + c] += sums[r * kPanelColumns + c];
      }
    }
  }
}

template <class V>
void multiply_panel(const VectorTask& t, std::int64_t n_begin, std::int64_t n_end, float* scratch) {
  static_assert(kColumnStep % kPanelColumns == 0 && kTileColumns % kPanelColumns == 0);
  using F = typename V::F;
  constexpr int kVectors = V::kStep / V::kLanes;
  const typename V::Decoder decoder;
  float* const panel = scratch;
  float* const partial = scratch + kTileColumns * kRowFloats;
  const std::int64_t columns = round_up(n_end - n_begin, kPanelColumns);
  std::memset(partial, 0, static_cast<std::size_t>(t.rows * kTileColumns) * sizeof(float));
  for (std::int64_t chunk = 0; chunk < t.k; chunk += kChunk) {
    const std::int64_t length = smaller(kChunk, t.k - chunk);
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::uint8_t* const row = t.w + smaller(n_begin + c, n_end - 1) * t.k + chunk;
      float* const out = panel + c * kRowFloats;
      F values[kVectors];
      std::int64_t i = 0;
      for (; i + V::kStep <= length; i += V::kStep) {
        decoder.packed(row + i, values);
        for (int v = 0; v < kVectors; ++v) V::store(out + i + v * V::kLanes, values[v]);
      }
      if (i < length) {
        std::uint8_t codes[V::kStep] = {};
        std::memcpy(codes, row + i, static_cast<std::size_t>(length - i));
        decoder.packed(codes, values);
        for (int v = 0; v < kVectors; ++v) V::store(out + i + v * V::kLanes, values[v]);
      }
    }
    const float* const x = t.x + chunk / kChunk * t.rows * kRowFloats;
    for (std::int64_t r = 0; r < t.rows;) {
      const auto tile = [&]<int kRows>() {
        multiply_panel_rows<V, kRows>(x + r * kRowFloats, panel, columns, length, t, n_begin, chunk / kBlock,
                                      partial + r * kTileColumns);
        r += kRows;
      };
      const std::int64_t left = t.rows - r;
      if (left >= V::kPanelRows) {
        tile.template operator()<V::kPanelRows>();
      } else if (V::kPanelRows > 4 && left >= 4) {
        tile.template operator()<4>();
      } else if (V::kPanelRows > 3 && left == 3) {
        tile.template operator()<3>();
      } else if (V::kPanelRows > 2 && left == 2) {
        tile.template operator()<2>();
      } else {
        tile.template operator()<1>();
      }
    }
  }
  for (std::int64_t r = 0; r < t.rows; ++r) {
    narrow_row<V>(partial + r * kTileColumns, t.bias, t.bias_type, n_begin, t.f16, n_end - n_begin,
                  t.y + r * t.y_row_stride + n_begin);
  }
}

template <class V>
void multiply(const VectorTask& t, std::int64_t n_begin, std::int64_t n_end, float* scratch) {
  static_assert(kDirectRows == 8);
  switch (t.rows) {
    case 1:
      return multiply_direct<V, 1, V::direct_columns(1)>(t, n_begin, n_end);
    case 2:
      return multiply_direct<V, 2, V::direct_columns(2)>(t, n_begin, n_end);
    case 3:
      return multiply_direct<V, 3, V::direct_columns(3)>(t, n_begin, n_end);
    case 4:
      return multiply_direct<V, 4, V::direct_columns(4)>(t, n_begin, n_end);
    case 5:
      return multiply_direct<V, 5, V::direct_columns(5)>(t, n_begin, n_end);
    case 6:
      return multiply_direct<V, 6, V::direct_columns(6)>(t, n_begin, n_end);
    case 7:
      return multiply_direct<V, 7, V::direct_columns(7)>(t, n_begin, n_end);
    case 8:
      return multiply_direct<V, 8, V::direct_columns(8)>(t, n_begin, n_end);
    default:
      return multiply_panel<V>(t, n_begin, n_end, scratch);
  }
}

template <class V>
constexpr VectorIsa vector_isa(const char* name) {
  return {name, pack_rows<V>, multiply<V>, dequantise_rows<V>, widen_row<V>, narrow_row<V>};
}

}  // namespace
}  // namespace crossover::fp8_block_linear_detail
