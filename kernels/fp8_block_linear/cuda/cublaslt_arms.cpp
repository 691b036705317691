// dequant_cublaslt, cached_cublaslt and cublaslt_fp8_block: cuBLASLt does the product.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "crossover/cuda/handles.hpp"
#include "cublaslt.hpp"
#include "cuda_arms.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t round_up(std::size_t bytes, std::size_t to = kAlignment) { return (bytes + to - 1) / to * to; }

// Scaled weights are kept 16 bytes aligned.
std::int64_t w_stride(const Fp8BlockLinear& p) { return (p.k + 7) / 8 * 8; }

bool is_bf16(const Fp8BlockLinear& p) { return p.dtype == Element::bf16; }

LtProblem weight16_problem(const Fp8BlockLinear& p) {
  LtProblem lt;
  lt.bf16 = is_bf16(p);
  lt.n = p.n;
  lt.k = p.k;
  lt.w_stride = w_stride(p);
  lt.x_stride = p.x_row_stride;
  lt.y_stride = p.y_row_stride;
  lt.x_alignment = lt.y_alignment = static_cast<std::uint32_t>(p.alignment);
  lt.bias = p.bias != Element::none;
  return lt;
}

DequantiseCall dequantise_call(const Fp8BlockLinear& p, const LayerWeights& layer) {
  const LinearCall call = linear_call(p, layer);
  DequantiseCall d;
  d.w = layer.w;
  d.scales = layer.scales;
  d.n = p.n;
  d.k = p.k;
  d.out_stride = w_stride(p);
  d.k_blocks = call.k_blocks;
  d.w_granule = call.w_granule;
  return d;
}

void wait(const cuda::OwnedStream& stream, const char* doing) {
  cuda::check(cudaStreamSynchronize(stream.get()), doing);
}

std::string magnitude(float value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", static_cast<double>(value));
  return text;
}

// f16 ends at 65504 and is inexact below 2^-14: a scaled weight beyond would be lost.
void check_f16_range(const std::string& arm, const Fp8BlockLinear& p, const LayerWeights& layer) {
  if (is_bf16(p)) return;
  const cuda::OwnedStream stream = cuda::make_stream();
  const cuda::Buffer range(2 * sizeof(std::uint32_t));
  std::uint32_t bits[2] = {0x7F800000u, 0};
  cuda::check(cudaMemcpyAsync(range.data(), bits, sizeof(bits), cudaMemcpyHostToDevice, stream.get()), "copying");
  cuda::check(scaled_range_launch(dequantise_call(p, layer), range.as<std::uint32_t>(), stream.get()),
              "reading the range of the weights");
  cuda::check(cudaMemcpyAsync(bits, range.data(), sizeof(bits), cudaMemcpyDeviceToHost, stream.get()), "copying");
  wait(stream, "reading the range of the weights");
  const float smallest = std::bit_cast<float>(bits[0]), largest = std::bit_cast<float>(bits[1]);
  constexpr float kLargest = 65504.0f, kSmallest = 0x1p-14f;
  if (largest > kLargest || smallest < kSmallest) {
    throw InvalidArgument(arm + ": f16 cannot hold every scaled weight: their magnitudes reach from " +
                          magnitude(smallest) + " to " + magnitude(largest) + ", f16 has 2^-14 to 65504");
  }
}

// The bias in the type of Y, as aligned as cuBLASLt wants it; an f32 one is rounded once.
cuda::Buffer bias16(const Fp8BlockLinear& p, const LayerWeights& layer) {
  cuda::Buffer bias(p.bias == Element::none ? 0 : static_cast<std::size_t>(p.n) * 2);
  if (p.bias == Element::none) return bias;
  const cuda::OwnedStream stream = cuda::make_stream();
  if (p.bias == Element::f32) {
    cuda::check(narrow_launch(static_cast<const float*>(layer.bias), bias.data(), p.n, is_bf16(p), stream.get()),
                "rounding the bias");
  } else {
    cuda::check(cudaMemcpyAsync(bias.data(), layer.bias, bias.bytes(), cudaMemcpyDeviceToDevice, stream.get()),
                "copying the bias");
  }
  wait(stream, "copying the bias");
  return bias;
}
std::size_t bias16_bytes(const Fp8BlockLinear& p) {
  return p.bias == Element::none ? 0 : static_cast<std::size_t>(p.n) * 2;
}

const void* offset(const void* data, std::int64_t elements, std::int64_t bytes) {
  return data == nullptr ? nullptr : static_cast<const std::byte*>(data) + elements * bytes;
}

std::string version_suffix() { return "-1+cublaslt" + std::to_string(cublasLtGetVersion()); }

// Y and X for timing algorithms: `rows` rows of each.
struct TimingOperands {
  TimingOperands(const Fp8BlockLinear& p, Rows rows)
      : x(lt_activations(static_cast<std::size_t>(rows * p.x_row_stride), is_bf16(p))),
        y(static_cast<std::size_t>(rows * p.y_row_stride) * 2) {}
  cuda::Buffer x, y;
};

// --- dequant_cublaslt -----------------------------------------------------------------------------------------------

// The most scratch for scaled weights. A second size stays in the L2 of an H200 (60 MB), so that what is written there
// is read again without going through device memory.
constexpr std::int64_t kScratchBytes = std::int64_t{256} << 20;
constexpr std::int64_t kL2ScratchBytes = std::int64_t{24} << 20;

std::int64_t tile_rows(const Fp8BlockLinear& p, std::int64_t bytes) {
  const std::int64_t rows = std::max<std::int64_t>(bytes / (2 * w_stride(p)) / 128 * 128, 128);
  // Tiles of one size, as far as blocks of 128 allow.
  const std::int64_t tiles = (p.n + rows - 1) / rows;
  return std::min(p.n, ((p.n + tiles - 1) / tiles + 127) / 128 * 128);
}
std::size_t scratch_bytes(const Fp8BlockLinear& p) {
  return round_up(static_cast<std::size_t>(tile_rows(p, kScratchBytes)) * static_cast<std::size_t>(w_stride(p)) * 2);
}

class PreparedDequant final : public Prepared {
 public:
  PreparedDequant(const Fp8BlockLinear& problem, const LayerWeights& weights)
      : problem_(problem),
        weights_(weights),
        lt_problem_(weight16_problem(problem)),
        bias_(bias16(problem, weights)),
        handle_(lt_handle()) {}

  void restore(std::string_view arm, std::string_view config) {
    plan_ = lt_plan_from(config, arm, handle_, lt_problem_);
    for (const LtChoice& choice : plan_) {
      if (choice.tile_n > tile_rows(problem_, kScratchBytes)) {
        throw ConfigNotRestorable(std::string(arm) + ": a tile of " + std::to_string(choice.tile_n) +
                                  " rows does not fit its scratch");
      }
    }
  }
  void find(std::string_view arm, Rows max_rows) {
    const TimingOperands operands(problem_, max_rows);
    const cuda::Buffer workspace(scratch_bytes(problem_) + kLtWorkspaceBytes);
    std::vector<std::int64_t> tiles{tile_rows(problem_, kScratchBytes)};
    if (const std::int64_t small = tile_rows(problem_, kL2ScratchBytes); small != tiles.front()) tiles.push_back(small);
    plan_ = lt_find(handle_, lt_problem_, max_rows, tiles, [&](const LtChoice& choice, Rows rows, cudaStream_t stream) {
      return enqueue(choice, operands.x.data(), operands.y.data(), rows, workspace.data(), stream);
    });
    if (plan_.empty()) throw Failure(std::string(arm) + ": cuBLASLt has no algorithm for this problem");
  }

  std::string config() const override { return to_text(plan_); }
  Status launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream stream) noexcept override {
    const Status status = check_launch(problem_, arguments, rows);
    if (!status.ok() || rows == 0) return status;
    if (workspace.data == nullptr || workspace.bytes < scratch_bytes(problem_) + kLtWorkspaceBytes) {
      return {Status::Code::workspace_too_small, 0, "dequant_cublaslt: the workspace is smaller than its cost says"};
    }
    return enqueue(lt_choice(plan_, rows), arguments.inputs[0].data, arguments.outputs[0].data, rows, workspace.data,
                   static_cast<cudaStream_t>(stream.handle));
  }

 private:
  Status enqueue(const LtChoice& choice, const void* x, void* y, Rows rows, void* workspace,
                 cudaStream_t stream) const noexcept {
    DequantiseCall dequantise = dequantise_call(problem_, weights_);
    dequantise.out = workspace;
    LtProblem tile = lt_problem_;
    for (std::int64_t n = 0; n < problem_.n; n += choice.tile_n) {
      dequantise.w = weights_.w + n * problem_.k;
      dequantise.n_first = n;
      dequantise.n = tile.n = std::min(choice.tile_n, problem_.n - n);
      if (const cudaError_t error = dequantise_launch(dequantise, tile.bf16, stream); error != cudaSuccess) {
        return cuda::status_of(error);
      }
      LtOperands operands;
      operands.w = workspace;
      operands.x = x;
      operands.y = static_cast<std::byte*>(y) + 2 * n;
      operands.bias = offset(bias_.data(), n, 2);
      operands.workspace = static_cast<std::byte*>(workspace) + scratch_bytes(problem_);
      const Status status = lt_multiply(handle_, tile, rows, operands, choice.algorithm, stream);
      if (!status.ok()) return status;
    }
    return {};
  }

  const Fp8BlockLinear problem_;
  const LayerWeights weights_;
  const LtProblem lt_problem_;
  const cuda::Buffer bias_;
  const cublasLtHandle_t handle_;
  LtPlan plan_;
};

class LibraryArm : public CudaArm {
 public:
  using CudaArm::CudaArm;
  bool batch_invariant() const noexcept override { return false; }
  bool library() const noexcept override { return true; }
};

class Weight16Arm : public LibraryArm {
 public:
  using LibraryArm::LibraryArm;
  Eligibility supports(const Problem& problem, Rows rows, const Device& device) const override {
    Eligibility eligibility = CudaArm::supports(problem, rows, device);
    if (!eligibility) return eligibility;
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    if (p.bias != Element::none && p.alignment < 16) {
      return Eligibility::no(
          "cuBLASLt rounds before it adds a bias where rows are not aligned to 16 bytes (they are to " +
          std::to_string(p.alignment) + ")");
    }
    return eligibility;
  }
};

class DequantCublasLt final : public Weight16Arm {
 public:
  DequantCublasLt()
      : Weight16Arm("dequant_cublaslt", "w16", device_code_fingerprint({"dequantise"}) + version_suffix()) {}
  Cost cost(const Problem& problem, Rows rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    Cost cost = base_cost(p, rows);
    cost.workspace_bytes = scratch_bytes(p) + kLtWorkspaceBytes;
    cost.cached_bytes = bias16_bytes(p);
    return cost;
  }
  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows max_rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    const LayerWeights layer = layer_weights(p, weights);
    const cuda::CurrentDevice current(cuda::device_of(layer.w));
    check_f16_range(id().name, p, layer);
    auto prepared = std::make_unique<PreparedDequant>(p, layer);
    if (config.empty()) {
      prepared->find(id().name, std::max<Rows>(max_rows, 1));
    } else {
      prepared->restore(id().name, config);
    }
    return prepared;
  }
};

// --- cached_cublaslt ------------------------------------------------------------------------------------------------

class PreparedCached final : public Prepared {
 public:
  PreparedCached(const Fp8BlockLinear& problem, const LayerWeights& layer)
      : problem_(problem),
        lt_problem_(weight16_problem(problem)),
        weights_(static_cast<std::size_t>(problem.n) * static_cast<std::size_t>(w_stride(problem)) * 2),
        bias_(bias16(problem, layer)),
        handle_(lt_handle()) {
    const cuda::OwnedStream stream = cuda::make_stream();
    DequantiseCall call = dequantise_call(problem, layer);
    call.out = weights_.data();
    cuda::check(dequantise_launch(call, is_bf16(problem), stream.get()), "dequantising the weights");
    wait(stream, "dequantising the weights");
  }

  void restore(std::string_view arm, std::string_view config) {
    plan_ = lt_plan_from(config, arm, handle_, lt_problem_);
    for (const LtChoice& choice : plan_) {
      if (choice.tile_n != problem_.n) throw ConfigNotRestorable(std::string(arm) + ": it multiplies all rows at once");
    }
  }
  void find(std::string_view arm, Rows max_rows) {
    const TimingOperands operands(problem_, max_rows);
    const cuda::Buffer workspace(kLtWorkspaceBytes);
    plan_ = lt_find(handle_, lt_problem_, max_rows, {problem_.n},
                    [&](const LtChoice& choice, Rows rows, cudaStream_t stream) {
                      return enqueue(choice, operands.x.data(), operands.y.data(), rows, workspace.data(), stream);
                    });
    if (plan_.empty()) throw Failure(std::string(arm) + ": cuBLASLt has no algorithm for this problem");
  }

  std::string config() const override { return to_text(plan_); }
  Status launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream stream) noexcept override {
    const Status status = check_launch(problem_, arguments, rows);
    if (!status.ok() || rows == 0) return status;
    if (workspace.data == nullptr || workspace.bytes < kLtWorkspaceBytes) {
      return {Status::Code::workspace_too_small, 0, "cached_cublaslt: the workspace is smaller than its cost says"};
    }
    return enqueue(lt_choice(plan_, rows), arguments.inputs[0].data, arguments.outputs[0].data, rows, workspace.data,
                   static_cast<cudaStream_t>(stream.handle));
  }

 private:
  Status enqueue(const LtChoice& choice, const void* x, void* y, Rows rows, void* workspace,
                 cudaStream_t stream) const noexcept {
    LtOperands operands;
    operands.w = weights_.data();
    operands.x = x;
    operands.y = y;
    operands.bias = bias_.data();
    operands.workspace = workspace;
    return lt_multiply(handle_, lt_problem_, rows, operands, choice.algorithm, stream);
  }

  const Fp8BlockLinear problem_;
  const LtProblem lt_problem_;
  const cuda::Buffer weights_;
  const cuda::Buffer bias_;
  const cublasLtHandle_t handle_;
  LtPlan plan_;
};

class CachedCublasLt final : public Weight16Arm {
 public:
  CachedCublasLt()
      : Weight16Arm("cached_cublaslt", "w16", device_code_fingerprint({"dequantise"}) + version_suffix()) {}
  // The label counts what a launch moves: 2 bytes a weight.
  Cost cost(const Problem& problem, Rows rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    Cost cost = base_cost(p, rows);
    const double weights = static_cast<double>(p.n) * static_cast<double>(p.k);
    const double scales = 4.0 * static_cast<double>(p.n_blocks()) * static_cast<double>(p.k_blocks());
    cost.bytes_moved += weights - scales;
    cost.workspace_bytes = kLtWorkspaceBytes;
    cost.cached_bytes = static_cast<std::size_t>(p.n) * static_cast<std::size_t>(w_stride(p)) * 2 + bias16_bytes(p);
    return cost;
  }
  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows max_rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    const LayerWeights layer = layer_weights(p, weights);
    const cuda::CurrentDevice current(cuda::device_of(layer.w));
    check_f16_range(id().name, p, layer);
    auto prepared = std::make_unique<PreparedCached>(p, layer);
    if (config.empty()) {
      prepared->find(id().name, std::max<Rows>(max_rows, 1));
    } else {
      prepared->restore(id().name, config);
    }
    return prepared;
  }
};

// --- cublaslt_fp8_block ---------------------------------------------------------------------------------------------

// cuBLASLt reads block scales of W in rows of a multiple of 4.
std::int64_t scale_stride(const Fp8BlockLinear& p) { return (p.k_blocks() + 3) / 4 * 4; }

// It also takes multiples of 4 rows of X only. A few rows are padded, and Y, which has no place for the padding, is
// computed in scratch and copied; more are multiplied in two halves that overlap by up to 7 rows, which are written
// twice with the same values.
constexpr Rows kRowMultiple = 4;
constexpr Rows padded(Rows rows) { return (rows + kRowMultiple - 1) / kRowMultiple * kRowMultiple; }
constexpr Rows kMostCopiedRows = 512;
// Parts of the workspace, in order; each grows with the rows.
struct Fp8Workspace {
  Fp8Workspace(const Fp8BlockLinear& p, Rows rows)
      : codes(round_up(static_cast<std::size_t>(padded(rows) + 2 * kRowMultiple) * static_cast<std::size_t>(p.k))),
        scales(round_up(static_cast<std::size_t>(padded(rows) + 2 * kRowMultiple) *
                        static_cast<std::size_t>(p.k_blocks()) * 4)),
        y(round_up(static_cast<std::size_t>(std::min(padded(rows), kMostCopiedRows)) * static_cast<std::size_t>(p.n) *
                   2)) {}
  std::size_t codes, scales, y;
  std::size_t total() const { return codes + scales + y + kLtWorkspaceBytes; }
};

class PreparedFp8Block final : public Prepared {
 public:
  PreparedFp8Block(const Fp8BlockLinear& problem, const LayerWeights& layer)
      : problem_(problem),
        weights_(layer),
        scales_(static_cast<std::size_t>(problem.n_blocks() * scale_stride(problem)) * 4),
        bias_(bias16(problem, layer)),
        handle_(lt_handle()),
        x_granule_(linear_call(problem, layer).x_granule) {
    lt_problem_ = weight16_problem(problem);
    lt_problem_.fp8 = true;
    lt_problem_.w_stride = lt_problem_.x_stride = problem.k;
    lt_problem_.w_alignment = lt_problem_.x_alignment = 16;
    lt_problem_.row_multiple = kRowMultiple;
    const cuda::OwnedStream stream = cuda::make_stream();
    const auto row = static_cast<std::size_t>(problem.k_blocks()) * 4;
    cuda::check(cudaMemsetAsync(scales_.data(), 0, scales_.bytes(), stream.get()), "filling device memory");
    cuda::check(
        cudaMemcpy2DAsync(scales_.data(), static_cast<std::size_t>(scale_stride(problem)) * 4, layer.scales, row, row,
                          static_cast<std::size_t>(problem.n_blocks()), cudaMemcpyDeviceToDevice, stream.get()),
        "copying the scales");
    wait(stream, "copying the scales");
  }

  void restore(std::string_view arm, std::string_view config) {
    plan_ = lt_plan_from(config, arm, handle_, lt_problem_);
    for (const LtChoice& choice : plan_) {
      if (choice.tile_n != problem_.n) throw ConfigNotRestorable(std::string(arm) + ": it multiplies all rows at once");
    }
  }
  void find(std::string_view arm, Rows max_rows) {
    const TimingOperands operands(problem_, max_rows);
    const cuda::Buffer workspace(Fp8Workspace(problem_, max_rows).total());
    // Its kernel writes Y by bulk copies, which compute-sanitizer's initcheck does not count as writing.
    const cuda::OwnedStream filling = cuda::make_stream();
    cuda::check(cudaMemsetAsync(workspace.data(), 0, workspace.bytes(), filling.get()), "filling device memory");
    wait(filling, "filling device memory");
    plan_ = lt_find(handle_, lt_problem_, max_rows, {problem_.n},
                    [&](const LtChoice& choice, Rows rows, cudaStream_t stream) {
                      return enqueue(choice, operands.x.data(), operands.y.data(), rows, workspace.data(), stream);
                    });
    if (plan_.empty()) throw Failure(std::string(arm) + ": cuBLASLt has no algorithm for this problem");
  }

  std::string config() const override { return to_text(plan_); }
  Status launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream stream) noexcept override {
    const Status status = check_launch(problem_, arguments, rows);
    if (!status.ok() || rows == 0) return status;
    if (workspace.data == nullptr || workspace.bytes < Fp8Workspace(problem_, rows).total()) {
      return {Status::Code::workspace_too_small, 0, "cublaslt_fp8_block: the workspace is smaller than its cost says"};
    }
    return enqueue(lt_choice(plan_, rows), arguments.inputs[0].data, arguments.outputs[0].data, rows, workspace.data,
                   static_cast<cudaStream_t>(stream.handle));
  }

 private:
  Status enqueue(const LtChoice& choice, const void* x, void* y, Rows rows, void* workspace,
                 cudaStream_t stream) const noexcept {
    const Fp8Workspace parts(problem_, rows);
    std::byte* const codes = static_cast<std::byte*>(workspace);
    std::byte* const scales = codes + parts.codes;
    std::byte* const scratch = scales + parts.scales;
    std::byte* const rest = scratch + parts.y;
    if (rows % kRowMultiple == 0) {
      return multiply(choice, x, rows, codes, scales, y, problem_.y_row_stride, rest, stream);
    }
    if (rows > kMostCopiedRows) {
      const Rows first = padded(rows / 2), last = padded(rows - first), begin = rows - last;
      const Status status = multiply(choice, x, first, codes, scales, y, problem_.y_row_stride, rest, stream);
      if (!status.ok()) return status;
      return multiply(choice, static_cast<const std::byte*>(x) + begin * problem_.x_row_stride * 2, last,
                      codes + first * problem_.k, scales + first * problem_.k_blocks() * 4,
                      static_cast<std::byte*>(y) + begin * problem_.y_row_stride * 2, problem_.y_row_stride, rest,
                      stream);
    }
    const Status status = multiply(choice, x, rows, codes, scales, scratch, problem_.n, rest, stream);
    if (!status.ok()) return status;
    const auto row = static_cast<std::size_t>(problem_.n) * 2, count = static_cast<std::size_t>(rows);
    return cuda::status_of(problem_.y_row_stride == problem_.n
                               ? cudaMemcpyAsync(y, scratch, row * count, cudaMemcpyDeviceToDevice, stream)
                               : cudaMemcpy2DAsync(y, static_cast<std::size_t>(problem_.y_row_stride) * 2, scratch, row,
                                                   row, count, cudaMemcpyDeviceToDevice, stream));
  }

  // Quantises `rows` rows of X and multiplies; writes the padded row count of rows of Y.
  Status multiply(const LtChoice& choice, const void* x, Rows rows, std::byte* codes, std::byte* scales, void* y,
                  std::int64_t y_stride, void* workspace, cudaStream_t stream) const noexcept {
    QuantiseCall quantise;
    quantise.x = x;
    quantise.codes = reinterpret_cast<std::uint8_t*>(codes);
    quantise.scales = reinterpret_cast<float*>(scales);
    quantise.m = rows;
    quantise.m_padded = padded(rows);
    quantise.k = problem_.k;
    quantise.x_stride = problem_.x_row_stride;
    quantise.k_blocks = static_cast<std::int32_t>(problem_.k_blocks());
    quantise.x_granule = x_granule_;
    if (const cudaError_t error = quantise_launch(quantise, is_bf16(problem_), stream); error != cudaSuccess) {
      return cuda::status_of(error);
    }
    LtProblem lt = lt_problem_;
    lt.y_stride = y_stride;
    LtOperands operands;
    operands.w = weights_.w;
    operands.x = quantise.codes;
    operands.y = y;
    operands.bias = bias_.data();
    operands.w_scales = scales_.as<float>();
    operands.x_scales = quantise.scales;
    operands.workspace = workspace;
    return lt_multiply(handle_, lt, padded(rows), operands, choice.algorithm, stream);
  }

  const Fp8BlockLinear problem_;
  const LayerWeights weights_;
  const cuda::Buffer scales_;
  const cuda::Buffer bias_;
  const cublasLtHandle_t handle_;
  const std::int32_t x_granule_;
  LtProblem lt_problem_;
  LtPlan plan_;
};

class CublasLtFp8Block final : public LibraryArm {
 public:
  CublasLtFp8Block()
      : LibraryArm("cublaslt_fp8_block", "a8", device_code_fingerprint({"quantise", "dequantise"}) + version_suffix()) {
  }
  Eligibility supports(const Problem& problem, Rows rows, const Device& device) const override {
    Eligibility eligibility = CudaArm::supports(problem, rows, device);
    if (!eligibility) return eligibility;
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    if (device.compute_capability != "9.0") {
      return Eligibility::no("cuBLASLt multiplies block-scaled FP8 on compute capability 9.0 only (this device has " +
                             device.compute_capability + ")");
    }
    constexpr std::size_t kFirstVersion = 120900;
    if (CUBLAS_VERSION < kFirstVersion || cublasLtGetVersion() < kFirstVersion) {
      return Eligibility::no("needs cuBLASLt 12.9 (this one is " + std::to_string(cublasLtGetVersion()) + ")");
    }
    if (p.k % 16 != 0) return Eligibility::no("K % 16 != 0 (K = " + std::to_string(p.k) + ")");
    if (p.n % 8 != 0) return Eligibility::no("N % 8 != 0 (N = " + std::to_string(p.n) + ")");
    if (p.alignment < 16) {
      return Eligibility::no("rows of W and Y are aligned to " + std::to_string(p.alignment) + " bytes only, not 16");
    }
    return eligibility;
  }
  Cost cost(const Problem& problem, Rows rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    Cost cost = base_cost(p, rows);
    cost.workspace_bytes = Fp8Workspace(p, rows).total();
    cost.cached_bytes = static_cast<std::size_t>(p.n_blocks() * scale_stride(p)) * 4 + bias16_bytes(p);
    return cost;
  }
  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows max_rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    const LayerWeights layer = layer_weights(p, weights);
    const cuda::CurrentDevice current(cuda::device_of(layer.w));
    auto prepared = std::make_unique<PreparedFp8Block>(p, layer);
    if (config.empty()) {
      prepared->find(id().name, std::max<Rows>(max_rows, 1));
    } else {
      prepared->restore(id().name, config);
    }
    return prepared;
  }
};

}  // namespace

std::span<const Arm* const> cublaslt_cuda_arms() {
  static const DequantCublasLt dequant;
  static const CachedCublasLt cached;
  static const CublasLtFp8Block fp8_block;
  static const Arm* const arms[]{&dequant, &cached, &fp8_block};
  return arms;
}

}  // namespace crossover::fp8_block_linear_detail
