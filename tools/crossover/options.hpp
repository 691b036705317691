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

// What `--help` says before the options.
struct Usage {
  std::string_view line;   // "crossover select --shape N,K --rows M [options]"
  std::string_view about;  // a sentence or two
  std::string_view example;
};

using Described = boost::program_options::options_description;

void add_output_options(Described& options);
void add_database_option(Described& options);
void add_device_option(Described& options, bool stored);  // stored: takes the id of a stored device as well
void add_problem_options(Described& options);             // --plugin is one of them
void add_plugin_option(Described& options);
void add_isolation_options(Described& options);
void add_policy_options(Described& options);
void add_regime_options(Described& options);
void add_tuning_options(Described& options);

class Options {
 public:
  // Empty if `--help` was asked for and has been written. `positionals`: names of the arguments that are not options,
  // all of them required. Loads what `--plugin` names, with
  // `--untrusted` in a process of its own first. Throws InvalidArgument.
  static std::optional<Options> parse(const Usage& usage, const Described& options, const Arguments& arguments,
                                      const std::vector<std::string>& positionals = {});

  bool has(const char* name) const { return values_.count(name) != 0; }
  // The last word on a repeated option belongs to Boost: only those declared so repeat.
  std::optional<std::string> text(const char* name) const;
  std::vector<std::string> texts(const char* name) const;
  const std::string& positional(std::size_t index) const { return positionals_.at(index); }

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
