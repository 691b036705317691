// The completions and the manual page know what `--help` knows, and shells take them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <sstream>

#include "command.hpp"
#include "harness.hpp"
#include "options.hpp"

namespace crossover::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

std::vector<std::string> words_of(const program::Command& command) {
  std::vector<std::string> words{std::string(command.name)};
  if (!command.action.empty()) words.emplace_back(command.action);
  return words;
}

// Names of the options that `--help` lists, read from what it prints.
std::vector<std::string> listed_options(const program::Command& command) {
  std::vector<std::string> words = words_of(command);
  words.emplace_back("--help");
  const Output output = run(words);
  EXPECT_EQ(output.code, 0);
  std::vector<std::string> names;
  std::istringstream lines(output.out.substr(output.out.find("Options:")));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t start = line.find("--");
    if (start == std::string::npos || start > 8) continue;
    names.push_back(line.substr(start, line.find_first_of(" ]", start) - start));
  }
  EXPECT_THAT(names, Contains("--help")) << output.out;
  return names;
}

struct Ran {
  int code;
  std::string out;
};
Ran shell(const std::string& line) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((line + " 2>&1").c_str(), "r"), [](FILE*) { return 0; });
  Ran ran{-1, {}};
  char bytes[4096];
  while (const std::size_t count = std::fread(bytes, 1, sizeof bytes, pipe.get())) ran.out.append(bytes, count);
  ran.code = ::pclose(pipe.get());
  return ran;
}
bool has(const std::string& program) { return shell("command -v " + program).code == 0; }

// What bash offers at the end of `line`.
std::vector<std::string> completed(const std::string& line, const std::string& folder = "/") {
  const Folder scripts;
  write_file(scripts / "crossover.bash", run({"completion", "bash"}).out);
  write_file(scripts / "test.bash",
             "source '" + (scripts / "crossover.bash").string() + "'\ncd '" + folder +
                 "'\nCOMP_WORDBREAKS=$' \\t\\n\"\\'><=;|&(:' COMP_LINE=$1 COMP_POINT=${#1}\n_crossover\n"
                 "((${#COMPREPLY[@]} == 0)) || printf '%s\\n' \"${COMPREPLY[@]}\"\n");
  const Ran ran = shell("bash --norc '" + (scripts / "test.bash").string() + "' '" + line + "'");
  EXPECT_EQ(ran.code, 0) << ran.out;
  std::vector<std::string> words;
  std::istringstream lines(ran.out);
  for (std::string word; std::getline(lines, word);) words.push_back(word);
  return words;
}

TEST(Completion, EveryOptionOfEveryHelpIsInEveryScriptAndInTheManual) {
  const std::string zsh = run({"completion", "zsh"}).out, fish = run({"completion", "fish"}).out,
                    manual = run({"man"}).out;
  ASSERT_GE(program::commands().size(), 11u);
  for (const program::Command* command : program::commands()) {
    std::string name(command->name);
    if (!command->action.empty()) name += " " + std::string(command->action);
    SCOPED_TRACE(name);
    const std::vector<std::string> options = listed_options(*command);
    EXPECT_EQ(std::set(options.begin(), options.end()).size(), options.size()) << "an option is listed twice";
    EXPECT_THAT(completed("crossover " + name + " -"), IsSupersetOf(options));

    const std::size_t zsh_begin = zsh.find("\n    '" + name + "')"), zsh_end = zsh.find(";;", zsh_begin);
    ASSERT_NE(zsh_begin, std::string::npos);
    const std::string zsh_part = zsh.substr(zsh_begin, zsh_end - zsh_begin);
    std::string usage;
    for (const char c : command->usage.line) usage += c == '-' ? std::string("\\-") : std::string(1, c);
    const std::size_t begin = manual.find("\n.SS " + usage), end = manual.find("\n.S", begin + 1);
    ASSERT_NE(begin, std::string::npos) << usage;
    const std::string section = manual.substr(begin, end - begin);
    for (const std::string& option : options) {
      const std::string bare = option.substr(2);
      EXPECT_TRUE(zsh_part.find(option + "[") != std::string::npos || zsh_part.find(option + "=[") != std::string::npos)
          << option;
      EXPECT_THAT(fish, HasSubstr("'__crossover_in " + name + "' -l " + bare + " ")) << option;
      std::string roff = "\\fB\\-\\-";
      for (const char c : bare) roff += c == '-' ? std::string("\\-") : std::string(1, c);
      EXPECT_THAT(section, HasSubstr(roff + "\\fR")) << option;
    }
  }
}

TEST(Completion, OfBashCompletes) {
  EXPECT_THAT(completed("crossover t"), ElementsAre("tune"));
  EXPECT_THAT(completed("crossover "), AllOf(Contains("audit"), Contains("--help"), Contains("completion")));
  EXPECT_THAT(completed("crossover audit "), UnorderedElementsAre("list", "show", "verify", "constant", "--help"));
  EXPECT_THAT(completed("crossover audit li"), ElementsAre("list"));
  EXPECT_THAT(completed("crossover audit list --dev"), ElementsAre("--device"));
  EXPECT_THAT(completed("crossover audit nothing --"), ElementsAre());
  EXPECT_THAT(completed("crossover device --sh"), ElementsAre());
  EXPECT_THAT(completed("crossover tune --launch "), UnorderedElementsAre("graph", "eager"));
  EXPECT_THAT(completed("crossover tune --launch=g"), ElementsAre("graph"));
  EXPECT_THAT(completed("crossover tune --l2 "), UnorderedElementsAre("cold", "hot"));
  EXPECT_THAT(completed("crossover tune --dtype f"), ElementsAre("f16"));
  EXPECT_THAT(completed("crossover select --format m"), ElementsAre("markdown"));
  EXPECT_THAT(completed("crossover select --device c"), AllOf(Contains("cpu"), Contains("cuda:0")));
  EXPECT_THAT(completed("crossover select --device cuda:0"), ElementsAre("0"));
  EXPECT_THAT(completed("crossover select --rows "), ElementsAre());
  EXPECT_THAT(completed("crossover select --rows 7 --expl"), ElementsAre("--explain"));
  EXPECT_THAT(completed("crossover completion z"), ElementsAre("zsh"));
}

TEST(Completion, OfBashCompletesFiles) {
  const Folder folder;
  write_file(folder / "shapes.csv", "1,1\n");
  EXPECT_THAT(completed("crossover tune --shapes sh", folder.path().string()), ElementsAre("shapes.csv"));
  EXPECT_THAT(completed("crossover tune --db=sh", folder.path().string()), ElementsAre("shapes.csv"));
  EXPECT_THAT(completed("crossover tune --shape sh", folder.path().string()), ElementsAre());
}

TEST(Completion, KnownValuesAreTaken) {
  for (const program::Command* command : program::commands()) {
    for (const program::OptionText& option : program::option_texts(*command)) {
      for (const std::string_view value : program::known_values(option.name)) {
        if (option.name == "device") continue;
        std::vector<std::string> words{
            "arms", "--device", "cpu", "--shape", "128,128", "--" + option.name, std::string(value)};
        if (value == "graph") continue;  // the CPU has none
        if (option.name == "operation") words.erase(words.begin() + 3, words.begin() + 5);
        static std::set<std::vector<std::string>> seen;
        if (!seen.insert(words).second) continue;
        EXPECT_EQ(run(words).code, 0) << option.name << " " << value;
      }
    }
  }
  const Output output = run({"completion", "tcsh"});
  EXPECT_EQ(output.code, 2);
  EXPECT_THAT(output.err, HasSubstr("bash, zsh and fish"));
  EXPECT_EQ(run({"completion"}).code, 2);
}

// Checks what a program prints with a parser of its language, `line` with FILE in it. Skipped where there is none.
void expect_parsed(const std::vector<std::string>& arguments, const std::string& program, const std::string& line) {
  if (!has(program)) GTEST_SKIP() << program << " is not installed";
  const Folder folder;
  write_file(folder / "file", run(arguments).out);
  const Ran ran = shell(program + " " + line + " '" + (folder / "file").string() + "'");
  EXPECT_EQ(ran.code, 0) << ran.out;
  EXPECT_EQ(ran.out, "");
}

TEST(Completion, BashParsesIt) { expect_parsed({"completion", "bash"}, "bash", "-n"); }
TEST(Completion, ZshParsesIt) { expect_parsed({"completion", "zsh"}, "zsh", "-n"); }
TEST(Completion, FishParsesIt) { expect_parsed({"completion", "fish"}, "fish", "--no-execute"); }

TEST(Manual, GroffHasNothingToSay) { expect_parsed({"man"}, "groff", "-man -Tutf8 -ww -z"); }
TEST(Manual, MandocHasNothingToSay) { expect_parsed({"man"}, "mandoc", "-T lint -W error"); }

TEST(Manual, SaysWhatThereIs) {
  const std::string page = run({"man"}).out;
  for (const char* variable : {"DB", "ON_MISS", "DISABLE_ARMS", "FORCE_ARM", "THRESHOLD", "FROZEN"}) {
    EXPECT_THAT(page, HasSubstr(std::string("\\fBCROSSOVER_") + variable + "\\fR"));
  }
  for (const char* code : {"0", "1", "2", "3", "4"})
    EXPECT_THAT(page, HasSubstr(std::string("\n.TP\n\\fB") + code + "\\fR\n"));
  for (const char* section : {"NAME", "SYNOPSIS", "COMMANDS", "ENVIRONMENT", "FILES", "EXIT STATUS"})
    EXPECT_THAT(page, HasSubstr(std::string("\n.SH ") + section + "\n"));
  EXPECT_THAT(page, Not(HasSubstr("\n\n")));
}

}  // namespace
}  // namespace crossover::testing
