#pragma once
// Options that subcommands share. All are read as text and judged here, so that every complaint is one sentence of
// ours.

#include <boost/program_options.hpp>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "command.hpp"
#include "crossover/dispatch/decide.hpp"
#include "crossover/dispatch/operation.hpp"
#include "crossover/dispatch/resolve.hpp"
#include "crossover/tuner/tuner.hpp"
#include "document.hpp"
#include "isolate.hpp"

namespace crossover::program {

void add_output_options(Described& options);
void add_database_option(Described& options);
void add_device_option(Described& options, bool stored);  // stored: takes the id of a stored device as well
void add_problem_options(Described& options);             // --plugin is one of them
void add_plugin_option(Described& options);
void add_isolation_options(Described& options);
void add_policy_options(Described& options);
void add_regime_options(Described& options);
void add_tuning_options(Described& options);

// One option of a command, as `--help` lists it.
struct OptionText {
  std::string name;   // without its dashes
  std::string value;  // "FILE"; empty: it takes no value
  std::string about;  // what it does
  bool repeatable = false;
  bool help = false;  // -h as well
};
std::vector<OptionText> option_texts(const Command& command);

// The values of an option (without its dashes) or of a positional argument, where they can be listed; else empty. Those
// of --device are examples: which GPUs there are is the host's matter.
std::span<const std::string_view> known_values(std::string_view name);

class Options {
 public:
  // Empty if `--help` was asked for and has been written. Loads what `--plugin` names, with `--untrusted`
  // in a process of its own first. Throws InvalidArgument.
  static std::optional<Options> parse(const Command& command, const Arguments& arguments);

  bool has(const char* name) const { return values_.count(name) != 0; }
  // The last word on a repeated option belongs to Boost: only those declared so repeat.
  std::optional<std::string> text(const char* name) const;
  std::vector<std::string> texts(const char* name) const;
  const std::string& positional() const { return positionals_.at(0); }  // of a command that has one

  Format format() const;
  std::filesystem::path database() const;  // empty: the default
  std::string device() const;              // empty: the default
  const Operation& operation() const;
  // Of --shape and --problem; empty if neither is there. Attributes that --dtype and --bias set are in it. Not
  // normalised.
  std::optional<Problem> problem() const;
  // The attributes of `base`, with those that --dtype and --bias set; throws if both say the same attribute.
  Problem with_common_attributes(Problem base) const;
  // Names and classes are checked against `set`.
  Policy policy(const ArmSet& set) const;
  L2State l2() const;
  std::optional<LaunchMode> launch_mode() const;
  TuneOptions tuning() const;  // max_rows, budget, thorough, l2
  // What --untrusted asks for; empty if it is not there.
  std::optional<Isolation> isolation() const;

 private:
  IsolationLimits isolation_limits() const;

  boost::program_options::variables_map values_;
  std::vector<std::string> positionals_;
  std::set<std::string> plugin_operations_;
};

// "N,K" as attributes n and k of fp8_block_linear, not normalised. Throws InvalidArgument that names `option`.
Problem shape_problem(std::string_view option, std::string_view text);

// The launch mode that was asked for, if `modes` has it, else the first of them. Throws InvalidArgument.
LaunchMode choose_launch_mode(std::optional<LaunchMode> asked, std::span<const LaunchMode> modes,
                              std::string_view device_kind);

}  // namespace crossover::program
