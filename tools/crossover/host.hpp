#pragma once
// What a subcommand works on: this host, opened as the options say, and the device that it is about.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "crossover/runtime.hpp"
#include "options.hpp"

namespace crossover::program {

// One line on standard error, each text once.
void warn(const std::string& text);

// Draws on standard error if that is a terminal, else nothing is drawn.
class TerminalProgress {
 public:
  TerminalProgress();
  ~TerminalProgress() { clear(); }
  TerminalProgress(const TerminalProgress&) = delete;
  TerminalProgress& operator=(const TerminalProgress&) = delete;
  OnProgress handler();
  void title(std::string text) { title_ = std::move(text); }
  void clear();

 private:
  bool terminal_;
  bool drawn_ = false;
  std::string title_;
};

// Warnings go to standard error. A --device that names a stored device opens the default one of this host.
// `needs_database`: throws StoreError where it cannot be used, instead of going on without it.
std::unique_ptr<Runtime> open_runtime(const Options& options, RuntimeOptions runtime, bool needs_database = false);
// Throws StoreError if the database cannot be used.
void require_database(const Runtime& runtime);

// The device a command is about: this host's, or one that is only known from the database. A stored device is taken to
// be as it was when it was last measured: its environment, its conditions, its arms.
class Target {
 public:
  // Throws InvalidArgument where `options` name no device of this host or of the database.
  Target(Runtime& runtime, const Options& options);
  bool stored() const noexcept { return stored_.has_value(); }
  const Device& device() const;
  std::span<const LaunchMode> launch_modes() const;
  Regime regime(const Options& options) const;
  // What is true of the device now. `problem` is normalised.
  Current current(const Operation& operation, const Problem& problem, const Regime& regime) const;

 private:
  // Of the problem, else of another problem of the same operation: the arms that a stored device has.
  std::optional<Run> newest_run(const Problem& problem, const Regime& regime) const;

  Runtime& runtime_;
  std::optional<Device> stored_;
};

}  // namespace crossover::program
