// crossover audit list and show.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class Audit : public ::testing::Test {
 protected:
  Output audit(std::vector<std::string> arguments, const char* format = "json") const {
    arguments.insert(arguments.begin(), "audit");
    arguments.insert(arguments.end(), {"--db", database_, "--format", format});
    return run(arguments);
  }

  Folder folder_;
  std::string database_ = (folder_ / "tuning.db").string();
};

TEST_F(Audit, AnEmptyDatabaseIsAnEmptyList) {
  const Output output = run({"audit", "list", "--json"}, {{"CROSSOVER_DB", database_}});
  EXPECT_EQ(output.code, 0) << output.err;
  EXPECT_EQ(output.json()["verdicts"], Json::array());
  EXPECT_THAT(run({"audit", "list"}, {{"CROSSOVER_DB", database_}}).out, HasSubstr("No verdicts"));
}

TEST_F(Audit, ADatabaseThatIsNamedAndMissingIsExitCode2) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"list"}, {"show", "abcd"}}) {
    const Output output = audit(command);
    EXPECT_EQ(output.code, 2);
    EXPECT_THAT(output.err, HasSubstr("tuning.db"));
  }
}

// The file is not missing; nothing can be there.
TEST_F(Audit, APathThatCannotBeReachedIsExitCode1) {
  write_file(folder_ / "file", "x");
  for (const std::string& path :
       {(folder_ / "file" / "tuning.db").string(), (folder_ / "file" / "x" / "tuning.db").string(),
        (folder_ / std::string(300, 'a')).string(), (folder_ / std::string(300, 'a') / "tuning.db").string()}) {
    for (const std::vector<std::string>& command : {std::vector<std::string>{"list"}, {"show", "abcd"}}) {
      std::vector<std::string> by_option{"audit"}, by_variable{"audit"};
      for (auto* each : {&by_option, &by_variable}) each->insert(each->end(), command.begin(), command.end());
      by_option.insert(by_option.end(), {"--db", path});
      const Output output = run(by_option);
      EXPECT_EQ(output.code, 1) << path;
      EXPECT_THAT(output.err, HasSubstr("The database " + path));
      EXPECT_THAT(output.err, ::testing::AnyOf(HasSubstr("Not a directory"), HasSubstr("too long")));
      EXPECT_EQ(run(by_variable, {{"CROSSOVER_DB", path}}).err, output.err);
    }
  }
}

TEST_F(Audit, ListIsNewestFirstAndComplete) {
  std::set<std::string> ids;
  for (const char* n : {"256", "512", "768"}) ids.insert(store_evidence(database_, {.n = n}).hex());
  ids.insert(store_gpu_evidence(database_).verdict.hex());
  const Json verdicts = audit({"list"}).json()["verdicts"];
  std::set<std::string> listed;
  std::string last = "9999";
  for (const Json& each : verdicts) {
    listed.insert(each["id"]);
    EXPECT_LE(each["decided_at"], last);
    last = each["decided_at"];
  }
  EXPECT_EQ(listed, ids);
}

TEST_F(Audit, ListOfOneDevice) {
  store_evidence(database_);
  const Gpu gpu = store_gpu_evidence(database_);
  const Json of_gpu = audit({"list", "--device", gpu.device.hex().substr(0, 8)}).json()["verdicts"];
  ASSERT_EQ(of_gpu.size(), 1u);
  EXPECT_EQ(of_gpu[0]["id"], gpu.verdict.hex());
  const Json of_cpu = audit({"list", "--device", "cpu"}).json()["verdicts"];
  ASSERT_EQ(of_cpu.size(), 1u);
  EXPECT_EQ(of_cpu[0]["device"]["kind"], "cpu");
}

TEST_F(Audit, ShowTakesAPrefix) {
  const Id id = store_evidence(database_);
  const Output whole = audit({"show", id.hex()});
  EXPECT_EQ(whole.code, 0) << whole.err;
  EXPECT_EQ(audit({"show", id.hex().substr(0, 4)}).out, whole.out);
}

TEST_F(Audit, ShowNeedsExactlyOneId) {
  store_evidence(database_);
  EXPECT_EQ(audit({"show"}).code, 2);
  EXPECT_EQ(audit({"show", "abcd", "ef01"}).code, 2);
  EXPECT_EQ(audit({"list", "abcd"}).code, 2);
}

TEST_F(Audit, ShowHasTheWholeStoryOfTwoProcesses) {
  const Gpu gpu = store_gpu_evidence(database_);
  const Json verdict = audit({"show", gpu.verdict.hex()}).json();
  EXPECT_EQ(verdict["status"], "confirmed");
  EXPECT_EQ(verdict["runs"].size(), 2u);
  EXPECT_NE(verdict["runs"][0]["process"], verdict["runs"][1]["process"]);
  EXPECT_EQ(verdict["runs"][0]["environment"]["driver"], "580.65");
  EXPECT_EQ(verdict["runs"][0]["conditions"]["before"]["power_limit_w"], "700");
  EXPECT_EQ(verdict["measurements"].size(), 2u * 4 * 27);
  EXPECT_EQ(verdict["library_arm"], "dequant_cublaslt");
  EXPECT_TRUE(verdict["stale"].is_null());
}

TEST_F(Audit, ShowKeepsWhatIsNotBelieved) {
  const Id id = store_evidence(database_, {.sample_dirty = static_cast<std::uint64_t>(Dirty::noisy) |
                                                           static_cast<std::uint64_t>(Dirty::outliers)});
  const Output text = audit({"show", id.hex()}, "text");
  EXPECT_THAT(text.out, HasSubstr("not believed"));
  EXPECT_THAT(text.out, HasSubstr("noisy, outliers"));
}

TEST_F(Audit, ShowSaysWhatWasNotTimed) {
  const Id id = store_evidence(
      database_, {.edit = [](crossover::Run& run) {
        run.attempts.push_back({.m = 128, .arm = kSlow, .outcome = Outcome::out_of_memory, .detail = "300 bytes"});
        std::erase_if(run.samples, [](const Sample& sample) { return sample.arm == kSlow && sample.m == 128; });
      }});
  const Output output = audit({"show", id.hex()});
  EXPECT_THAT(output.out, HasSubstr("out_of_memory"));
  EXPECT_THAT(audit({"show", id.hex()}, "text").out, HasSubstr("300 bytes"));
}

TEST_F(Audit, ANameFromADatabaseIsNoMarkupAndNoTerminalControl) {
  const std::string model = "<img src=x> | `evil` \x1b[31m *GPU*";
  const Gpu gpu = store_gpu_evidence(database_, model);
  const Output markdown = audit({"list"}, "markdown");
  ASSERT_EQ(markdown.code, 0) << markdown.err;
  EXPECT_THAT(markdown.out, HasSubstr("&lt;img src=x\\> \\| \\`evil\\`"));
  EXPECT_EQ(markdown.out.find('\x1b'), std::string::npos);
  const Output text = audit({"list"}, "text");
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
  EXPECT_THAT(text.out, HasSubstr("\\x1b[31m"));
  EXPECT_EQ(audit({"list"}).json()["verdicts"][0]["device"]["model"], model) << "JSON has its own escapes";
  EXPECT_EQ(audit({"show", gpu.verdict.hex()}, "markdown").out.find("<img"), std::string::npos);
}

TEST_F(Audit, VerdictsOfAnUnknownOperationAreListed) {
  store_evidence(database_, {.edit = [](crossover::Run& run) { run.problem.operation = "someone_elses"; }});
  const Output output = audit({"list"});
  EXPECT_EQ(output.code, 0) << output.err;
}

TEST_F(Audit, WhatComesLaterIsRefusedAndSaysWhatThereIs) {
  for (const char* action : {"stale", "diff", "replay", "report", "export", "import", "merge", "nonsense"}) {
    const Output output = run({"audit", action});
    EXPECT_EQ(output.code, 2) << action;
    EXPECT_THAT(output.err, HasSubstr("there are: list, show, verify, constant"));
  }
}

}  // namespace
}  // namespace crossover::testing
