#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <set>

#include "crossover/dispatch/error.hpp"
#include "crossover/tuner/tuner.hpp"
#include "grid.hpp"

namespace crossover {
namespace {

using testing::ElementsAre;

TEST(Grid, SmallRangesAreDense) {
  EXPECT_THAT(grid(1, {}), ElementsAre(1));
  EXPECT_THAT(grid(3, {}), ElementsAre(1, 2, 3));
  EXPECT_THAT(grid(17, {}), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17));
}

TEST(Grid, StepsByTheRootOfTwoAndEndsAtTheLargest) {
  const std::vector<Rows> rows = grid(512, {});
  const std::vector<Rows> above(std::find(rows.begin(), rows.end(), 16), rows.end());
  EXPECT_THAT(above, ElementsAre(16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512));
  EXPECT_EQ(grid(500, {}).back(), 500);
  EXPECT_EQ(grid(8192, {}).size(), 16u + 18u);
}

TEST(Grid, TakesTileEdgesWithinTheRange) {
  const std::vector<Rows> edges{0, -4, 17, 65, 129, 130};
  const std::vector<Rows> rows = grid(129, edges);
  for (const Rows m : {17, 65, 129}) EXPECT_TRUE(std::binary_search(rows.begin(), rows.end(), m)) << m;
  EXPECT_EQ(rows.front(), 1);
  EXPECT_EQ(rows.back(), 129);
}

TEST(Grid, RefusesLessThanOneRow) {
  EXPECT_THROW(grid(0, {}), InvalidArgument);
  EXPECT_THROW(grid(-7, {}), InvalidArgument);
  EXPECT_THROW(grid(std::numeric_limits<Rows>::min(), {}), InvalidArgument);
}

TEST(Grid, ReachesTheLargestRowCountThereIs) {
  const std::vector<Rows> rows = grid(kMaxRows, {});
  EXPECT_EQ(rows.back(), kMaxRows);
  EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
  EXPECT_GT(rows.front(), 0);
  EXPECT_LT(rows.size(), 200u);
}

TEST(Grid, Properties) {
  EXPECT_TRUE(rc::check("ascending, unique, within 1…max, dense start, steps below 1.5, both ends", [] {
    const Rows max_rows = *rc::gen::inRange<Rows>(1, 100000);
    const auto edges = *rc::gen::container<std::vector<Rows>>(rc::gen::inRange<Rows>(-10, 200000));
    const std::vector<Rows> rows = grid(max_rows, edges);
    RC_ASSERT(std::adjacent_find(rows.begin(), rows.end(), std::greater_equal<>()) == rows.end());
    RC_ASSERT(rows.front() == 1);
    RC_ASSERT(rows.back() == max_rows);
    for (std::size_t i = 1; i < rows.size(); ++i) {
      const double step = static_cast<double>(rows[i]) / static_cast<double>(rows[i - 1]);
      RC_ASSERT(rows[i] == rows[i - 1] + 1 || step < 1.5);
    }
    for (const Rows edge : edges)
      RC_ASSERT((edge < 1 || edge > max_rows) || std::binary_search(rows.begin(), rows.end(), edge));
  }));
}

TEST(Grid, CoarseToFineIsAPermutationThatCoversTheRangeEarly) {
  const std::vector<Rows> edges{17, 65, 100};
  const std::vector<Rows> order = tuning::coarse_to_fine(grid(300, edges));
  EXPECT_THAT(std::vector<Rows>(order.begin(), order.begin() + 10), ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, 300));
  EXPECT_THAT(std::vector<Rows>(order.begin() + 10, order.begin() + 18), ElementsAre(17, 23, 45, 65, 91, 100, 181, 3))
      << "the edges of tiles among the steps, and what lies close together at the end";
  EXPECT_TRUE(rc::check("permutation", [] {
    const std::vector<Rows> rows = grid(*rc::gen::inRange<Rows>(1, 20000), {});
    std::vector<Rows> fine = tuning::coarse_to_fine(rows);
    std::sort(fine.begin(), fine.end());
    RC_ASSERT(fine == rows);
  }));
  EXPECT_TRUE(tuning::coarse_to_fine({}).empty());
}

TEST(Rotation, TwoEntriesAreAbba) {
  std::string order;
  for (std::uint64_t round = 0; round < 8; ++round)
    for (const std::size_t index : tuning::rotation(2, round)) order += index == 0 ? 'A' : 'B';
  EXPECT_EQ(order, "ABBABAABABBABAAB");
}

TEST(Rotation, EveryEntryIsEverywhereAndEveryPairIsBalanced) {
  EXPECT_TRUE(rc::check("over two cycles", [] {
    const auto count = *rc::gen::inRange<std::size_t>(1, 12);
    std::vector<std::vector<int>> at(count, std::vector<int>(count, 0)), before = at, follows = at;
    for (std::uint64_t round = 0; round < 2 * count; ++round) {
      const std::vector<std::size_t> order = tuning::rotation(count, round);
      for (std::size_t i = 0; i < count; ++i) {
        ++at[order[i]][i];
        for (std::size_t j = i + 1; j < count; ++j) ++before[order[i]][order[j]];
        if (i > 0) ++follows[order[i]][order[i - 1]];
      }
    }
    for (std::size_t a = 0; a < count; ++a)
      for (std::size_t b = 0; b < count; ++b) {
        RC_ASSERT(at[a][b] == 2);
        RC_ASSERT(before[a][b] == before[b][a]);
        RC_ASSERT(follows[a][b] == (a == b ? 0 : 2));
      }
  }));
}

TEST(OffGrid, StaysInsideAndOffTheGrid) {
  EXPECT_TRUE(rc::check("inside, new, unique", [] {
    tuning::Random random(*rc::gen::arbitrary<std::uint64_t>());
    const Rows largest = *rc::gen::inRange<Rows>(1, 10000);
    const std::vector<Rows> taken = grid(largest, {});
    const std::vector<Rows> found = tuning::off_grid(largest, taken, 5, random);
    RC_ASSERT(found.size() <= 5u);
    RC_ASSERT(std::is_sorted(found.begin(), found.end()));
    for (const Rows m : found) {
      RC_ASSERT(m >= 1);
      RC_ASSERT(m <= largest);
      RC_ASSERT(!std::binary_search(taken.begin(), taken.end(), m));
    }
    if (largest > 200) RC_ASSERT(found.size() == 5u);
  }));
  tuning::Random random(1);
  EXPECT_TRUE(tuning::off_grid(16, grid(16, {}), 5, random).empty());
}

}  // namespace
}  // namespace crossover
