// The number formats, against arithmetic on their definitions.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "crossover/kernels/formats.hpp"

namespace crossover::test {
namespace {

TEST(Formats, EveryE4m3Code) {
  int finite = 0;
  for (unsigned code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    const int exponent = static_cast<int>((code >> 3) & 15u), mantissa = static_cast<int>(code & 7u);
    if (exponent == 15 && mantissa == 7) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa / 8.0, -6) : std::ldexp(1 + mantissa / 8.0, exponent - 7);
      EXPECT_EQ(static_cast<double>(value), code >= 128 ? -magnitude : magnitude) << code;
      ++finite;
    }
    EXPECT_EQ(std::signbit(value), code >= 128) << code;
  }
  EXPECT_EQ(finite, 254);
  EXPECT_EQ(e4m3_to_float(0x7E), 448.0f);
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
}

// Nearest of all values of a 16-bit format, ties to the even code, by what its neighbours are.
template <class ToFloat, class FromFloat>
void rounds_to_nearest_even(ToFloat to_float, FromFloat from_float, unsigned infinity) {
  for (unsigned code = 0; code < infinity; ++code) {
    const float value = to_float(static_cast<std::uint16_t>(code));
    ASSERT_EQ(from_float(value), code);
    ASSERT_EQ(from_float(-value), code | 0x8000u);
    if (code + 1 == infinity) break;
    const float next = to_float(static_cast<std::uint16_t>(code + 1));
    const double middle = (static_cast<double>(value) + static_cast<double>(next)) / 2;
    const float tie = static_cast<float>(middle);
    if (static_cast<double>(tie) != middle) continue;  // below f32's own resolution
    ASSERT_EQ(from_float(tie), code % 2 == 0 ? code : code + 1) << code;
    ASSERT_EQ(from_float(std::nextafterf(tie, 0.0f)), code) << code;
    ASSERT_EQ(from_float(std::nextafterf(tie, std::numeric_limits<float>::infinity())), code + 1) << code;
  }
}

TEST(Formats, Bf16RoundsToNearestEven) { rounds_to_nearest_even(bf16_to_float, float_to_bf16, 0x7F80); }
TEST(Formats, F16RoundsToNearestEven) { rounds_to_nearest_even(f16_to_float, float_to_f16, 0x7C00); }

TEST(Formats, ValuesOfF16ByDefinition) {
  for (unsigned code = 0; code < 0x7C00; ++code) {
    const int exponent = static_cast<int>(code >> 10), mantissa = static_cast<int>(code & 1023u);
    const double value = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(f16_to_float(static_cast<std::uint16_t>(code))), value) << code;
  }
}

TEST(Formats, TheEndsOfTheRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(float_to_f16(65504.0f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(float_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_f16(-infinity), 0xFC00);
  EXPECT_EQ(float_to_bf16(infinity), 0x7F80);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(float_to_f16(0x1p-25f), 0);
  EXPECT_EQ(float_to_f16(std::nextafterf(0x1p-25f, 1.0f)), 1);
}

TEST(Formats, NanStaysNan) {
  for (const std::uint32_t bits : {0x7FC00000u, 0x7F800001u, 0xFFFFFFFFu, 0xFF800001u, 0x7F80FFFFu}) {
    float value;
    std::memcpy(&value, &bits, 4);
    EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value)))) << bits;
    EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value)))) << bits;
  }
  EXPECT_TRUE(std::isnan(f16_to_float(0x7C01)));
  EXPECT_TRUE(std::isnan(bf16_to_float(0x7F81)));
}

}  // namespace
}  // namespace crossover::test
