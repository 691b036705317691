// crossover arms: every implementation of an operation, and why one cannot do a problem.

#include <fmt/format.h>

#include "command.hpp"
#include "host.hpp"
#include "json.hpp"
#include "text.hpp"

namespace crossover::program {
namespace {

constexpr Usage kArmsUsage{
    "crossover arms [--shape N,K] [options]",
    "Lists every arm of an operation with its numerics class and fingerprint. With a problem it "
    "also says which arms can\n"
    "do it, or why not, and which is the default at which row counts. Of a stored device it lists "
    "what was measured last.",
    "crossover arms --shape 1024,1024"};

// What can be said of the arms without a problem.
ArmSet unasked(const Operation& operation) {
  ArmSet set;
  set.numerics.assign(operation.numerics().begin(), operation.numerics().end());
  for (const Arm* arm : operation.arms()) {
    set.arms.push_back({arm->id(), std::string(arm->numerics()), arm->batch_invariant(), arm->library(), true, {}});
  }
  return set;
}

std::string default_text(std::span<const DefaultArm> defaults, std::string_view arm) {
  std::vector<std::string> ranges;
  Rows from = 1;
  for (const DefaultArm& each : defaults) {
    if (each.arm == arm) ranges.push_back(row_range(from, each.up_to));
    if (each.up_to == kMaxRows) break;
    from = each.up_to + 1;
  }
  return join(ranges);
}

void describe_arms(Described& options) {
  add_problem_options(options);
  add_device_option(options, true);
  add_regime_options(options);
  add_database_option(options);
  add_output_options(options);
}

int run_arms(const Arguments& arguments) {
  const auto options = Options::parse(kArmsCommand, arguments);
  if (!options) return kDone;
  const Format format = options->format();
  const Operation& operation = options->operation();
  std::optional<Problem> problem = options->problem();
  if (!problem && (options->has("dtype") || options->has("bias"))) {
    throw InvalidArgument("--dtype and --bias describe a problem: say --shape N,K or --problem as well");
  }
  if (problem) problem = operation.normalise(*problem);

  const auto runtime = open_runtime(*options, {.access = Store::Access::lookup_only, .overrides = Overrides{}});
  const Target target(*runtime, *options);
  const Regime regime = target.regime(*options);
  const ArmSet set = problem ? target.current(operation, *problem, regime).arm_set : unasked(operation);

  Document document;
  Json arms = Json::array();
  Table table{{{"arm"}, {"class"}, {"eligible"}, {"default for M"}, {"fingerprint"}}, {}};
  for (const ArmRecord& arm : set.arms) {
    arms.push_back({{"name", arm.id.name},
                    {"numerics", arm.numerics},
                    {"fingerprint", arm.id.fingerprint},
                    {"eligible", problem ? Json(arm.eligible) : Json(nullptr)},
                    {"reason", arm.reason},
                    {"default_for", problem ? default_ranges(set.defaults, arm.id.name) : Json(nullptr)},
                    {"batch_invariant", arm.batch_invariant},
                    {"library", arm.library}});
    table.rows.push_back({arm.id.name, arm.numerics,
                          !problem       ? "?"
                          : arm.eligible ? "yes"
                                         : "no: " + arm.reason,
                          problem ? default_text(set.defaults, arm.id.name) : "?", arm.id.fingerprint});
  }
  document.json = {{"operation", operation.name()},
                   {"problem", problem ? to_json(*problem) : Json(nullptr)},
                   {"device", to_json(target.device())},
                   {"arms", std::move(arms)}};
  document.blocks.emplace_back(Heading{fmt::format(
      "{} on {}", problem ? to_string(*problem) : std::string(operation.name()), describe(target.device()))});
  document.blocks.emplace_back(std::move(table));
  if (!problem)
    document.blocks.emplace_back(Paragraph{"Which arms are eligible depends on the problem: add --shape N,K."});
  write_output(render(document, format));
  return kDone;
}

}  // namespace

constinit const Command kArmsCommand{
    "arms", "", "every arm: class, fingerprint, eligible or why not", kArmsUsage, "", describe_arms, run_arms};

}  // namespace crossover::program
