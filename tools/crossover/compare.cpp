// crossover compare: arms timed against each other now. Stores nothing.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

#include "command.hpp"
#include "crossover/dispatch/decide.hpp"
#include "host.hpp"
#include "json.hpp"
#include "text.hpp"
#include "verdict_blocks.hpp"

namespace crossover::program {
namespace {

constexpr Usage kCompareUsage{
    "crossover compare --arms X,Y --shape N,K --rows M,... [options]",
    "Times arms against each other on this host, round by round: the first is what the others are compared with. "
    "Gives\n"
    "the ratio of the times with its 95% interval, and says win, tie, loss or open at each M. The first arm is also\n"
    "compared with itself: that ratio is what this host calls equal. Stores nothing. Outputs are checked first.",
    "crossover compare --arms host_vector,host_dequant_blas --shape 1024,1024 --rows 1,8,64 --format markdown"};

// Two-sided, for all rivals at one M together.
constexpr double kAlpha = 0.05;

std::vector<Rows> parse_rows(const std::string& text) {
  std::vector<Rows> rows;
  for (const std::string& part : parse_names("--rows", text)) rows.push_back(parse_integer("--rows", part, 1));
  return rows;
}

// The command line, as a shell takes it.
std::string command_line(const Arguments& arguments) {
  std::string line = "crossover compare";
  for (const std::string& each : arguments) {
    const bool plain = !each.empty() && std::all_of(each.begin(), each.end(), [](unsigned char c) {
      return std::isalnum(c) != 0 ||
             std::string_view("-_=,./:+@%").find(static_cast<char>(c)) != std::string_view::npos;
    });
    if (plain) {
      line += ' ' + each;
      continue;
    }
    line += " '";
    for (const char c : each) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

const Sample* sample_of(const Run& run, const std::string& arm, Rows m, Role role) {
  const auto found = std::find_if(run.samples.begin(), run.samples.end(), [&](const Sample& each) {
    return each.arm == arm && each.m == m && each.role == role;
  });
  return found == run.samples.end() ? nullptr : &*found;
}

std::string time_text(const Sample* sample) {
  if (sample == nullptr) return "-";
  return in_microseconds(sample->median_ns) + (sample->dirty_mask != 0 ? "!" : "");
}

std::string ratio_text(const Ratio& ratio) {
  if (ratio.pairs == 0) return "-";
  if (ratio.low == 0) return fmt::format("{:.4f} (too few rounds)", ratio.median);
  return fmt::format("{:.4f} ({:.4f} to {:.4f})", ratio.median, ratio.low, ratio.high);
}

Json ratio_json(const Ratio& ratio) {
  const bool bounded = ratio.low > 0;
  return {{"median", ratio.pairs > 0 ? Json(ratio.median) : Json(nullptr)},
          {"low", bounded ? Json(ratio.low) : Json(nullptr)},
          {"high", bounded ? Json(ratio.high) : Json(nullptr)},
          {"rounds", ratio.pairs},
          {"outcome", to_string(ratio.comparison)}};
}

// One arm against the reference at one M, as a verdict. `ratio` as ratio_json gives it.
Json pair_json(Rows m, const std::string& arm, const std::string& reference, const Json& ratio) {
  const bool win = ratio["outcome"] == "win", loss = ratio["outcome"] == "loss";
  return {{"m", m},
          {"arm", arm},
          {"verdict", win || loss ? Json("win") : ratio["outcome"]},
          {"winner", win    ? Json(arm)
                     : loss ? Json(reference)
                            : Json(nullptr)},
          {"ratio", ratio["median"]},
          {"ratio_low", ratio["low"]},
          {"ratio_high", ratio["high"]}};
}

Json sample_json(const Sample& sample) {
  return {{"median_us", sample.median_ns / 1000},
          {"mad_us", sample.mad_ns / 1000},
          {"rounds", sample.raw.size()},
          {"launches", sample.launches},
          {"clean", sample.dirty_mask == 0},
          {"reasons", dirty_reasons(sample.dirty_mask)},
          {"error", to_json(sample.error)},
          {"config", sample.config},
          {"workspace_bytes", sample.workspace_bytes},
          {"cached_bytes", sample.cached_bytes}};
}

void describe_compare(Described& options) {
  options.add_options()("arms", boost::program_options::value<std::string>()->value_name("X,Y,..."),
                        "an arm, then the arms or families to compare with it")(
      "rows", boost::program_options::value<std::string>()->value_name("M,..."), "row counts")(
      "budget", boost::program_options::value<std::string>()->value_name("TIME"),
      "for all of it: 10s, 500ms, 2m; default: 10s")(
      "sequential", "one arm after the other, as most benchmarks do, to see what drift makes of it");
  add_problem_options(options);
  add_isolation_options(options);
  add_regime_options(options);
  add_device_option(options, false);
  add_output_options(options);
}

int run_compare(const Arguments& arguments) {
  const auto options = Options::parse(kCompareCommand, arguments);
  if (!options) return kDone;
  const Format format = options->format();

  const Operation& operation = options->operation();
  const auto problem = options->problem();
  if (!problem) throw InvalidArgument("compare needs a problem: --shape N,K or --problem k=v,...");
  const Problem normal = operation.normalise(*problem);
  if (!options->has("rows")) throw InvalidArgument("compare needs row counts: --rows M,...");
  const std::vector<Rows> rows = parse_rows(*options->text("rows"));
  if (!options->has("arms")) throw InvalidArgument("compare needs arms: --arms X,Y");
  const std::vector<std::string> arms = parse_names("--arms", *options->text("arms"));
  for (const std::string& name : arms) {
    const bool known = std::any_of(operation.arms().begin(), operation.arms().end(),
                                   [&](const Arm* arm) { return names_arm(name, arm->id().name); });
    if (known && (name != arms.front() || operation.find(name) != nullptr)) continue;
    std::vector<std::string> valid;
    for (const Arm* arm : operation.arms()) valid.push_back(arm->id().name);
    throw InvalidArgument(fmt::format("{} '{}'; there are: {}",
                                      known ? "the first arm cannot be a family, as is" : "unknown arm", name,
                                      join(valid)));
  }

  std::vector<std::string> rivals;  // in the order of `arms`, families in that of the operation
  for (const std::string& name : arms) {
    for (const Arm* arm : operation.arms()) {
      const std::string& each = arm->id().name;
      if (names_arm(name, each) && each != arms.front() &&
          std::find(rivals.begin(), rivals.end(), each) == rivals.end())
        rivals.push_back(each);
    }
  }
  if (rivals.empty()) throw InvalidArgument("compare needs an arm beside the first");

  TerminalProgress progress;
  progress.title(to_string(normal));
  const auto runtime = open_runtime(*options, {.access = Store::Access::lookup_only, .overrides = Overrides{}});
  const Target target(*runtime, *options);
  if (target.stored()) {
    throw InvalidArgument(fmt::format("{} is not here: compare measures on this host", describe(target.device())));
  }
  TuneOptions tuning = options->tuning();
  tuning.launch_mode = target.regime(*options).launch_mode;
  tuning.interleaved = !options->has("sequential");
  for (const std::string& name : arms) {
    bool able = false;
    std::string reason;
    for (const Arm* arm : operation.arms()) {
      if (!names_arm(name, arm->id().name)) continue;
      for (const Rows m : rows) {
        const Eligibility eligibility = arm->supports(normal, m, target.device());
        able = able || eligibility.eligible;
        if (!eligibility && reason.empty()) reason = eligibility.reason;
      }
    }
    if (!able) throw InvalidArgument(fmt::format("{} cannot do that: {}", name, reason));
  }
  const std::optional<Isolation> isolation = options->isolation();
  const Run run = isolation
                      ? isolation->compare(*runtime, operation, normal, tuning, arms, rows, progress.handler())
                      : measure_selected(runtime->backend(), operation, normal, tuning, arms, rows, progress.handler());
  progress.clear();

  const std::string& reference = arms.front();
  const double alpha = kAlpha / static_cast<double>(rivals.size());
  const auto before = run.conditions.find("before");
  if (before != run.conditions.end() && run.device.kind == "cpu") {
    const auto load = before->second.find("load_average");
    if (load != before->second.end() && std::strtod(load->second.c_str(), nullptr) >= run.device.sm_count) {
      warn(fmt::format(
          "the load average is {} on {} processors: the intervals say what this run saw, another may differ",
          load->second, run.device.sm_count));
    }
  }

  Document document;
  Json list = Json::array(), pairs = Json::array();
  Table table{{{"M", true}, {"arm"}, {reference + " us", true}, {"its us", true}, {"ratio (95%)", true}, {"outcome"}},
              {}};
  std::set<Rows> measured(rows.begin(), rows.end());
  for (const Rows m : measured) {
    const Sample* base = sample_of(run, reference, m, Role::grid);
    const auto add = [&](const std::string& label, const Sample* sample) {
      const Ratio ratio =
          base != nullptr && sample != nullptr ? compare(paired_ratios(*sample, *base), alpha) : Ratio{};
      table.rows.push_back({std::to_string(m), label, time_text(base), time_text(sample), ratio_text(ratio),
                            ratio.pairs == 0 ? "-" : std::string(to_string(ratio.comparison))});
      list.push_back({{"m", m},
                      {"arm", label},
                      {"reference", base != nullptr ? sample_json(*base) : Json(nullptr)},
                      {"sample", sample != nullptr ? sample_json(*sample) : Json(nullptr)},
                      {"ratio", ratio_json(ratio)}});
    };
    for (const std::string& rival : rivals) {
      const Sample* sample = sample_of(run, rival, m, Role::grid);
      add(rival, sample);
      pairs.push_back(pair_json(m, rival, reference, list.back()["ratio"]));
    }
    add(reference + " again", sample_of(run, reference, m, Role::placebo));
  }

  const auto listed = [](const std::map<std::string, std::string>& values) {
    std::vector<std::string> parts;
    for (const auto& [name, value] : values) parts.push_back(name + " " + value);
    return join(parts);
  };
  document.json = {{"command", command_line(arguments)},
                   {"problem", to_json(run.problem)},
                   {"device", to_json(run.device)},
                   {"regime", to_json(run.regime)},
                   {"environment", run.environment},
                   {"conditions", run.conditions},
                   {"started_at", iso_time(run.started_us)},
                   {"duration_s", static_cast<double>(run.duration_us) / 1e6},
                   {"seed", run.seed},
                   {"clean", run.dirty_mask == 0},
                   {"reasons", dirty_reasons(run.dirty_mask)},
                   {"reference", reference},
                   {"interleaved", tuning.interleaved},
                   {"rows", std::move(pairs)},
                   {"comparisons", std::move(list)}};
  document.blocks.emplace_back(Heading{to_string(run.problem)});
  document.blocks.emplace_back(std::move(table));
  document.blocks.emplace_back(
      Paragraph{"The ratio is the arm's time over that of " + reference +
                ": below 1 the arm is faster. win and loss: beyond noise and 1%; tie: within 1%; open: not decided. "
                "! was measured but is not believed; - was not timed."});
  Table attempts = attempt_table(std::span(&run, 1));
  if (!attempts.rows.empty()) document.blocks.emplace_back(std::move(attempts));
  Fields fields;
  const auto field = [&](std::string name, std::string value) {
    fields.entries.emplace_back(std::move(name), std::move(value));
  };
  field("command", command_line(arguments));
  field("measured",
        fmt::format("{}, in {:.1f} s", iso_time(run.started_us), static_cast<double>(run.duration_us) / 1e6));
  field("device", describe(run.device));
  field("regime", describe(run.regime));
  if (!tuning.interleaved) field("order", "one arm after the other: no evidence of anything but drift");
  field("environment", listed(run.environment));
  for (const auto& [when, conditions] : run.conditions) field("conditions " + when, listed(conditions));
  field("clean", run.dirty_mask == 0 ? "yes" : "no: " + join(dirty_reasons(run.dirty_mask)));
  document.blocks.emplace_back(std::move(fields));
  write_output(render(document, format));
  return kDone;
}

}  // namespace

constinit const Command kCompareCommand{
    "compare",     "", "arms timed against each other now, with the interval of their ratio",
    kCompareUsage, "", describe_compare,
    run_compare};

}  // namespace crossover::program
