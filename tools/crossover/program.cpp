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

struct Command {
  std::string_view name, action;  // action: second word, or empty
  std::string_view summary;
  int (*run)(const Arguments& arguments);
};

constexpr Command kCommands[] = {
    {"device", "", "what this host is, and what could not be read", run_device},
    {"arms", "", "every arm: class, fingerprint, eligible or why not", run_arms},
    {"tune", "", "measures every eligible arm of a problem and stores the verdict", run_tune},
    {"select", "", "the arm for a problem and a row count, and where the answer comes from", run_select},
    {"compare", "", "arms timed against each other now, with the interval of their ratio", run_compare},
    {"audit", "list", "every stored verdict", run_audit_list},
    {"audit", "show", "one verdict with its runs and measurements", run_audit_show},
    {"audit", "verify", "every digest, reference and verdict, computed again", run_audit_verify},
    {"audit", "constant", "what a constant such as 'this arm from M = 512 on' costs against the table",
     run_audit_constant},
};

std::string usage() {
  std::string text = fmt::format(
      "crossover {}: times the implementations of an operation on this host and picks one by row count.\n\n"
      "Usage: crossover COMMAND [options]\n\n",
      CROSSOVER_VERSION);
  for (const Command& command : kCommands) {
    text += fmt::format("  {:<14} {}\n", fmt::format("{} {}", command.name, command.action), command.summary);
  }
  return text +
         "\nEvery command has --help with an example. Exit codes: 0 done; 1 failed on the way; 2 what was asked for "
         "cannot "
         "be;\n3 no verdict; 4 verification failed.\n";
}

std::string names(std::string_view of = {}) {
  std::string list;
  std::string_view last;
  for (const Command& command : kCommands) {
    const std::string_view name = of.empty() ? command.name : command.action;
    if ((!of.empty() && command.name != of) || name == last) continue;
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
  for (const Command& command : kCommands) {
    if (command.name != first) continue;
    known = true;
    if (command.action.empty()) return command.run(arguments);
    if (!arguments.empty() && arguments.front() == command.action) {
      arguments.erase(arguments.begin());
      return command.run(arguments);
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

int run_program(int count, char** values) {
  occupy_standard_descriptors();
  std::signal(SIGXFSZ, SIG_IGN);  // so is a file that may not grow
  std::signal(SIGPIPE, SIG_IGN);  // a reader that has gone is an error of the write, with a sentence and an exit code
  return guarded_run({values + std::min(count, 1), values + count});
}

}  // namespace crossover::program
