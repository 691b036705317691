#pragma once
// The subcommands. Each reads its own options, writes one document to standard output and returns the exit code; what
// it throws becomes one sentence on standard error and an exit code in main().

#include <string>
#include <vector>

namespace crossover::program {

// Exit codes: a contract with programs that call this one.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;              // failed on the way
inline constexpr int kImpossible = 2;          // what was asked for cannot be
inline constexpr int kNoVerdict = 3;           // nothing is known, and that was to be an error; an unknown id
inline constexpr int kVerificationFailed = 4;  // what is stored does not hold

using Arguments = std::vector<std::string>;

int run_device(const Arguments& arguments);
int run_arms(const Arguments& arguments);
int run_tune(const Arguments& arguments);
int run_select(const Arguments& arguments);
int run_compare(const Arguments& arguments);
int run_audit_constant(const Arguments& arguments);
int run_audit_list(const Arguments& arguments);
int run_audit_verify(const Arguments& arguments);
int run_audit_show(const Arguments& arguments);

// All of the program: finds the subcommand, and turns what it throws into one sentence and an exit code.
int run_program(int count, char** values);

}  // namespace crossover::program
