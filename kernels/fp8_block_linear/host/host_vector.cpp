// The contender: weights are decoded in registers, and each is read from memory once for up to kTileRows rows of X.
//
// A launch packs a tile of X to f32, then the threads take column tiles of W, each of them the whole of K. Nothing
// about the tiles changes the order in which one element of Y is summed; see vector_kernel.hpp.

#include <algorithm>

#include "../../host/thread_pool.hpp"
#include "crossover/dispatch/error.hpp"
#include "host_arms.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

using host::ThreadPool;

// Below this many multiply-adds one thread is done before a second has woken up.
constexpr double kParallelMultiplyAdds = 1 << 17;
constexpr std::int64_t kPackElements = 1 << 15;  // of X; the same for packing

std::int64_t chunks(std::int64_t k) { return (k + kChunk - 1) / kChunk; }

std::size_t packed_bytes(const Fp8BlockLinear& p, Rows rows) {
  return static_cast<std::size_t>(std::min(rows, kTileRows) * chunks(p.k) * kRowFloats) * sizeof(float);
}

std::size_t scratch_bytes(Rows rows, int threads) {
  // A tile of at most kDirectRows rows needs none.
  return rows <= kDirectRows ? 0 : static_cast<std::size_t>(threads) * kScratchFloats * sizeof(float);
}

// Enough tiles that threads which start late or are disturbed do not matter, each wide enough to be worth taking.
std::int64_t tile_columns(const Fp8BlockLinear& p, std::int64_t rows, int threads) {
  constexpr std::int64_t kMinWeights = 1 << 14;
  const std::int64_t min_columns = rows <= kDirectRows ? std::max(kColumnStep, kMinWeights / p.k) : 2 * kColumnStep;
  const std::int64_t columns = std::max(p.n / (std::int64_t{8} * threads), min_columns);
  return std::min((columns + kColumnStep - 1) / kColumnStep * kColumnStep, kTileColumns);
}

class PreparedVector final : public Prepared {
 public:
  PreparedVector(const Fp8BlockLinear& problem, LayerWeights weights, const VectorIsa& isa, int threads)
      : problem_(problem), weights_(weights), isa_(isa), threads_(threads) {}

  std::string config() const override {
    return "isa=" + std::string(isa_.name) + " threads=" + std::to_string(threads_);
  }

  Status launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream) noexcept override {
    const Status status = check_launch(problem_, arguments, rows);
    if (!status.ok() || rows == 0) return status;
    const std::size_t packed = packed_bytes(problem_, rows);
    if (workspace.data == nullptr || workspace.bytes < packed + scratch_bytes(rows, threads_)) {
      return {Status::Code::workspace_too_small, 0, "host_vector: the workspace is smaller than its cost says"};
    }
    float* const x = static_cast<float*>(workspace.data);
    float* const scratch = x + packed / sizeof(float);
    // Tiles of nearly the same height: a last one of a few rows would read all weights for them alone.
    const Rows tiles = (rows + kTileRows - 1) / kTileRows;
    const Rows height = (rows + tiles - 1) / tiles;
    for (Rows first = 0; first < rows; first += height) {
      launch_tile(arguments, first, std::min(height, rows - first), x, scratch);
    }
    return {};
  }

 private:
  void launch_tile(const Arguments& arguments, Rows first, Rows rows, float* packed, float* scratch) const noexcept {
    const Fp8BlockLinear& p = problem_;
    ThreadPool& pool = ThreadPool::instance();
    const std::uint16_t* const x = static_cast<const std::uint16_t*>(arguments.inputs[0].data) + first * p.x_row_stride;
    const bool f16 = p.dtype == Element::f16;

    constexpr Rows kPackRows = 8;
    auto pack = [&](std::int64_t index, int) noexcept {
      isa_.pack(x, p.x_row_stride, f16, p.k, rows, index * kPackRows, std::min((index + 1) * kPackRows, rows), packed);
    };
    pool.run((rows + kPackRows - 1) / kPackRows, rows * p.k < kPackElements ? 1 : threads_, pack);

    const VectorTask task{.w = weights_.w,
                          .scales = weights_.scales,
                          .bias = weights_.bias,
                          .bias_type = bias_type(p.bias),
                          .f16 = f16,
                          .n = p.n,
                          .k = p.k,
                          .k_blocks = p.k_blocks(),
                          .rows = rows,
                          .x = packed,
                          .y = static_cast<std::uint16_t*>(arguments.outputs[0].data) + first * p.y_row_stride,
                          .y_row_stride = p.y_row_stride};
    const std::int64_t columns = tile_columns(p, rows, threads_);
    const double multiply_adds = static_cast<double>(rows) * static_cast<double>(p.n) * static_cast<double>(p.k);
    auto multiply = [&](std::int64_t index, int slot) noexcept {
      isa_.multiply(task, index * columns, std::min((index + 1) * columns, p.n), scratch + slot * kScratchFloats);
    };
    pool.run((p.n + columns - 1) / columns, multiply_adds < kParallelMultiplyAdds ? 1 : threads_, multiply);
  }

  const Fp8BlockLinear problem_;
  const LayerWeights weights_;
  const VectorIsa& isa_;
  const int threads_;
};

class HostVector final : public HostArm {
 public:
  HostVector() : HostArm("host_vector", host_vector_fingerprint()) {}
  bool batch_invariant() const noexcept override { return true; }

  Cost cost(const Problem& problem, Rows rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    Cost cost = base_cost(p, rows);
    if (rows > 0) cost.workspace_bytes = packed_bytes(p, rows) + scratch_bytes(rows, ThreadPool::instance().threads());
    return cost;
  }

  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    const LayerWeights layer = layer_weights(p, weights);
    const int available = ThreadPool::instance().threads();
    if (config.empty()) return std::make_unique<PreparedVector>(p, layer, *vector_isas().front(), available);
    std::string valid;
    for (const VectorIsa* isa : vector_isas()) {
      for (int threads = available; threads >= 1; --threads) {
        auto prepared = std::make_unique<PreparedVector>(p, layer, *isa, threads);
        if (prepared->config() == config) return prepared;
      }
      valid += (valid.empty() ? "" : ", ") + std::string(isa->name);
    }
    throw ConfigNotRestorable("host_vector cannot restore \"" + std::string(config) + "\" here: isa is one of " +
                              valid + ", threads 1 to " + std::to_string(available));
  }
};

}  // namespace

const Arm& host_vector() {
  static const HostVector arm;
  return arm;
}

}  // namespace crossover::fp8_block_linear_detail
