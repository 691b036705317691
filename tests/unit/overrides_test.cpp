#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "synthetic.hpp"

namespace crossover {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Overrides from(const std::map<std::string, std::string>& variables) {
  return Overrides::from_environment([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string failure(const std::function<void()>& work) {
  try {
    work();
  } catch (const InvalidArgument& error) {
    return error.what();
  }
  return "no error";
}

TEST(Overrides, NothingSetIsNothingChanged) {
  const Overrides none = from({});
  EXPECT_FALSE(none.on_miss || none.force_arm || none.threshold || none.frozen);
  EXPECT_TRUE(none.disable_arms.empty());
  const Overrides empty = from(
      {{"CROSSOVER_ON_MISS", ""}, {"CROSSOVER_FORCE_ARM", ""}, {"CROSSOVER_THRESHOLD", ""}, {"CROSSOVER_FROZEN", ""}});
  EXPECT_FALSE(empty.on_miss || empty.force_arm || empty.threshold || empty.frozen);
}

TEST(Overrides, Values) {
  EXPECT_EQ(from({{"CROSSOVER_ON_MISS", "record"}}).on_miss, MissMode::record);
  EXPECT_THAT(from({{"CROSSOVER_DISABLE_ARMS", "a,b/c"}}).disable_arms, ElementsAre("a", "b/c"));
  EXPECT_EQ(from({{"CROSSOVER_FORCE_ARM", "a"}}).force_arm, "a");
  const Overrides threshold = from({{"CROSSOVER_THRESHOLD", "family/v:512"}});
  EXPECT_EQ(threshold.threshold->arm, "family/v");
  EXPECT_EQ(threshold.threshold->rows, 512);
  EXPECT_TRUE(from({{"CROSSOVER_FROZEN", "1"}}).frozen);
  EXPECT_FALSE(from({{"CROSSOVER_FROZEN", "0"}}).frozen);
}

TEST(Overrides, BadValuesNameTheVariableAndWhatIsValid) {
  for (const char* bad : {"Tune", "yes", " tune"})
    EXPECT_THAT(failure([&] { from({{"CROSSOVER_ON_MISS", bad}}); }), HasSubstr("tune, record, fallback, error"));
  for (const char* bad : {"a", "a:", ":5", "a:0", "a:-1", "a:5x", "a:99999999999999999999", "a: 5"})
    EXPECT_THAT(failure([&] { from({{"CROSSOVER_THRESHOLD", bad}}); }), HasSubstr("ARM:ROWS")) << bad;
  for (const char* bad : {",", "a,", ",a", "a,,b"})
    EXPECT_THAT(failure([&] { from({{"CROSSOVER_DISABLE_ARMS", bad}}); }), HasSubstr("separated by commas")) << bad;
  for (const char* bad : {"2", "true", "on"})
    EXPECT_THAT(failure([&] { from({{"CROSSOVER_FROZEN", bad}}); }), HasSubstr("0, 1"));
}

TEST(Overrides, UnknownArmsListTheKnownOnes) {
  const ArmSet set = synthetic::current(synthetic::two_arms()).arm_set;
  for (const auto& [variable, value] : std::map<std::string, std::string>{{"CROSSOVER_DISABLE_ARMS", "small,nope"},
                                                                          {"CROSSOVER_FORCE_ARM", "nope"},
                                                                          {"CROSSOVER_THRESHOLD", "nope:3"}}) {
    const std::string text = failure([&] { from({{variable, value}}).check(set); });
    EXPECT_THAT(text, HasSubstr(variable));
    EXPECT_THAT(text, HasSubstr("'nope'"));
    EXPECT_THAT(text, HasSubstr("small, large"));
  }
}

TEST(Overrides, TwoThatContradict) {
  const ArmSet set = synthetic::current(synthetic::two_arms()).arm_set;
  const auto check = [&](const std::map<std::string, std::string>& variables) {
    return failure([&] { from(variables).check(set); });
  };
  EXPECT_THAT(check({{"CROSSOVER_FORCE_ARM", "small"}, {"CROSSOVER_THRESHOLD", "large:5"}}), HasSubstr("contradict"));
  EXPECT_THAT(check({{"CROSSOVER_FORCE_ARM", "small"}, {"CROSSOVER_DISABLE_ARMS", "small"}}),
              HasSubstr("both name small"));
  EXPECT_THAT(check({{"CROSSOVER_THRESHOLD", "large:5"}, {"CROSSOVER_DISABLE_ARMS", "large"}}),
              HasSubstr("both name large"));
  EXPECT_EQ(check({{"CROSSOVER_THRESHOLD", "large:5"}, {"CROSSOVER_DISABLE_ARMS", "small"}}), "no error");
}

}  // namespace
}  // namespace crossover
