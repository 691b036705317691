// Text, Markdown and JSON from one document; names of other people's making are data, never markup.

#include "document.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace crossover::program {
namespace {

Document example() {
  Document document;
  document.json = {{"b", 1}, {"a", "x"}};
  document.blocks = {Heading{"title"}, Fields{{{"name", "value"}, {"longer name", ""}}},
                     Table{{{"arm"}, {"us", true}}, {{"a|b", "1.5"}, {"c", "12.25"}}}, Paragraph{"end"}};
  return document;
}

TEST(Document, Text) {
  EXPECT_EQ(render(example(), Format::text),
            "title\n"
            "\n"
            "  name         value\n"
            "  longer name\n"
            "\n"
            "arm     us\n"
            "---  -----\n"
            "a|b    1.5\n"
            "c    12.25\n"
            "\n"
            "end\n");
}

TEST(Document, Markdown) {
  EXPECT_EQ(render(example(), Format::markdown),
            "### title\n"
            "\n"
            "- **name**: value\n"
            "- **longer name**: \n"
            "\n"
            "| arm | us |\n"
            "| --- | ---: |\n"
            "| a\\|b | 1.5 |\n"
            "| c | 12.25 |\n"
            "\n"
            "end\n");
}

TEST(Document, JsonKeepsTheOrderOfItsFields) {
  EXPECT_EQ(render(example(), Format::json), "{\n  \"b\": 1,\n  \"a\": \"x\"\n}\n");
}

TEST(Document, JsonOfBytesThatAreNoTextIsStillJson) {
  Document document;
  document.json = {{"config", "\xff\xfe"}, {"number", std::numeric_limits<double>::quiet_NaN()}};
  const auto parsed = nlohmann::json::parse(render(document, Format::json), nullptr, false);
  ASSERT_FALSE(parsed.is_discarded());
  EXPECT_TRUE(parsed["number"].is_null());
}

TEST(Document, ControlCharactersAreShownNotSent) {
  EXPECT_EQ(printable("a\x1b[31mb"), "a\\x1b[31mb");
  EXPECT_EQ(printable("tab\tline\nreturn\r"), "tab\\x09line\\x0areturn\\x0d");
  EXPECT_EQ(printable(std::string("nul\0", 4)), "nul\\x00");
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m")
      << "an 8-bit escape sequence";
  EXPECT_EQ(printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "surrogate";
  EXPECT_EQ(printable("µs √2"), "µs √2");
}

TEST(Document, MarkupIsEscaped) {
  EXPECT_EQ(escape_markdown("a|b_c*d`e"), "a\\|b\\_c\\*d\\`e");
  EXPECT_EQ(escape_markdown("<b>&"), "&lt;b\\>&amp;");
  EXPECT_EQ(escape_markdown("[x](y) # z"), "\\[x\\](y) \\# z");
  EXPECT_EQ(escape_markdown("two\nlines"), "two\\\\x0alines");
}

TEST(Document, ColumnsCountCharactersNotBytes) {
  Document document;
  document.blocks = {Table{{{"µ"}, {"x"}}, {{"µµµ", "1"}}}};
  EXPECT_EQ(render(document, Format::text), "µ    x\n---  -\nµµµ  1\n");
}

}  // namespace
}  // namespace crossover::program
