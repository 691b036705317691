#pragma once
// cuBLASLt's matrix product as the arms need it, Y = X · Wᵀ, with algorithms that are timed once, kept as text, and
// restored exactly.

#include <cublasLt.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/cuda/handles.hpp"
#include "crossover/dispatch/operation.hpp"

namespace crossover::fp8_block_linear_detail {

// What cuBLASLt may use, from the caller's workspace. Its documentation recommends 32 MiB on Hopper.
inline constexpr std::size_t kLtWorkspaceBytes = std::size_t{32} << 20;

// What does not change between launches. Strides in elements.
struct LtProblem {
  bool bf16 = true;  // type of Y, and of X and W unless `fp8`
  bool fp8 = false;  // X and W are e4m3, scaled by 1 x 128 and 128 x 128
  std::int64_t n = 0, k = 0;
  std::int64_t w_stride = 0, x_stride = 0, y_stride = 0;
  std::uint32_t w_alignment = 256, x_alignment = 2, y_alignment = 2;  // bytes
  bool bias = false;                                                  // of the type of Y
  std::int64_t row_multiple = 1;                                      // row counts are multiples of this
};
struct LtOperands {
  const void* w = nullptr;
  const void* x = nullptr;
  void* y = nullptr;
  const void* bias = nullptr;
  const float* w_scales = nullptr;
  const float* x_scales = nullptr;
  void* workspace = nullptr;  // kLtWorkspaceBytes, aligned to 256 bytes
};

// A handle of the current device, made at the first call and kept; thread-safe. Throws DeviceError.
cublasLtHandle_t lt_handle();

// Enqueues. Never asks the heuristic.
Status lt_multiply(cublasLtHandle_t handle, const LtProblem& problem, std::int64_t rows, const LtOperands& operands,
                   const cublasLtMatmulAlgo_t& algorithm, cudaStream_t stream) noexcept;
// What the heuristic proposes, at most `most`; none is an answer. Throws DeviceError for what is not "not supported".
std::vector<cublasLtMatmulAlgo_t> lt_candidates(cublasLtHandle_t handle, const LtProblem& problem, std::int64_t rows,
                                                int most);
// Whether the algorithm does this, with the workspace there is.
bool lt_accepts(cublasLtHandle_t handle, const LtProblem& problem, std::int64_t rows,
                const cublasLtMatmulAlgo_t& algorithm);

// What runs for up to `up_to` rows (the last one: for all above as well).
struct LtChoice {
  Rows up_to = 0;
  std::int64_t tile_n = 0;  // rows of W at once
  cublasLtMatmulAlgo_t algorithm{};
};
using LtPlan = std::vector<LtChoice>;  // ascending, never empty
const LtChoice& lt_choice(const LtPlan& plan, Rows rows) noexcept;

// "lt=130100 16:2112:<words> 32:…": the version of cuBLASLt, then each choice; words as hexadecimal numbers.
std::string to_text(const LtPlan& plan);
// Throws ConfigNotRestorable: malformed, of another version of cuBLASLt, or refused by it on this device.
LtPlan lt_plan_from(std::string_view text, std::string_view arm, cublasLtHandle_t handle, const LtProblem& problem);

// The row counts for which algorithms are looked for: powers of two from 16, the last at least max_rows.
std::vector<Rows> lt_ladder(Rows max_rows);
// Times every candidate from a cold L2 and takes the fastest at each rung. `launch` enqueues one whole call of the arm.
// Nothing for a problem that cuBLASLt does not do. Throws DeviceError, OutOfMemory.
using LtLaunch = std::function<Status(const LtChoice& choice, Rows rows, cudaStream_t stream)>;
LtPlan lt_find(cublasLtHandle_t handle, const LtProblem& problem, Rows max_rows, const std::vector<std::int64_t>& tiles,
               const LtLaunch& launch);

// Device memory filled with values like activations', bf16 or f16: timing on zeros flatters.
cuda::Buffer lt_activations(std::size_t elements, bool bf16);

}  // namespace crossover::fp8_block_linear_detail
