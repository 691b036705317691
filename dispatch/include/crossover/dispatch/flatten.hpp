#pragma once
// Leading dimensions of a tensor as rows: an engine has X of shape [B, T, K], an arm takes rows of K elements that lie
// evenly apart.

#include <cstddef>
#include <cstdint>
#include <span>

#include "crossover/dispatch/problem.hpp"

namespace crossover {

struct FlatRows {
  enum class Kind : std::uint8_t {
    even,     // one stride leads from each row to the next
    uneven,   // the rows are there, but not evenly apart: each innermost dimension has to be launched by itself
    refused,  // no tensor that may be read and written as rows; `reason` says why
  };
  Kind kind = Kind::even;
  Rows rows = 0;                // product of the extents; 0 where refused
  std::int64_t row_stride = 0;  // elements; 0 unless even. Of a single row: the width
  const char* reason = "";      // why not even; static storage duration
};

// `extents` and `strides` (in elements) of all dimensions but the last, outermost first; the last is `width` elements,
// densely packed. No dimension: one row. An extent of 0: no row, whatever the strides. The stride of an extent of 1
// does not matter. Refused are a negative extent, a width below 1, a stride that is negative or so small that rows
// overlap or lie within each other's gaps, and what 64 bits cannot count. Pure; allocates nothing.
FlatRows flatten_rows(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides,
                      std::int64_t width) noexcept;

// One operand of a batched launch: where it begins and how its leading dimensions lie. Nothing is owned.
struct BatchedOperand {
  void* data = nullptr;
  std::span<const std::int64_t> strides;  // elements; as many as there are leading dimensions
  std::int64_t width = 0;                 // elements of a row: K of X, N of Y
  std::size_t element_bytes = 0;
};
struct ConstBatchedOperand {
  const void* data = nullptr;
  std::span<const std::int64_t> strides;
  std::int64_t width = 0;
  std::size_t element_bytes = 0;
};

// What Arguments is for a launch of rows. All operands have the same leading dimensions.
struct BatchedArguments {
  std::span<const std::int64_t> extents;  // outermost first: {B, T}; empty: one row
  std::span<const ConstBatchedOperand> inputs;
  std::span<const BatchedOperand> outputs;
};
inline constexpr std::size_t kMaxBatchedOperands = 8;  // inputs, and as many outputs

}  // namespace crossover
