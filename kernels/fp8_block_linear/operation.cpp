#include <array>

#include "crossover/dispatch/error.hpp"
#if CROSSOVER_HAVE_CUDA
#include "cuda/cuda_arms.hpp"
#endif
#include "host/host_arms.hpp"
#include "problem.hpp"
#include "workload.hpp"

namespace crossover {
namespace {

using namespace fp8_block_linear_detail;

class Fp8BlockLinearOperation final : public Operation {
 public:
  Fp8BlockLinearOperation() {
    arms_ = {&host_reference(), &host_vector()};
#if CROSSOVER_HAVE_OPENBLAS
    arms_.push_back(&host_dequant_blas());
#endif
#if CROSSOVER_HAVE_CUDA
    for (const auto arms : {native_cuda_arms(), cublaslt_cuda_arms()})
      arms_.insert(arms_.end(), arms.begin(), arms.end());
#endif
  }

  std::string_view name() const noexcept override { return kName; }
  std::span<const Arm* const> arms() const noexcept override { return arms_; }
  std::span<const NumericsClass> numerics() const noexcept override { return numerics_; }

  std::vector<DefaultArm> default_arms(const Problem& problem, const Device& device) const override {
    const Fp8BlockLinear p = Fp8BlockLinear::from(problem);
#if CROSSOVER_HAVE_CUDA
    if (device.kind == "cuda") return cuda_default_arms(p, device);
#endif
    static_cast<void>(p);
    if (device.kind != "cpu") {
      throw InvalidArgument("fp8_block_linear: this build has no arms for devices of kind \"" + device.kind + "\"");
    }
    return {{kMaxRows, "host_vector"}};
  }

  Problem normalise(const Problem& problem) const override { return Fp8BlockLinear::from(problem).problem(); }

  // Where host_vector changes from decoding in the product to decoding into scratch, and where a second tile of rows
  // begins, for it and for the tensor core arms.
  std::vector<Rows> tile_edges(const Problem&) const override {
    return {
      kDirectRows, kDirectRows + 1, kTileRows, kTileRows + 1,
#if CROSSOVER_HAVE_CUDA
          16, 17, 32, 33, 64, 65, 128, 129, 192, 193  // at 193 a fourth tile of 64 rows adds a third to the time
#endif
    };
  }

  std::size_t workload_bytes_per_copy(const Problem& problem, Rows max_rows) const override {
    return workload_bytes(Fp8BlockLinear::from(problem), max_rows);
  }

  std::unique_ptr<Workload> workload(const Problem& problem, const Regime& regime, Memory& memory, Rows max_rows,
                                     int copies, std::uint64_t seed) const override {
    return make_workload(Fp8BlockLinear::from(problem), regime, memory, max_rows, copies, seed);
  }

 private:
  std::vector<const Arm*> arms_;
  const std::vector<NumericsClass> numerics_{{"a16", true}, {"w16", true}, {"a8", false}};
};

}  // namespace

const Operation& fp8_block_linear() {
  static const Fp8BlockLinearOperation operation;
  return operation;
}

}  // namespace crossover
