// The environment's overrides: each changes one thing, and a choice names what it was.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

class Override : public ::testing::Test {
 protected:
  void SetUp() override { store_evidence(database_); }

  Output select(const char* rows, Environ environment) const {
    return run({"select", "--shape", "256,256", "--rows", rows, "--json", "--db", database_}, std::move(environment));
  }
  Json choice(const char* rows, Environ environment = {}) const {
    const Output output = select(rows, std::move(environment));
    EXPECT_EQ(output.code, 0) << output.err;
    return output.json();
  }
  // Only the arm with its config, and the origin.
  void expect_only_arm_and_origin_differ(const Json& changed, const Json& plain) const {
    Json a = changed, b = plain;
    for (const char* name : {"arm", "config", "origin"}) {
      a.erase(name);
      b.erase(name);
    }
    EXPECT_EQ(a, b);
  }

  Folder folder_;
  std::string database_ = (folder_ / "tuning.db").string();
};

TEST_F(Override, ForcedArm) {
  for (const char* rows : {"1", "128", "100000"}) {
    const Json forced = choice(rows, {{"CROSSOVER_FORCE_ARM", kSlow}});
    EXPECT_EQ(forced["arm"], kSlow);
    EXPECT_EQ(forced["origin"], "forced");
    expect_only_arm_and_origin_differ(forced, choice(rows));
  }
}

TEST_F(Override, Threshold) {
  const Environ environment{{"CROSSOVER_THRESHOLD", "host_dequant_blas:32"}};
  const Json below = choice("31", environment), at = choice("32", environment);
  EXPECT_EQ(below["arm"], kFast);
  EXPECT_EQ(below["origin"], "tuned");
  EXPECT_EQ(at["arm"], kLibrary);
  EXPECT_EQ(at["origin"], "forced");
  EXPECT_EQ(at["config"], config_of(kLibrary));
  expect_only_arm_and_origin_differ(below, choice("31"));
  expect_only_arm_and_origin_differ(at, choice("32"));
}

TEST_F(Override, DisabledWinnerGivesTheBestOfTheOthers) {
  const auto before = snapshot(folder_.path());
  const Json disabled = choice("128", {{"CROSSOVER_DISABLE_ARMS", kLibrary}});
  EXPECT_EQ(disabled["arm"], kFast);
  EXPECT_EQ(disabled["origin"], "tuned");
  EXPECT_EQ(disabled["stale"], Json::array());
  expect_only_arm_and_origin_differ(disabled, choice("128"));
  EXPECT_EQ(choice("128", {{"CROSSOVER_DISABLE_ARMS", "host_dequant_blas,host_reference"}})["arm"], kFast);
  EXPECT_EQ(snapshot(folder_.path()), before);
}

// Whatever is served, the evidence is what it is; what was set, and what it changed, is said.
TEST_F(Override, ExplainShowsTheEvidenceAndWhatTheOverrideChanged) {
  const auto explained = [&](const Environ& environment) {
    const Output output =
        run({"select", "--shape", "256,256", "--rows", "128", "--json", "--explain", "--db", database_}, environment);
    EXPECT_EQ(output.code, 0) << output.err;
    return output.json();
  };
  const auto arms = [](const Json& answer) {
    std::set<std::string> names{answer["arm"]};
    for (const Json& each : answer["runners_up"]) names.insert(each["arm"]);
    return names;
  };
  const Json plain = explained({});
  ASSERT_EQ(plain["segments"].size(), 2u);
  EXPECT_EQ(plain["overrides"], Json::array());
  EXPECT_TRUE(plain["without_overrides"].is_null());
  const std::string reference = kSlow, library = kLibrary, vector = kFast;
  for (const auto& [variable, value] : std::map<std::string, std::string>{{"CROSSOVER_FORCE_ARM", reference},
                                                                          {"CROSSOVER_THRESHOLD", reference + ":32"},
                                                                          {"CROSSOVER_DISABLE_ARMS", library}}) {
    const Json answer = explained({{variable, value}});
    EXPECT_NE(answer["arm"], plain["arm"]) << variable;
    for (const char* same : {"segments", "crossovers", "held_out", "measured_at", "measured_rows", "verdict"})
      EXPECT_EQ(answer[same], plain[same]) << variable << " " << same;
    EXPECT_EQ(arms(answer), arms(plain)) << variable;
    EXPECT_EQ(answer["overrides"], Json::array({variable + "=" + value}));
    for (const char* same : {"arm", "config", "origin"}) EXPECT_EQ(answer["without_overrides"][same], plain[same]);
    for (const Json& each : answer["runners_up"]) {
      const bool disabled = variable == "CROSSOVER_DISABLE_ARMS" && each["arm"] == library;
      EXPECT_EQ(each["why_not"], disabled ? variable : "") << variable << " " << each["arm"];
      EXPECT_EQ(each["allowed"], !disabled) << variable << " " << each["arm"];
    }
  }
  const Output text = run({"select", "--shape", "256,256", "--rows", "128", "--explain", "--db", database_},
                          {{"CROSSOVER_FORCE_ARM", reference}});
  EXPECT_THAT(text.out, HasSubstr("CROSSOVER_FORCE_ARM=host_reference"));
  EXPECT_THAT(text.out, HasSubstr("host_dequant_blas (tuned)"));
  // An arm that the policy alone would not leave.
  EXPECT_EQ(run({"select", "--shape", "256,256", "--rows", "7", "--explain", "--arms", kFast, "--db", database_},
                {{"CROSSOVER_FORCE_ARM", reference}})
                .code,
            0);
}

TEST_F(Override, OnMissDoesNotTouchAHit) {
  for (const char* mode : {"fallback", "error"}) {
    EXPECT_EQ(choice("7", {{"CROSSOVER_ON_MISS", mode}}), choice("7"));
  }
}

TEST_F(Override, Frozen) {
  EXPECT_EQ(choice("7", {{"CROSSOVER_FROZEN", "1"}}), choice("7"));
  EXPECT_EQ(choice("7", {{"CROSSOVER_FROZEN", "0"}}), choice("7"));
  const Output beyond = select("1000", {{"CROSSOVER_FROZEN", "1"}});
  EXPECT_EQ(beyond.code, 3);
  EXPECT_EQ(beyond.out, "");
  EXPECT_THAT(beyond.err, HasSubstr("out_of_range"));
  const Output miss =
      run({"select", "--shape", "256,512", "--rows", "7", "--db", database_}, {{"CROSSOVER_FROZEN", "1"}});
  EXPECT_EQ(miss.code, 3);
  const Output stale = run({"select", "--shape", "256,256", "--rows", "7", "--db", database_, "--assume", "driver=9"},
                           {{"CROSSOVER_FROZEN", "1"}});
  EXPECT_EQ(stale.code, 3);
  EXPECT_THAT(stale.err, HasSubstr("driver"));
  EXPECT_EQ(select("1000", {{"CROSSOVER_FROZEN", "1"}, {"CROSSOVER_FORCE_ARM", kSlow}}).code, 0);
}

TEST_F(Override, FrozenWritesNothing) {
  const auto before = snapshot(folder_.path());
  for (const char* mode : {"record", "tune"}) {
    for (const std::string& database : {database_, (folder_ / "new.db").string()}) {
      const Output miss =
          run({"select", "--shape", "64,64", "--rows", "2", "--max-rows", "2", "--budget", "100ms", "--db", database},
              {{"CROSSOVER_FROZEN", "1"}, {"CROSSOVER_ON_MISS", mode}});
      EXPECT_EQ(miss.code, 3) << mode << ": " << miss.err;
      EXPECT_EQ(miss.out, "");
    }
    EXPECT_EQ(choice("7", {{"CROSSOVER_FROZEN", "1"}, {"CROSSOVER_ON_MISS", mode}}), choice("7"))
        << "a provisional verdict is not asked for again";
  }
  EXPECT_EQ(snapshot(folder_.path()), before);
}

TEST_F(Override, SetToNothingIsNotSet) {
  EXPECT_EQ(choice("7", {{"CROSSOVER_FORCE_ARM", ""},
                         {"CROSSOVER_THRESHOLD", ""},
                         {"CROSSOVER_DISABLE_ARMS", ""},
                         {"CROSSOVER_ON_MISS", ""},
                         {"CROSSOVER_FROZEN", ""}}),
            choice("7"));
}

TEST_F(Override, UnknownValuesListWhatIsValid) {
  const std::vector<std::pair<Environ, std::string>> cases{
      {{{"CROSSOVER_ON_MISS", "maybe"}}, "tune, record, fallback, error"},
      {{{"CROSSOVER_FORCE_ARM", "nosuch"}}, kFast},
      {{{"CROSSOVER_DISABLE_ARMS", "nosuch"}}, kFast},
      {{{"CROSSOVER_DISABLE_ARMS", "host_vector,,"}}, "CROSSOVER_DISABLE_ARMS"},
      {{{"CROSSOVER_THRESHOLD", "host_vector"}}, "ARM:ROWS"},
      {{{"CROSSOVER_THRESHOLD", "host_vector:0"}}, "ARM:ROWS"},
      {{{"CROSSOVER_THRESHOLD", "host_vector:-4"}}, "ARM:ROWS"},
      {{{"CROSSOVER_THRESHOLD", "nosuch:4"}}, kFast},
      {{{"CROSSOVER_THRESHOLD", "host_vector:99999999999999999999"}}, "ARM:ROWS"},
      {{{"CROSSOVER_FROZEN", "yes"}}, "0, 1"},
      {{{"CROSSOVER_FORCE_ARM", kFast}, {"CROSSOVER_THRESHOLD", "host_vector:4"}}, "contradict"},
      {{{"CROSSOVER_FORCE_ARM", kFast}, {"CROSSOVER_DISABLE_ARMS", kFast}}, "CROSSOVER_DISABLE_ARMS"},
      {{{"CROSSOVER_DISABLE_ARMS", "host_vector,host_reference,host_dequant_blas"}}, "no arm is left"},
  };
  const auto before = snapshot(folder_.path());
  for (const auto& [environment, expected] : cases) {
    const Output output = select("7", environment);
    EXPECT_EQ(output.code, 2) << environment.begin()->first << "=" << environment.begin()->second;
    EXPECT_EQ(output.out, "");
    EXPECT_THAT(output.err, HasSubstr(expected));
    EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
  }
  EXPECT_EQ(snapshot(folder_.path()), before);
}

}  // namespace
}  // namespace crossover::testing
