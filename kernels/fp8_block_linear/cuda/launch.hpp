#pragma once
// Host entry points of the kernels of fp8_block_linear. They enqueue on a stream and return; none allocates, waits, or
// queries the device. Device pointers throughout.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace crossover::fp8_block_linear_detail {

enum class BiasKind : std::int32_t { none, same, f32 };  // `same`: of the type of X and Y

// One call of Y = X · dequant(W, S)ᵀ + bias. Strides in elements. Passed to kernels by value.
struct LinearCall {
  const std::uint8_t* w = nullptr;
  const float* scales = nullptr;
  const void* bias = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t x_stride = 0, y_stride = 0;
  std::int32_t k_blocks = 0;  // ceil(k / 128)
  BiasKind bias_kind = BiasKind::none;
  // The largest power of two of bytes, at most 16, to which every row of W (of X) is aligned and of which k elements
  // are a multiple. 16 for both is what the fast paths need.
  std::int32_t w_granule = 1, x_granule = 2;
  bool y_pairs = false;  // two neighbouring elements of Y may be written as one word
};

// `fast`, below: kernels for granules of 16 and weights without a NaN code. The others take anything.

// How gemv_warp covers a problem; the same for every row count, so that a row's bits do not depend on it.
struct GemvPlan {
  int warps = 8;    // that share K
  int m_tiles = 4;  // 16-row tiles that a warp holds at once: 1, 2 or 4
  int groups = 8;   // 8-row groups of a block's tile, at most 2 * m_tiles
  int blocks = 1;   // of the grid
};
// More tokens than this need another arm.
inline constexpr int kGemvMaxRows = 16;
std::size_t gemv_shared_bytes(const GemvPlan& plan, int token_tiles);
// Lets the kernels have the shared memory that they need on the current device.
cudaError_t gemv_configure(bool bf16, bool fast, const GemvPlan& plan);
cudaError_t gemv_launch(const LinearCall& call, bool bf16, bool fast, const GemvPlan& plan, cudaStream_t stream);

// Row stride of the shared tiles: 32 + padding floats.
cudaError_t tiled_scalar_launch(const LinearCall& call, bool bf16, int padding, cudaStream_t stream);

// Tile shapes of tensor_core: rows of X times rows of W.
struct TensorCoreTile {
  int m = 0, n = 0;
  int k_groups = 1;  // groups of warps, each with its own 128-K blocks
};
inline constexpr TensorCoreTile kTensorCoreTiles[] = {{32, 32, 8},  {32, 64, 4},  {64, 32, 4},   {64, 64, 4},
                                                      {64, 128, 2}, {128, 64, 2}, {128, 128, 1}, {128, 256, 1}};
inline constexpr int kTensorCoreTileCount = 8;
struct TensorCorePlan {
  int stages = 2;  // 2, 3 or 4
  int blocks = 1;  // the most that the grid has: the device's multiprocessors
};
std::size_t tensor_core_shared_bytes(int tile, int stages);
cudaError_t tensor_core_configure(int tile, bool bf16, bool fast, const TensorCorePlan& plan);
cudaError_t tensor_core_launch(int tile, const LinearCall& call, bool bf16, bool fast, const TensorCorePlan& plan,
                               cudaStream_t stream);

// The scaled weight of rows [0, n) as bf16 or f16, `out_stride` elements a row (a multiple of 8, out aligned to 16
// bytes); columns from k to the stride are set to 0. `n_first` is the first row's number in the layer: w points to that
// row, scales to the layer's first.
struct DequantiseCall {
  const std::uint8_t* w = nullptr;
  const float* scales = nullptr;
  void* out = nullptr;
  std::int64_t n_first = 0, n = 0, k = 0, out_stride = 0;
  std::int32_t k_blocks = 0;
  std::int32_t w_granule = 1;
};
cudaError_t dequantise_launch(const DequantiseCall& call, bool bf16, cudaStream_t stream);
// Writes to range[0] and range[1] the bits of the smallest |w·s| above zero and of the largest (finite) one; the caller
// has set them to 0x7F800000 and 0.
cudaError_t scaled_range_launch(const DequantiseCall& call, std::uint32_t* range, cudaStream_t stream);
// Adds to *count the number of NaN codes in w.
cudaError_t count_nan_codes_launch(const std::uint8_t* w, std::int64_t bytes, unsigned long long* count,
                                   cudaStream_t stream);
// bf16 or f16 from f32, rounded to nearest.
cudaError_t narrow_launch(const float* in, void* out, std::int64_t count, bool bf16, cudaStream_t stream);

// e4m3 codes of X, each group of 128 columns of a row scaled by its largest magnitude: codes[m][k], dense; scales
// [k_blocks][m_padded]. Rows from m to m_padded become zeros. k % 16 = 0.
struct QuantiseCall {
  const void* x = nullptr;
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;
  std::int64_t m = 0, m_padded = 0, k = 0, x_stride = 0;
  std::int32_t k_blocks = 0;
  std::int32_t x_granule = 2;
};
cudaError_t quantise_launch(const QuantiseCall& call, bool bf16, cudaStream_t stream);

}  // namespace crossover::fp8_block_linear_detail
