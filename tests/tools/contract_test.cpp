// The fields and exit codes that other programs rely on.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSubsetOf;
using Json = nlohmann::json;

// Every name is there, whatever else is.
void expect_fields(const Json& object, const std::vector<std::string>& names) {
  ASSERT_TRUE(object.is_object()) << object;
  for (const std::string& name : names) EXPECT_TRUE(object.contains(name)) << name << " is missing in " << object;
}

void expect_device(const Json& device) {
  expect_fields(device, {"id", "kind", "model", "compute_capability", "sm_count", "l2_bytes", "memory_gib"});
}

void expect_problem(const Json& problem) {
  expect_fields(problem, {"operation", "attributes"});
  EXPECT_EQ(problem["operation"], "fp8_block_linear");
}

class Contract : public ::testing::Test {
 protected:
  Json select(std::vector<std::string> more, Environ environment = {}) {
    std::vector<std::string> arguments{"select", "--shape", "256,256", "--db", database_, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Output output = run(arguments, std::move(environment));
    EXPECT_EQ(output.code, 0) << output.err;
    EXPECT_EQ(output.err, "");
    return output.json();
  }

  Folder folder_;
  std::string database_ = (folder_ / "tuning.db").string();
};

TEST_F(Contract, SelectHasItsFields) {
  store_evidence(database_);
  const Json choice = select({"--rows", "7"});
  expect_fields(choice,
                {"arm", "config", "origin", "rows", "problem", "device", "regime", "verdict", "status", "stale"});
  EXPECT_EQ(choice["arm"], kFast);
  EXPECT_EQ(choice["config"], config_of(kFast));
  EXPECT_EQ(choice["origin"], "tuned");
  EXPECT_EQ(choice["rows"], 7);
  EXPECT_EQ(choice["status"], "provisional");
  EXPECT_EQ(choice["stale"], Json::array());
  EXPECT_EQ(choice["regime"], (Json{{"launch_mode", "eager"}, {"l2", "cold"}, {"fill", "normal"}}));
  expect_problem(choice["problem"]);
  EXPECT_EQ(choice["problem"]["attributes"]["n"], "256");
  expect_device(choice["device"]);
}

TEST_F(Contract, SelectWithoutExplainHasNoExplanation) {
  store_evidence(database_);
  EXPECT_FALSE(select({"--rows", "7"}).contains("runners_up"));
}

TEST_F(Contract, ExplainHasItsFields) {
  store_evidence(database_);
  const Json choice = select({"--rows", "7", "--explain"});
  expect_fields(choice, {"arm", "runners_up", "crossovers", "held_out", "measured_at", "environment", "conditions"});
  ASSERT_EQ(choice["runners_up"].size(), 2u);
  for (const Json& each : choice["runners_up"]) {
    expect_fields(each, {"arm", "median_us", "ratio", "error"});
    EXPECT_NE(each["arm"], kFast);
  }
  EXPECT_EQ(choice["runners_up"][0]["arm"], kLibrary);
  EXPECT_NEAR(choice["runners_up"][0]["median_us"].get<double>(), 50.7, 0.2);
  EXPECT_NEAR(choice["runners_up"][0]["ratio"].get<double>(), 50.7 / 12, 0.02);
  EXPECT_DOUBLE_EQ(choice["runners_up"][0]["error"].get<double>(), 1.5e-3);
  ASSERT_EQ(choice["crossovers"].size(), 1u);
  expect_fields(choice["crossovers"][0], {"m", "m_low", "m_high", "from_arm", "to_arm"});
  EXPECT_GT(choice["crossovers"][0]["m"], 32);  // between the row counts that were measured
  EXPECT_LE(choice["crossovers"][0]["m"], kCrossover);
  expect_fields(choice["held_out"], {"mean_regret", "max_regret"});
  EXPECT_EQ(choice["measured_at"], "2026-11-30T00:53:20Z");
  EXPECT_TRUE(choice["environment"].contains("crossover"));
  EXPECT_TRUE(choice["conditions"].contains("before"));
}

TEST_F(Contract, AMissIsNulls) {
  const Json choice = select({"--rows", "7", "--explain"});
  EXPECT_EQ(choice["origin"], "fallback");
  EXPECT_EQ(choice["arm"], kFast);
  for (const char* name : {"config", "verdict", "status", "held_out", "measured_at", "environment", "conditions"}) {
    EXPECT_TRUE(choice.at(name).is_null()) << name;
  }
  EXPECT_EQ(choice["stale"], Json::array());
  EXPECT_EQ(choice["runners_up"], Json::array());
  EXPECT_EQ(choice["crossovers"], Json::array());
}

TEST_F(Contract, ArmsHasItsFields) {
  const Output output = run({"arms", "--shape", "256,256", "--db", database_, "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json document = output.json();
  ASSERT_GE(document["arms"].size(), 3u);
  for (const Json& arm : document["arms"]) {
    expect_fields(arm, {"name", "numerics", "fingerprint", "eligible", "reason", "default_for"});
    EXPECT_TRUE(arm["eligible"].is_boolean());
    EXPECT_NE(arm["fingerprint"], "");
  }
}

TEST_F(Contract, AuditListHasItsFields) {
  const Id id = store_evidence(database_);
  const Output output = run({"audit", "list", "--db", database_, "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json document = output.json();
  ASSERT_EQ(document["verdicts"].size(), 1u);
  const Json& verdict = document["verdicts"][0];
  expect_fields(verdict, {"id", "problem", "device", "status", "measured_at", "stale"});
  EXPECT_EQ(verdict["id"], id.hex());
  EXPECT_EQ(verdict["status"], "provisional");
  EXPECT_EQ(verdict["measured_at"], "2026-11-30T00:53:20Z");
  EXPECT_EQ(verdict["stale"], Json::array());
  expect_problem(verdict["problem"]);
  expect_device(verdict["device"]);
}

TEST_F(Contract, AuditShowHasItsFields) {
  const Id id = store_evidence(database_, {.sample_dirty = static_cast<std::uint64_t>(Dirty::noisy)});
  const Output output = run({"audit", "show", id.hex(), "--db", database_, "--json"});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json verdict = output.json();
  expect_fields(verdict, {"id", "problem", "device", "status", "segments", "crossovers", "threshold", "first_win",
                          "held_out", "runs", "measurements", "measured_at", "stale"});
  EXPECT_EQ(verdict["id"], id.hex());
  EXPECT_GT(verdict["threshold"], 32);  // between the row counts that were measured
  EXPECT_LE(verdict["threshold"], kCrossover);
  ASSERT_EQ(verdict["runs"].size(), 1u);
  expect_fields(verdict["runs"][0], {"conditions", "environment", "arm_set"});
  EXPECT_GE(verdict["runs"][0]["arm_set"]["arms"].size(), 3u);
  ASSERT_EQ(verdict["measurements"].size(), 3u * (24 + 3));
  std::size_t dirty = 0;
  for (const Json& each : verdict["measurements"]) {
    expect_fields(each, {"arm", "m", "role", "config", "median_us", "mad_us", "count", "clean", "reasons", "error"});
    EXPECT_EQ(each["count"], 24);
    EXPECT_GT(each["median_us"].get<double>(), 0);
    EXPECT_EQ(each["clean"].get<bool>(), each["reasons"].empty());
    dirty += each["clean"] == false ? 1 : 0;
    EXPECT_EQ(each["reasons"], each["clean"] == true ? Json::array() : Json::array({"noisy"}));
  }
  EXPECT_EQ(dirty, 24u + 3u);
}

TEST_F(Contract, DeviceSaysWhatCouldNotBeRead) {
  const Output output = run({"device", "--json", "--db", database_});
  ASSERT_EQ(output.code, 0) << output.err;
  const Json document = output.json();
  expect_device(document["device"]);
  EXPECT_EQ(document["device"]["kind"], "cpu");
  EXPECT_TRUE(document["unknown"].is_array());
  for (const Json& name : document["unknown"]) {
    EXPECT_FALSE(document["conditions"].contains(name.get<std::string>())) << name;
  }
  EXPECT_EQ(document["launch_modes"], Json::array({"eager"}));
}

TEST_F(Contract, TextAndMarkdownAreForPeople) {
  const Id id = store_evidence(database_);
  const std::vector<std::vector<std::string>> commands{{"device"},
                                                       {"arms", "--shape", "256,256"},
                                                       {"select", "--shape", "256,256", "--rows", "7", "--explain"},
                                                       {"audit", "list"},
                                                       {"audit", "show", id.hex()}};
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--db", database_});
    const Output text = run(command);
    EXPECT_EQ(text.code, 0) << text.err;
    EXPECT_NE(text.out, "");
    command.insert(command.end(), {"--format", "markdown"});
    const Output markdown = run(command);
    EXPECT_EQ(markdown.code, 0) << markdown.err;
    EXPECT_TRUE(markdown.out.find("| --- ") != std::string::npos || markdown.out.find("- **") != std::string::npos)
        << markdown.out;
    command.back() = "json";
    EXPECT_EQ(run(command).code, 0);
    EXPECT_FALSE(run(command).json().is_null());
  }
}

TEST_F(Contract, HelpHasAnExample) {
  const std::vector<std::vector<std::string>> commands{{"device"}, {"arms"},          {"tune"},
                                                       {"select"}, {"audit", "list"}, {"audit", "show"}};
  for (std::vector<std::string> command : commands) {
    command.push_back("--help");
    const Output output = run(command);
    EXPECT_EQ(output.code, 0);
    EXPECT_THAT(output.out, HasSubstr("Example: crossover " + command[0]));
    EXPECT_THAT(output.out, HasSubstr("--json"));
    EXPECT_EQ(output.err, "");
  }
}

TEST_F(Contract, ProgramHelpNamesEveryCommand) {
  const Output output = run({"--help"});
  EXPECT_EQ(output.code, 0);
  for (const char* name : {"device", "arms", "tune", "select", "audit list", "audit show"}) {
    EXPECT_THAT(output.out, HasSubstr(name));
  }
}

TEST_F(Contract, VersionIsPrinted) {
  const Output output = run({"--version"});
  EXPECT_EQ(output.code, 0);
  EXPECT_THAT(output.out, ::testing::MatchesRegex("crossover [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST_F(Contract, UnknownIdIsExitCode3) {
  store_evidence(database_);
  for (const char* id : {"0123456789abcdef", "zzzz", "ab", ""}) {
    const Output output = run({"audit", "show", id, "--db", database_, "--json"});
    EXPECT_EQ(output.code, 3) << id;
    EXPECT_EQ(output.out, "");
    EXPECT_THAT(output.err, HasSubstr("no verdict has the id"));
  }
}

}  // namespace
}  // namespace crossover::testing
