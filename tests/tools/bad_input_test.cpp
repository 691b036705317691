// Bad input: one sentence on standard error, exit code 2, nothing changed and nothing on standard output.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  std::string name;
  std::vector<std::string> arguments;
  std::string says;
};

class BadInput : public ::testing::TestWithParam<Case> {};

TEST_P(BadInput, IsOneSentenceAndExitCode2) {
  const Folder folder;
  const std::string database = (folder / "tuning.db").string();
  const Output output = run(GetParam().arguments, {{"CROSSOVER_DB", database}});
  EXPECT_EQ(output.code, 2) << output.err;
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err, StartsWith("crossover: "));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  EXPECT_THAT(output.err, HasSubstr(GetParam().says));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

std::vector<std::string> select_with(std::vector<std::string> more) {
  more.insert(more.begin(), {"select", "--json"});
  return more;
}
std::vector<std::string> tune_with(std::vector<std::string> more) {
  more.insert(more.begin(), {"tune", "--max-rows", "4", "--budget", "100ms"});
  return more;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto shape = [&](const char* name, const char* text, const char* says) {
    all.push_back({std::string("SelectShape") + name, select_with({"--shape", text, "--rows", "1"}), says});
    all.push_back({std::string("TuneShape") + name, tune_with({"--shape", text}), says});
  };
  shape("ZeroN", "0,256", "--shape");
  shape("ZeroK", "256,0", "--shape");
  shape("Negative", "-4,256", "--shape");
  shape("NoNumber", "abc,256", "--shape");
  shape("Fraction", "1.5,256", "--shape");
  shape("OneNumber", "256", "--shape");
  shape("ThreeNumbers", "256,256,256", "--shape");
  shape("Empty", "", "--shape");
  shape("NotANumber", "nan,256", "--shape");
  shape("Exponent", "1e3,256", "--shape");
  shape("Hexadecimal", "0x10,256", "--shape");
  shape("BeyondInt64", "99999999999999999999,256", "--shape");
  shape("TooLarge", "9223372036854775807,256", "n must be");
  shape("ProductTooLarge", "1099511627776,1099511627776", "2^62");

  const auto rows = [&](const char* name, const char* text) {
    all.push_back({std::string("Rows") + name, select_with({"--shape", "256,256", "--rows", text}), "--rows"});
  };
  rows("Negative", "-1");
  rows("NoNumber", "abc");
  rows("Empty", "");
  rows("Overflow", "9223372036854775808");
  rows("Fraction", "7.5");
  rows("TrailingText", "7x");
  all.push_back({"RowsMissing", select_with({"--shape", "256,256"}), "--rows M"});
  all.push_back({"RowsWithoutValue", select_with({"--shape", "256,256", "--rows"}), "--rows"});
  all.push_back({"ProblemMissing", select_with({"--rows", "1"}), "--shape N,K"});

  const auto option = [&](const char* name, std::vector<std::string> more, const char* says) {
    std::vector<std::string> select{"--shape", "256,256", "--rows", "1"}, tune{"--shape", "256,256"};
    select.insert(select.end(), more.begin(), more.end());
    tune.insert(tune.end(), more.begin(), more.end());
    all.push_back({std::string("Select") + name, select_with(select), says});
    all.push_back({std::string("Tune") + name, tune_with(tune), says});
  };
  option("UnknownArm", {"--arms", "nosuch"}, "host_vector");
  option("OneUnknownArm", {"--arms", "host_vector,nosuch"}, "nosuch");
  option("EmptyArm", {"--arms", "host_vector,,"}, "empty name");
  option("UnknownClass", {"--allow", "a99"}, "a16");
  option("UnknownDtype", {"--dtype", "fp64"}, "bf16");
  option("UnknownOperation", {"--operation", "nosuch"}, "fp8_block_linear");
  option("UnknownDevice", {"--device", "tpu"}, "cpu");
  option("EmptyDeviceIndex", {"--device", "cuda:"}, "cpu");
  option("EmptyDevice", {"--device", ""}, "cpu");
  option("UnknownLaunchMode", {"--launch", "sometimes"}, "graph or eager");
  option("GraphOnTheCpu", {"--device", "cpu", "--launch", "graph"}, "eager");
  option("UnknownL2State", {"--l2", "lukewarm"}, "cold or hot");
  option("BadCacheBytes", {"--cache-bytes", "lots"}, "--cache-bytes");
  option("NegativeWorkspace", {"--workspace-bytes", "-1"}, "--workspace-bytes");
  option("CacheBytesOverflow", {"--cache-bytes", "99999999TiB"}, "--cache-bytes");
  option("UnknownFormat", {"--format", "xml"}, "markdown");
  option("UnknownOption", {"--nonsense"}, "--nonsense");
  option("AbbreviatedOption", {"--dty", "bf16"}, "--dty");
  option("StrayArgument", {"stray"}, "stray");
  option("ShapeTwice", {"--shape", "128,128"}, "shape");
  option("UnknownAttribute", {"--problem", "colour=red"}, "colour");
  option("AttributeTwice", {"--problem", "n=256"}, "'n' is given twice");
  option("AttributeWithoutValue", {"--problem", "dtype"}, "--problem");
  option("DtypeTwice", {"--problem", "dtype=bf16", "--dtype", "bf16"}, "twice");
  option("EmptyDatabase", {"--db", ""}, "--db");

  all.push_back({"JsonAndText", select_with({"--shape", "256,256", "--rows", "1", "--format", "text"}), "contradict"});
  all.push_back(
      {"SelectZeroMaxRows", select_with({"--shape", "256,256", "--rows", "1", "--max-rows", "0"}), "--max-rows"});
  const auto tune = [&](const char* name, std::vector<std::string> more, const char* says) {
    more.insert(more.begin(), "tune");
    all.push_back({std::string("Tune") + name, std::move(more), says});
  };
  tune("ZeroMaxRows", {"--shape", "256,256", "--max-rows", "0"}, "--max-rows");
  tune("NegativeMaxRows", {"--shape", "256,256", "--max-rows", "-8"}, "--max-rows");
  tune("MaxRowsOverflow", {"--shape", "256,256", "--max-rows", "9223372036854775808"}, "--max-rows");
  tune("ZeroBudget", {"--shape", "256,256", "--budget", "0s"}, "--budget");
  tune("NegativeBudget", {"--shape", "256,256", "--budget", "-1s"}, "--budget");
  tune("NanBudget", {"--shape", "256,256", "--budget", "nan"}, "--budget");
  tune("InfiniteBudget", {"--shape", "256,256", "--budget", "inf"}, "--budget");
  tune("UnknownBudgetUnit", {"--shape", "256,256", "--budget", "3 fortnights"}, "--budget");
  tune("Nothing", {}, "one of --shape");
  tune("ShapeAndShapes", {"--shape", "256,256", "--shapes", "x.csv"}, "one of --shape");
  tune("ShapeAndPending", {"--shape", "256,256", "--pending"}, "one of --shape");
  tune("PendingAndDtype", {"--pending", "--dtype", "f16"}, "contradict");
  tune("MissingShapesFile", {"--shapes", "/nonexistent/shapes.csv"}, "/nonexistent/shapes.csv");
  tune("ShapesFileIsAFolder", {"--shapes", "/"}, "folder");
  tune("StoredDevice", {"--shape", "256,256", "--device", "0123abcd"}, "0123abcd");

  all.push_back({"NoCommand", {}, "device, arms, tune, select, compare, audit"});
  all.push_back({"UnknownCommand", {"frobnicate"}, "device, arms, tune, select, compare, audit"});
  all.push_back({"EmptyCommand", {""}, "device, arms, tune, select, compare, audit"});
  all.push_back({"UnknownGlobalOption", {"--frobnicate"}, "device, arms, tune, select, compare, audit"});
  all.push_back({"AuditWithoutAction", {"audit"}, "list, show"});
  all.push_back({"DeviceUnknownOption", {"device", "--rows", "1"}, "--rows"});
  all.push_back({"DeviceEmpty", {"device", "--device", ""}, "cpu"});
  all.push_back({"ArmsEmptyDevice", {"arms", "--device", ""}, "cpu"});
  all.push_back({"AuditListEmptyDevice", {"audit", "list", "--device", ""}, "cpu"});
  all.push_back({"DeviceThatIsNotThere", {"device", "--device", "cuda:0"}, "cpu"});
  all.push_back({"UnknownStoredDevice", select_with({"--device", "0123abcd", "--shape", "256,256", "--rows", "1"}),
                 "the database has: none"});
  const auto compare = [&](const char* name, const char* arms, const char* at, const char* says) {
    all.push_back(
        {std::string("Compare") + name,
         {"compare", "--device", "cpu", "--shape", "64,64", "--budget", "100ms", "--arms", arms, "--rows", at},
         says});
  };
  compare("UnknownFirst", "nosuch,host_vector", "1", "nosuch");
  compare("UnknownSecond", "host_vector,nosuch", "1", "nosuch");
  compare("OneArm", "host_vector", "1", "beside");
  compare("OneArmTwice", "host_vector,host_vector", "1", "beside");
  compare("EmptyArm", "host_vector,", "1", "--arms");
  compare("RowsZero", "host_vector,host_reference", "0", "--rows");
  compare("RowsNegative", "host_vector,host_reference", "4,-1", "--rows");
  compare("RowsNoNumber", "host_vector,host_reference", "4,x", "--rows");
  compare("RowsTooLarge", "host_vector,host_reference", "99999999999999999999", "--rows");
  all.push_back({"CompareNoRows", {"compare", "--shape", "64,64", "--arms", "host_vector,host_reference"}, "--rows"});
  all.push_back({"CompareNoArms", {"compare", "--shape", "64,64", "--rows", "1"}, "--arms"});
  all.push_back({"CompareNoProblem", {"compare", "--rows", "1", "--arms", "host_vector,host_reference"}, "--shape"});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Program, BadInput, ::testing::ValuesIn(cases()),
                         [](const auto& each) { return each.param.name; });

// Without a GPU, or in a build without CUDA.
TEST(NoGpu, AskingForOneIsExitCode2AndSaysWhatThereIs) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"device", "--device", "cuda:0"},
        {"tune", "--shape", "256,256", "--device", "cuda:7"},
        {"select", "--shape", "256,256", "--rows", "1", "--device", "cuda:99999999999"}}) {
    const Output output = run(arguments);
    EXPECT_EQ(output.code, 2);
    EXPECT_THAT(output.err, HasSubstr("cuda:"));
    EXPECT_THAT(output.err, HasSubstr("cpu"));
  }
}

TEST(ClosedOutput, APipeThatNobodyReadsIsAnErrorNotACrash) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"device"}, {"arms", "--json"}, {"--help"}, {"select", "--help"}}) {
    const Output output = run(Invocation{.arguments = arguments, .close_reader = true});
    EXPECT_EQ(output.code, 1);
    EXPECT_THAT(output.err, HasSubstr("standard output cannot be written"));
  }
}

TEST(ClosedOutput, NoStandardOutputAtAll) {
  const Output output = run(Invocation{.arguments = {"device"}, .close_out = true});
  EXPECT_EQ(output.code, 1);
  EXPECT_THAT(output.err, HasSubstr("standard output cannot be written"));
}

TEST(ClosedOutput, AFullDisk) {
  const Output output = run(Invocation{.arguments = {"device"}, .out_path = "/dev/full"});
  EXPECT_EQ(output.code, 1);
  EXPECT_THAT(output.err, HasSubstr("standard output cannot be written"));
}

}  // namespace
}  // namespace crossover::testing
