// The control: one loop nest, one thread, sums in f64. Slow, and right at a glance.

#include "crossover/dispatch/error.hpp"
#include "crossover/kernels/formats.hpp"
#include "host_arms.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

float to_float(const void* data, Element type, std::int64_t i) {
  if (type == Element::f32) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return type == Element::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
}

class PreparedReference final : public Prepared {
 public:
  PreparedReference(const Fp8BlockLinear& problem, LayerWeights weights) : problem_(problem), weights_(weights) {}

  std::string config() const override { return "-"; }

  Status launch(const Arguments& arguments, Rows rows, Workspace, Stream) noexcept override {
    const Status status = check_launch(problem_, arguments, rows);
    if (!status.ok() || rows == 0) return status;
    const Fp8BlockLinear& p = problem_;
    for (std::int64_t m = 0; m < rows; ++m) {
      const std::uint16_t* const x = static_cast<const std::uint16_t*>(arguments.inputs[0].data) + m * p.x_row_stride;
      std::uint16_t* const y = static_cast<std::uint16_t*>(arguments.outputs[0].data) + m * p.y_row_stride;
      for (std::int64_t n = 0; n < p.n; ++n) {
        double sum = 0;
        for (std::int64_t block = 0; block < p.k_blocks(); ++block) {
          double partial = 0;
          for (std::int64_t k = block * kScaleBlock; k < std::min((block + 1) * kScaleBlock, p.k); ++k) {
            partial += static_cast<double>(to_float(x, p.dtype, k)) *
                       static_cast<double>(e4m3_to_float(weights_.w[n * p.k + k]));
          }
          sum += partial * static_cast<double>(weights_.scales[n / kScaleBlock * p.k_blocks() + block]);
        }
        if (p.bias != Element::none) sum += static_cast<double>(to_float(weights_.bias, p.bias, n));
        const float value = static_cast<float>(sum);
        y[n] = p.dtype == Element::bf16 ? float_to_bf16(value) : float_to_f16(value);
      }
    }
    return {};
  }

 private:
  const Fp8BlockLinear problem_;
  const LayerWeights weights_;
};

class HostReference final : public HostArm {
 public:
  HostReference() : HostArm("host_reference", host_reference_fingerprint()) {}
  bool batch_invariant() const noexcept override { return true; }
  Cost cost(const Problem& problem, Rows rows) const override { return base_cost(Fp8BlockLinear::from(problem), rows); }
  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows) const override {
    if (!config.empty() && config != "-") {
      throw ConfigNotRestorable("host_reference has no configuration, so \"" + std::string(config) +
                                "\" cannot be restored");
    }
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
    return std::make_unique<PreparedReference>(p, layer_weights(p, weights));
  }
};

}  // namespace

const Arm& host_reference() {
  static const HostReference arm;
  return arm;
}

}  // namespace crossover::fp8_block_linear_detail
