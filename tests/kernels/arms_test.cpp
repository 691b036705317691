// Every arm on every kind of shape.

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "kernel_test.hpp"

namespace crossover::test {
namespace {

constexpr Rows kLadder[] = {1,  2,  3,  4,  5,   7,   8,   9,   15,  16,   17,   31,
                            33, 63, 65, 96, 127, 128, 129, 256, 257, 1000, 1001, 1024};

struct Shape {
  std::string name;
  Fp8BlockLinear p;
};
Shape shape(std::int64_t n, std::int64_t k, Element dtype = Element::bf16, Element bias = Element::none,
            std::int64_t x_gap = 0, std::int64_t y_gap = 0, int alignment = 0) {
  const auto text = [](Element e) {
    return e == Element::bf16 ? "bf16" : e == Element::f16 ? "f16" : e == Element::f32 ? "f32" : "none";
  };
  std::string name = "n" + std::to_string(n) + "_k" + std::to_string(k) + "_" + text(dtype);
  if (bias != Element::none) name += "_bias_" + std::string(text(bias));
  if (x_gap != 0) name += "_xgap" + std::to_string(x_gap);
  if (y_gap != 0) name += "_ygap" + std::to_string(y_gap);
  if (alignment != 0) name += "_align" + std::to_string(alignment);
  return {name,
          {.n = n,
           .k = k,
           .dtype = dtype,
           .bias = bias,
           .x_row_stride = k + x_gap,
           .y_row_stride = n + y_gap,
           .alignment = alignment}};
}

const std::vector<Shape>& shapes() {
  using enum Element;
  static const std::vector<Shape> all{
      shape(1, 1), shape(1, 128), shape(128, 1), shape(7, 7), shape(7, 129), shape(8, 1024), shape(9, 1025),
      shape(64, 64), shape(65, 1023), shape(127, 127), shape(127, 129), shape(128, 128), shape(129, 127),
      shape(129, 129), shape(1, 4097),
      // shards that cross a scale block
      shape(80, 160), shape(80, 192), shape(80, 320), shape(160, 80), shape(160, 192), shape(160, 320),
      // ceil(K/128) off a multiple of 4
      shape(256, 640), shape(256, 1152), shape(256, 2304),
      // a part of a block in N, in K, in both
      shape(448, 256), shape(576, 448), shape(448, 576), shape(2112, 192), shape(320, 192), shape(192, 320),
      shape(192, 576), shape(64, 2112),
      // f16
      shape(1, 1, f16), shape(7, 129, f16), shape(64, 64, f16), shape(80, 192, f16), shape(129, 127, f16),
      shape(160, 320, f16), shape(256, 1152, f16), shape(448, 576, f16), shape(1, 4097, f16),
      // bias
      shape(129, 192, bf16, bf16), shape(129, 192, bf16, f32), shape(129, 192, f16, f16), shape(129, 192, f16, f32),
      shape(7, 1, bf16, f32),
      // row strides and alignment
      shape(129, 192, bf16, none, 1, 0), shape(129, 192, bf16, none, 0, 1), shape(128, 128, bf16, none, 8, 24),
      shape(80, 160, f16, f32, 3, 7), shape(128, 128, bf16, none, 0, 0, 2), shape(128, 128, f16, none, 0, 0, 4),
      shape(128, 128, bf16, bf16, 64, 64, 8)};
  return all;
}

class OnShape : public testing::TestWithParam<std::tuple<Variant, std::size_t>> {};

TEST_P(OnShape, MatchesReference) {
  const auto& [variant, index] = GetParam();
  CROSSOVER_SKIP_IF_MISSING(variant);
  const Fp8BlockLinear p = shapes()[index].p;
  const Problem problem = p.problem();
  const double weights = static_cast<double>(p.n) * static_cast<double>(p.k);
  const bool slow = variant.arm == "host_reference";
  HostMemory memory;
  const Rows max_rows = 1024;
  const auto workload = fp8_block_linear().workload(problem, {}, memory, max_rows, 1, 7);
  const auto prepared = prepare(variant, problem, workload->weights(0));
  for (const Rows rows : kLadder) {
    // The control is one thread of scalar code, and does the same at every row count.
    if (slow && rows > 3 && static_cast<double>(rows) * weights > 1 << 23) continue;
    workload->poison(rows);
    const Status status = launch(variant, *prepared, problem, workload->arguments(rows, 0), rows);
    ASSERT_TRUE(status.ok()) << status.message;
    const Check check = workload->check(rows, fp8_block_linear().find(variant.arm)->numerics());
    ASSERT_TRUE(check.ok) << "M = " << rows << ": " << check.detail;
    ASSERT_TRUE(std::isfinite(check.error));
  }
}
INSTANTIATE_TEST_SUITE_P(Arms, OnShape,
                         testing::Combine(testing::ValuesIn(variants()),
                                          testing::Range(std::size_t{0}, shapes().size())),
                         [](const auto& instance) {
                           return std::get<0>(instance.param).name + "_" + shapes()[std::get<1>(instance.param)].name;
                         });

class OfArm : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override { CROSSOVER_SKIP_IF_MISSING(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Arms, OfArm, testing::ValuesIn(variants()), variant_name);
class OfFastArm : public OfArm {};
INSTANTIATE_TEST_SUITE_P(Arms, OfFastArm, testing::ValuesIn(fast_variants()), variant_name);
class OfInvariantArm : public OfArm {};
INSTANTIATE_TEST_SUITE_P(Arms, OfInvariantArm, testing::ValuesIn(variants().begin(), variants().end() - 1),
                         variant_name);

// A row of X with a single 1 selects single weights: every code of every block comes out exactly.
TEST_P(OfArm, OneHotSelectsEveryWeightExactly) {
  for (const Element dtype : {Element::bf16, Element::f16}) {
    Layer layer({.n = 160, .k = 320, .dtype = dtype}, 320);
    std::fill(layer.x.begin(), layer.x.end(), std::uint16_t{0});
    for (Rows r = 0; r < layer.rows; ++r) layer.input(r, r) = to_bits(dtype, 1);
    std::vector<bool> seen(256);
    for (std::int64_t n = 0; n < 160; ++n) {
      for (std::int64_t k = 0; k < 320; ++k) {
        const std::uint8_t code = static_cast<std::uint8_t>(n * 320 + k + n);
        layer.weight(n, k) = (code & 0x7Fu) == 0x7Fu ? std::uint8_t{1} : code;
        seen[layer.weight(n, k)] = true;
      }
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), 254);
    // Distinct, and of few bits, so that products are exact in f32.
    for (std::size_t i = 0; i < layer.scales.size(); ++i)
      layer.scales[i] = static_cast<float>(0.25 + static_cast<double>(i) / 64);
    const auto y = layer.run(GetParam());
    for (Rows r = 0; r < layer.rows; ++r) {
      for (std::int64_t n = 0; n < 160; ++n) {
        const double expected =
            static_cast<double>(e4m3_to_float(layer.weight(n, r))) * static_cast<double>(layer.scale(n, r));
        // -0 and 0 are both right: the other products are zeros of either sign.
        ASSERT_EQ(to_double(dtype, y[static_cast<std::size_t>(r * 160 + n)]),
                  to_double(dtype, to_bits(dtype, expected)))
            << "weight [" << n << "][" << r << "], code " << int{layer.weight(n, r)};
      }
    }
  }
}

TEST_P(OfArm, NanCodesReachExactlyTheirColumn) {
  for (const std::uint8_t code : {std::uint8_t{0x7F}, std::uint8_t{0xFF}}) {
    for (const Rows rows : {Rows{1}, Rows{3}, Rows{8}, Rows{13}}) {
      Layer layer({.n = 33, .k = 200}, rows);
      for (const auto& [n, k] : {std::pair<std::int64_t, std::int64_t>{0, 0}, {5, 199}, {32, 130}})
        layer.weight(n, k) = code;
      const auto y = layer.run(GetParam());
      for (Rows r = 0; r < rows; ++r) {
        for (std::int64_t n = 0; n < 33; ++n) {
          const bool nan = std::isnan(to_double(layer.p.dtype, y[static_cast<std::size_t>(r * 33 + n)]));
          ASSERT_EQ(nan, n == 0 || n == 5 || n == 32) << "row " << r << ", column " << n;
        }
      }
    }
  }
}

TEST_P(OfArm, NanAndInfinityInXReachExactlyTheirRow) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const Element dtype : {Element::bf16, Element::f16}) {
      Layer layer({.n = 17, .k = 150, .dtype = dtype}, 11);
      for (std::int64_t n = 0; n < 17; ++n) layer.weight(n, 149) = 0x40;
      layer.input(4, 149) = to_bits(dtype, bad);
      const auto y = layer.run(GetParam());
      for (Rows r = 0; r < 11; ++r) {
        for (std::int64_t n = 0; n < 17; ++n) {
          const double value = to_double(dtype, y[static_cast<std::size_t>(r * 17 + n)]);
          ASSERT_EQ(std::isfinite(value), r != 4) << "row " << r << ", column " << n;
        }
      }
    }
  }
}

TEST_P(OfArm, NonFiniteScalesReachExactlyTheirBlock) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const Rows rows : {Rows{2}, Rows{12}}) {
      Layer layer({.n = 270, .k = 300}, rows);
      layer.scale(130, 299) = bad;
      const auto y = layer.run(GetParam());
      for (Rows r = 0; r < rows; ++r) {
        for (std::int64_t n = 0; n < 270; ++n) {
          const double value = to_double(layer.p.dtype, y[static_cast<std::size_t>(r * 270 + n)]);
          ASSERT_EQ(std::isfinite(value), n / 128 != 1) << "row " << r << ", column " << n;
        }
      }
    }
  }
}

// Public fault: NaN with tiny scales.
TEST_P(OfArm, TinyScalesStayFiniteAndExact) {
  for (const float tiny : {0.0f, 1e-23f, 1e-40f, 1.4e-45f}) {
    for (const Rows rows : {Rows{1}, Rows{10}}) {
      Layer layer({.n = 140, .k = 260}, rows);
      layer.scale(0, 128) = tiny;
      EXPECT_TRUE(layer.right(layer.run(GetParam()))) << "one scale is " << tiny;
      // And alone, where it is all there is. Large activations bring the result back into bf16's range.
      std::fill(layer.scales.begin(), layer.scales.end(), tiny);
      for (std::uint16_t& v : layer.x) v = to_bits(Element::bf16, 1e6 * to_double(Element::bf16, v));
      const auto y = layer.run(GetParam());
      if (tiny == 1.4e-45f) continue;  // f32 has one bit there: finite is all that can be asked
      EXPECT_TRUE(layer.right(y)) << "all scales are " << tiny;
    }
  }
}

// Public fault: the last K scale is dropped when K % 128 != 0.
TEST_P(OfArm, LastScaleOfAPartialBlockCounts) {
  for (const std::int64_t k : {192, 320}) {
    for (const Rows rows : {Rows{1}, Rows{16}, Rows{129}}) {
      Layer layer({.n = 130, .k = k}, rows);
      layer.scale(0, k - 1) = 1000;
      layer.scale(129, k - 1) = 500;
      EXPECT_TRUE(layer.right(layer.run(GetParam())));
    }
  }
}

TEST_P(OfArm, RoundsOnceAtTheEndWithTheBiasInF32) {
  Layer layer({.n = 100, .k = 256, .bias = Element::f32}, 20);
  EXPECT_TRUE(layer.right(layer.run(GetParam())));
  // The products cancel the bias to nothing but its low bits.
  std::fill(layer.w, layer.w + layer.p.n * layer.p.k, std::uint8_t{0});
  for (std::int64_t n = 0; n < 100; ++n) {
    layer.weight(n, 0) = 0xB8;  // -1.0
    layer.bias[static_cast<std::size_t>(n)] = 1.0f + static_cast<float>(n) * 0x1p-20f;
  }
  std::fill(layer.scales.begin(), layer.scales.end(), 1.0f);
  for (Rows r = 0; r < 20; ++r) layer.input(r, 0) = to_bits(Element::bf16, 1);
  const auto y = layer.run(GetParam());
  for (std::int64_t n = 0; n < 100; ++n) {
    ASSERT_EQ(to_double(Element::bf16, y[static_cast<std::size_t>(n)]), static_cast<double>(n) * 0x1p-20);
  }
}

TEST_P(OfArm, OverflowsToInfinityNotToALargeNumber) {
  Layer layer({.n = 9, .k = 16, .dtype = Element::f16}, 5);
  std::fill(layer.w, layer.w + layer.p.n * layer.p.k, std::uint8_t{0x7E});  // 448
  std::fill(layer.scales.begin(), layer.scales.end(), 100.0f);
  for (std::uint16_t& v : layer.x) v = to_bits(Element::f16, -4);
  for (const std::uint16_t bits : layer.run(GetParam())) ASSERT_EQ(bits, 0xFC00);
}

TEST_P(OfArm, NoRowsWriteNothing) {
  Layer layer({.n = 70, .k = 90}, 4);
  const auto prepared = prepare(GetParam(), layer.p.problem(), layer.weights());
  std::vector<std::uint16_t> y(4 * 70, Layer::kUntouched);
  alignas(16) std::uint16_t x[90 * 4] = {};
  EXPECT_TRUE(prepared->launch(Fp8BlockLinearArguments(x, y.data()), 0, {}, {}).ok());
  EXPECT_TRUE(prepared->launch(Fp8BlockLinearArguments(nullptr, nullptr), 0, {}, {}).ok());
  EXPECT_EQ(std::count(y.begin(), y.end(), Layer::kUntouched), 4 * 70);
}

TEST_P(OfArm, WritesItsRowsAndNothingElse) {
  Layer layer({.n = 70, .k = 90, .y_row_stride = 96}, 40);
  for (const Rows rows : {Rows{1}, Rows{7}, Rows{9}, Rows{40}}) {
    layer.rows = rows;
    EXPECT_TRUE(layer.right(layer.run(GetParam(), 0, rows)));
  }
}

TEST_P(OfArm, RefusesLaunchesThatDoNotFit) {
  Layer layer({.n = 64, .k = 64, .x_row_stride = 72, .alignment = 16}, 8);
  const Problem problem = layer.p.problem();
  const auto prepared = prepare(GetParam(), problem, layer.weights());
  const Scratch scratch(fp8_block_linear().find(GetParam().arm)->cost(problem, 8).workspace_bytes);
  const Scratch in(8 * 72 * 2 + 16), out(8 * 64 * 2 + 16);
  std::memset(Workspace(out).data, 0x7F, Workspace(out).bytes);
  auto* const x = static_cast<std::byte*>(Workspace(in).data);
  auto* const y = static_cast<std::byte*>(Workspace(out).data);
  const auto code = [&](const Arguments& arguments, Rows rows) {
    const Status status = prepared->launch(arguments, rows, scratch, {});
    EXPECT_STRNE(status.message, "");
    return status.code;
  };
  using enum Status::Code;
  EXPECT_EQ(code(Fp8BlockLinearArguments(x, y, 72), -1), invalid);
  EXPECT_EQ(code(Fp8BlockLinearArguments(nullptr, y, 72), 8), invalid);
  EXPECT_EQ(code(Fp8BlockLinearArguments(x, nullptr, 72), 8), invalid);
  EXPECT_EQ(code(Fp8BlockLinearArguments(x, y), 8), invalid);
  EXPECT_EQ(code(Fp8BlockLinearArguments(x, y, 72, 65), 8), invalid);
  EXPECT_EQ(code(Fp8BlockLinearArguments(x + 2, y, 72), 8), invalid);
  EXPECT_EQ(code(Fp8BlockLinearArguments(x, y + 8, 72), 8), invalid);
  EXPECT_EQ(code(Fp8BlockLinearArguments(x, y, 72), std::numeric_limits<Rows>::max()), invalid);
  EXPECT_EQ(code(Arguments{}, 8), invalid);
  for (std::size_t i = 0; i < Workspace(out).bytes; ++i) ASSERT_EQ(y[i], std::byte{0x7F});
  // One row has no stride.
  EXPECT_TRUE(prepared->launch(Fp8BlockLinearArguments(x, y), 1, scratch, {}).ok());
}

TEST_P(OfFastArm, RefusesAWorkspaceThatIsTooSmall) {
  Layer layer({.n = 64, .k = 64}, 16);
  const Problem problem = layer.p.problem();
  const auto prepared = prepare(GetParam(), problem, layer.weights());
  const std::size_t bytes = fp8_block_linear().find(GetParam().arm)->cost(problem, 16).workspace_bytes;
  ASSERT_GT(bytes, 0u);
  const Scratch in(16 * 64 * 2), out(16 * 64 * 2), scratch(bytes);
  const Fp8BlockLinearArguments arguments(Workspace(in).data, Workspace(out).data);
  EXPECT_EQ(prepared->launch(arguments, 16, {Workspace(scratch).data, 0}, {}).code, Status::Code::workspace_too_small);
  EXPECT_EQ(prepared->launch(arguments, 16, {nullptr, bytes}, {}).code, Status::Code::workspace_too_small);
  EXPECT_EQ(static_cast<const std::uint16_t*>(Workspace(out).data)[0], 0xFFFF);
  EXPECT_TRUE(prepared->launch(arguments, 16, scratch, {}).ok());
}

TEST_P(OfArm, RefusesWeightsThatDoNotFit) {
  const Arm& arm = *fp8_block_linear().find(GetParam().arm);
  const Layer layer({.n = 64, .k = 300}, 1);
  const Problem plain = layer.p.problem(), biased = Fp8BlockLinear{.n = 64, .k = 300, .bias = Element::f32}.problem();
  const float bias[64] = {};
  const auto refused = [&](const Problem& problem, const Weights& weights, const char* part) {
    try {
      static_cast<void>(arm.prepare(problem, weights, "", 1));
      ADD_FAILURE() << "accepted, expected: " << part;
    } catch (const InvalidArgument& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  refused(plain, {}, "not 0 operands");
  refused(plain, fp8_block_linear_weights(nullptr, layer.scales.data()), "must not be null");
  refused(plain, fp8_block_linear_weights(layer.w, nullptr), "must not be null");
  refused(plain, fp8_block_linear_weights(layer.w, layer.scales.data(), bias), "bias=none");
  refused(biased, fp8_block_linear_weights(layer.w, layer.scales.data()), "have none");
  refused(plain, {{{layer.w, 301}, {layer.scales.data(), 0}}}, "W must be dense");
  refused(plain, {{{layer.w, 300}, {layer.scales.data(), 4}}}, "S must be dense");
  refused(plain, fp8_block_linear_weights(layer.w + 1, layer.scales.data()), "not aligned");
  EXPECT_NO_THROW(static_cast<void>(arm.prepare(plain, {{{layer.w, 300}, {layer.scales.data(), 3}}}, "", 1)));
}

TEST_P(OfArm, RunsOnTheCpuOnly) {
  const Arm& arm = *fp8_block_linear().find(GetParam().arm);
  const Problem problem = Fp8BlockLinear{.n = 8, .k = 8}.problem();
  EXPECT_TRUE(arm.supports(problem, 1, cpu_device()));
  Device gpu = cpu_device();
  gpu.kind = "cuda";
  EXPECT_EQ(arm.supports(problem, 1, gpu).reason, "runs on the CPU only (device kind cuda)");
  EXPECT_EQ(arm.supports(problem, 0, cpu_device()).reason, "rows < 1 (rows = 0)");
}

TEST_P(OfArm, RestoresItsConfigExactly) {
  Layer layer({.n = 200, .k = 300}, 30);
  const Arm& arm = *fp8_block_linear().find(GetParam().arm);
  const auto found = prepare(GetParam(), layer.p.problem(), layer.weights());
  EXPECT_FALSE(found->config().empty());
  const auto restored = arm.prepare(layer.p.problem(), layer.weights(), found->config(), 30);
  EXPECT_EQ(restored->config(), found->config());
  EXPECT_EQ(layer.run(GetParam(), *restored, 0, 30), layer.run(GetParam(), *found, 0, 30));
  for (const std::string& wrong : {found->config() + " ", std::string("x"), std::string("isa=sparc threads=1"),
                                   std::string("isa=portable threads=0"), std::string("isa=portable threads=9999"),
                                   std::string("openblas threads=77 core=none")}) {
    EXPECT_THROW(static_cast<void>(arm.prepare(layer.p.problem(), layer.weights(), wrong, 30)), ConfigNotRestorable)
        << wrong;
  }
}

TEST_P(OfArm, TwoThreadsMayLaunchTheSameArm) {
  Layer layer({.n = 300, .k = 500}, 24);
  const auto prepared = prepare(GetParam(), layer.p.problem(), layer.weights());
  const auto expected = layer.run(GetParam(), *prepared, 0, 24);
  std::atomic<int> different{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 6; ++i) {
        const Rows count = t == 0 ? 24 : t == 1 ? 9 : 4;
        const auto y = layer.run(GetParam(), *prepared, 0, count);
        // An arm whose rows depend on the row count is compared with itself.
        const auto& same = fp8_block_linear().find(GetParam().arm)->batch_invariant() || count == 24;
        if (same && !std::equal(y.begin(), y.end(), expected.begin())) ++different;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(different, 0);
}

// A row's bits depend neither on the row count, nor on the row's place, nor on the number of threads.
TEST_P(OfInvariantArm, BatchInvariantBitForBit) {
  const Arm& arm = *fp8_block_linear().find(GetParam().arm);
  ASSERT_TRUE(arm.batch_invariant());
  for (const Fp8BlockLinear& p : {Fp8BlockLinear{.n = 137, .k = 1153},
                                  Fp8BlockLinear{.n = 70, .k = 2112, .dtype = Element::f16, .bias = Element::f32},
                                  Fp8BlockLinear{.n = 33, .k = 77}}) {
    Layer layer(p, 257);
    const auto all = layer.run(GetParam());
    const auto expect_same = [&](Rows first, Rows count, const std::vector<std::uint16_t>& y) {
      ASSERT_TRUE(std::equal(y.begin(), y.end(), all.begin() + first * p.n)) << "rows " << first << " + " << count;
    };
    for (Rows r = 0; r < 257; r += r < 20 || r > 245 ? 1 : 37) expect_same(r, 1, layer.run(GetParam(), r, 1));
    for (const Rows count : {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 31, 65, 128, 256}) {
      expect_same(0, count, layer.run(GetParam(), 0, count));
      expect_same(257 - count, count, layer.run(GetParam(), 257 - count, count));
    }
    if (!GetParam().isa.empty()) {
      const auto one = arm.prepare(p.problem(), layer.weights(), "isa=" + GetParam().isa + " threads=1", 257);
      expect_same(0, 257, layer.run(GetParam(), *one, 0, 257));
      expect_same(3, 5, layer.run(GetParam(), *one, 3, 5));
    }
  }
}

// Public fault: wrong when M is not a multiple of a tile.
TEST_P(OfFastArm, RowsOffATile) {
  const Problem problem = Fp8BlockLinear{.n = 2048, .k = 2048}.problem();
  HostMemory memory;
  const auto workload = fp8_block_linear().workload(problem, {}, memory, 1088, 1, 3);
  const auto prepared = prepare(GetParam(), problem, workload->weights(0));
  for (const Rows rows : {1040, 1056, 1088}) {
    workload->poison(rows);
    ASSERT_TRUE(launch(GetParam(), *prepared, problem, workload->arguments(rows, 0), rows).ok());
    const Check check = workload->check(rows, "a16");
    ASSERT_TRUE(check.ok) << check.detail;
  }
}

// Public fault: NaN where a split of K is off a scale block.
TEST_P(OfFastArm, LongSums) {
  const Problem problem = Fp8BlockLinear{.n = 5120, .k = 12800}.problem();
  HostMemory memory;
  const auto workload = fp8_block_linear().workload(problem, {}, memory, 8, 1, 3);
  const auto prepared = prepare(GetParam(), problem, workload->weights(0));
  for (Rows rows = 1; rows <= 8; rows += GetParam().arm == "host_dequant_blas" ? 7 : 1) {
    workload->poison(rows);
    ASSERT_TRUE(launch(GetParam(), *prepared, problem, workload->arguments(rows, 0), rows).ok());
    const Check check = workload->check(rows, "a16");
    ASSERT_TRUE(check.ok) << "M = " << rows << ": " << check.detail;
  }
}

// Public fault: slow where M % 4 != 0. The fastest of alternating rounds; one that is slow by nature never gets there.
TEST_P(OfFastArm, OddRowCountsAreNotSlow) {
  Layer layer({.n = 256, .k = 256}, 1001);
  const Problem problem = layer.p.problem();
  const auto prepared = prepare(GetParam(), problem, layer.weights());
  const Scratch in(1001 * 256 * 2), out(1001 * 256 * 2);
  const Scratch scratch(fp8_block_linear().find(GetParam().arm)->cost(problem, 1001).workspace_bytes);
  std::memset(Workspace(in).data, 0, Workspace(in).bytes);
  const Fp8BlockLinearArguments arguments(Workspace(in).data, Workspace(out).data);
  double best[2] = {1e9, 1e9};
  for (int round = 0; round < 400; ++round) {
    const Rows rows = 1000 + round % 2;
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(prepared->launch(arguments, rows, scratch, {}).ok());
    double& least = best[round % 2];
    least = std::min(least, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    if (round >= 9 && best[1] < 1.1 * best[0]) break;
  }
  EXPECT_LT(best[1], 1.1 * best[0]);
}

// Address space that holds zeros and costs memory only where it is written.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes) : bytes_(bytes) {
    data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~Sparse() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  std::size_t bytes_;
  void* data_;
};

// Liger#1248, vllm#34279: 32-bit overflow. Rows more than 2^31 elements, and 2^32 bytes, apart.
TEST_P(OfArm, RowStridesBeyond32Bits) {
  constexpr std::int64_t kStride = (std::int64_t{1} << 31) + 64;
  const Fp8BlockLinear p{.n = 40, .k = 200, .x_row_stride = kStride, .y_row_stride = kStride + 8};
  Layer layer({.n = 40, .k = 200}, 3);
  const Sparse x(static_cast<std::size_t>(3 * kStride) * 2), y(static_cast<std::size_t>(3 * (kStride + 8)) * 2);
  if (!x.ok() || !y.ok()) GTEST_SKIP() << "no address space of 24 GiB";
  for (Rows r = 0; r < 3; ++r) std::copy_n(&layer.input(r, 0), 200, x.as<std::uint16_t>() + r * kStride);
  const auto prepared = prepare(GetParam(), p.problem(), layer.weights());
  const Fp8BlockLinearArguments arguments(x.as<void>(), y.as<void>(), kStride, kStride + 8);
  ASSERT_TRUE(launch(GetParam(), *prepared, p.problem(), arguments, 3).ok());
  const auto expected = layer.run(GetParam());
  for (Rows r = 0; r < 3; ++r) {
    for (std::int64_t n = 0; n < 40; ++n) {
      ASSERT_EQ(y.as<std::uint16_t>()[r * (kStride + 8) + n], expected[static_cast<std::size_t>(r * 40 + n)]);
    }
  }
}

// More than 2^31 weights; all zero but in the last rows.
TEST_P(OfFastArm, MoreWeightsThan32BitsCount) {
  constexpr std::int64_t kN = (std::int64_t{1} << 24) + 8, kK = 128;
  const Fp8BlockLinear p{.n = kN, .k = kK};
  const Sparse w(static_cast<std::size_t>(kN * kK)), y(static_cast<std::size_t>(kN) * 2);
  if (!w.ok() || !y.ok()) GTEST_SKIP() << "no address space of 2 GiB";
  std::vector<float> scales(static_cast<std::size_t>((kN + 127) / 128), 1.0f);
  scales.back() = 3.0f;
  for (std::int64_t n = kN - 16; n < kN; ++n)
    std::fill_n(w.as<std::uint8_t>() + n * kK, kK, std::uint8_t{0x38});  // 1.0
  alignas(16) std::uint16_t x[kK];
  std::fill_n(x, kK, to_bits(Element::bf16, 0.5));
  const auto prepared = prepare(GetParam(), p.problem(), fp8_block_linear_weights(w.as<void>(), scales.data()));
  ASSERT_TRUE(launch(GetParam(), *prepared, p.problem(), Fp8BlockLinearArguments(x, y.as<void>()), 1).ok());
  for (std::int64_t n = kN - 32; n < kN; ++n) {
    const double expected = n < kN - 16 ? 0 : n < kN - 8 ? 64 : 192;
    ASSERT_EQ(to_double(Element::bf16, y.as<std::uint16_t>()[n]), expected) << n;
  }
  EXPECT_EQ(y.as<std::uint16_t>()[0], 0);
}

}  // namespace
}  // namespace crossover::test
