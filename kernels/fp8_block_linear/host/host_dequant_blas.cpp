// Dequantise to f32, then OpenBLAS. Dequantises again on every launch; keeps nothing.
//
// W is dequantised and multiplied in tiles of rows of W, X and Y are widened and rounded in tiles of rows of X, so that
// the scratch stays bounded. OpenBLAS runs with the thread count that its owner, the program, gave it.

#include <cblas.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "../../host/thread_pool.hpp"
#include "crossover/dispatch/error.hpp"
#include "host_arms.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

using host::ThreadPool;

// Large enough for OpenBLAS to run at its full rate, small enough for a last-level cache.
constexpr std::int64_t kTileFloats = std::int64_t{4} << 20;  // 16 MiB of W, and at most as much of X and of Y
constexpr std::int64_t kMinTile = 16;

struct Tiles {
  std::int64_t n = 0, m = 0;
};
Tiles tiles(const Fp8BlockLinear& p, Rows rows) {
  const std::int64_t fit = std::max(kTileFloats / p.k, kMinTile);
  const std::int64_t n = std::min(fit, p.n);
  return {n, std::min({fit, std::max(kTileFloats / n, kMinTile), rows})};
}

constexpr std::size_t kAlignFloats = 64;
std::size_t padded(std::int64_t floats) {
  return (static_cast<std::size_t>(floats) + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}
std::size_t workspace_floats(const Fp8BlockLinear& p, Tiles t) {
  return padded(t.n * p.k) + padded(t.m * p.k) + padded(t.m * t.n);
}

std::string openblas_state() {
  return "openblas threads=" + std::to_string(openblas_get_num_threads()) + " core=" + openblas_get_corename();
}

// What is wrong with this OpenBLAS on this processor, found by multiplying; empty: nothing. Some releases choose
// kernels that give wrong products on processors newer than they are.
std::string find_fault() {
  // Each of its threads maps a buffer on its first product, and tries again for ever where the address space has no
  // room for one (128 MiB in 0.3.21): ask for as much first.
  const std::size_t buffers = (std::size_t{128} << 20) * static_cast<std::size_t>(openblas_get_num_threads());
  void* const room =
      ::mmap(nullptr, buffers, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return "no memory for OpenBLAS: the address space (ulimit -v) has no room for its buffers";
  ::munmap(room, buffers);
  struct Shape {
    int m, n, k;
  };
  static constexpr Shape kShapes[] = {{1, 1, 1},    {1, 64, 128},  {1, 129, 77},  {2, 80, 160},   {3, 127, 320},
                                      {5, 33, 448}, {7, 96, 576},  {8, 128, 128}, {16, 65, 257},  {17, 31, 1152},
                                      {33, 48, 64}, {64, 64, 129}, {65, 130, 96}, {129, 160, 192}};
  std::vector<float> x, w, y;
  std::uint32_t state = 1;
  const auto next = [&state] {
    state = state * 1664525u + 1013904223u;
    return static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  };
  for (const auto [m, n, k] : kShapes) {
    x.resize(static_cast<std::size_t>(m * k));
    w.resize(static_cast<std::size_t>(n * k));
    y.assign(static_cast<std::size_t>(m * n), std::numeric_limits<float>::quiet_NaN());
    for (float& v : x) v = next();
    for (float& v : w) v = next();
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1.0f, x.data(), k, w.data(), k, 0.0f, y.data(), n);
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        double sum = 0, size = 0;
        for (int l = 0; l < k; ++l) {
          const double product = static_cast<double>(x[static_cast<std::size_t>(i * k + l)]) *
                                 static_cast<double>(w[static_cast<std::size_t>(j * k + l)]);
          sum += product;
          size += std::fabs(product);
        }
        if (!(std::fabs(static_cast<double>(y[static_cast<std::size_t>(i * n + j)]) - sum) <= 1e-5 * size)) {
          return "this OpenBLAS (" + std::string(openblas_get_config()) +
                 ") multiplies wrongly on this processor: M = " + std::to_string(m) + ", N = " + std::to_string(n) +
                 ", K = " + std::to_string(k);
        }
      }
    }
  }
  return {};
}

const std::string& fault() {
  static const std::string text = find_fault();
  return text;
}

class PreparedBlas final : public Prepared {
 public:
  PreparedBlas(const Fp8BlockLinear& problem, LayerWeights weights, const VectorIsa& isa, int threads,
               std::string config)
      : problem_(problem), weights_(weights), isa_(isa), threads_(threads), config_(std::move(config)) {}

  std::string config() const override { return config_; }

  Status launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream) noexcept override {
    const Status status = check_launch(problem_, arguments, rows);
    if (!status.ok() || rows == 0) return status;
    const Fp8BlockLinear& p = problem_;
    const Tiles tile = tiles(p, rows);
    if (workspace.data == nullptr || workspace.bytes < workspace_floats(p, tile) * sizeof(float)) {
      return {Status::Code::workspace_too_small, 0, "host_dequant_blas: the workspace is smaller than its cost says"};
    }
    float* const w = static_cast<float*>(workspace.data);
    float* const x = w + padded(tile.n * p.k);
    float* const y = x + padded(tile.m * p.k);
    const bool f16 = p.dtype == Element::f16;
    const std::uint16_t* const x16 = static_cast<const std::uint16_t*>(arguments.inputs[0].data);
    std::uint16_t* const y16 = static_cast<std::uint16_t*>(arguments.outputs[0].data);
    ThreadPool& pool = ThreadPool::instance();

    for (Rows m = 0; m < rows; m += tile.m) {
      const Rows height = std::min(tile.m, rows - m);
      auto widen = [&](std::int64_t r, int) noexcept {
        isa_.widen(x16 + (m + r) * p.x_row_stride, f16, p.k, x + r * p.k);
      };
      pool.run(height, height * p.k < kParallelElements ? 1 : threads_, widen);
      for (std::int64_t n = 0; n < p.n; n += tile.n) {
        const std::int64_t width = std::min(tile.n, p.n - n);
        constexpr std::int64_t kRowsAtOnce = 8;
        auto dequantise = [&](std::int64_t index, int) noexcept {
          const std::int64_t begin = n + index * kRowsAtOnce, end = std::min(begin + kRowsAtOnce, n + width);
          isa_.dequantise(weights_.w, weights_.scales, p.k, p.k_blocks(), begin, end, w + (begin - n) * p.k);
        };
        pool.run((width + kRowsAtOnce - 1) / kRowsAtOnce, width * p.k < kParallelElements ? 1 : threads_, dequantise);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<blasint>(height), static_cast<blasint>(width),
                    static_cast<blasint>(p.k), 1.0f, x, static_cast<blasint>(p.k), w, static_cast<blasint>(p.k), 0.0f,
                    y, static_cast<blasint>(width));
        auto narrow = [&](std::int64_t r, int) noexcept {
          isa_.narrow(y + r * width, weights_.bias, bias_type(p.bias), n, f16, width,
                      y16 + (m + r) * p.y_row_stride + n);
        };
        pool.run(height, height * width < kParallelElements ? 1 : threads_, narrow);
      }
    }
    return {};
  }

 private:
  static constexpr std::int64_t kParallelElements = 1 << 15;

  const Fp8BlockLinear problem_;
  const LayerWeights weights_;
  const VectorIsa& isa_;
  const int threads_;
  const std::string config_;
};

// "OpenBLAS 0.3.21 …": what runs is not ours to digest, so its version and the kernels that it chose stand for it.
std::string fingerprint() {
  std::string text =
      std::string(host_dequant_blas_fingerprint()) + "+" + openblas_get_config() + "+" + openblas_get_corename();
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == ' ' || c == ',' || c == '='; }, '_');
  return text;
}

class HostDequantBlas final : public HostArm {
 public:
  HostDequantBlas() : HostArm("host_dequant_blas", fingerprint()) {}
  bool batch_invariant() const noexcept override { return false; }
  bool library() const noexcept override { return true; }

  Eligibility supports(const Problem& problem, Rows rows, const Device& device) const override {
    Eligibility eligibility = HostArm::supports(problem, rows, device);
    if (!eligibility) return eligibility;
    if (const Fp8BlockLinear p = Fp8BlockLinear::from(problem); p.k > std::numeric_limits<blasint>::max()) {
      return Eligibility::no("K does not fit OpenBLAS's integers (K = " + std::to_string(p.k) + ")");
    }
    if (!fault().empty()) return Eligibility::no(fault());
    return eligibility;
  }

  Cost cost(const Problem& problem, Rows rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    Cost cost = base_cost(p, rows);
    if (rows > 0) cost.workspace_bytes = workspace_floats(p, tiles(p, rows)) * sizeof(float);
    return cost;
  }

  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    const LayerWeights layer = layer_weights(p, weights);
    const VectorIsa& isa = *vector_isas().front();
    const int threads = ThreadPool::instance().threads();
    std::string here = openblas_state() + " isa=" + isa.name + " convert_threads=" + std::to_string(threads) +
                       " tile_n=" + std::to_string(tiles(p, 1).n);
    if (!config.empty() && config != here) {
      throw ConfigNotRestorable("host_dequant_blas cannot restore \"" + std::string(config) + "\": here it is \"" +
                                here + "\"");
    }
    return std::make_unique<PreparedBlas>(p, layer, isa, threads, std::move(here));
  }
};

}  // namespace

const Arm& host_dequant_blas() {
  static const HostDequantBlas arm;
  return arm;
}

}  // namespace crossover::fp8_block_linear_detail
