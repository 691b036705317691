#pragma once
// The built-in operation fp8_block_linear:
//
//   Y[M,N] = X[M,K] · dequant(W[N,K], S[ceil(N/128), ceil(K/128)])ᵀ (+ bias[N])
//
// W is row-major e4m3, dense; S is row-major f32, dense, one scale per 128 x 128 block of W. X and Y are row-major bf16
// or f16. Any N, K >= 1. Operands, in this order (what `Weights` and `Arguments` of the generic interface hold):
//
//   Weights::operands  = { W, S }, or { W, S, bias }; a null third one is the same as none
//   Arguments::inputs  = { X };  Arguments::outputs = { Y }
//
// Row strides are in elements; 0 means dense. The strides given with a launch must be those of the problem.

#include <array>
#include <cstdint>

#include "crossover/dispatch/operation.hpp"

namespace crossover {

// The operation with all arms of this build. Lives until the program ends; thread-safe.
const Operation& fp8_block_linear();

inline constexpr std::int64_t kScaleBlock = 128;

// Element types of X, Y and the bias.
enum class Element : std::uint8_t { none, bf16, f16, f32 };

// The problem's attributes as values. problem() and from() are each other's inverse.
struct Fp8BlockLinear {
  std::int64_t n = 0, k = 0;      // 1 … 2^40
  Element dtype = Element::bf16;  // of X and Y: bf16 or f16
  Element bias = Element::none;   // none, the dtype, or f32
  std::int64_t x_row_stride = 0;  // elements; 0: dense
  std::int64_t y_row_stride = 0;
  // X, Y, W and every row of X and Y start at a multiple of this many bytes: 2, 4, 8 or 16; 0: the most that the
  // strides allow. S and the bias are aligned to their element.
  int alignment = 0;

  // The normalised problem. Throws InvalidArgument with one sentence.
  Problem problem() const;
  // Every field filled in. Throws InvalidArgument with one sentence.
  static Fp8BlockLinear from(const Problem& problem);

  std::int64_t n_blocks() const { return (n + kScaleBlock - 1) / kScaleBlock; }
  std::int64_t k_blocks() const { return (k + kScaleBlock - 1) / kScaleBlock; }
  bool operator==(const Fp8BlockLinear&) const = default;
};

// The weights of one layer as the interface takes them. Nothing is copied.
Weights fp8_block_linear_weights(const void* w, const float* scales, const void* bias = nullptr);

// X and Y of one launch; must outlive the Arguments made from it.
class Fp8BlockLinearArguments {
 public:
  Fp8BlockLinearArguments(const void* x, void* y, std::int64_t x_row_stride = 0, std::int64_t y_row_stride = 0)
      : inputs_{ConstOperand{x, x_row_stride}}, outputs_{Operand{y, y_row_stride}} {}
  operator Arguments() const { return {inputs_, outputs_}; }  // NOLINT(google-explicit-constructor)

 private:
  std::array<ConstOperand, 1> inputs_;
  std::array<Operand, 1> outputs_;
};

}  // namespace crossover
