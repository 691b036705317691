#include <array>

#include "crossover/dispatch/error.hpp"
#include "host/host_arms.hpp"
#include "problem.hpp"
#include "workload.hpp"

namespace crossover {
namespace {

using namespace fp8_block_linear_detail;

class Fp8BlockLinearOperation final : public Operation {
 public:
  Fp8BlockLinearOperation() : arms_ {
    &host_reference(), &host_vector(),
#if CROSSOVER_HAVE_OPENBLAS
        &host_dequant_blas(),
#endif
  }
  {}

  std::string_view name() const noexcept override { return kName; }
  std::span<const Arm* const> arms() const noexcept override { return arms_; }
  std::span<const NumericsClass> numerics() const noexcept override { return numerics_; }

  std::vector<DefaultArm> default_arms(const Problem& problem, const Device& device) const override {
    static_cast<void>(Fp8BlockLinear::from(problem));
    if (device.kind != "cpu") {
      throw InvalidArgument("fp8_block_linear: this build has no arms for devices of kind \"" + device.kind + "\"");
    }
    return {{kMaxRows, "host_vector"}};
  }

  Problem normalise(const Problem& problem) const override { return Fp8BlockLinear::from(problem).problem(); }

  // Where host_vector changes from decoding in the product to decoding into scratch, and where a second tile of rows
  // begins.
  std::vector<Rows> tile_edges(const Problem&) const override {
    return {kDirectRows, kDirectRows + 1, kTileRows, kTileRows + 1};
  }

  std::size_t workload_bytes_per_copy(const Problem& problem, Rows max_rows) const override {
    return workload_bytes(Fp8BlockLinear::from(problem), max_rows);
  }

  std::unique_ptr<Workload> workload(const Problem& problem, const Regime& regime, Memory& memory, Rows max_rows,
                                     int copies, std::uint64_t seed) const override {
    return make_workload(Fp8BlockLinear::from(problem), regime, memory, max_rows, copies, seed);
  }

 private:
  const std::vector<const Arm*> arms_;
  const std::vector<NumericsClass> numerics_{{"a16", true}, {"w16", true}, {"a8", false}};
};

}  // namespace

const Operation& fp8_block_linear() {
  static const Fp8BlockLinearOperation operation;
  return operation;
}

}  // namespace crossover
