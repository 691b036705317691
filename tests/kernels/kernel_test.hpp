#pragma once
// What the tests of the kernels share: host memory, the arms' variants, and layers with data of the test's own making
// and a reference of its own, independent of the operation's workload.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

#include "crossover/dispatch/error.hpp"
#include "crossover/kernels/formats.hpp"
#include "crossover/kernels/fp8_block_linear.hpp"

namespace crossover::test {

// Allocations of exactly the bytes asked for, so that AddressSanitizer sees every access beyond them.
class HostMemory : public Memory {
 public:
  ~HostMemory() override { EXPECT_EQ(live_, 0) << "memory that was never released"; }
  void* allocate(std::size_t bytes) override {
    if (bytes > limit_) throw OutOfMemory("more than the test's limit at once");
    ++live_;
    allocated_ += bytes;
    return ::operator new (bytes, std::align_val_t{256});
  }
  void release(void* data) noexcept override {
    --live_;
    ::operator delete (data, std::align_val_t{256});
  }
  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill(void* to, std::uint8_t byte, std::size_t bytes) override { std::memset(to, byte, bytes); }
  std::size_t available_bytes() override { return available_; }

  void limit(std::size_t bytes) { limit_ = bytes; }
  void available(std::size_t bytes) { available_ = bytes; }
  std::size_t allocated() const { return allocated_; }

 private:
  std::size_t limit_ = std::size_t{1} << 40, available_ = std::size_t{1} << 62, allocated_ = 0;
  int live_ = 0;
};

class Scratch {
 public:
  explicit Scratch(std::size_t bytes) : bytes_(bytes) {
    if (bytes != 0) data_ = ::operator new (bytes, std::align_val_t{256});
    // Whatever was there before: NaN.
    if (bytes != 0) std::memset(data_, 0xFF, bytes);
  }
  ~Scratch() { ::operator delete (data_, std::align_val_t{256}); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  operator Workspace() const { return {data_, bytes_}; }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

inline Device cpu_device() {
  return {
      .kind = "cpu", .model = "test", .compute_capability = "x86-64", .sm_count = 2, .l2_bytes = 0, .memory_gib = 1};
}

// An arm in one of the ways it can run. Its names are those of the tests.
struct Variant {
  std::string name, arm, isa;  // isa: of host_vector
};
inline const std::vector<Variant>& variants() {
  static const std::vector<Variant> all{{"host_reference", "host_reference", ""},
                                        {"host_vector_avx512", "host_vector", "avx512"},
                                        {"host_vector_avx2", "host_vector", "avx2"},
                                        {"host_vector_portable", "host_vector", "portable"},
                                        {"host_dequant_blas", "host_dequant_blas", ""}};
  return all;
}
inline std::vector<Variant> fast_variants() { return {variants().begin() + 1, variants().end()}; }
inline void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }
inline std::string variant_name(const testing::TestParamInfo<Variant>& info) { return info.param.name; }

// Why this machine or build cannot run a variant; empty: it can.
inline std::string missing(const Variant& variant) {
  const Arm* const arm = fp8_block_linear().find(variant.arm);
  if (arm == nullptr) return "this build has no arm " + variant.arm;
  const Fp8BlockLinear p{.n = 1, .k = 1};
  if (const Eligibility can = arm->supports(p.problem(), 1, cpu_device()); !can) return can.reason;
  if (variant.isa.empty()) return {};
  const std::uint8_t w = 0;
  const float s = 0;
  alignas(16) std::uint8_t aligned[16] = {w};
  try {
    static_cast<void>(
        arm->prepare(p.problem(), fp8_block_linear_weights(aligned, &s), "isa=" + variant.isa + " threads=1", 1));
  } catch (const ConfigNotRestorable& error) {
    return error.what();
  }
  return {};
}
#define CROSSOVER_SKIP_IF_MISSING(variant) \
  if (const std::string why = ::crossover::test::missing(variant); !why.empty()) GTEST_SKIP() << why

// The variant's config with all threads, or the arm's own choice.
inline std::unique_ptr<Prepared> prepare(const Variant& variant, const Problem& problem, const Weights& weights) {
  const Arm& arm = *fp8_block_linear().find(variant.arm);
  auto prepared = arm.prepare(problem, weights, "", 1024);
  if (variant.isa.empty()) return prepared;
  const std::string config = prepared->config();
  return arm.prepare(problem, weights, "isa=" + variant.isa + config.substr(config.find(" threads=")), 1024);
}

inline Status launch(const Variant& variant, Prepared& prepared, const Problem& problem, const Arguments& arguments,
                     Rows rows) {
  const Scratch scratch(fp8_block_linear().find(variant.arm)->cost(problem, rows).workspace_bytes);
  return prepared.launch(arguments, rows, scratch, {});
}

inline std::uint16_t to_bits(Element dtype, double value) {
  return dtype == Element::bf16 ? float_to_bf16(static_cast<float>(value)) : float_to_f16(static_cast<float>(value));
}
inline double to_double(Element dtype, std::uint16_t bits) {
  return static_cast<double>(dtype == Element::bf16 ? bf16_to_float(bits) : f16_to_float(bits));
}

// A layer and rows of X in plain vectors; a test changes what it likes.
struct Layer {
  Fp8BlockLinear p;
  Rows rows;
  std::vector<std::uint8_t> w_storage;
  std::uint8_t* w;
  std::vector<float> scales;
  std::vector<float> bias;  // used where p.bias is f32
  std::vector<std::uint16_t> x;
  static constexpr std::uint16_t kUntouched = 0x7FA5;

  Layer(const Fp8BlockLinear& problem, Rows row_count, std::uint32_t seed = 1)
      : p(Fp8BlockLinear::from(problem.problem())), rows(row_count) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    w_storage.resize(static_cast<std::size_t>(p.n * p.k) + 16);
    w = w_storage.data() + (16 - reinterpret_cast<std::uintptr_t>(w_storage.data()) % 16) % 16;
    for (std::int64_t i = 0; i < p.n * p.k; ++i) {
      std::uint8_t code = static_cast<std::uint8_t>(random());
      if ((code & 0x7Fu) == 0x7Fu) code = 0x38;  // 1.0
      w[i] = code;
    }
    scales.resize(static_cast<std::size_t>(p.n_blocks() * p.k_blocks()));
    for (std::size_t i = 0; i < scales.size(); ++i)
      scales[i] = static_cast<float>(std::exp2(-6 + 5 * std::fabs(normal(random)))) / 64;
    if (p.bias == Element::f32) {
      for (std::int64_t i = 0; i < p.n; ++i) bias.push_back(static_cast<float>(10 * normal(random)));
    }
    x.resize(static_cast<std::size_t>(rows * p.x_row_stride));
    for (std::uint16_t& value : x) value = to_bits(p.dtype, normal(random));
  }

  std::int64_t n_block_of(std::int64_t n) const { return n / kScaleBlock; }
  float& scale(std::int64_t n, std::int64_t k) {
    return scales[static_cast<std::size_t>(n / kScaleBlock * p.k_blocks() + k / kScaleBlock)];
  }
  std::uint8_t& weight(std::int64_t n, std::int64_t k) { return w[n * p.k + k]; }
  std::uint16_t& input(Rows r, std::int64_t k) { return x[static_cast<std::size_t>(r * p.x_row_stride + k)]; }

  struct Sum {
    double value = 0, size = 0;
  };
  Sum reference(Rows r, std::int64_t n) {
    Sum sum;
    for (std::int64_t k = 0; k < p.k; ++k) {
      const double term = to_double(p.dtype, input(r, k)) * static_cast<double>(e4m3_to_float(weight(n, k))) *
                          static_cast<double>(scale(n, k));
      sum.value += term;
      sum.size += std::fabs(term);
    }
    if (p.bias == Element::f32) sum.value += static_cast<double>(bias[static_cast<std::size_t>(n)]);
    return sum;
  }

  Weights weights() const {
    return fp8_block_linear_weights(w, scales.data(), p.bias == Element::f32 ? bias.data() : nullptr);
  }

  // Y with its gaps, kUntouched wherever the arm did not write. Rows lie y_row_stride apart; storage begins 16-byte
  // aligned.
  std::vector<std::uint16_t> run(const Variant& variant, Rows first = 0, Rows count = -1) {
    if (count < 0) count = rows - first;
    const auto prepared = prepare(variant, p.problem(), weights());
    return run(variant, *prepared, first, count);
  }
  std::vector<std::uint16_t> run(const Variant& variant, Prepared& prepared, Rows first, Rows count) {
    const std::size_t x_elements = static_cast<std::size_t>(count > 0 ? (count - 1) * p.x_row_stride + p.k : 0);
    const std::size_t y_elements = static_cast<std::size_t>(count * p.y_row_stride);
    const Scratch in(x_elements * 2 + 16), out(y_elements * 2 + 16);
    std::uint16_t* const y = static_cast<std::uint16_t*>(Workspace(out).data);
    std::fill_n(y, y_elements, kUntouched);
    if (x_elements > 0) std::memcpy(Workspace(in).data, x.data() + first * p.x_row_stride, x_elements * 2);
    const Fp8BlockLinearArguments arguments(Workspace(in).data, y, p.x_row_stride, p.y_row_stride);
    const Status status = launch(variant, prepared, p.problem(), arguments, count);
    EXPECT_TRUE(status.ok()) << status.message;
    return {y, y + y_elements};
  }

  // Every element within f32 summation and output rounding of the reference; gaps untouched.
  testing::AssertionResult right(const std::vector<std::uint16_t>& y) {
    const double rounding = p.dtype == Element::bf16 ? 0x1p-8 : 0x1p-11;
    for (Rows r = 0; r < rows; ++r) {
      for (std::int64_t n = 0; n < p.y_row_stride; ++n) {
        const std::uint16_t bits = y[static_cast<std::size_t>(r * p.y_row_stride + n)];
        if (n >= p.n) {
          if (bits != kUntouched) return testing::AssertionFailure() << "gap after row " << r << " was written";
          continue;
        }
        const Sum expected = reference(r, n);
        const double value = to_double(p.dtype, bits);
        const double allowed = rounding * std::fabs(expected.value) + 1e-6 * expected.size +
                               1e-7 * std::fabs(expected.value) + (p.dtype == Element::bf16 ? 1e-40 : 0x1p-24);
        if (!(std::fabs(value - expected.value) <= allowed)) {
          return testing::AssertionFailure()
                 << "Y[" << r << "][" << n << "] = " << value << ", expected " << expected.value;
        }
      }
    }
    return testing::AssertionSuccess();
  }
};

}  // namespace crossover::test
