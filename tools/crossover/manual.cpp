// crossover man: the manual page.

#include <fmt/format.h>

#include "command.hpp"
#include "options.hpp"

namespace crossover::program {
namespace {

constexpr Usage kManUsage{"crossover man [options]",
                          "Prints the manual page crossover(1), for man to format. It is made from the tables that "
                          "--help is made from;\n"
                          "an installed package has it where man looks.",
                          "crossover man | man -l -"};

struct Entry {
  std::string_view name, about;
};

constexpr Entry kVariables[] = {
    {"CROSSOVER_DB", "The path of the database, unless --db gives one."},
    {"XDG_DATA_HOME", "The database is crossover/tuning.db in this folder, if CROSSOVER_DB is not set."},
    {"HOME", "The database is .local/share/crossover/tuning.db in this folder, if neither is set."},
    {"CROSSOVER_ON_MISS",
     "What select does where nothing is known: tune (measures now), record (leaves a request that tune --pending "
     "serves), fallback (the default arm, and the default here), error (exit code 3)."},
    {"CROSSOVER_DISABLE_ARMS",
     "Arms or families, separated by commas, as if they were not registered; makes nothing stale."},
    {"CROSSOVER_FORCE_ARM", "This arm or family at every row count, whatever its class."},
    {"CROSSOVER_THRESHOLD",
     "ARM:ROWS: from that many rows on this arm or family, below it the plan over all others. Contradicts "
     "CROSSOVER_FORCE_ARM."},
    {"CROSSOVER_FROZEN",
     "1: an answer that is not tuned, shipped or forced is an error (exit code 3), and nothing is measured or "
     "recorded. 0: "
     "off."},
};

constexpr Entry kFiles[] = {
    {"~/.local/share/crossover/tuning.db", "The database, where nothing says otherwise."},
    {"FILE.lock", "Beside a database FILE that is written: held while it is created, recovered or migrated."},
    {"FILE-journal", "Beside a database FILE that is written: SQLite's journal."},
    {"FILE.vVERSION.backup", "A copy of an older database FILE from before it was migrated."},
};

// Text as roff takes it literally, on one line.
std::string roff(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else if (c == '~') {
      result += "\\(ti";
    } else if (c == '^') {
      result += "\\(ha";
    } else if (c == '`') {
      result += "\\(ga";
    } else if (c == '\'') {
      result += "\\(aq";
    } else if (c == '"') {
      result += "\\(dq";
    } else if (c == '\n') {
      result += ' ';
    } else {
      result += c;
    }
  }
  if (result.starts_with('.')) result.insert(0, "\\&");
  return result;
}

std::string entry(std::string_view name, std::string_view about) {
  return fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(name), roff(about));
}

std::string option_entry(const OptionText& option) {
  std::string text = ".TP\n";
  if (option.help) text += "\\fB\\-h\\fR, ";
  text += fmt::format("\\fB\\-\\-{}\\fR", roff(option.name));
  if (!option.value.empty()) text += fmt::format(" \\fI{}\\fR", roff(option.value));
  text += fmt::format("\n{}\n", roff(option.about));
  if (const auto values = known_values(option.name); !values.empty() && option.name != "device")
    text += fmt::format(".br\nOne of: {}.\n", roff(fmt::format("{}", fmt::join(values, ", "))));
  return text;
}

std::string manual_page() {
  std::string text =
      fmt::format(".\\\" Made by crossover man.\n.TH CROSSOVER 1 \"\" \"crossover {}\" \"User Commands\"\n",
                  roff(CROSSOVER_VERSION));
  text += fmt::format(".SH NAME\ncrossover \\- {}\n", roff(kPurpose));
  text +=
      ".SH SYNOPSIS\n\\fBcrossover\\fR \\fICOMMAND\\fR [\\fIoptions\\fR]\n.br\n\\fBcrossover \\-\\-help\\fR | "
      "\\fB\\-\\-version\\fR\n";
  text += ".SH DESCRIPTION\n";
  text += roff(
      "Times all implementations (arms) of an operation on this host, stores what it measured with everything that is "
      "needed to judge it, and answers which arm to run at which row count M.");
  text += "\n.PP\n";
  text +=
      roff("Standard output holds the answer and nothing else. Errors and warnings are sentences on standard error.");
  text += "\n.SH COMMANDS\n";
  for (const Command* command : commands()) {
    text += fmt::format(".TP\n\\fB{}{}{}\\fR\n{}\n", roff(command->name), command->action.empty() ? "" : " ",
                        roff(command->action), roff(command->summary));
  }
  for (const Command* command : commands()) {
    text += fmt::format(".SS {}\n{}\n", roff(command->usage.line), roff(command->usage.about));
    for (const OptionText& option : option_texts(*command)) text += option_entry(option);
    text += fmt::format(".PP\nExample:\n.PP\n.nf\n.RS\n{}\n.RE\n.fi\n", roff(command->usage.example));
  }
  text += ".SH ENVIRONMENT\n";
  text += roff("A variable that is set to nothing is not set.");
  text += "\n";
  for (const Entry& each : kVariables) text += entry(each.name, each.about);
  text += ".SH FILES\n";
  for (const Entry& each : kFiles) text += entry(each.name, each.about);
  text += ".SH EXIT STATUS\n";
  for (const ExitCode& each : kExitCodes) text += entry(fmt::format("{}", each.code), each.meaning);
  return text;
}

void describe_man(Described& options) { options.add_options()("help,h", "this text"); }

int run_man(const Arguments& arguments) {
  const auto options = Options::parse(kManCommand, arguments);
  if (!options) return kDone;
  write_output(manual_page());
  return kDone;
}

}  // namespace

constinit const Command kManCommand{
    "man", "", "the manual page crossover(1), for man to format", kManUsage, "", describe_man, run_man};

}  // namespace crossover::program
