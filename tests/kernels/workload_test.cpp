// The workload: its data can fail, and its check fails what is wrong.

#include <set>

#include "kernel_test.hpp"

namespace crossover::test {
namespace {

const Variant& vector_arm() {
  static const Variant variant{"host_vector", "host_vector", ""};
  return variant;
}

// As a GPU's: it can be looked at where it is.
class LookingMemory final : public HostMemory {
 public:
  std::optional<std::size_t> find16(const void* data, std::size_t count, std::uint16_t mask,
                                    std::uint16_t least) override {
    const auto* const begin = static_cast<const std::uint16_t*>(data);
    return std::find_if(begin, begin + count, [&](std::uint16_t v) { return (v & mask) >= least; }) - begin;
  }
  void download(void* destination, const void* source, std::size_t bytes) override {
    downloaded += bytes;
    HostMemory::download(destination, source, bytes);
  }
  std::size_t downloaded = 0;
};

// A workload after a right launch, whose output the tests then damage.
class Damaged {
 public:
  Damaged(const Fp8BlockLinear& problem, Rows row_count, int copies = 1)
      : p(Fp8BlockLinear::from(problem.problem())),
        rows(row_count),
        workload(fp8_block_linear().workload(p.problem(), {}, memory, row_count, copies, 11)) {
    workload->poison(rows);
    const auto prepared = prepare(vector_arm(), p.problem(), workload->weights(0));
    EXPECT_TRUE(launch(vector_arm(), *prepared, p.problem(), workload->arguments(rows, 0), rows).ok());
  }
  std::uint16_t& y(Rows r, std::int64_t n) {
    return static_cast<std::uint16_t*>(workload->arguments(rows, 0).outputs[0].data)[r * p.y_row_stride + n];
  }
  // Runs again with other weights in place of the workload's own.
  void run_with(const std::vector<std::uint8_t>& w, const std::vector<float>& scales) {
    workload->poison(rows);
    alignas(16) static std::uint8_t aligned[1 << 20];
    std::copy(w.begin(), w.end(), aligned);
    const Weights weights = fp8_block_linear_weights(aligned, scales.data());
    const auto prepared = prepare(vector_arm(), p.problem(), weights);
    EXPECT_TRUE(launch(vector_arm(), *prepared, p.problem(), workload->arguments(rows, 0), rows).ok());
  }
  std::vector<std::uint8_t> w() const {
    const auto* data = static_cast<const std::uint8_t*>(workload->weights(0).operands[0].data);
    return {data, data + p.n * p.k};
  }
  std::vector<float> scales() const {
    const auto* data = static_cast<const float*>(workload->weights(0).operands[1].data);
    return {data, data + p.n_blocks() * p.k_blocks()};
  }
  void expect_bad(const std::string& part, const char* numerics = "a16") {
    const Check check = workload->check(rows, numerics);
    EXPECT_FALSE(check.ok);
    EXPECT_NE(check.detail.find(part), std::string::npos) << check.detail;
  }
  void expect_good(const char* numerics = "a16") {
    const Check check = workload->check(rows, numerics);
    EXPECT_TRUE(check.ok) << check.detail;
    EXPECT_GT(check.error, 1e-5);
    EXPECT_LT(check.error, 4e-3);
  }

  LookingMemory memory;
  Fp8BlockLinear p;
  Rows rows;
  std::unique_ptr<Workload> workload;
};

const Fp8BlockLinear kSmall{.n = 300, .k = 400, .y_row_stride = 312};
const Fp8BlockLinear kLarge{.n = 640, .k = 1152, .y_row_stride = 648};  // at 64 rows a sample is compared

const Fp8BlockLinear kPacked{.n = 640, .k = 1152};  // and the rest is looked at where it is

struct Looked {
  const char* name;
  const Fp8BlockLinear* problem;
};
class Check_ : public testing::TestWithParam<Looked> {
 protected:
  Damaged damaged{*GetParam().problem, 64};
};
INSTANTIATE_TEST_SUITE_P(Workload, Check_,
                         testing::Values(Looked{"complete", &kSmall}, Looked{"sampled", &kLarge},
                                         Looked{"in_place", &kPacked}),
                         [](const auto& instance) { return instance.param.name; });

TEST_P(Check_, PassesWhatIsRight) {
  damaged.expect_good();
  damaged.expect_good("w16");
  damaged.expect_good("a8");
}
TEST(Check, LeavesWhatCanBeLookedAtInPlaceWhereItIs) {
  Damaged packed{kPacked, 64}, gaps{kLarge, 64};
  packed.memory.downloaded = gaps.memory.downloaded = 0;
  packed.expect_good();
  gaps.expect_good();
  EXPECT_LT(packed.memory.downloaded, 1024u);
  EXPECT_GE(gaps.memory.downloaded, 2u * 64 * 648);
}
TEST_P(Check_, FailsNan) {
  damaged.y(33, 77) = 0x7FC0;
  damaged.expect_bad("Y[33][77]");
}
TEST_P(Check_, FailsInfinity) {
  damaged.y(33, 77) = 0xFF80;
  damaged.expect_bad("Y[33][77] ");
}
TEST_P(Check_, FailsOneElementNeverWritten) {
  damaged.workload->poison(64);
  const std::uint16_t poison = damaged.y(40, 100);
  Damaged other{*GetParam().problem, 64};
  other.y(40, 100) = poison;
  other.expect_bad("Y[40][100] was never written");
}
TEST_P(Check_, FailsNothingWritten) {
  damaged.workload->poison(64);
  damaged.expect_bad("Y[0][0] was never written");
}
TEST_P(Check_, FailsZeros) {
  for (Rows r = 0; r < 64; ++r) std::fill_n(&damaged.y(r, 0), damaged.p.n, std::uint16_t{0});
  damaged.expect_bad("Y[");
}
TEST_P(Check_, FailsAGapThatWasWritten) {
  const Rows row = damaged.p.y_row_stride > damaged.p.n ? 20 : 63;  // after the last one there always is one
  damaged.y(row, damaged.p.n + 3) = 0;
  damaged.expect_bad("3 elements after the end of row " + std::to_string(row));
}
TEST_P(Check_, FailsARowTooMany) {
  damaged.y(64, 0) = 0;
  damaged.expect_bad("after the end of row 63");
}
TEST_P(Check_, FailsTheLastColumns) {
  for (Rows r = 0; r < 64; ++r) damaged.y(r, damaged.p.n - 1) = 0x3F80;
  damaged.expect_bad("Y[");
}
TEST_P(Check_, FailsAShiftedRow) {
  for (Rows r = 63; r > 0; --r) std::copy_n(&damaged.y(r - 1, 0), damaged.p.n, &damaged.y(r, 0));
  damaged.expect_bad("Y[");
}
TEST_P(Check_, FailsTransposedScales) {
  const std::vector<float> scales = damaged.scales();
  std::vector<float> transposed;
  for (std::int64_t k = 0; k < damaged.p.k_blocks(); ++k) {
    for (std::int64_t n = 0; n < damaged.p.n_blocks(); ++n) {
      transposed.push_back(scales[static_cast<std::size_t>(n * damaged.p.k_blocks() + k)]);
    }
  }
  damaged.run_with(damaged.w(), scales);
  damaged.expect_good();
  damaged.run_with(damaged.w(), transposed);
  damaged.expect_bad("Y[");
}
// Public fault: the leading dimension of the scales padded, or not, where it should not, or should, be.
TEST_P(Check_, FailsScalesOfAnotherLeadingDimension) {
  std::vector<float> shifted = damaged.scales();
  std::rotate(shifted.begin() + damaged.p.k_blocks(), shifted.begin() + damaged.p.k_blocks() + 1, shifted.end());
  damaged.run_with(damaged.w(), shifted);
  damaged.expect_bad("Y[");
}
TEST_P(Check_, FailsOneBlocksScaleLeftOut) {
  std::vector<float> scales = damaged.scales();
  scales.back() = 1;
  damaged.run_with(damaged.w(), scales);
  damaged.expect_bad("Y[");
}
TEST_P(Check_, FailsTheLastKLeftOut) {
  std::vector<std::uint8_t> w = damaged.w();
  const std::int64_t k = damaged.p.k;
  for (std::int64_t n = 0; n < damaged.p.n; ++n)
    std::fill_n(w.begin() + n * k + k / 128 * 128 - 16, 16, std::uint8_t{0});
  damaged.run_with(w, damaged.scales());
  damaged.expect_bad("");
}
// What another class may do an a16 arm may not.
TEST_P(Check_, TellsNumericsClassesApart) {
  std::vector<float> scales = damaged.scales();
  for (float& scale : scales) scale *= 1.01f;
  damaged.run_with(damaged.w(), scales);
  damaged.expect_bad("");
  damaged.expect_bad("", "w16");
  const Check check = damaged.workload->check(64, "a8");
  EXPECT_TRUE(check.ok) << check.detail;
  EXPECT_NEAR(check.error, 0.01, 0.002);
}

// Weights rounded to bf16 after scaling, as every dequantise-then-multiply does: w16, not a16.
TEST(Workload, AllowsRoundedWeightsInTheirOwnClassOnly) {
  Damaged d{{.n = 256, .k = 512}, 64};
  const auto w = d.w();
  const auto scales = d.scales();
  const auto* const x = static_cast<const std::uint16_t*>(d.workload->arguments(64, 0).inputs[0].data);
  for (Rows r = 0; r < 64; ++r) {
    for (std::int64_t n = 0; n < 256; ++n) {
      double sum = 0;
      for (std::int64_t k = 0; k < 512; ++k) {
        const float weight = e4m3_to_float(w[static_cast<std::size_t>(n * 512 + k)]) *
                             scales[static_cast<std::size_t>(n / 128 * 4 + k / 128)];
        sum += static_cast<double>(bf16_to_float(x[r * 512 + k])) *
               static_cast<double>(bf16_to_float(float_to_bf16(weight)));
      }
      d.y(r, n) = to_bits(Element::bf16, sum);
    }
  }
  const Check loose = d.workload->check(64, "w16");
  EXPECT_TRUE(loose.ok) << loose.detail;
  EXPECT_GT(loose.error, 1.8e-3);
  EXPECT_FALSE(d.workload->check(64, "a16").ok);
}

TEST(Workload, RefusesWhatCannotBe) {
  HostMemory memory;
  const Operation& operation = fp8_block_linear();
  const Problem p = Fp8BlockLinear{.n = 8, .k = 8}.problem();
  EXPECT_THROW(static_cast<void>(operation.workload(p, {.fill = "zeros"}, memory, 4, 1, 1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(operation.workload(p, {}, memory, 0, 1, 1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(operation.workload(p, {}, memory, 4, 0, 1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(operation.workload(p, {}, memory, kMaxRows, 1, 1)), InvalidArgument);
  const auto workload = operation.workload(p, {}, memory, 4, 2, 1);
  EXPECT_THROW(static_cast<void>(workload->weights(2)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(workload->weights(-1)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(workload->arguments(5, 0)), InvalidArgument);
  EXPECT_THROW(static_cast<void>(workload->arguments(0, 0)), InvalidArgument);
  EXPECT_THROW(workload->poison(5), InvalidArgument);
  EXPECT_THROW(static_cast<void>(workload->check(4, "a32")), InvalidArgument);
}

TEST(Workload, OutOfMemoryLeavesNothingBehind) {
  HostMemory memory;
  const Problem p = Fp8BlockLinear{.n = 100, .k = 100}.problem();
  memory.limit(9'999);  // W alone is more
  EXPECT_THROW(static_cast<void>(fp8_block_linear().workload(p, {}, memory, 4, 1, 1)), OutOfMemory);
  memory.limit(10'020);  // W fits; X of 64 rows does not
  EXPECT_THROW(static_cast<void>(fp8_block_linear().workload(p, {}, memory, 64, 1, 1)), OutOfMemory);
}

TEST(Workload, AsksForMemoryBeforeItTouchesAny) {
  HostMemory memory;
  const Problem p = Fp8BlockLinear{.n = 1024, .k = 1024}.problem();
  memory.available(3 << 20);
  EXPECT_NO_THROW(static_cast<void>(fp8_block_linear().workload(p, {}, memory, 1, 2, 1)));
  const std::size_t before = memory.allocated();
  try {
    static_cast<void>(fp8_block_linear().workload(p, {}, memory, 1, 3, 1));
    FAIL() << "three copies do not fit";
  } catch (const OutOfMemory& error) {
    EXPECT_STREQ(error.what(),
                 "fp8_block_linear: test data of 1 rows in 3 copies need 3 MiB of device memory, 3 MiB are free");
  }
  // More than any host has.
  memory.available(std::size_t{1} << 62);
  const Problem huge = Fp8BlockLinear{.n = std::int64_t{1} << 30, .k = std::int64_t{1} << 30}.problem();
  EXPECT_THROW(static_cast<void>(fp8_block_linear().workload(huge, {}, memory, 1, 1, 1)), OutOfMemory);
  EXPECT_EQ(memory.allocated(), before);
}

TEST(Workload, BytesAreWhatIsAllocated) {
  for (const Fp8BlockLinear& p :
       {Fp8BlockLinear{.n = 100, .k = 77}, Fp8BlockLinear{.n = 100, .k = 77, .bias = Element::bf16, .x_row_stride = 90},
        Fp8BlockLinear{.n = 128, .k = 128, .bias = Element::f32, .alignment = 4}}) {
    HostMemory memory;
    const auto workload = fp8_block_linear().workload(p.problem(), {}, memory, 33, 3, 1);
    EXPECT_EQ(memory.allocated(), 3 * workload->bytes_per_copy());
    EXPECT_EQ(workload->bytes_per_copy(), fp8_block_linear().workload_bytes_per_copy(p.problem(), 33));
  }
}

TEST(Workload, IsAlignedExactlyAsPromised) {
  for (const int alignment : {2, 4, 8, 16}) {
    HostMemory memory;
    const Problem p = Fp8BlockLinear{.n = 64, .k = 64, .bias = Element::bf16, .alignment = alignment}.problem();
    const auto workload = fp8_block_linear().workload(p, {}, memory, 3, 2, 1);
    for (int copy = 0; copy < 2; ++copy) {
      const Arguments arguments = workload->arguments(3, copy);
      for (const void* data : {workload->weights(copy).operands[0].data, arguments.inputs[0].data,
                               static_cast<const void*>(arguments.outputs[0].data)}) {
        // Under the largest promise as aligned as an allocation.
        const std::uintptr_t exactly = alignment == 16 ? 0 : static_cast<std::uintptr_t>(alignment);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % (alignment == 16 ? 256 : 2 * exactly), exactly);
      }
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workload->weights(copy).operands[1].data) % 8, 4u);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(workload->weights(copy).operands[2].data) % 4, 2u);
    }
  }
}

TEST(Workload, CopiesAreEqualAndApart) {
  HostMemory memory;
  const Fp8BlockLinear p{.n = 50, .k = 60, .bias = Element::f32, .x_row_stride = 64};
  const auto workload = fp8_block_linear().workload(p.problem(), {}, memory, 7, 3, 1);
  std::set<const void*> places;
  for (int copy = 0; copy < 3; ++copy) {
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t bytes = i == 0 ? 3000u : i == 1 ? 4u : 200u;
      EXPECT_TRUE(places.insert(workload->weights(copy).operands[i].data).second);
      EXPECT_EQ(std::memcmp(workload->weights(copy).operands[i].data, workload->weights(0).operands[i].data, bytes), 0);
    }
    EXPECT_TRUE(places.insert(workload->arguments(7, copy).inputs[0].data).second);
    EXPECT_TRUE(places.insert(workload->arguments(7, copy).outputs[0].data).second);
    EXPECT_EQ(workload->arguments(7, copy).inputs[0].row_stride, 64);
    EXPECT_EQ(std::memcmp(workload->arguments(7, copy).inputs[0].data, workload->arguments(7, 0).inputs[0].data,
                          (6 * 64 + 60) * 2),
              0);
  }
}

TEST(Workload, DataCanFail) {
  for (const Element dtype : {Element::bf16, Element::f16}) {
    for (const char* fill : {"normal", "uniform"}) {
      HostMemory memory;
      const Fp8BlockLinear p{.n = 700, .k = 1100, .dtype = dtype};
      const auto workload = fp8_block_linear().workload(p.problem(), {.fill = fill}, memory, 300, 1, 5);
      const auto* const w = static_cast<const std::uint8_t*>(workload->weights(0).operands[0].data);
      EXPECT_EQ(std::set<int>(w, w + 700 * 1100).size(), 254u);
      const auto* const scales = static_cast<const float*>(workload->weights(0).operands[1].data);
      EXPECT_EQ(std::set<float>(scales, scales + 6 * 9).size(), 54u);
      const auto* const x = static_cast<const std::uint16_t*>(workload->arguments(300, 0).inputs[0].data);
      double sum = 0, squares = 0, least = 0, most = 0;
      for (int i = 0; i < 300 * 1100; ++i) {
        const double value = to_double(dtype, x[i]);
        sum += value;
        squares += value * value;
        least = std::min(least, value);
        most = std::max(most, value);
      }
      const bool normal = fill == std::string("normal");
      EXPECT_NEAR(sum / 330'000, 0, 0.01);
      EXPECT_NEAR(squares / 330'000, normal ? 1 : 1.0 / 3, 0.01);
      EXPECT_LT(least, normal ? -4 : -0.99);
      EXPECT_GT(most, normal ? 4 : 0.99);
    }
  }
}

TEST(Workload, IsSeededAndRowsDoNotDependOnTheRowCount) {
  HostMemory memory;
  const Problem p = Fp8BlockLinear{.n = 40, .k = 50}.problem();
  const auto x_of = [&](Rows rows, std::uint64_t seed) {
    const auto workload = fp8_block_linear().workload(p, {}, memory, rows, 1, seed);
    const auto* const x = static_cast<const std::uint16_t*>(workload->arguments(1, 0).inputs[0].data);
    return std::vector<std::uint16_t>(x, x + 3 * 50);
  };
  EXPECT_EQ(x_of(3, 1), x_of(3, 1));
  EXPECT_EQ(x_of(3, 1), x_of(64, 1));
  EXPECT_NE(x_of(3, 1), x_of(3, 2));
}

TEST(Workload, GapsOfXAreNan) {
  HostMemory memory;
  const Problem p = Fp8BlockLinear{.n = 4, .k = 5, .x_row_stride = 8}.problem();
  const auto workload = fp8_block_linear().workload(p, {}, memory, 3, 1, 1);
  const auto* const x = static_cast<const std::uint16_t*>(workload->arguments(3, 0).inputs[0].data);
  for (int i = 0; i < 2 * 8 + 5; ++i) EXPECT_EQ(std::isnan(bf16_to_float(x[i])), i % 8 >= 5) << i;
}

// Sums of many products still fit into f16, and every scaled weight is a normal f16.
TEST(Workload, F16HoldsEveryWeightAndSum) {
  HostMemory memory;
  const Fp8BlockLinear p{.n = 130, .k = 18432, .dtype = Element::f16};
  const auto workload = fp8_block_linear().workload(p.problem(), {}, memory, 2, 1, 1);
  const auto* const scales = static_cast<const float*>(workload->weights(0).operands[1].data);
  for (std::int64_t i = 0; i < 2 * 144; ++i) {
    ASSERT_GE(static_cast<double>(scales[i]) * 0x1p-9, 0x1p-14);
    ASSERT_LE(static_cast<double>(scales[i]) * 448, 65504);
  }
  workload->poison(2);
  const auto prepared = prepare(vector_arm(), p.problem(), workload->weights(0));
  ASSERT_TRUE(launch(vector_arm(), *prepared, p.problem(), workload->arguments(2, 0), 2).ok());
  const Check check = workload->check(2, "a16");
  EXPECT_TRUE(check.ok) << check.detail;
}

}  // namespace
}  // namespace crossover::test
