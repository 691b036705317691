// Every CUDA arm against the f64 reference: edge shapes, a ladder of row counts, all codes, scales and activations at
// the ends of their ranges, faults that public kernels had, capture, and what an arm must refuse.

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "gpu_test.hpp"

namespace crossover::test {
namespace {

using E = Element;

struct Shape {
  std::string name;
  Fp8BlockLinear p;
  std::vector<Rows> rows;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

Shape shape(std::string name, std::int64_t n, std::int64_t k, E dtype, std::vector<Rows> rows, E bias = E::none,
            std::int64_t x_row_stride = 0, std::int64_t y_row_stride = 0, int alignment = 0) {
  Fp8BlockLinear p;
  p.n = n;
  p.k = k;
  p.dtype = dtype;
  p.bias = bias;
  p.x_row_stride = x_row_stride;
  p.y_row_stride = y_row_stride;
  p.alignment = alignment;
  return {std::move(name), p, std::move(rows)};
}

const std::vector<Rows> kLadder{1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 65, 96, 127, 128, 129, 257};
const std::vector<Rows> kShort{1, 5, 8, 9, 16, 17, 65, 129};

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{shape("one_by_one", 1, 1, E::bf16, kShort),
                                      shape("tiny_f32_bias", 7, 5, E::bf16, kShort, E::f32),
                                      shape("one_vector", 8, 16, E::f16, kShort),
                                      shape("bytes_only_bias", 33, 101, E::f16, kLadder, E::f16),
                                      shape("words_only", 64, 68, E::bf16, kLadder),
                                      shape("shard_80x192", 80, 192, E::bf16, kLadder),
                                      shape("shard_160x320", 160, 320, E::f16, kLadder, E::f32),
                                      shape("shard_448x320", 448, 320, E::bf16, kLadder),
                                      shape("half_block_576x192", 576, 192, E::bf16, kLadder, E::bf16),
                                      shape("half_block_2112x576", 2112, 576, E::bf16, kShort),
                                      shape("scales_5_blocks", 256, 640, E::bf16, kLadder),
                                      shape("scales_9_blocks", 256, 1152, E::bf16, kLadder),
                                      shape("scales_18_blocks", 256, 2304, E::bf16, kLadder),
                                      shape("one_short_of_a_block", 129, 127, E::bf16, kLadder, E::bf16),
                                      shape("one_over_a_block", 128, 129, E::f16, kLadder),
                                      shape("two_over_a_block", 250, 130, E::bf16, kLadder),
                                      shape("strides_aligned", 264, 384, E::bf16, kLadder, E::bf16, 400, 320),
                                      shape("strides_odd", 264, 384, E::bf16, kLadder, E::f32, 385, 267),
                                      shape("alignment_2", 256, 512, E::f16, kLadder, E::none, 0, 0, 2),
                                      shape("alignment_8", 256, 512, E::bf16, kLadder, E::bf16, 0, 0, 8),
                                      shape("nothing_divides", 2113, 7000, E::bf16, {1, 2, 8, 16, 33, 128, 300}),
                                      shape("split_5120x12800", 5120, 12800, E::bf16, {1, 2, 3, 4, 5, 6, 7, 8, 40}),
                                      shape("row_tiles", 2048, 2048, E::bf16, {1000, 1001, 1024, 1040, 1056, 1088}),
                                      shape("real_2112x7168", 2112, 7168, E::bf16, {1, 8, 16, 33, 129, 1001}),
                                      shape("real_7168x2048", 7168, 2048, E::bf16, {1, 8, 16, 64, 8191, 8192}),
                                      shape("real_24576x1536", 24576, 1536, E::f16, {1, 8, 16, 64, 500}),
                                      shape("long_4096x192", 4096, 192, E::bf16, kShort)};
  return all;
}

class CudaArm : public testing::TestWithParam<std::tuple<std::string, Shape>> {};
std::string case_name(const testing::TestParamInfo<CudaArm::ParamType>& info) {
  return as_test_name(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
}

// Right at every row count of the ladder, after a restart from its config too; rows of batch-invariant arms are the
// same bits.
TEST_P(CudaArm, IsRight) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  const auto& [name, shape] = GetParam();
  const Arm& arm = arm_named(name);
  const Problem problem = shape.p.problem();
  const Rows most = *std::max_element(shape.rows.begin(), shape.rows.end());
  std::vector<Rows> eligible;
  std::string reason;
  for (const Rows rows : shape.rows) {
    const Eligibility can = arm.supports(problem, rows, gpu()->device());
    if (can) {
      EXPECT_TRUE(can.rows.contains(rows));
      eligible.push_back(rows);
    } else {
      reason = can.reason;
      EXPECT_FALSE(reason.empty());
    }
  }
  if (eligible.empty()) GTEST_SKIP() << reason;
  {
    const auto workload = fp8_block_linear().workload(problem, Regime{}, gpu()->memory(), most, 1, 42);
    auto prepared = arm.prepare(problem, workload->weights(0), "", most);
    const std::string config = prepared->config();
    EXPECT_FALSE(config.empty());
    prepared = arm.prepare(problem, workload->weights(0), config, most);
    EXPECT_EQ(prepared->config(), config);
    std::vector<std::uint16_t> first_row, row(static_cast<std::size_t>(shape.p.n));
    for (const Rows rows : eligible) {
      SCOPED_TRACE("M = " + std::to_string(rows));
      const DeviceBytes workspace(arm.cost(problem, rows).workspace_bytes);
      workload->poison(rows);
      const Arguments arguments = workload->arguments(rows, 0);
      const Timing timing = gpu()->run({prepared.get(), arguments, rows, workspace});
      ASSERT_TRUE(timing.status.ok()) << timing.status.message;
      const Check check = workload->check(rows, arm.numerics());
      ASSERT_TRUE(check.ok) << check.detail;
      if (arm.batch_invariant()) {
        gpu()->memory().download(row.data(), arguments.outputs[0].data, row.size() * 2);
        if (first_row.empty()) first_row = row;
        ASSERT_EQ(row, first_row);
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Edge, CudaArm,
                         testing::Combine(testing::ValuesIn(cuda_arm_names()), testing::ValuesIn(shapes())), case_name);

class CudaArmData : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { CROSSOVER_SKIP_WITHOUT_GPU(); }
  const Arm& arm() const { return arm_named(GetParam()); }
  Rows rows(Rows wanted) const { return GetParam() == "gemv_warp" ? std::min<Rows>(wanted, 16) : wanted; }
  bool rounds_weights_to_f16(const Fp8BlockLinear& p) const { return arm().numerics() == "w16" && p.dtype == E::f16; }
};

// Row n holds code n everywhere and X selects single weights: Y is that weight, to the bit; NaN for the two NaN codes.
// For aligned rows and others, because their kernels differ, and without the NaN codes, which leads to other kernels
// still.
TEST_P(CudaArmData, DecodesAll256Codes) {
  for (const E dtype : {E::bf16, E::f16}) {
    for (const std::int64_t k : {256, 250, 255}) {
      for (const bool with_nan : {true, false}) {
        SCOPED_TRACE("K = " + std::to_string(k) + (dtype == E::bf16 ? ", bf16" : ", f16") + (with_nan ? ", NaN" : ""));
        Fp8BlockLinear p;
        p.n = 256;
        p.k = k;
        p.dtype = dtype;
        Layer layer(p, rows(40));
        if (!arm().supports(layer.p.problem(), 1, gpu()->device())) continue;
        for (std::int64_t n = 0; n < p.n; ++n) {
          for (std::int64_t i = 0; i < k; ++i) {
            const bool nan = (n & 0x7F) == 0x7F;
            layer.weight(n, i) = static_cast<std::uint8_t>(nan && !with_nan ? 0x38 : n);
          }
        }
        // Powers of two that keep every scaled code exact in f16: 2^-9 · 2^-3 and 448 · 2^-1.
        for (std::size_t i = 0; i < layer.scales.size(); ++i) layer.scales[i] = i % 2 == 0 ? 0.125f : 0.5f;
        std::fill(layer.x.begin(), layer.x.end(), std::uint16_t{0});
        const auto column = [&](Rows r) { return (r * 37 + 5) % k; };
        for (Rows r = 0; r < layer.rows; ++r) layer.input(r, column(r)) = to_bits(dtype, r % 2 == 0 ? 1.0 : -2.0);
        const DeviceLayer device(layer);
        const auto y = device.run(arm());
        for (Rows r = 0; r < layer.rows; ++r) {
          for (std::int64_t n = 0; n < p.n; ++n) {
            const double value = to_double(dtype, y[static_cast<std::size_t>(r * p.n + n)]);
            if (with_nan && (n & 0x7F) == 0x7F) {
              ASSERT_TRUE(std::isnan(value)) << "row " << r << ", code " << n << ": " << value;
              continue;
            }
            const double expected = (r % 2 == 0 ? 1.0 : -2.0) *
                                    static_cast<double>(e4m3_to_float(layer.weight(n, column(r)))) *
                                    static_cast<double>(layer.scale(n, column(r)));
            ASSERT_EQ(value, expected) << "row " << r << ", code " << n;
          }
        }
      }
    }
  }
}

// A scale of 0 counts for nothing, tiny ones stay finite, and what is not finite reaches its outputs and no others.
TEST_P(CudaArmData, TakesEveryScale) {
  for (const std::int64_t k : {384, 380}) {
    for (const float scale : {0.0f, -0.25f, 1e-23f, 1e-40f, 1e20f, std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
      for (const std::int64_t block : {0, 1, 2}) {
        SCOPED_TRACE("K = " + std::to_string(k) + ", scale " + std::to_string(scale) + " in block " +
                     std::to_string(block));
        Fp8BlockLinear p;
        p.n = 256;
        p.k = k;
        Layer layer(p, rows(20));
        if (!arm().supports(layer.p.problem(), 1, gpu()->device())) continue;
        layer.scale(0, block * 128) = scale;
        const DeviceLayer device(layer);
        const auto y = device.run(arm());
        if (std::isfinite(scale)) {
          EXPECT_LE(relative_error(layer, y), error_bound(arm()));
          continue;
        }
        double difference = 0, size = 0;
        for (Rows r = 0; r < layer.rows; ++r) {
          for (std::int64_t n = 0; n < p.n; ++n) {
            const double value = to_double(p.dtype, y[static_cast<std::size_t>(r * p.n + n)]);
            if (n < 128) {
              ASSERT_FALSE(std::isfinite(value)) << "row " << r << ", column " << n << ": " << value;
              if (std::isnan(scale)) {
                ASSERT_TRUE(std::isnan(value));
              }
            } else {
              const double expected = layer.reference(r, n).value;
              difference += (value - expected) * (value - expected);
              size += expected * expected;
            }
          }
        }
        EXPECT_LE(std::sqrt(difference / size), error_bound(arm()));
      }
    }
  }
}

// All scales tiny, or spread over the whole range of f32: every sum is still right.
TEST_P(CudaArmData, TakesScalesOfAnyMagnitude) {
  for (const auto& [low, high] : {std::pair{-60, -40}, std::pair{-110, -70}, std::pair{-40, 30}, std::pair{5, 60}}) {
    SCOPED_TRACE("2^" + std::to_string(low) + " to 2^" + std::to_string(high));
    Fp8BlockLinear p;
    p.n = 256;
    p.k = 1024;
    Layer layer(p, rows(20));
    std::mt19937 random(3);
    for (float& scale : layer.scales) {
      scale = std::ldexp(1.0f + static_cast<float>(random() % 1000) / 1000.0f,
                         low + static_cast<int>(random() % static_cast<unsigned>(high - low)));
    }
    const DeviceLayer device(layer);
    EXPECT_LE(relative_error(layer, device.run(arm())), error_bound(arm()));
  }
}

// bf16 activations far beyond f16's range, both ways.
TEST_P(CudaArmData, TakesActivationsOfAnyMagnitude) {
  for (const double size : {1e30, 1e6, 1e-6, 1e-25}) {
    SCOPED_TRACE(size);
    Fp8BlockLinear p;
    p.n = 192;
    p.k = 512;
    Layer layer(p, rows(33));
    for (std::uint16_t& x : layer.x) x = to_bits(E::bf16, to_double(E::bf16, x) * size);
    const DeviceLayer device(layer);
    EXPECT_LE(relative_error(layer, device.run(arm())), error_bound(arm()));
  }
}

// K % 128 != 0: the last scale counts for the columns that there are.
TEST_P(CudaArmData, UsesTheLastScaleOfAPartialBlock) {
  for (const std::int64_t k : {192, 320, 200}) {
    SCOPED_TRACE(k);
    Fp8BlockLinear p;
    p.n = 128;
    p.k = k;
    Layer layer(p, rows(17));
    if (!arm().supports(layer.p.problem(), 1, gpu()->device())) continue;
    for (std::size_t i = 0; i < layer.scales.size(); ++i) layer.scales[i] = 1;
    layer.scales.back() = 1000;
    const DeviceLayer device(layer);
    EXPECT_LE(relative_error(layer, device.run(arm())), error_bound(arm()));
  }
}

TEST_P(CudaArmData, GivesItsMemoryBack) {
  Layer layer(Fp8BlockLinear{.n = 2048, .k = 2048}, 4);
  const DeviceLayer device(layer);
  device.run(arm());  // what is loaded once and stays
  const std::size_t before = gpu()->memory().available_bytes();
  for (int i = 0; i < 6; ++i) device.run(arm());
  EXPECT_GE(gpu()->memory().available_bytes() + (std::size_t{8} << 20), before);  // cached weights alone: 6 x 8 MiB
}

// One launch in a graph gives the bits of one launch outside; two in a graph do not get into each other's way.
TEST_P(CudaArmData, RunsInAGraph) {
  if (!arm().capture_safe()) GTEST_SKIP() << "does not say that it may be captured";
  const Fp8BlockLinear p{.n = 640, .k = 512};
  const Problem problem = p.problem();
  const Rows m = rows(24);
  const auto workload = fp8_block_linear().workload(problem, Regime{}, gpu()->memory(), m, 2, 9);
  std::vector<std::unique_ptr<Prepared>> prepared;
  for (int copy = 0; copy < 2; ++copy) {
    prepared.push_back(arm().prepare(problem, workload->weights(copy), copy == 0 ? "" : prepared[0]->config(), m));
  }
  const DeviceBytes workspace(arm().cost(problem, m).workspace_bytes);
  const auto launch = [&](int copy) {
    return Launch{prepared[static_cast<std::size_t>(copy)].get(), workload->arguments(m, copy), m, workspace};
  };
  const auto output = [&](int copy) {
    std::vector<std::uint16_t> y(static_cast<std::size_t>(m * p.n));
    gpu()->memory().download(y.data(), workload->arguments(m, copy).outputs[0].data, y.size() * 2);
    return y;
  };
  workload->poison(m);
  ASSERT_TRUE(gpu()->run(launch(0)).status.ok());
  const auto eager = output(0);
  const auto batch = gpu()->batch(LaunchMode::graph, {launch(0), launch(1), launch(0)});
  for (int replay = 0; replay < 3; ++replay) {
    workload->poison(m);
    const Timing timing = gpu()->time(*batch);
    ASSERT_TRUE(timing.status.ok()) << timing.status.message;
    EXPECT_GT(timing.total_ns, 0);
    EXPECT_EQ(output(0), eager);
    EXPECT_EQ(output(1), eager);  // copies hold the same data
  }
}

TEST_P(CudaArmData, DoesNothingForNoRows) {
  Layer layer(Fp8BlockLinear{.n = 128, .k = 128}, 1);
  const DeviceLayer device(layer);
  const auto prepared = device.prepare(arm());
  EXPECT_TRUE(prepared->launch(Fp8BlockLinearArguments(nullptr, nullptr), 0, {}, {}).ok());
  EXPECT_EQ(prepared->launch(Fp8BlockLinearArguments(nullptr, nullptr), -1, {}, {}).code, Status::Code::invalid);
  EXPECT_EQ(prepared->launch(Fp8BlockLinearArguments(nullptr, nullptr), 1, {}, {}).code, Status::Code::invalid);
}

TEST_P(CudaArmData, RefusesAWorkspaceThatIsTooSmall) {
  Layer layer(Fp8BlockLinear{.n = 128, .k = 128}, 1);
  const DeviceLayer device(layer);
  const std::size_t needed = arm().cost(layer.p.problem(), 1).workspace_bytes;
  if (needed == 0) GTEST_SKIP() << "needs no workspace";
  const auto prepared = device.prepare(arm());
  const DeviceBytes x(256), y(256), workspace(needed);
  const Status status =
      prepared->launch(Fp8BlockLinearArguments(x.data(), y.data()), 1, {workspace.data(), needed - 1}, {});
  EXPECT_EQ(status.code, Status::Code::workspace_too_small);
}

TEST_P(CudaArmData, RefusesAConfigThatItCannotRestore) {
  Layer layer(Fp8BlockLinear{.n = 128, .k = 128}, 1);
  const DeviceLayer device(layer);
  const std::string version = arm().library() ? device.prepare(arm())->config() : "";
  for (const std::string& config : {std::string("nonsense"), std::string("lt=1 16:128:0:0:0:0:0:0:0:0"), version + "x",
                                    version + " 8:1:0:0:0:0:0:0:0:0", version + " :"}) {
    if (config == "x" || config.empty()) continue;
    EXPECT_THROW(arm().prepare(layer.p.problem(), device.weights(), config, 16), ConfigNotRestorable) << config;
  }
}

TEST_P(CudaArmData, SaysWhyItCannot) {
  const Problem problem = Fp8BlockLinear{.n = 128, .k = 128}.problem();
  EXPECT_EQ(arm().supports(problem, 1, cpu_device()).reason, "runs on CUDA devices only (device kind cpu)");
  Device old = gpu()->device();
  old.compute_capability = "7.5";
  EXPECT_THAT(arm().supports(problem, 1, old).reason, testing::HasSubstr("no code for compute capability 7.5"));
  EXPECT_THAT(arm().supports(problem, 0, gpu()->device()).reason, testing::HasSubstr("rows < 1"));
}

TEST_P(CudaArmData, DescribesItself) {
  const Problem problem = Fp8BlockLinear{.n = 4096, .k = 1024}.problem();
  const Cost cost = arm().cost(problem, 8);
  EXPECT_EQ(cost.flops, 2.0 * 8 * 4096 * 1024);
  EXPECT_GE(cost.bytes_moved, 4096.0 * 1024);
  EXPECT_EQ(arm().id().fingerprint.find(' '), std::string::npos);
  EXPECT_GE(arm().id().fingerprint.size(), 32u);
}

INSTANTIATE_TEST_SUITE_P(Data, CudaArmData, testing::ValuesIn(cuda_arm_names()),
                         [](const auto& test) { return as_test_name(test.param); });

// More elements than 31 bits count, of W and of Y, whose last ones are what a wrapped index would miss.
TEST_P(CudaArmData, CountsBeyond31Bits) {
  struct Case {
    std::int64_t n, k;
    Rows m;
  };
  for (const Case& c : {Case{1048584, 2304, 4}, Case{70000, 128, 33000}}) {
    SCOPED_TRACE(std::to_string(c.n) + " x " + std::to_string(c.k) + ", M = " + std::to_string(c.m));
    const Fp8BlockLinear p{.n = c.n, .k = c.k};
    const Problem problem = p.problem();
    if (!arm().supports(problem, c.m, gpu()->device())) continue;
    if (GetParam().starts_with("tiled_scalar") && c.m > 4) continue;  // minutes
    Memory& memory = gpu()->memory();
    const std::int64_t k_blocks = c.k / 128, n_blocks = (c.n + 127) / 128;
    const DeviceBytes w(static_cast<std::size_t>(c.n * c.k)), x(static_cast<std::size_t>(c.m * c.k) * 2),
        y(static_cast<std::size_t>(c.m * c.n) * 2);
    memory.fill(w.data(), 0x38, static_cast<std::size_t>(c.n * c.k));  // 1.0
    const std::vector<float> scales(static_cast<std::size_t>(n_blocks * k_blocks), 0.5f);
    const DeviceBytes s(scales.data(), scales.size() * 4);
    // The last row of W is 2.0, the last row of X 3.0 where the others are 1.0.
    memory.fill(static_cast<std::byte*>(w.data()) + (c.n - 1) * c.k, 0x40, static_cast<std::size_t>(c.k));
    std::vector<std::uint16_t> values(static_cast<std::size_t>(c.m * c.k), to_bits(E::bf16, 1.0));
    std::fill_n(values.end() - c.k, c.k, to_bits(E::bf16, 3.0));
    memory.upload(x.data(), values.data(), values.size() * 2);
    const Weights weights = fp8_block_linear_weights(w.data(), static_cast<const float*>(s.data()));
    const auto prepared = arm().prepare(problem, weights, "", c.m);
    const DeviceBytes workspace(arm().cost(problem, c.m).workspace_bytes);
    const Fp8BlockLinearArguments arguments(x.data(), y.data());
    const Timing timing = gpu()->run({prepared.get(), arguments, c.m, workspace});
    ASSERT_TRUE(timing.status.ok()) << timing.status.message;
    const double one = 0.5 * static_cast<double>(c.k);
    for (const Rows r : {Rows{0}, c.m / 2, c.m - 1}) {
      for (const std::int64_t n : {std::int64_t{0}, c.n / 2, c.n - 2, c.n - 1}) {
        std::uint16_t bits = 0;
        memory.download(&bits, static_cast<const std::byte*>(y.data()) + (r * c.n + n) * 2, 2);
        const double expected = one * (r == c.m - 1 ? 3 : 1) * (n == c.n - 1 ? 2 : 1);
        EXPECT_NEAR(to_double(E::bf16, bits), expected, expected * 0x1p-8) << "Y[" << r << "][" << n << "]";
      }
    }
  }
}

// f16 cannot hold every scaled weight: the arms that round weights say so instead of losing some.
TEST(CudaArms, ThatRoundWeightsRefuseWhatF16CannotHold) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  for (const char* const name : {"dequant_cublaslt", "cached_cublaslt"}) {
    for (const float scale : {1000.0f, 1e-6f}) {
      Fp8BlockLinear p{.n = 128, .k = 256};
      p.dtype = E::f16;
      Layer layer(p, 4);
      std::fill(layer.scales.begin(), layer.scales.end(), 0.25f);
      layer.scales.back() = scale;
      const DeviceLayer device(layer);
      EXPECT_THROW(device.prepare(arm_named(name)), InvalidArgument) << name << ", scale " << scale;
      layer.p.dtype = E::bf16;
    }
  }
}

// The two versions of the scalar kernel differ in where they keep things, not in what they compute.
TEST(CudaArms, TiledScalarVersionsGiveTheSameBits) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  Layer layer(Fp8BlockLinear{.n = 333, .k = 1000}, 40);
  const DeviceLayer device(layer);
  EXPECT_EQ(device.run(arm_named("tiled_scalar_pad4")), device.run(arm_named("tiled_scalar_pad1")));
}

// The same on layers of a model, from a few rows to many: what tools/gpu_acceptance.sh counts shared-memory accesses
// of.
class Padding : public testing::TestWithParam<std::tuple<std::pair<int, int>, Rows>> {};
TEST_P(Padding, ChangesNoBit) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  const auto& [extents, rows] = GetParam();
  const Problem problem = Fp8BlockLinear{.n = extents.first, .k = extents.second}.problem();
  const auto workload = fp8_block_linear().workload(problem, Regime{}, gpu()->memory(), rows, 1, 42);
  std::vector<std::vector<std::uint16_t>> outputs;
  for (const char* const name : {"tiled_scalar_pad4", "tiled_scalar_pad1"}) {
    const Arm& arm = arm_named(name);
    const auto prepared = arm.prepare(problem, workload->weights(0), "", rows);
    workload->poison(rows);
    const Arguments arguments = workload->arguments(rows, 0);
    const Timing timing = gpu()->run({prepared.get(), arguments, rows, {}});
    ASSERT_TRUE(timing.status.ok()) << timing.status.message;
    const Check check = workload->check(rows, arm.numerics());
    EXPECT_TRUE(check.ok) << check.detail;
    std::vector<std::uint16_t>& y = outputs.emplace_back(static_cast<std::size_t>(rows * extents.first));
    gpu()->memory().download(y.data(), arguments.outputs[0].data, y.size() * 2);
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}
std::string padding_name(const testing::TestParamInfo<Padding::ParamType>& info) {
  const auto& [extents, rows] = info.param;
  return "N" + std::to_string(extents.first) + "_K" + std::to_string(extents.second) + "_M" + std::to_string(rows);
}
INSTANTIATE_TEST_SUITE_P(Scalar, Padding,
                         testing::Combine(testing::Values(std::pair(2112, 7168), std::pair(7168, 2048),
                                                          std::pair(4096, 7168)),
                                          testing::Values(5, 32, 128, 512)),
                         padding_name);

// Default arms are eligible wherever they are the default, and there is one for every row count.
TEST(CudaArms, DefaultsAreEligible) {
  CROSSOVER_SKIP_WITHOUT_GPU();
  for (const char* const capability : {"8.0", "8.6", "8.9", "9.0", "10.0", "12.0"}) {
    Device device = gpu()->device();
    device.compute_capability = capability;
    for (const Fp8BlockLinear& p : {Fp8BlockLinear{.n = 7168, .k = 2048}, Fp8BlockLinear{.n = 33, .k = 101}}) {
      const auto defaults = fp8_block_linear().default_arms(p.problem(), device);
      ASSERT_FALSE(defaults.empty());
      EXPECT_EQ(defaults.back().up_to, kMaxRows);
      EXPECT_EQ(default_arm(defaults, 1), "gemv_warp");
      EXPECT_EQ(default_arm(defaults, 8), "gemv_warp");
      EXPECT_EQ(family(default_arm(defaults, 9)), "tensor_core");
      Rows from = 1;
      for (const DefaultArm& one : defaults) {
        const Eligibility can = arm_named(one.arm).supports(p.problem(), from, device);
        if (!can && can.reason.find("no code") != std::string::npos) break;  // a build for fewer architectures
        EXPECT_TRUE(can.eligible) << one.arm << " on " << capability << ": " << can.reason;
        from = one.up_to == kMaxRows ? from : one.up_to + 1;
      }
    }
  }
}

}  // namespace
}  // namespace crossover::test
