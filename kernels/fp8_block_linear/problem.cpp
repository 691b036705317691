#include "problem.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <string>

#include "crossover/dispatch/error.hpp"

namespace crossover {
namespace {

using fp8_block_linear_detail::kName;

constexpr std::int64_t kMaxExtent = std::int64_t{1} << 40;
constexpr std::int64_t kMaxWeightBytes = std::int64_t{1} << 62;
constexpr int kMaxAlignment = 16;
constexpr std::string_view kAttributes = "alignment, bias, dtype, k, n, x_row_stride, y_row_stride";

[[noreturn]] void refuse(const std::string& what) { throw InvalidArgument(std::string(kName) + ": " + what); }

std::int64_t extent(std::string_view attribute, std::string_view text, std::int64_t min) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < min || value > kMaxExtent) {
    refuse(std::string(attribute) + " must be a whole number from " + std::to_string(min) + " to " +
           std::to_string(kMaxExtent) + ", not \"" + std::string(text) + "\"");
  }
  return value;
}

std::string_view to_text(Element element) {
  switch (element) {
    case Element::none:
      return "none";
    case Element::bf16:
      return "bf16";
    case Element::f16:
      return "f16";
    case Element::f32:
      return "f32";
  }
  return "?";
}

Element element(std::string_view attribute, std::string_view text, std::span<const Element> valid) {
  std::string list;
  for (const Element candidate : valid) {
    if (text == to_text(candidate)) return candidate;
    list += (list.empty() ? "" : ", ") + std::string(to_text(candidate));
  }
  refuse(std::string(attribute) + " must be one of " + list + ", not \"" + std::string(text) + "\"");
}

int stride_alignment(std::int64_t x_row_stride, std::int64_t y_row_stride) {
  return static_cast<int>(std::gcd(std::gcd(2 * x_row_stride, 2 * y_row_stride), std::int64_t{kMaxAlignment}));
}

// Fills in defaults; everything that depends on more than one attribute is checked here.
Fp8BlockLinear complete(Fp8BlockLinear p) {
  if (p.n < 1 || p.n > kMaxExtent) extent("n", std::to_string(p.n), 1);
  if (p.k < 1 || p.k > kMaxExtent) extent("k", std::to_string(p.k), 1);
  if (p.n > kMaxWeightBytes / p.k) {
    refuse("n = " + std::to_string(p.n) + " by k = " + std::to_string(p.k) + " is more than 2^62 bytes of weights");
  }
  if (p.dtype != Element::bf16 && p.dtype != Element::f16) refuse("dtype must be one of bf16, f16");
  if (p.bias != Element::none && p.bias != Element::f32 && p.bias != p.dtype) {
    refuse("bias must be one of none, f32, " + std::string(to_text(p.dtype)) + " (the dtype), not \"" +
           std::string(to_text(p.bias)) + "\"");
  }
  if (p.x_row_stride == 0) p.x_row_stride = p.k;
  if (p.y_row_stride == 0) p.y_row_stride = p.n;
  if (p.x_row_stride < p.k || p.x_row_stride > kMaxExtent) extent("x_row_stride", std::to_string(p.x_row_stride), p.k);
  if (p.y_row_stride < p.n || p.y_row_stride > kMaxExtent) extent("y_row_stride", std::to_string(p.y_row_stride), p.n);
  const int most = stride_alignment(p.x_row_stride, p.y_row_stride);
  if (p.alignment == 0) p.alignment = most;
  if (p.alignment < 2 || p.alignment > kMaxAlignment || (p.alignment & (p.alignment - 1)) != 0) {
    refuse("alignment must be one of 2, 4, 8, 16 (bytes), not \"" + std::to_string(p.alignment) + "\"");
  }
  if (p.alignment > most) {
    refuse("alignment = " + std::to_string(p.alignment) +
           " bytes cannot hold for every row with x_row_stride = " + std::to_string(p.x_row_stride) +
           " and y_row_stride = " + std::to_string(p.y_row_stride) + "; at most " + std::to_string(most));
  }
  return p;
}

}  // namespace

Fp8BlockLinear Fp8BlockLinear::from(const Problem& problem) {
  if (problem.operation != kName) refuse("the problem names another operation, \"" + problem.operation + "\"");
  Fp8BlockLinear p;
  static constexpr std::array kDtypes{Element::bf16, Element::f16};
  static constexpr std::array kBiases{Element::none, Element::bf16, Element::f16, Element::f32};
  for (const auto& [attribute, text] : problem.attributes) {
    if (attribute == "n") {
      p.n = extent(attribute, text, 1);
    } else if (attribute == "k") {
      p.k = extent(attribute, text, 1);
    } else if (attribute == "dtype") {
      p.dtype = element(attribute, text, kDtypes);
    } else if (attribute == "bias") {
      p.bias = element(attribute, text, kBiases);
    } else if (attribute == "x_row_stride") {
      p.x_row_stride = extent(attribute, text, 1);
    } else if (attribute == "y_row_stride") {
      p.y_row_stride = extent(attribute, text, 1);
    } else if (attribute == "alignment") {
      int value = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
      if (error != std::errc{} || end != text.data() + text.size() || value < 2 || value > kMaxAlignment ||
          (value & (value - 1)) != 0) {
        refuse("alignment must be one of 2, 4, 8, 16 (bytes), not \"" + text + "\"");
      }
      p.alignment = value;
    } else {
      refuse("there is no attribute \"" + attribute + "\"; valid ones: " + std::string(kAttributes));
    }
  }
  for (const char* needed : {"n", "k"}) {
    if (!problem.attributes.contains(needed)) refuse("the attribute " + std::string(needed) + " is missing");
  }
  return complete(p);
}

Problem Fp8BlockLinear::problem() const {
  const Fp8BlockLinear p = complete(*this);
  return {std::string(kName),
          {{"n", std::to_string(p.n)},
           {"k", std::to_string(p.k)},
           {"dtype", std::string(to_text(p.dtype))},
           {"bias", std::string(to_text(p.bias))},
           {"x_row_stride", std::to_string(p.x_row_stride)},
           {"y_row_stride", std::to_string(p.y_row_stride)},
           {"alignment", std::to_string(p.alignment)}}};
}

Weights fp8_block_linear_weights(const void* w, const float* scales, const void* bias) {
  return {{ConstOperand{w, 0}, ConstOperand{scales, 0}, ConstOperand{bias, 0}}};
}

namespace fp8_block_linear_detail {
namespace {

bool aligned(const void* pointer, std::int64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % static_cast<std::uintptr_t>(bytes) == 0;
}

}  // namespace

LayerWeights layer_weights(const Fp8BlockLinear& problem, const Weights& weights) {
  const auto& operands = weights.operands;
  if (operands.size() != 2 && operands.size() != 3) {
    refuse("the weights are W, S and, where there is one, the bias, not " + std::to_string(operands.size()) +
           " operands");
  }
  const ConstOperand bias = operands.size() == 3 ? operands[2] : ConstOperand{};
  if (operands[0].data == nullptr || operands[1].data == nullptr) refuse("W and S must not be null");
  if ((bias.data != nullptr) != (problem.bias != Element::none)) {
    refuse(bias.data != nullptr ? "the weights have a bias but the problem says bias=none"
                                : "the problem has a bias but the weights have none");
  }
  if (operands[0].row_stride != 0 && operands[0].row_stride != problem.k) {
    refuse("W must be dense: its row stride is " + std::to_string(operands[0].row_stride) +
           ", not k = " + std::to_string(problem.k));
  }
  if (operands[1].row_stride != 0 && operands[1].row_stride != problem.k_blocks()) {
    refuse("S must be dense: its row stride is " + std::to_string(operands[1].row_stride) +
           ", not ceil(k/128) = " + std::to_string(problem.k_blocks()));
  }
  if (!aligned(operands[0].data, problem.alignment)) {
    refuse("W is not aligned to " + std::to_string(problem.alignment) + " bytes as the problem says");
  }
  if (!aligned(operands[1].data, 4) || (bias.data != nullptr && !aligned(bias.data, element_bytes(problem.bias)))) {
    refuse("S and the bias must be aligned to their elements");
  }
  return {static_cast<const std::uint8_t*>(operands[0].data), static_cast<const float*>(operands[1].data), bias.data};
}

Status check_launch(const Fp8BlockLinear& problem, const Arguments& arguments, Rows rows) noexcept {
  using Code = Status::Code;
  if (rows < 0) return {Code::invalid, 0, "fp8_block_linear: rows must not be negative"};
  if (arguments.inputs.size() != 1 || arguments.outputs.size() != 1) {
    return {Code::invalid, 0, "fp8_block_linear: the arguments are one input, X, and one output, Y"};
  }
  if (rows == 0) return {};
  const ConstOperand x = arguments.inputs[0];
  const Operand y = arguments.outputs[0];
  if (x.data == nullptr || y.data == nullptr) return {Code::invalid, 0, "fp8_block_linear: X and Y must not be null"};
  // One row has no stride.
  if (rows > 1 && (x.row_stride == 0 ? problem.k : x.row_stride) != problem.x_row_stride) {
    return {Code::invalid, 0, "fp8_block_linear: the row stride of X is not the problem's x_row_stride"};
  }
  if (rows > 1 && (y.row_stride == 0 ? problem.n : y.row_stride) != problem.y_row_stride) {
    return {Code::invalid, 0, "fp8_block_linear: the row stride of Y is not the problem's y_row_stride"};
  }
  if (!aligned(x.data, problem.alignment) || !aligned(y.data, problem.alignment)) {
    return {Code::invalid, 0, "fp8_block_linear: X or Y is less aligned than the problem's alignment"};
  }
  if (rows > kMaxWeightBytes / (2 * std::max(problem.x_row_stride, problem.y_row_stride))) {
    return {Code::invalid, 0, "fp8_block_linear: X or Y would be larger than 2^62 bytes"};
  }
  return {};
}

Cost base_cost(const Fp8BlockLinear& problem, Rows rows) {
  const double m = static_cast<double>(rows), n = static_cast<double>(problem.n), k = static_cast<double>(problem.k);
  const double weights = n * k +
                         4.0 * static_cast<double>(problem.n_blocks()) * static_cast<double>(problem.k_blocks()) +
                         n * static_cast<double>(element_bytes(problem.bias));
  return {.workspace_bytes = 0, .cached_bytes = 0, .flops = 2 * m * n * k, .bytes_moved = weights + 2 * m * (k + n)};
}

}  // namespace fp8_block_linear_detail
}  // namespace crossover
