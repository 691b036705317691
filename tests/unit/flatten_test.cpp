// Leading dimensions as rows, against every address computed one by one.

#include "crossover/dispatch/flatten.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>
#include <set>
#include <vector>

namespace crossover {
namespace {

using Kind = FlatRows::Kind;
using Extents = std::vector<std::int64_t>;

// Begin of every row, in row-major order.
std::vector<std::int64_t> row_begins(const Extents& extents, const Extents& strides) {
  std::vector<std::int64_t> begins{0};
  for (std::size_t i = 0; i < extents.size(); ++i) {
    std::vector<std::int64_t> next;
    for (const std::int64_t begin : begins)
      for (std::int64_t j = 0; j < extents[i]; ++j) next.push_back(begin + j * strides[i]);
    begins = std::move(next);
  }
  return begins;
}

bool overlap(const std::vector<std::int64_t>& begins, std::int64_t width) {
  std::set<std::int64_t> elements;
  for (const std::int64_t begin : begins)
    for (std::int64_t i = 0; i < width; ++i)
      if (!elements.insert(begin + i).second) return true;
  return false;
}

void expect_true_of(const Extents& extents, const Extents& strides, std::int64_t width) {
  const FlatRows flat = flatten_rows(extents, strides, width);
  const std::vector<std::int64_t> begins = row_begins(extents, strides);
  RC_CLASSIFY(flat.kind == Kind::even);
  RC_CLASSIFY(flat.kind == Kind::uneven);
  RC_CLASSIFY(flat.kind == Kind::refused);
  if (flat.kind == Kind::refused) {
    RC_ASSERT(*flat.reason != '\0');
    return;
  }
  RC_ASSERT(flat.rows == std::ssize(begins));
  RC_ASSERT(!overlap(begins, width));
  bool even = true;
  for (std::size_t i = 1; i < begins.size(); ++i) even = even && begins[i] == begins[1] * static_cast<std::int64_t>(i);
  RC_ASSERT((flat.kind == Kind::even) == even);
  if (even && begins.size() > 1) RC_ASSERT(flat.row_stride == begins[1]);
  if (begins.size() <= 1) RC_ASSERT(flat.row_stride == width);
}

TEST(Flatten, AnyExtentsAndStrides) {
  EXPECT_TRUE(rc::check([] {
    const auto dimensions = *rc::gen::inRange<std::size_t>(0, 6);
    const auto extents = *rc::gen::container<Extents>(
        dimensions, rc::gen::weightedElement<std::int64_t>({{1, 0}, {6, 1}, {9, 2}, {9, 3}}));
    const auto strides = *rc::gen::container<Extents>(
        dimensions, rc::gen::element<std::int64_t>(-1, 0, 1, 2, 3, 4, 6, 8, 9, 12, 18, 24));
    expect_true_of(extents, strides, *rc::gen::inRange<std::int64_t>(1, 5));
  }));
}

TEST(Flatten, StridesThatNestWithGaps) {
  EXPECT_TRUE(rc::check([] {
    const auto dimensions = *rc::gen::inRange<std::size_t>(1, 6);
    const auto extents = *rc::gen::container<Extents>(dimensions, rc::gen::inRange<std::int64_t>(1, 4));
    const auto gaps =
        *rc::gen::container<Extents>(dimensions, rc::gen::weightedElement<std::int64_t>({{6, 0}, {1, 1}, {1, 5}}));
    const auto width = *rc::gen::inRange<std::int64_t>(1, 5);
    Extents strides(dimensions);
    std::int64_t next = width;
    for (std::size_t i = dimensions; i-- > 0;) {
      strides[i] = next + gaps[i];
      next = strides[i] * extents[i];
    }
    RC_ASSERT(flatten_rows(extents, strides, width).kind != Kind::refused);
    expect_true_of(extents, strides, width);
  }));
}

TEST(Flatten, NamesWhatDoesNotFit) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const auto reason = [](const Extents& extents, const Extents& strides, std::int64_t width = 4) {
    const FlatRows flat = flatten_rows(extents, strides, width);
    EXPECT_EQ(flat.kind, Kind::refused);
    EXPECT_EQ(flat.rows, 0);
    return std::string(flat.reason);
  };
  EXPECT_EQ(reason({2}, {}), "there are not as many strides as extents");
  EXPECT_EQ(reason({2}, {4}, 0), "a row has no elements");
  EXPECT_EQ(reason({2, -1}, {4, 4}), "an extent is negative");
  EXPECT_EQ(reason({2, 2}, {-8, 4}), "a stride is negative");
  EXPECT_EQ(reason({2}, {3}), "rows overlap, or lie within each other's gaps");
  EXPECT_EQ(reason({2, 2}, {0, 4}), "rows overlap, or lie within each other's gaps");
  EXPECT_EQ(reason({2, 3}, {4, 4}), "rows overlap, or lie within each other's gaps");
  EXPECT_EQ(reason({kHuge, 2}, {8, 4}), "there are more than 2^63 - 1 rows");
  EXPECT_EQ(reason({3}, {kHuge / 2}), "the rows lie more than 2^63 - 1 apart");
}

TEST(Flatten, KnowsTheOrdinaryOnes) {
  const auto expect_even = [](const Extents& extents, const Extents& strides, Rows rows, std::int64_t row_stride) {
    const FlatRows flat = flatten_rows(extents, strides, 4);
    EXPECT_EQ(flat.kind, Kind::even) << flat.reason;
    EXPECT_EQ(flat.rows, rows);
    EXPECT_EQ(flat.row_stride, row_stride);
  };
  expect_even({}, {}, 1, 4);
  expect_even({7}, {4}, 7, 4);
  expect_even({2, 3}, {24, 8}, 6, 8);
  expect_even({2, 1}, {24, -9}, 2, 24);
  expect_even({1, 3}, {0, 8}, 3, 8);
  expect_even({3, 0}, {-1, -1}, 0, 4);
  EXPECT_EQ(flatten_rows(Extents{2, 3}, Extents{32, 8}, 4).kind, Kind::uneven);
  EXPECT_EQ(flatten_rows(Extents{2, 3}, Extents{4, 8}, 4).kind, Kind::uneven);  // [T, B, K], seen as [B, T, K]
}

}  // namespace
}  // namespace crossover
