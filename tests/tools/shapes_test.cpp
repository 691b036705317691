// Files of problem sizes.

#include "shapes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "crossover/dispatch/error.hpp"
#include "document.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using program::printable;
using program::read_shapes;
using program::Shape;
using ::testing::HasSubstr;

class Shapes : public ::testing::Test {
 protected:
  std::vector<Shape> read(const std::string& content) const {
    write_file(folder_ / "shapes.csv", content);
    return read_shapes(folder_ / "shapes.csv");
  }
  std::string complaint(const std::string& content) const {
    try {
      read(content);
    } catch (const InvalidArgument& error) {
      return error.what();
    }
    return "(none)";
  }

  Folder folder_;
};

TEST_F(Shapes, PlainLines) {
  const auto shapes = read("# two of them\n\n4096,7168\n 128 , 64 \r\n");
  ASSERT_EQ(shapes.size(), 2u);
  EXPECT_EQ(shapes[0].problem.operation, "fp8_block_linear");
  EXPECT_EQ(shapes[0].problem.attributes.at("n"), "4096");
  EXPECT_EQ(shapes[0].problem.attributes.at("k"), "7168");
  EXPECT_EQ(shapes[0].line, 3u);
  EXPECT_EQ(shapes[1].problem.attributes.at("n"), "128");
}

TEST_F(Shapes, ColumnsThatAHeaderNames) {
  const auto shapes = read(
      "# layers\nmodel,layer,N,K,note\nDeepSeek-V3,q_a_proj,1536,7168,\n\"A, B\",\"say \"\"x\"\"\",576,7168,N % 128 = "
      "64");
  ASSERT_EQ(shapes.size(), 2u);
  EXPECT_EQ(shapes[0].label, "DeepSeek-V3 q_a_proj");
  EXPECT_EQ(shapes[0].problem.attributes.at("n"), "1536");
  EXPECT_EQ(shapes[1].label, "A, B say \"x\"");
  EXPECT_EQ(shapes[1].problem.attributes.at("k"), "7168");
}

TEST_F(Shapes, HeaderInAnyOrderAndCase) {
  const auto shapes = read("\xEF\xBB\xBFk,n\n1,2\n");
  ASSERT_EQ(shapes.size(), 1u);
  EXPECT_EQ(shapes[0].problem.attributes.at("n"), "2");
  EXPECT_EQ(shapes[0].problem.attributes.at("k"), "1");
}

TEST_F(Shapes, ABadLineIsNamedByItsNumber) {
  EXPECT_THAT(complaint("4096,7168\n# fine\n4096\n"), HasSubstr("line 3: "));
  EXPECT_THAT(complaint("4096,7168\n4096,x\n"), HasSubstr("line 2: "));
  EXPECT_THAT(complaint("4096,7168\n4096,0\n"), HasSubstr("line 2: "));
  EXPECT_THAT(complaint("4096,-1\n"), HasSubstr("line 1: "));
  EXPECT_THAT(complaint("4096,7168,1\n"), HasSubstr("line 1: "));
  EXPECT_THAT(complaint("N,K\n1,2\n1,2,3\n"), HasSubstr("line 3: "));
  EXPECT_THAT(complaint("N,K\nN,K\n"), HasSubstr("line 2: "));
  EXPECT_THAT(complaint("model,N,K\n\"x,1,2\n"), HasSubstr("line 2: "));
  EXPECT_THAT(complaint("99999999999999999999,1\n"), HasSubstr("line 1: "));
  EXPECT_THAT(complaint("1,2\n" + std::string(100'000, '1') + "\n"), HasSubstr("line 2: "));
  EXPECT_THAT(complaint("# two of a kind\nN,K,n\n1,2,3\n"), HasSubstr("line 2: two columns N"));
  EXPECT_THAT(complaint("k,N,layer,K\n1,2,x,3\n"), HasSubstr("line 1: two columns K"));
  EXPECT_THAT(complaint("N,N\n1,2\n"), HasSubstr("line 1: two columns N"));
}

TEST_F(Shapes, AZeroByteIsRefusedAndShown) {
  using namespace std::string_literals;
  for (const std::string& line : {"\0,3"s, "1,2\0"s, "1\0002,3"s, "# note\0"s})
    EXPECT_THAT(complaint("1,2\n" + line + "\n3,4\n"),
                ::testing::EndsWith("line 2: a zero byte: '" + printable(line) + "'"))
        << printable(line);
  EXPECT_THAT(complaint("N,K,note\n1,2,a\0b\n"s), HasSubstr("line 2: a zero byte: '1,2,a\\x00b'"));
}

TEST_F(Shapes, AnEmptyFileIsRefused) {
  for (const char* content : {"", "\n\n", "# nothing\n", "N,K\n"})
    EXPECT_THAT(complaint(content), HasSubstr("no shapes"));
}

TEST_F(Shapes, AMissingFileIsRefused) {
  EXPECT_THROW(read_shapes(folder_ / "nosuch.csv"), InvalidArgument);
  EXPECT_THROW(read_shapes(folder_.path()), InvalidArgument);
}

// The file is judged as a whole before anything is measured.
TEST_F(Shapes, TuneMeasuresNothingOfABadFile) {
  const std::string database = (folder_ / "tuning.db").string();
  const auto tune = [&](const std::string& content) {
    write_file(folder_ / "shapes.csv", content);
    return run({"tune", "--shapes", (folder_ / "shapes.csv").string(), "--max-rows", "2", "--budget", "100ms", "--db",
                database, "--json"});
  };
  for (const char* content : {"64,64\n64,abc\n", "64,64\n1099511627777,64\n"}) {
    const Output output = tune(content);
    EXPECT_EQ(output.code, 2);
    EXPECT_EQ(output.out, "");
    EXPECT_THAT(output.err, HasSubstr("shapes.csv, line 2: "));
    EXPECT_FALSE(std::filesystem::exists(database));
  }
}

}  // namespace
}  // namespace crossover::testing
