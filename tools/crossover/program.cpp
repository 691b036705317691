// Finds the subcommand, and turns what it throws into one sentence and an exit code.

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <new>
#include <string>
#include <string_view>

#include "command.hpp"
#include "crossover/dispatch/error.hpp"
#include "document.hpp"
#include "isolate.hpp"

namespace crossover::program {
namespace {

std::string usage() {
  std::string text = fmt::format(
      "crossover {}: {}.\n\n"
      "Usage: crossover COMMAND [options]\n\n",
      CROSSOVER_VERSION, kPurpose);
  for (const Command* command : commands()) {
    text += fmt::format("  {:<14} {}\n", fmt::format("{} {}", command->name, command->action), command->summary);
  }
  text += "\nEvery command has --help with an example.\nExit codes: ";
  for (const ExitCode& each : kExitCodes)
    text += fmt::format("{}{} {}", each.code > 0 ? "; " : "", each.code, each.meaning);
  return text + ".\n";
}

std::string names(std::string_view of = {}) {
  std::string list;
  std::string_view last;
  for (const Command* command : commands()) {
    const std::string_view name = of.empty() ? command->name : command->action;
    if ((!of.empty() && command->name != of) || name == last) continue;
    list += fmt::format("{}{}", list.empty() ? "" : ", ", last = name);
  }
  return list;
}

int run(Arguments arguments) {
  if (arguments.empty())
    throw InvalidArgument(fmt::format("no command given; there are: {}; see crossover --help", names()));
  const std::string first = arguments.front();
  if (first == "--help" || first == "-h" || first == "help") {
    write_output(usage());
    return kDone;
  }
  if (first == "--version") {
    write_output(fmt::format("crossover {}\n", CROSSOVER_VERSION));
    return kDone;
  }
  if (first == kHelperCommand && arguments.size() == 1) return run_isolated_helper({});
  arguments.erase(arguments.begin());
  bool known = false;
  for (const Command* command : commands()) {
    if (command->name != first) continue;
    known = true;
    if (command->action.empty()) return command->run(arguments);
    if (!arguments.empty() && arguments.front() == command->action) {
      arguments.erase(arguments.begin());
      return command->run(arguments);
    }
  }
  if (!known) throw InvalidArgument(fmt::format("unknown command '{}'; there are: {}", first, names()));
  if (!arguments.empty() && (arguments.front() == "--help" || arguments.front() == "-h")) {
    write_output(usage());
    return kDone;
  }
  throw InvalidArgument(arguments.empty() ? fmt::format("{} needs an action: {}", first, names(first))
                                          : fmt::format("unknown action '{}' of {}; there are: {}", arguments.front(),
                                                        first, names(first)));
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
      return kImpossible;
    case ErrorCode::no_verdict:
      return kNoVerdict;
    default:
      return kFailed;
  }
}

int complain(std::string_view message, int code) {
  write_error(fmt::format("crossover: {}\n", printable(message)));
  return code;
}

// Files that are opened later must not become descriptor 0, 1 or 2: what is printed would land in them.
void occupy_standard_descriptors() {
  for (int fd = ::open("/dev/null", O_RDONLY); fd >= 0; fd = ::open("/dev/null", O_RDONLY)) {
    if (fd <= STDERR_FILENO) continue;
    ::close(fd);
    return;
  }
}

int guarded_run(Arguments arguments) {
  try {
    return run(std::move(arguments));
  } catch (const Error& error) {
    return complain(error.advice().empty() ? error.what() : fmt::format("{}; {}", error.what(), error.advice()),
                    exit_code(error.code()));
  } catch (const std::bad_alloc&) {
    return complain("out of memory: the problem is too large for this host", kFailed);
  } catch (const std::exception& error) {
    return complain(error.what(), kFailed);
  }
}

}  // namespace

std::span<const Command* const> commands() {
  static constexpr const Command* kCommands[] = {&kDeviceCommand,     &kArmsCommand,        &kTuneCommand,
                                                 &kSelectCommand,     &kCompareCommand,     &kAuditListCommand,
                                                 &kAuditShowCommand,  &kAuditVerifyCommand, &kAuditConstantCommand,
                                                 &kCompletionCommand, &kManCommand};
  return kCommands;
}

int run_program(int count, char** values) {
  occupy_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that may not grow
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of the write, with a sentence and an exit code
  return guarded_run({values + std::min(count, 1), values + count});
}

}  // namespace crossover::program
