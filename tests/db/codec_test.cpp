// Canonical JSON: its form, and what reading refuses.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "codec.hpp"
#include "digest.hpp"
#include "support.hpp"

namespace crossover {
namespace {

using codec::Malformed;

// nlohmann keeps keys sorted; a text whose keys are in another order does not survive.
void expect_canonical(const std::string& text) { EXPECT_EQ(nlohmann::json::parse(text).dump(), text); }

TEST(Codec, KeysAreSortedAndThereIsNoWhiteSpace) {
  const EvidenceKey key = test::make_key(1);
  expect_canonical(codec::encode(key.device));
  expect_canonical(codec::encode(key.problem));
  expect_canonical(codec::encode(key.regime));
  const crossover::Run run = test::make_run(key, 1);
  expect_canonical(codec::encode(run.arm_set));
  expect_canonical(codec::encode(run.conditions));
  expect_canonical(codec::encode(run.environment));
  const Verdict verdict = test::make_verdict(key, {Id{{1}}, Id{{2}}});
  expect_canonical(codec::encode(verdict.policy));
  expect_canonical(codec::encode(verdict.segments));
  expect_canonical(codec::encode(verdict.crossovers));
  expect_canonical(codec::encode(*verdict.held_out));
  expect_canonical(codec::encode(verdict.run_ids));
  expect_canonical(canonical_json(verdict));
  expect_canonical(canonical_json(Verdict{}));
}

TEST(Codec, TheFormIsFixed) {
  EXPECT_EQ(codec::encode(Regime{}), R"({"fill":"normal","l2":"cold","launch_mode":"eager"})");
  EXPECT_EQ(codec::encode(HeldOut{0.1, 2, 3}), R"({"max_regret":2.0,"mean_regret":0.1,"points":3})");
  EXPECT_EQ(codec::encode(Problem{"op", {{"b", "1\n\"\\\x01"}, {"a", "Ω"}}}),
            R"({"attributes":{"a":"Ω","b":"1\n\"\\\u0001"},"operation":"op"})");
  EXPECT_EQ(
      Store::id_of(Device{"cpu", "m", "generic", 2, 3, 4}).hex(),
      db::digest("device", R"({"compute_capability":"generic","kind":"cpu","l2_bytes":3,"memory_gib":4,"model":"m",)"
                           R"("sm_count":2})")
          .hex());
}

TEST(Codec, KindsNeverCollide) { EXPECT_NE(db::digest("device", "{}"), db::digest("environment", "{}")); }

TEST(Codec, DigestIsXxh3Of128BitsOfKindNewlineContent) {
  // As `printf 'device\n{}' | xxh128sum` prints it.
  EXPECT_EQ(db::digest("device", "{}").hex(), "9d4729d45ea1cd6c38ba139ab00a9c26");
}

TEST(Codec, DoublesAreTheShortestTextThatReadsBack) {
  ASSERT_TRUE(rc::check([](std::uint64_t bits) {
    const double value = std::bit_cast<double>(bits);
    RC_PRE(std::isfinite(value));
    const HeldOut held_out{value, 0, 0};
    const HeldOut back = codec::decode<HeldOut>(codec::encode(held_out));
    RC_ASSERT(std::bit_cast<std::uint64_t>(back.mean_regret) == bits);
  }));
  EXPECT_NE(codec::encode(HeldOut{1e22, 0, 0}).find(":1e+22,"), std::string::npos);
  EXPECT_NE(codec::encode(HeldOut{-0.0, 0, 0}).find(":-0.0,"), std::string::npos);
}

TEST(Codec, WhatHasNoCanonicalFormIsRefused) {
  EXPECT_THROW(codec::encode(HeldOut{std::nan(""), 0, 0}), Malformed);
  EXPECT_THROW(codec::encode(HeldOut{HUGE_VAL, 0, 0}), Malformed);
  EXPECT_THROW(codec::encode(Problem{"\xed\xa0\x80", {}}), Malformed);  // a surrogate
}

class Refused : public ::testing::TestWithParam<std::string> {};
TEST_P(Refused, ByDecode) { EXPECT_THROW(codec::decode<Device>(GetParam()), Malformed); }
INSTANTIATE_TEST_SUITE_P(
    Codec, Refused,
    ::testing::Values(
        "", " ", "null", "[]", "{", "\"x\"", "1", "{}", "NaN",
        R"({"compute_capability":"","kind":"","l2_bytes":1,"memory_gib":1,"model":""})",  // a field is missing
        R"({"compute_capability":"","kind":"","l2_bytes":1,"memory_gib":1,"model":"","sm_count":1,"new":1})",    // one
                                                                                                                 // too
                                                                                                                 // many
        R"({"compute_capability":"","kind":"","l2_bytes":1,"memory_gib":1,"model":"","sm_count":1,"kind":""})",  // twice
        R"({"compute_capability":"","kind":"","l2_bytes":1,"memory_gib":1,"model":"","sm_count":1.0})",  // not an
                                                                                                         // integer
        R"({"compute_capability":"","kind":"","l2_bytes":1,"memory_gib":1,"model":"","sm_count":2147483648})",  // too
                                                                                                                // large
        R"({"compute_capability":"","kind":"","l2_bytes":9223372036854775808,"memory_gib":1,"model":"","sm_count":1})",
        R"({"compute_capability":"","kind":7,"l2_bytes":1,"memory_gib":1,"model":"","sm_count":1})",  // not text
        R"({"compute_capability":"","kind":null,"l2_bytes":1,"memory_gib":1,"model":"","sm_count":1})",
        R"({"compute_capability":"","kind":"","l2_bytes":1,"memory_gib":1,"model":"","sm_count":1} x)",  // more after
                                                                                                         // it
        "{\"compute_capability\":\"\xff\",\"kind\":\"\",\"l2_bytes\":1,\"memory_gib\":1,\"model\":\"\",\"sm_count\":1}",
        R"({"compute_capability":[[[[[[[[[[1]]]]]]]]]],"kind":"","l2_bytes":1,"memory_gib":1,"model":"","sm_count":1})"));

TEST(Codec, DepthSizeAndNumbersAreLimited) {
  const auto message = [](const std::string& text) {
    try {
      codec::decode<HeldOut>(text);
    } catch (const Malformed& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message(std::string(9, '[') + std::string(9, ']')).find("too deeply"), std::string::npos);
  EXPECT_NE(message(std::string(200'000, '[')).find("too deeply"), std::string::npos);
  EXPECT_NE(message("\"" + std::string(codec::kMaxBytes, 'x') + "\"").find("bytes"), std::string::npos);
  EXPECT_NE(message(R"({"max_regret":1e999,"mean_regret":0.1,"points":3})"), "");
  EXPECT_NE(message(R"({"max_regret":1,"mean_regret":0.1,"points":3})"), "");  // an integer where a double is due
  EXPECT_EQ(message(R"({"max_regret":1.0,"mean_regret":0.1,"points":3})"), "");
}

TEST(Codec, Utf8) {
  for (const char* good : {"", "a", "\u00e9", "\u20ac", "\U0001f600", "\xf4\x8f\xbf\xbf"})
    EXPECT_TRUE(codec::is_utf8(good));
  for (const char* bad :
       {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xf8", "a\xff"})
    EXPECT_FALSE(codec::is_utf8(bad));
  EXPECT_EQ(codec::scrub_utf8("a\xff"
                              "b\xc3"),
            "a\xef\xbf\xbd"
            "b\xef\xbf\xbd");
  ASSERT_TRUE(rc::check([](const std::string& text) { RC_ASSERT(codec::is_utf8(codec::scrub_utf8(text))); }));
}

}  // namespace
}  // namespace crossover
