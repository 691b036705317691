// gemv_warp, tiled_scalar_pad4, tiled_scalar_pad1 and the tensor_core family: kernels of our own, nothing behind them.

#include <algorithm>
#include <array>
#include <charconv>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "crossover/cuda/handles.hpp"
#include "cuda_arms.hpp"

namespace crossover::fp8_block_linear_detail {

// --- what all CUDA arms share ---------------------------------------------------------------------------------------

namespace {

// Beyond this no device has the memory; the kernels count 128-K blocks and tiles in 32 bits.
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 37;

std::int32_t granule(std::int64_t alignment, std::int64_t row_bytes) {
  return static_cast<std::int32_t>(std::gcd(std::gcd(alignment, row_bytes), std::int64_t{16}));
}

}  // namespace

Eligibility CudaArm::supports(const Problem& problem, Rows rows, const Device& device) const {
  const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
  if (device.kind != "cuda") return Eligibility::no("runs on CUDA devices only (device kind " + device.kind + ")");
  if (std::string list; !has_code_for(device.compute_capability, list)) {
    return Eligibility::no("this build has no code for compute capability " + device.compute_capability + " (it has " +
                           list + ")");
  }
  if (p.n > kMaxExtent || p.k > kMaxExtent) {
    return Eligibility::no("N or K > 2^37 (N = " + std::to_string(p.n) + ", K = " + std::to_string(p.k) + ")");
  }
  if (rows < 1) return Eligibility::no("rows < 1 (rows = " + std::to_string(rows) + ")");
  return {true, {}, RowDomain{}};
}

LinearCall linear_call(const Fp8BlockLinear& problem, const LayerWeights& weights) {
  LinearCall call;
  call.w = weights.w;
  call.scales = weights.scales;
  call.bias = weights.bias;
  call.n = problem.n;
  call.k = problem.k;
  call.x_stride = problem.x_row_stride;
  call.y_stride = problem.y_row_stride;
  call.k_blocks = static_cast<std::int32_t>(problem.k_blocks());
  call.bias_kind = problem.bias == Element::none  ? BiasKind::none
                   : problem.bias == Element::f32 ? BiasKind::f32
                                                  : BiasKind::same;
  call.w_granule = granule(problem.alignment, problem.k);
  call.x_granule = granule(problem.alignment, 2 * problem.k);
  call.y_pairs = problem.alignment >= 4;
  return call;
}

LinearCall with_arguments(LinearCall call, const Arguments& arguments, Rows rows) noexcept {
  call.x = arguments.inputs[0].data;
  call.y = arguments.outputs[0].data;
  call.m = rows;
  return call;
}

std::size_t shared_limit(std::string_view compute_capability) {
  // CUDA C++ Programming Guide, technical specifications by compute capability: less the 1 KiB that the system takes.
  constexpr std::size_t kKib = 1024;
  if (compute_capability == "8.0" || compute_capability == "8.7") return 163 * kKib;
  if (compute_capability == "9.0" || compute_capability.starts_with("10.")) return 227 * kKib;
  return 99 * kKib;
}

int multiprocessors() {
  int device = 0, count = 0;
  cuda::check(cudaGetDevice(&device), "asking for the current device");
  cuda::check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
              "asking for the number of multiprocessors");
  return count;
}

namespace {

std::size_t current_shared_limit() {
  int device = 0, bytes = 0;
  cuda::check(cudaGetDevice(&device), "asking for the current device");
  cuda::check(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
              "asking for the shared memory of a block");
  return static_cast<std::size_t>(bytes);
}

// These arms have one way to run a problem on a device.
constexpr std::string_view kOnlyConfig = "-";
void check_config(std::string_view arm, std::string_view config) {
  if (!config.empty() && config != kOnlyConfig) {
    throw ConfigNotRestorable(std::string(arm) + " has no configuration \"" + std::string(config) +
                              "\"; it has only \"" + std::string(kOnlyConfig) + "\"");
  }
}

template <typename Launch>
class PreparedKernel final : public Prepared {
 public:
  PreparedKernel(const Fp8BlockLinear& problem, const LinearCall& call, Rows max_rows, Launch launch)
      : problem_(problem), call_(call), max_rows_(max_rows), launch_(std::move(launch)) {}
  std::string config() const override { return std::string(kOnlyConfig); }
  Status launch(const Arguments& arguments, Rows rows, Workspace, Stream stream) noexcept override {
    const Status status = check_launch(problem_, arguments, rows);
    if (!status.ok() || rows == 0) return status;
    if (rows > max_rows_) return {Status::Code::unsupported, 0, "this arm does not take so many rows"};
    return cuda::status_of(launch_(with_arguments(call_, arguments, rows), static_cast<cudaStream_t>(stream.handle)));
  }

 private:
  const Fp8BlockLinear problem_;
  const LinearCall call_;
  const Rows max_rows_;
  const Launch launch_;
};

bool has_nan_codes(const LinearCall& call) {
  const cuda::OwnedStream stream = cuda::make_stream();
  const cuda::Buffer counter(sizeof(unsigned long long));
  unsigned long long count = 0;
  cuda::check(cudaMemsetAsync(counter.data(), 0, counter.bytes(), stream.get()), "filling device memory");
  cuda::check(count_nan_codes_launch(call.w, call.n * call.k, counter.as<unsigned long long>(), stream.get()),
              "looking for NaN codes");
  cuda::check(cudaMemcpyAsync(&count, counter.data(), sizeof(count), cudaMemcpyDeviceToHost, stream.get()),
              "looking for NaN codes");
  cuda::check(cudaStreamSynchronize(stream.get()), "looking for NaN codes");
  return count != 0;
}

// Whether the kernels' fast paths take this layer.
bool fast_paths(const LinearCall& call) { return call.w_granule == 16 && call.x_granule == 16 && !has_nan_codes(call); }

// `make` gets the call and gives the launch function; the device of the weights is current.
template <typename Make>
std::unique_ptr<Prepared> prepare_kernel(const ArmId& id, const Problem& problem, const Weights& weights,
                                         std::string_view config, Rows max_rows, const Make& make) {
  check_config(id.name, config);
  const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
  const LayerWeights layer = layer_weights(p, weights);
  const cuda::CurrentDevice current(cuda::device_of(layer.w));
  const LinearCall call = linear_call(p, layer);
  auto launch = make(p, call);
  return std::make_unique<PreparedKernel<decltype(launch)>>(p, call, max_rows, std::move(launch));
}

// --- gemv_warp ------------------------------------------------------------------------------------------------------

GemvPlan gemv_plan(const Fp8BlockLinear& p, bool fast, int multiprocessor_count, std::size_t shared_bytes) {
  const std::int64_t groups = (p.n + 7) / 8;
  GemvPlan plan;
  plan.blocks = static_cast<int>(std::min<std::int64_t>(groups, multiprocessor_count));
  // Eight warps, or twelve where eight would wait for each other: 12 blocks of K over 8 warps take two turns.
  const auto turns = [&](int warps) { return (p.k_blocks() + warps - 1) / warps * warps; };
  plan.warps = static_cast<double>(turns(12)) < 0.9 * static_cast<double>(turns(8)) ? 12 : 8;
  std::int64_t most = fast ? 8 : 4;
  for (;; most /= 2) {
    const std::int64_t per_block = (groups + plan.blocks - 1) / plan.blocks;
    const std::int64_t tiles = (per_block + most - 1) / most;
    plan.groups = static_cast<int>((per_block + tiles - 1) / tiles);
    plan.m_tiles = !fast ? 2 : plan.groups <= 2 ? 1 : plan.groups <= 4 ? 2 : 4;
    if (gemv_shared_bytes(plan, 2) <= shared_bytes || most <= 2) break;
    plan.warps = 8;
    if (gemv_shared_bytes(plan, 2) <= shared_bytes) break;
  }
  return plan;
}

class GemvWarp final : public CudaArm {
 public:
  GemvWarp() : CudaArm("gemv_warp", "a16", device_code_fingerprint({"gemv", "dequantise"}) + "-1") {}
  bool batch_invariant() const noexcept override { return true; }

  Eligibility supports(const Problem& problem, Rows rows, const Device& device) const override {
    Eligibility eligibility = CudaArm::supports(problem, rows, device);
    if (!eligibility) return eligibility;
    eligibility.rows.max = kGemvMaxRows;
    if (rows > kGemvMaxRows) {
      return Eligibility::no("rows > " + std::to_string(kGemvMaxRows) + " (rows = " + std::to_string(rows) + ")");
    }
    return eligibility;
  }
  Cost cost(const Problem& problem, Rows rows) const override { return base_cost(Fp8BlockLinear::from(problem), rows); }
  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows) const override {
    return prepare_kernel(id(), problem, weights, config, kGemvMaxRows,
                          [](const Fp8BlockLinear& p, const LinearCall& layer) {
                            const bool bf16 = p.dtype == Element::bf16, fast = fast_paths(layer);
                            const GemvPlan plan = gemv_plan(p, fast, multiprocessors(), current_shared_limit());
                            cuda::check(gemv_configure(bf16, fast, plan), "preparing gemv_warp");
                            return [=](const LinearCall& call, cudaStream_t stream) noexcept {
                              return gemv_launch(call, bf16, fast, plan, stream);
                            };
                          });
  }
};

// --- tiled_scalar ---------------------------------------------------------------------------------------------------

class TiledScalar final : public CudaArm {
 public:
  TiledScalar(std::string_view name, int padding)
      : CudaArm(name, "a16", device_code_fingerprint({"tiled_scalar"}) + "-1"), padding_(padding) {}
  bool batch_invariant() const noexcept override { return true; }
  Cost cost(const Problem& problem, Rows rows) const override { return base_cost(Fp8BlockLinear::from(problem), rows); }
  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows) const override {
    return prepare_kernel(id(), problem, weights, config, kMaxRows, [this](const Fp8BlockLinear& p, const LinearCall&) {
      return
          [bf16 = p.dtype == Element::bf16, padding = padding_](const LinearCall& call, cudaStream_t stream) noexcept {
            return tiled_scalar_launch(call, bf16, padding, stream);
          };
    });
  }

 private:
  const int padding_;
};

// --- tensor_core ----------------------------------------------------------------------------------------------------

std::string tile_name(int tile) {
  return std::to_string(kTensorCoreTiles[tile].m) + "x" + std::to_string(kTensorCoreTiles[tile].n);
}

// As many stages as fit, at most 4; 0: not even two.
int tensor_core_stages(int tile, std::size_t shared_bytes) {
  for (int stages = 4; stages >= 2; --stages) {
    if (tensor_core_shared_bytes(tile, stages) <= shared_bytes) return stages;
  }
  return 0;
}

class TensorCore final : public CudaArm {
 public:
  explicit TensorCore(int tile)
      : CudaArm("tensor_core/" + tile_name(tile), "a16",
                device_code_fingerprint({"tensor_core_" + tile_name(tile), "dequantise"}) + "-1"),
        tile_(tile) {}
  bool batch_invariant() const noexcept override { return true; }

  Eligibility supports(const Problem& problem, Rows rows, const Device& device) const override {
    Eligibility eligibility = CudaArm::supports(problem, rows, device);
    if (!eligibility) return eligibility;
    if (tensor_core_stages(tile_, shared_limit(device.compute_capability)) == 0) {
      return Eligibility::no("needs " + std::to_string(tensor_core_shared_bytes(tile_, 2) / 1024) +
                             " KiB of shared memory a block; compute capability " + device.compute_capability +
                             " has " + std::to_string(shared_limit(device.compute_capability) / 1024));
    }
    return eligibility;
  }
  Cost cost(const Problem& problem, Rows rows) const override { return base_cost(Fp8BlockLinear::from(problem), rows); }
  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows) const override {
    return prepare_kernel(
        id(), problem, weights, config, kMaxRows, [this](const Fp8BlockLinear& p, const LinearCall& layer) {
          const bool bf16 = p.dtype == Element::bf16, fast = fast_paths(layer);
          const TensorCorePlan plan{tensor_core_stages(tile_, current_shared_limit()), multiprocessors()};
          if (plan.stages == 0) {
            throw InvalidArgument(id().name + " needs more shared memory than this device has");
          }
          cuda::check(tensor_core_configure(tile_, bf16, fast, plan), "preparing " + id().name);
          return [tile = tile_, bf16, fast, plan](const LinearCall& call, cudaStream_t stream) noexcept {
            return tensor_core_launch(tile, call, bf16, fast, plan, stream);
          };
        });
  }

 private:
  const int tile_;
};

}  // namespace

std::span<const Arm* const> native_cuda_arms() {
  static const GemvWarp gemv;
  static const TiledScalar pad4("tiled_scalar_pad4", 4), pad1("tiled_scalar_pad1", 1);
  static const auto arms = [] {
    static std::vector<std::unique_ptr<const TensorCore>> tiles;
    std::vector<const Arm*> all{&gemv, &pad4, &pad1};
    for (int tile = 0; tile < kTensorCoreTileCount; ++tile) {
      tiles.push_back(std::make_unique<const TensorCore>(tile));
      all.push_back(tiles.back().get());
    }
    return all;
  }();
  return arms;
}

std::vector<DefaultArm> cuda_default_arms(const Fp8BlockLinear& problem, const Device& device) {
  static_cast<void>(problem);
  std::vector<DefaultArm> defaults{{8, "gemv_warp"}};
  const std::size_t shared = shared_limit(device.compute_capability);
  const auto add = [&](Rows up_to, int tile) {
    if (defaults.back().up_to == kMaxRows || tensor_core_stages(tile, shared) == 0) return;
    defaults.push_back({up_to, "tensor_core/" + tile_name(tile)});
  };
  add(32, 1);
  add(64, 3);
  add(256, 4);
  add(kMaxRows, 7);
  add(kMaxRows, 6);  // fits everywhere
  return defaults;
}

}  // namespace crossover::fp8_block_linear_detail
