// X of shape [B, T, K] on the CPU device: one launch of all rows, or one for each batch.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "crossover/kernels/fp8_block_linear.hpp"
#include "crossover/runtime.hpp"
#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kN = 256, kK = 256;

class FlattenTest : public ::testing::Test {
 protected:
  FlattenTest() {
    store_evidence(database_);
    std::mt19937 random(7);
    for (std::uint8_t& code : w_) code = static_cast<std::uint8_t>(random() % 0x50 | (random() & 0x80));
    for (std::uint16_t& x : x_) x = static_cast<std::uint16_t>(0x3f00 | (random() & 0x80ff));
  }
  Runtime runtime(std::optional<bool> flatten) {
    return Runtime({.database = database_,
                    .device = "cpu",
                    .overrides = Overrides{},
                    .on_miss = MissMode::error,
                    .flatten = flatten});
  }
  Bound bind(Runtime& runtime) {
    const Bound bound =
        runtime.bind(fp8_block_linear(), problem_of({}), fp8_block_linear_weights(w_.data(), scales_.data()));
    scratch_.resize(bound.workspace_bytes(kMost) + 256);
    return bound;
  }
  Workspace workspace() {
    const auto address = reinterpret_cast<std::uintptr_t>(scratch_.data());
    return {scratch_.data() + (256 - address % 256) % 256, scratch_.size() - 256};
  }
  // `x_strides` in elements, Y is dense but for `y_gap` elements between batches.
  Status launch(const Bound& bound, std::vector<std::int64_t> extents, std::vector<std::int64_t> x_strides,
                std::int64_t y_gap = 0) {
    std::fill(y_.begin(), y_.end(), std::uint16_t{0xabcd});
    const std::vector<std::int64_t> y_strides{extents[1] * kN + y_gap, kN};
    const ConstBatchedOperand x{x_.data(), x_strides, kK, 2};
    const BatchedOperand y{y_.data(), y_strides, kN, 2};
    return bound.launch_batched({extents, {&x, 1}, {&y, 1}}, workspace());
  }
  // The same as separate calls; gives Y.
  std::vector<std::uint16_t> separately(const Bound& bound, std::int64_t batches, Rows rows, std::int64_t x_stride,
                                        std::int64_t y_gap = 0) {
    std::vector<std::uint16_t> y(y_.size(), 0xabcd);
    for (std::int64_t b = 0; b < batches; ++b) {
      const Fp8BlockLinearArguments arguments(x_.data() + b * x_stride, y.data() + b * (rows * kN + y_gap));
      EXPECT_TRUE(bound.launch(arguments, rows, workspace()).ok());
    }
    return y;
  }
  static constexpr Rows kMost = 1200;

  Folder folder_;
  std::filesystem::path database_ = folder_ / "tuning.db";
  std::vector<std::uint8_t> w_ = std::vector<std::uint8_t>(kN * kK), scratch_;
  std::vector<float> scales_ = std::vector<float>(4, 0.25F);
  std::vector<std::uint16_t> x_ = std::vector<std::uint16_t>(kMost * kK), y_ = std::vector<std::uint16_t>(kMost * kN);
};

TEST_F(FlattenTest, TheCpuLaunchesEachBatchAndGivesTheBitsOfSeparateCalls) {
  Runtime each = runtime({});
  const Bound bound = bind(each);
  EXPECT_FALSE(bound.flattens());
  for (const Rows rows : {1, 5, 128}) {
    ASSERT_TRUE(launch(bound, {3, rows}, {rows * kK, kK}).ok());
    EXPECT_EQ(y_, separately(bound, 3, rows, rows * kK)) << rows;
  }
  ASSERT_TRUE(launch(bound, {3, 5}, {8 * kK, kK}, 64).ok()) << "with gaps between the batches";
  EXPECT_EQ(y_, separately(bound, 3, 5, 8 * kK, 64));
  EXPECT_EQ(bound.largest_out_of_range(), 0);
}

TEST_F(FlattenTest, WithFlatteningOneLaunchTakesAllRows) {
  Runtime all = runtime(true), each = runtime(false);
  const Bound one = bind(all), many = bind(each);
  EXPECT_TRUE(one.flattens());
  // More rows than were measured together, but not in a batch: the Bound remembers what it was asked for.
  constexpr Rows kRows = 128;
  ASSERT_EQ(one.select(kRows).origin, Origin::tuned);
  ASSERT_EQ(one.select(9 * kRows).origin, Origin::out_of_range);
  const Bound fresh = bind(all);
  ASSERT_TRUE(launch(many, {9, kRows}, {kRows * kK, kK}).ok());
  EXPECT_EQ(many.largest_out_of_range(), 0);
  ASSERT_TRUE(launch(fresh, {9, kRows}, {kRows * kK, kK}).ok());
  EXPECT_EQ(fresh.largest_out_of_range(), 9 * kRows);
  EXPECT_EQ(y_, separately(fresh, 1, 9 * kRows, 0));
}

TEST_F(FlattenTest, WithFlatteningWhatIsNotEvenIsLaunchedBatchByBatch) {
  Runtime all = runtime(true);
  const Bound bound = bind(all);
  ASSERT_TRUE(launch(bound, {9, 128}, {130 * kK, kK}).ok());
  EXPECT_EQ(bound.largest_out_of_range(), 0);
  EXPECT_EQ(y_, separately(bound, 9, 128, 130 * kK));
  ASSERT_TRUE(launch(bound, {3, 5}, {5 * kK, kK}, 64).ok()) << "X is even, Y is not";
  EXPECT_EQ(y_, separately(bound, 3, 5, 5 * kK, 64));
}

TEST_F(FlattenTest, NoRowsAreNoLaunch) {
  for (const bool flatten : {false, true}) {
    Runtime some = runtime(flatten);
    const Bound bound = bind(some);
    for (const std::vector<std::int64_t>& extents : {std::vector<std::int64_t>{0, 5}, {3, 0}}) {
      EXPECT_TRUE(launch(bound, extents, {5 * kK, kK}).ok());
      EXPECT_EQ(y_, std::vector<std::uint16_t>(y_.size(), 0xabcd));
    }
  }
}

TEST_F(FlattenTest, SaysWhatDoesNotFit) {
  for (const bool flatten : {false, true}) {
    Runtime some = runtime(flatten);
    const Bound bound = bind(some);
    const auto refusal = [&](std::vector<std::int64_t> extents, std::vector<std::int64_t> x_strides) {
      const Status status = launch(bound, extents, x_strides);
      EXPECT_EQ(status.code, Status::Code::invalid);
      EXPECT_EQ(y_, std::vector<std::uint16_t>(y_.size(), 0xabcd));
      return std::string(status.message);
    };
    EXPECT_THAT(refusal({3, 5}, {-5 * kK, kK}), HasSubstr("negative"));
    EXPECT_THAT(refusal({3, 5}, {0, kK}), HasSubstr("overlap"));
    EXPECT_THAT(refusal({3, 5}, {kK}), HasSubstr("as many strides"));
    EXPECT_THAT(refusal({3, 5}, {10 * kK, 2 * kK}), HasSubstr("row stride of X is not the problem's"));
    const std::vector<std::int64_t> extents{3, 5}, x_strides{5 * kK, kK}, y_strides{5 * kN, kN};
    const BatchedOperand y{y_.data(), y_strides, kN, 2};
    ConstBatchedOperand x{nullptr, x_strides, kK, 2};
    EXPECT_THAT(bound.launch_batched({extents, {&x, 1}, {&y, 1}}, workspace()).message, HasSubstr("null"));
    x = {reinterpret_cast<const std::byte*>(x_.data()) + 2, x_strides, kK, 2};
    EXPECT_THAT(bound.launch_batched({extents, {&x, 1}, {&y, 1}}, workspace()).message, HasSubstr("aligned"));
    x = {x_.data(), x_strides, kK, 0};
    EXPECT_THAT(bound.launch_batched({extents, {&x, 1}, {&y, 1}}, workspace()).message, HasSubstr("element size"));
  }
}

}  // namespace
}  // namespace crossover::testing
