#include "crossover/dispatch/flatten.hpp"

#include <array>
#include <iterator>
#include <limits>

#include "crossover/dispatch/dispatcher.hpp"

namespace crossover {
namespace {

FlatRows refused(const char* reason) noexcept { return {FlatRows::Kind::refused, 0, 0, reason}; }

Status invalid(const char* reason) noexcept { return {Status::Code::invalid, 0, reason}; }

// The rows that one launch takes where they do not flatten: those of the innermost dimension.
struct Batches {
  Rows rows = 1;           // of each
  std::int64_t count = 1;  // launches
};

Batches batches_of(std::span<const std::int64_t> extents) noexcept {
  if (extents.empty()) return {};
  Batches result{extents.back(), 1};
  for (const std::int64_t extent : extents.first(extents.size() - 1)) result.count *= extent;
  return result;
}

// Bytes from the operand's begin to its batch number `index`.
template <class Operand>
std::int64_t offset_of(const Operand& operand, std::span<const std::int64_t> extents, std::int64_t index) noexcept {
  std::int64_t elements = 0;
  for (std::size_t i = extents.size(); i-- > 1;) {
    elements += index % extents[i - 1] * operand.strides[i - 1];
    index /= extents[i - 1];
  }
  return elements * static_cast<std::int64_t>(operand.element_bytes);
}

// Why an operand cannot be launched; null: it can. Clears `even` where it does not flatten.
template <class Operand>
const char* fault_of(const Operand& operand, std::span<const std::int64_t> extents, bool& even) noexcept {
  constexpr std::size_t kLargestElement = 16;
  constexpr std::int64_t kMaxDimensions = 16;
  if (std::ssize(extents) > kMaxDimensions) return "a batched operand has more than 16 leading dimensions";
  if (operand.element_bytes < 1 || operand.element_bytes > kLargestElement)
    return "the element size of a batched operand is not 1 to 16 bytes";
  if (operand.data == nullptr) return "a batched operand is null";
  const FlatRows flat = flatten_rows(extents, operand.strides, operand.width);
  if (flat.kind == FlatRows::Kind::refused) return flat.reason;
  if (flat.kind == FlatRows::Kind::uneven) even = false;
  const auto bytes = static_cast<std::int64_t>(operand.element_bytes);
  for (std::size_t i = 0; i < extents.size(); ++i) {
    std::int64_t reach = 0;
    if (extents[i] > 1 && (__builtin_mul_overflow(extents[i], operand.strides[i], &reach) ||
                           __builtin_mul_overflow(reach, bytes, &reach) ||
                           reach > std::numeric_limits<std::int64_t>::max() / kMaxDimensions))
      return "a batched operand is larger than 2^63 - 1 bytes";
  }
  return nullptr;
}

}  // namespace

FlatRows flatten_rows(std::span<const std::int64_t> extents, std::span<const std::int64_t> strides,
                      std::int64_t width) noexcept {
  if (extents.size() != strides.size()) return refused("there are not as many strides as extents");
  if (width < 1) return refused("a row has no elements");
  bool empty = false;
  for (const std::int64_t extent : extents) {
    if (extent < 0) return refused("an extent is negative");
    empty = empty || extent == 0;
  }
  if (empty) return {FlatRows::Kind::even, 0, width, ""};

  FlatRows flat{FlatRows::Kind::even, 1, width, ""};
  std::int64_t next = 0;  // stride that the next dimension outwards must have; 0: it is the innermost
  for (std::size_t i = extents.size(); i-- > 0;) {
    if (extents[i] == 1) continue;
    if (strides[i] < 0) return refused("a stride is negative");
    if (__builtin_mul_overflow(flat.rows, extents[i], &flat.rows)) return refused("there are more than 2^63 - 1 rows");
    if (next == 0) flat.row_stride = strides[i];
    if (next != 0 && strides[i] != next) flat.kind = FlatRows::Kind::uneven;
    if (__builtin_mul_overflow(strides[i], extents[i], &next)) return refused("the rows lie more than 2^63 - 1 apart");
  }

  // From the smallest stride to the largest, each has to lead past all that the smaller ones span. Of equal strides the
  // second one does not.
  std::int64_t span = width, last = -1;
  for (;;) {
    std::size_t smallest = extents.size();
    std::size_t equal = 0;
    for (std::size_t i = 0; i < extents.size(); ++i) {
      if (extents[i] == 1 || strides[i] <= last) continue;
      if (smallest < extents.size() && strides[i] == strides[smallest]) ++equal;
      if (smallest < extents.size() && strides[i] >= strides[smallest]) continue;
      smallest = i;
      equal = 0;
    }
    if (smallest == extents.size()) break;
    last = strides[smallest];
    if (equal > 0 || last < span) return refused("rows overlap, or lie within each other's gaps");
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(last, extents[smallest] - 1, &reach) || __builtin_add_overflow(span, reach, &span))
      return refused("the rows lie more than 2^63 - 1 apart");
  }
  if (flat.kind == FlatRows::Kind::uneven) {
    flat.row_stride = 0;
    flat.reason = "the rows are not evenly apart";
  }
  return flat;
}

Status Bound::launch_batched(const BatchedArguments& arguments, Workspace workspace, Stream stream,
                             LaunchMode mode) const noexcept {
  if (arguments.inputs.size() > kMaxBatchedOperands || arguments.outputs.size() > kMaxBatchedOperands)
    return invalid("a batched launch takes up to 8 inputs and 8 outputs");
  for (const std::int64_t extent : arguments.extents) {
    if (extent < 0) return invalid("an extent is negative");
  }
  for (const std::int64_t extent : arguments.extents) {
    if (extent == 0) return {};
  }
  bool even = true;
  for (const ConstBatchedOperand& each : arguments.inputs) {
    if (const char* fault = fault_of(each, arguments.extents, even)) return invalid(fault);
  }
  for (const BatchedOperand& each : arguments.outputs) {
    if (const char* fault = fault_of(each, arguments.extents, even)) return invalid(fault);
  }

  std::array<ConstOperand, kMaxBatchedOperands> inputs;
  std::array<Operand, kMaxBatchedOperands> outputs;
  const std::span<const ConstOperand> all_inputs(inputs.data(), arguments.inputs.size());
  const std::span<const Operand> all_outputs(outputs.data(), arguments.outputs.size());
  if (even && flattens()) {
    Rows rows = 1;
    for (std::size_t i = 0; i < arguments.inputs.size(); ++i) {
      const FlatRows flat = flatten_rows(arguments.extents, arguments.inputs[i].strides, arguments.inputs[i].width);
      inputs[i] = {arguments.inputs[i].data, flat.row_stride};
      rows = flat.rows;
    }
    for (std::size_t i = 0; i < arguments.outputs.size(); ++i) {
      const FlatRows flat = flatten_rows(arguments.extents, arguments.outputs[i].strides, arguments.outputs[i].width);
      outputs[i] = {arguments.outputs[i].data, flat.row_stride};
      rows = flat.rows;
    }
    return launch({all_inputs, all_outputs}, rows, workspace, stream, mode);
  }

  const Batches batches = batches_of(arguments.extents);
  const auto stride_of = [&](const auto& operand) { return batches.rows > 1 ? operand.strides.back() : operand.width; };
  for (std::int64_t index = 0; index < batches.count; ++index) {
    for (std::size_t i = 0; i < arguments.inputs.size(); ++i) {
      const ConstBatchedOperand& from = arguments.inputs[i];
      inputs[i] = {static_cast<const std::byte*>(from.data) + offset_of(from, arguments.extents, index),
                   stride_of(from)};
    }
    for (std::size_t i = 0; i < arguments.outputs.size(); ++i) {
      const BatchedOperand& from = arguments.outputs[i];
      outputs[i] = {static_cast<std::byte*>(from.data) + offset_of(from, arguments.extents, index), stride_of(from)};
    }
    if (const Status status = launch({all_inputs, all_outputs}, batches.rows, workspace, stream, mode); !status.ok())
      return status;
  }
  return {};
}

}  // namespace crossover
