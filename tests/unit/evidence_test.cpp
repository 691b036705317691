#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "crossover/dispatch/evidence.hpp"
#include "synthetic.hpp"

namespace crossover {
namespace {

TEST(Id, HexRoundTrip) {
  Id id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i) id.bytes[i] = static_cast<std::uint8_t>(i * 17);
  EXPECT_EQ(id.hex(), "00112233445566778899aabbccddeeff");
  EXPECT_EQ(Id::from_hex(id.hex()), id);
  EXPECT_EQ(Id::from_hex("00112233445566778899AABBCCDDEEFF"), id);
  for (const char* bad : {"", "0", "00112233445566778899aabbccddeefg", "00112233445566778899aabbccddeeff0"})
    EXPECT_EQ(Id::from_hex(bad), std::nullopt) << bad;
}

TEST(Names, RoundTrip) {
  for (const Role role : {Role::grid, Role::placebo, Role::held_out}) EXPECT_EQ(role_from(to_string(role)), role);
  for (int i = 0; i <= static_cast<int>(Outcome::over_budget); ++i)
    EXPECT_EQ(outcome_from(to_string(static_cast<Outcome>(i))), static_cast<Outcome>(i));
  EXPECT_EQ(role_from("nonsense"), std::nullopt);
  EXPECT_THAT(dirty_reasons(static_cast<std::uint64_t>(Dirty::noisy) | std::uint64_t{1} << 40),
              testing::ElementsAre("noisy", "bit 40"));
}

TEST(Arms, FamilyNamesAllItsVariants) {
  EXPECT_TRUE(names_arm("tensor_core", "tensor_core/64x128"));
  EXPECT_TRUE(names_arm("tensor_core/64x128", "tensor_core/64x128"));
  EXPECT_FALSE(names_arm("tensor_core/64x128", "tensor_core/128x128"));
  EXPECT_FALSE(names_arm("tensor", "tensor_core"));
}

TEST(Sample, MedianAndDeviationLeaveOutWhatDoesNotCount) {
  Sample sample;
  sample.launches = 10;
  EXPECT_EQ(median_ns(sample), 0);
  sample.raw = {{1, 0, 10, 0},
                {2, 0, 30, 0},
                {3, kDiscarded, 1e9, 0},
                {4, 0, std::numeric_limits<double>::quiet_NaN(), 0},
                {5, 0, 20, 0}};
  EXPECT_EQ(median_ns(sample), 2);
  EXPECT_EQ(mad_ns(sample), 1);
  sample.raw.push_back({6, 0, 40, 0});
  EXPECT_EQ(median_ns(sample), 2.5);
  EXPECT_EQ(mad_ns(sample), 1);
}

TEST(Defaults, LastEntryCoversTheRest) {
  const std::vector<DefaultArm> defaults{{8, "gemv"}, {kMaxRows, "tensor_core"}};
  EXPECT_EQ(default_arm(defaults, 1), "gemv");
  EXPECT_EQ(default_arm(defaults, 8), "gemv");
  EXPECT_EQ(default_arm(defaults, 9), "tensor_core");
  EXPECT_EQ(default_arm(defaults, kMaxRows), "tensor_core");
}

}  // namespace
}  // namespace crossover
