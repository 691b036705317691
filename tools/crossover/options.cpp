#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "crossover/dispatch/error.hpp"
#include "crossover/plugin.hpp"
#include "crossover/runtime.hpp"
#include "text.hpp"

namespace po = boost::program_options;

namespace crossover::program {
namespace {

constexpr std::string_view kShapeOperation = "fp8_block_linear";

po::typed_value<std::string>* value(const char* name) { return po::value<std::string>()->value_name(name); }

template <typename Value, typename From>
Value one_of(std::string_view option, const std::string& text, From from, std::string_view valid) {
  const std::optional<Value> result = from(text);
  if (!result) throw InvalidArgument(fmt::format("{} takes {}, not '{}'", option, valid, text));
  return *result;
}

}  // namespace

void add_output_options(Described& options) {
  options.add_options()("json", "one JSON document on standard output; short for --format json")(
      "format", value("FORMAT"), "text (tables for people), json or markdown")("help,h", "this text");
}

void add_database_option(Described& options) {
  options.add_options()("db", value("FILE"),
                        "the database; default: $CROSSOVER_DB, else $XDG_DATA_HOME/crossover/tuning.db");
}

void add_device_option(Described& options, bool stored) {
  options.add_options()("device", value("DEVICE"),
                        stored ? "cpu, cuda:N, or the first digits of a stored device's id; default: the first GPU, "
                                 "else the CPU"
                               : "cpu or cuda:N; default: the first GPU, else the CPU");
}

void add_plugin_option(Described& options) {
  options.add_options()("plugin", po::value<std::vector<std::string>>()->value_name("FILE"),
                        "a shared library with operations of its own (repeatable)");
}

void add_isolation_options(Described& options) {
  options.add_options()("untrusted", "arms of plug-ins run in processes of their own, and may crash or hang there")(
      "arm-time-limit", value("TIME"), "with --untrusted: how long an arm may run without coming back; default: 5s")(
      "arm-memory-limit", value("BYTES"),
      "with --untrusted: address space for the arms, on the CPU; default: half of the memory that is available");
}

void add_problem_options(Described& options) {
  add_plugin_option(options);
  options.add_options()("operation", value("NAME"), "the operation; default: fp8_block_linear")(
      "problem", value("K=V,..."), "attributes of the problem")("shape", value("N,K"),
                                                                "short for fp8_block_linear's n and k")(
      "dtype", value("TYPE"), "bf16 or f16; default: bf16")("bias", "the layer has a bias, of the same type");
}

void add_policy_options(Described& options) {
  options.add_options()("allow", value("A,B"), "numerics classes; default: those the operation allows")(
      "arms", value("A,B"), "only these arms or families; all are measured nevertheless")(
      "cache-bytes", value("BYTES"), "what an arm may keep beside the weights; default: 0")(
      "workspace-bytes", value("BYTES"), "scratch an arm may ask for; default: 1GiB")(
      "batch-invariant", "one arm for every M, whose rows do not depend on M");
}

void add_regime_options(Described& options) {
  options.add_options()("launch", value("MODE"), "graph or eager; default: the device's first")(
      "l2", value("STATE"), "cold or hot: what launches find in the last cache; default: cold");
}

void add_tuning_options(Described& options) {
  options.add_options()("max-rows", value("M"), "largest row count that is measured; default: 8192")(
      "budget", value("TIME"), "for one problem: 10s, 500ms, 2m; default: 10s, with --thorough 60s")(
      "thorough", "measure in three processes, a third of the budget each, and stop nothing early");
}

std::vector<OptionText> option_texts(const Command& command) {
  Described described;
  command.describe(described);
  std::vector<OptionText> texts;
  for (const auto& each : described.options()) {
    OptionText text;
    text.name = each->long_name();
    if (each->semantic()->max_tokens() > 0) text.value = each->semantic()->name();
    text.about = each->description();
    text.repeatable = dynamic_cast<const po::typed_value<std::vector<std::string>>*>(each->semantic().get()) != nullptr;
    text.help = text.name == "help";
    texts.push_back(std::move(text));
  }
  return texts;
}

std::span<const std::string_view> known_values(std::string_view name) {
  static constexpr std::string_view kDevices[] = {"cpu",    "cuda:0", "cuda:1", "cuda:2", "cuda:3",
                                                  "cuda:4", "cuda:5", "cuda:6", "cuda:7"};
  static constexpr std::string_view kTypes[] = {"bf16", "f16"}, kModes[] = {"graph", "eager"},
                                    kStates[] = {"cold", "hot"}, kOperations[] = {kShapeOperation},
                                    kShells[] = {"bash", "zsh", "fish"};
  static constexpr std::string_view kFormatNames[] = {"text", "json", "markdown"};
  static constexpr std::pair<std::string_view, std::span<const std::string_view>> kValues[] = {
      {"device", kDevices},     {"dtype", kTypes},          {"launch", kModes}, {"l2", kStates},
      {"format", kFormatNames}, {"operation", kOperations}, {"SHELL", kShells}};
  for (const auto& [each, values] : kValues) {
    if (each == name) return values;
  }
  return {};
}

std::optional<Options> Options::parse(const Command& command, const Arguments& arguments) {
  const Usage& usage = command.usage;
  Described options("Options");
  command.describe(options);
  Described all;
  all.add(options).add_options()("argument", po::value<std::vector<std::string>>());
  po::positional_options_description position;
  position.add("argument", -1);

  Options result;
  try {
    // No guessing: a new option must never change what a shorter spelling meant.
    const int style = po::command_line_style::unix_style & ~po::command_line_style::allow_guessing;
    po::store(po::command_line_parser(arguments).options(all).positional(position).style(style).run(), result.values_);
  } catch (const po::error& error) {
    throw InvalidArgument(
        fmt::format("{}; see {} --help", error.what(), usage.line.substr(0, usage.line.find_first_of("[<-") - 1)));
  }
  if (result.has("help")) {
    std::ostringstream described;
    described << options;
    write_output(
        fmt::format("Usage: {}\n\n{}\n\nExample: {}\n\n{}", usage.line, usage.about, usage.example, described.str()));
    return std::nullopt;
  }
  result.positionals_ = result.texts("argument");
  const std::size_t wanted = command.positional.empty() ? 0 : 1;
  if (result.positionals_.size() > wanted) {
    throw InvalidArgument(fmt::format("unexpected argument '{}'", result.positionals_[wanted]));
  }
  if (result.positionals_.size() < wanted) {
    throw InvalidArgument(fmt::format("{} is missing: {}", command.positional, usage.line));
  }
  const bool untrusted = result.has("untrusted");
  if (untrusted && !result.has("plugin")) throw InvalidArgument("--untrusted is for the arms of a --plugin");
  for (const char* name : {"arm-time-limit", "arm-memory-limit"}) {
    if (result.has(name) && !untrusted) throw InvalidArgument(fmt::format("--{} goes with --untrusted", name));
  }
  const IsolationLimits limits = untrusted ? result.isolation_limits() : IsolationLimits{};
  for (const std::string& file : result.texts("plugin")) {
    if (untrusted) require_loadable(file, limits);
    for (std::string& name : load_plugin(file)) result.plugin_operations_.insert(std::move(name));
  }
  return result;
}

std::optional<std::string> Options::text(const char* name) const {
  if (!has(name)) return std::nullopt;
  return values_[name].as<std::string>();
}

std::vector<std::string> Options::texts(const char* name) const {
  if (!has(name)) return {};
  return values_[name].as<std::vector<std::string>>();
}

Format Options::format() const {
  const std::optional<std::string> name = text("format");
  if (!name) return has("json") ? Format::json : Format::text;
  static constexpr std::pair<std::string_view, Format> kFormats[] = {
      {"text", Format::text}, {"json", Format::json}, {"markdown", Format::markdown}};
  for (const auto& [each, format] : kFormats) {
    if (*name != each) continue;
    if (has("json") && format != Format::json) {
      throw InvalidArgument(fmt::format("--json and --format {} contradict each other", *name));
    }
    return format;
  }
  throw InvalidArgument(fmt::format("--format takes text, json or markdown, not '{}'", *name));
}

std::filesystem::path Options::database() const {
  const std::optional<std::string> path = text("db");
  if (path && path->empty()) throw InvalidArgument("--db takes the path of a file, not ''");
  return path.value_or("");
}

std::string Options::device() const {
  const std::optional<std::string> name = text("device");
  if (name && name->empty()) {
    throw InvalidArgument(
        fmt::format("--device takes a device, not ''; those here are: {}", join(Runtime::device_names())));
  }
  return name.value_or("");
}

const Operation& Options::operation() const {
  return Runtime::operation(text("operation").value_or("fp8_block_linear"));
}

Problem shape_problem(std::string_view option, std::string_view text) {
  const std::vector<std::string> parts = split(text, ',');
  if (parts.size() != 2) throw InvalidArgument(fmt::format("{} takes N,K such as 4096,7168, not '{}'", option, text));
  Problem problem{std::string(kShapeOperation), {}};
  for (std::size_t i = 0; i < 2; ++i) {
    const std::string number(trimmed(parts[i]));
    const auto extent = integer_from(number);
    if (!extent || *extent < 1) {
      throw InvalidArgument(fmt::format("{} takes N,K, two whole numbers above 0, not '{}'", option, text));
    }
    problem.attributes[i == 0 ? "n" : "k"] = number;
  }
  return problem;
}

std::optional<Problem> Options::problem() const {
  const Operation& chosen = operation();
  const std::optional<std::string> shape = text("shape"), attributes = text("problem");
  if (!shape && !attributes) return std::nullopt;
  Problem problem{std::string(chosen.name()), {}};
  if (shape) {
    if (chosen.name() != kShapeOperation) {
      throw InvalidArgument(fmt::format("--shape is for {}; say --problem for {}", kShapeOperation, chosen.name()));
    }
    problem = shape_problem("--shape", *shape);
  }
  if (attributes) {
    for (const std::string& part : split(*attributes, ',')) {
      const std::size_t equals = part.find('=');
      const std::string key(trimmed(std::string_view(part).substr(0, equals)));
      if (equals == std::string::npos || key.empty()) {
        throw InvalidArgument(fmt::format("--problem takes attributes such as n=4096,k=7168, not '{}'", *attributes));
      }
      if (!problem.attributes.emplace(key, trimmed(std::string_view(part).substr(equals + 1))).second) {
        throw InvalidArgument(fmt::format("attribute '{}' is given twice", key));
      }
    }
  }
  return with_common_attributes(std::move(problem));
}

Problem Options::with_common_attributes(Problem problem) const {
  const auto set = [&](const char* option, std::string content) {
    if (!problem.attributes.emplace(option, std::move(content)).second) {
      throw InvalidArgument(fmt::format("--{} and --problem {}=... say the same thing twice", option, option));
    }
  };
  if (const auto dtype = text("dtype")) set("dtype", *dtype);
  if (has("bias")) {
    const auto dtype = problem.attributes.find("dtype");
    set("bias", dtype == problem.attributes.end() ? "bf16" : dtype->second);
  }
  return problem;
}

Policy Options::policy(const ArmSet& set) const {
  Policy policy;
  if (const auto names = text("allow")) {
    policy.allow = parse_names("--allow", *names);
    for (const std::string& name : policy.allow) {
      if (std::any_of(set.numerics.begin(), set.numerics.end(), [&](const auto& each) { return each.name == name; })) {
        continue;
      }
      std::vector<std::string> valid;
      for (const NumericsClass& each : set.numerics) valid.push_back(each.name);
      throw InvalidArgument(fmt::format("unknown numerics class '{}'; there are: {}", name, join(valid)));
    }
  }
  if (const auto names = text("arms")) {
    policy.arms = parse_names("--arms", *names);
    for (const std::string& name : policy.arms) {
      if (std::any_of(set.arms.begin(), set.arms.end(),
                      [&](const auto& arm) { return names_arm(name, arm.id.name); })) {
        continue;
      }
      std::vector<std::string> valid;
      for (const ArmRecord& arm : set.arms) valid.push_back(arm.id.name);
      throw InvalidArgument(fmt::format("unknown arm '{}'; there are: {}", name, join(valid)));
    }
  }
  if (const auto bytes = text("cache-bytes")) policy.cached_bytes = parse_bytes("--cache-bytes", *bytes);
  if (const auto bytes = text("workspace-bytes")) policy.workspace_bytes = parse_bytes("--workspace-bytes", *bytes);
  policy.batch_invariant = has("batch-invariant");
  return policy;
}

L2State Options::l2() const {
  const auto name = text("l2");
  return name ? one_of<L2State>("--l2", *name, l2_state_from, "cold or hot") : L2State::cold;
}

std::optional<LaunchMode> Options::launch_mode() const {
  const auto name = text("launch");
  if (!name) return std::nullopt;
  return one_of<LaunchMode>("--launch", *name, launch_mode_from, "graph or eager");
}

TuneOptions Options::tuning() const {
  TuneOptions options;
  if (const auto rows = text("max-rows")) options.max_rows = parse_integer("--max-rows", *rows, 1);
  if (const auto time = text("budget")) options.budget = parse_duration("--budget", *time);
  options.thorough = has("thorough");
  if (options.thorough && !has("budget")) options.budget = std::chrono::seconds(60);
  options.l2 = l2();
  return options;
}

IsolationLimits Options::isolation_limits() const {
  IsolationLimits limits;
  if (const auto time = text("arm-time-limit")) limits.seconds = parse_duration("--arm-time-limit", *time).count();
  if (!(limits.seconds > 0)) throw InvalidArgument("--arm-time-limit takes a time above 0");
  if (const auto bytes = text("arm-memory-limit")) limits.memory_bytes = parse_bytes("--arm-memory-limit", *bytes);
  return limits;
}

std::optional<Isolation> Options::isolation() const {
  if (!has("untrusted")) return std::nullopt;
  const std::vector<std::string> there = Runtime::device_names();
  const bool here = std::find(there.begin(), there.end(), device()) != there.end();
  return Isolation(texts("plugin"), plugin_operations_, here ? device() : std::string(), isolation_limits());
}

LaunchMode choose_launch_mode(std::optional<LaunchMode> asked, std::span<const LaunchMode> modes,
                              std::string_view device_kind) {
  if (!asked) return modes.front();
  if (std::find(modes.begin(), modes.end(), *asked) != modes.end()) return *asked;
  std::vector<std::string> valid;
  for (const LaunchMode mode : modes) valid.emplace_back(to_string(mode));
  throw InvalidArgument(
      fmt::format("the {} device has no launch mode {}; it has: {}", device_kind, to_string(*asked), join(valid)));
}

}  // namespace crossover::program
