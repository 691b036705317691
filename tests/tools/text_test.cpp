// Numbers and times, read and written.

#include "text.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "crossover/dispatch/error.hpp"

namespace crossover::program {
namespace {

TEST(Text, BytesWithSuffixes) {
  EXPECT_EQ(parse_bytes("--x", "0"), 0u);
  EXPECT_EQ(parse_bytes("--x", "4096"), 4096u);
  EXPECT_EQ(parse_bytes("--x", "4096B"), 4096u);
  EXPECT_EQ(parse_bytes("--x", "64MiB"), 64u << 20);
  EXPECT_EQ(parse_bytes("--x", "64M"), 64u << 20);
  EXPECT_EQ(parse_bytes("--x", "3K"), 3u << 10);
  EXPECT_EQ(parse_bytes("--x", "2GiB"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("--x", "16777215TiB"), std::uint64_t{16777215} << 40);
  EXPECT_EQ(parse_bytes("--x", "18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  for (const char* bad :
       {"", "x", "-1", "1.5M", "1 MiB", "16777216TiB", "18446744073709551616", "1mb", "MiB", "1MiBs"}) {
    EXPECT_THROW(parse_bytes("--x", bad), InvalidArgument) << bad;
  }
}

TEST(Text, Durations) {
  EXPECT_DOUBLE_EQ(parse_duration("--x", "10s").count(), 10);
  EXPECT_DOUBLE_EQ(parse_duration("--x", "10").count(), 10);
  EXPECT_DOUBLE_EQ(parse_duration("--x", "500ms").count(), 0.5);
  EXPECT_DOUBLE_EQ(parse_duration("--x", "1.5m").count(), 90);
  for (const char* bad : {"", "s", "0", "0s", "-1s", "nan", "inf", "1h", "1e30s", "86401s", "10 s", "1441m"}) {
    EXPECT_THROW(parse_duration("--x", bad), InvalidArgument) << bad;
  }
}

TEST(Text, Integers) {
  EXPECT_EQ(parse_integer("--x", "0", 0), 0);
  EXPECT_EQ(parse_integer("--x", "9223372036854775807", 0), std::numeric_limits<std::int64_t>::max());
  for (const char* bad : {"", "-1", "+1", " 1", "1 ", "1.0", "0x1", "9223372036854775808", "one"}) {
    EXPECT_THROW(parse_integer("--x", bad, 0), InvalidArgument) << bad;
  }
  EXPECT_THROW(parse_integer("--x", "0", 1), InvalidArgument);
}

TEST(Text, Names) {
  EXPECT_EQ(parse_names("--x", "a, b"), (std::vector<std::string>{"a", "b"}));
  for (const char* bad : {"", ",", "a,", ",a", "a, ,b"}) EXPECT_THROW(parse_names("--x", bad), InvalidArgument) << bad;
}

TEST(Text, TimesAreIso8601Utc) {
  EXPECT_EQ(iso_time(0), "1970-01-01T00:00:00Z");
  EXPECT_EQ(iso_time(951'782'400'000'000), "2000-02-29T00:00:00Z");
  EXPECT_EQ(iso_time(1'796'000'000'999'999), "2026-11-30T00:53:20Z");
  EXPECT_EQ(iso_time(-1), "1969-12-31T23:59:59Z");
}

TEST(Text, TimesForPeopleHaveFourDigits) {
  EXPECT_EQ(in_microseconds(1'234), "1.234");
  EXPECT_EQ(in_microseconds(12'345), "12.35");
  EXPECT_EQ(in_microseconds(123'456), "123.5");
  EXPECT_EQ(in_microseconds(1'234'567), "1235");
  EXPECT_EQ(in_microseconds(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(Text, RowRanges) {
  EXPECT_EQ(row_range(1, 8), "1-8");
  EXPECT_EQ(row_range(9, kMaxRows), "9 and more");
  EXPECT_EQ(row_range(1, kMaxRows), "all");
  EXPECT_EQ(row_range(5, 5), "5");
}

}  // namespace
}  // namespace crossover::program
