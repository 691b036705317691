#pragma once
// The subcommands. Each reads its own options, writes one document to standard output and returns the exit code; what
// it throws becomes one sentence on standard error and an exit code in main().

#include <boost/program_options.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace crossover::program {

// Exit codes: a contract with programs that call this one.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;              // failed on the way
inline constexpr int kImpossible = 2;          // what was asked for cannot be
inline constexpr int kNoVerdict = 3;           // nothing is known, and that was to be an error; an unknown id
inline constexpr int kVerificationFailed = 4;  // what is stored does not hold

using Arguments = std::vector<std::string>;

using Described = boost::program_options::options_description;

// What `--help` says before the options.
struct Usage {
  std::string_view line;   // "crossover select --shape N,K --rows M [options]"
  std::string_view about;  // a sentence or two
  std::string_view example;
};

// All that is known of a subcommand without running it: what `--help`, the completions and the manual page say.
struct Command {
  std::string_view name, action;  // action: second word, or empty
  std::string_view summary;
  Usage usage;
  std::string_view positional;  // the argument that is not an option, and is required; empty: there is none
  void (*describe)(Described& options);
  int (*run)(const Arguments& arguments);
};

extern const Command kDeviceCommand, kArmsCommand, kTuneCommand, kSelectCommand, kCompareCommand, kAuditListCommand,
    kAuditShowCommand, kAuditVerifyCommand, kAuditConstantCommand, kCompletionCommand, kManCommand;

// In the order in which they are listed.
std::span<const Command* const> commands();

struct ExitCode {
  int code;
  std::string_view meaning;
};
inline constexpr ExitCode kExitCodes[] = {{kDone, "done"},
                                          {kFailed, "failed on the way"},
                                          {kImpossible, "what was asked for cannot be"},
                                          {kNoVerdict, "no verdict"},
                                          {kVerificationFailed, "verification failed"}};

// What the program does, in one sentence without its name.
inline constexpr std::string_view kPurpose =
    "times the implementations of an operation on this host and picks one by row count";

// All of the program: finds the subcommand, and turns what it throws into one sentence and an exit code.
int run_program(int count, char** values);

}  // namespace crossover::program
