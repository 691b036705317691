#pragma once
// The inner loops of the host arms, once per instruction set. Everything here is plain data and function pointers: the
// translation units behind it are compiled with wider instruction sets, and must share no inline function with the
// rest.

#include <cstdint>

namespace crossover::fp8_block_linear_detail {

// K per unit of work of the packed activations, and the floats from one packed row to the next. The pad moves
// successive rows to different cache sets.
inline constexpr std::int64_t kChunk = 1024;
inline constexpr std::int64_t kRowFloats = kChunk + 16;
// The widest tile of columns (rows of W) that multiply() takes, and the rows of X that it takes.
inline constexpr std::int64_t kTileColumns = 64;
inline constexpr std::int64_t kTileRows = 256;
// Column tiles start at multiples of this; it divides the scale block.
inline constexpr std::int64_t kColumnStep = 8;
// Up to this many rows a tile decodes weights on the way into the product; above, it decodes them once into scratch.
inline constexpr std::int64_t kDirectRows = 8;
// Scratch of one thread: decoded weights, then partial sums.
inline constexpr std::int64_t kScratchFloats = kTileColumns * kRowFloats + kTileRows * kTileColumns;

enum class BiasType : std::uint8_t { none, bf16, f16, f32 };

// One tile of rows of one layer.
struct VectorTask {
  const std::uint8_t* w = nullptr;  // [n][k]
  const float* scales = nullptr;    // [ceil(n/128)][k_blocks]
  const void* bias = nullptr;       // [n]
  BiasType bias_type = BiasType::none;
  bool f16 = false;  // Y is f16, else bf16
  std::int64_t n = 0, k = 0, k_blocks = 0;
  std::int64_t rows = 0;     // 1 … kTileRows
  const float* x = nullptr;  // [ceil(k/kChunk)][rows][kRowFloats], in the instruction set's own order within 64
  std::uint16_t* y = nullptr;
  std::int64_t y_row_stride = 0;
};

struct VectorIsa {
  const char* name;
  // Packs rows [row_begin, row_end) of a tile of `rows` rows: 16-bit X to f32, K padded with zeros to a multiple of 64.
  void (*pack)(const std::uint16_t* x, std::int64_t x_row_stride, bool f16, std::int64_t k, std::int64_t rows,
               std::int64_t row_begin, std::int64_t row_end, float* packed);
  // Y for columns [n_begin, n_end), n_begin a multiple of kColumnStep, at most kTileColumns of them.
  void (*multiply)(const VectorTask& task, std::int64_t n_begin, std::int64_t n_end, float* scratch);
  // out[n_end - n_begin][k] = the weights times their scales, in f32.
  void (*dequantise)(const std::uint8_t* w, const float* scales, std::int64_t k, std::int64_t k_blocks,
                     std::int64_t n_begin, std::int64_t n_end, float* out);
  // out[i] = x[i] in f32.
  void (*widen)(const std::uint16_t* x, bool f16, std::int64_t count, float* out);
  // y[i] = values[i] + bias[first + i], rounded.
  void (*narrow)(const float* values, const void* bias, BiasType bias_type, std::int64_t first, bool f16,
                 std::int64_t count, std::uint16_t* y);
};

extern const VectorIsa kVectorPortable;
#if defined(__x86_64__)
extern const VectorIsa kVectorAvx2;    // AVX2, FMA, F16C
extern const VectorIsa kVectorAvx512;  // AVX-512 F, BW, DQ, VL, VBMI, and the above
#endif

}  // namespace crossover::fp8_block_linear_detail
