// crossover audit constant: what a constant in an engine's source costs, from what is stored.

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "audit.hpp"
#include "command.hpp"
#include "constant.hpp"
#include "json.hpp"
#include "text.hpp"

namespace crossover::program {
namespace {

constexpr Usage kAuditConstantUsage{
    "crossover audit constant ARM:M [options]",
    "What the constant 'ARM from M rows on' would have cost at every measured row count of every stored problem, "
    "against\n"
    "the fastest of ARM and the arms that the policy allows. Below M the constant is taken to pick the fastest of the "
    "other arms. "
    "Measures\n"
    "nothing.",
    "crossover audit constant dequant_cublaslt:512"};

struct Constant {
  std::string arm;
  Rows from = 1;
};
Constant parse_constant(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) {
    throw InvalidArgument(fmt::format("a constant is ARM:M such as dequant_cublaslt:512, not '{}'", text));
  }
  return {text.substr(0, colon), parse_integer("the row count of a constant", text.substr(colon + 1), 1)};
}

void describe_audit_constant(Described& options) {
  add_problem_options(options);
  add_policy_options(options);
  add_device_option(options, true);
  add_database_option(options);
  add_output_options(options);
}

int run_audit_constant(const Arguments& arguments) {
  const auto options = Options::parse(kAuditConstantCommand, arguments);
  if (!options) return kDone;
  const Format format = options->format();
  const Constant constant = parse_constant(options->positional());
  std::optional<Problem> only = options->problem();
  if (only) only = options->operation().normalise(*only);
  const auto runtime = open_audited(*options);
  const Target target(*runtime, *options);
  Store& store = runtime->store();

  Document document;
  Json list = Json::array();
  Table summary{
      {{"problem"}, {"device"}, {"regime"}, {"worst cost", true}, {"at M", true}, {"the constant's"}, {"best"}}, {}};
  std::vector<Block> details;
  std::set<EvidenceKey> seen;
  std::set<std::string> known;
  bool named = false;
  for (const Verdict& verdict : store.all_verdicts()) {  // newest first
    if (options->has("device") && verdict.key.device != target.device()) continue;
    if (only && verdict.key.problem != *only) continue;
    if (verdict.policy != Policy{} || !seen.insert(verdict.key).second) continue;
    std::vector<Run> runs = runs_of(store, verdict);
    std::erase_if(runs, [&](Run& run) { return !store.load(run); });
    if (runs.empty()) {
      warn(fmt::format("no run of verdict {} can be read", short_id(verdict.id)));
      continue;
    }
    const ArmSet& arms = runs.back().arm_set;
    bool here = false;
    for (const ArmRecord& arm : arms.arms) {
      if (!arm.eligible) continue;
      known.insert(arm.id.name);
      here = here || names_arm(constant.arm, arm.id.name);
    }
    if (!here) continue;
    named = true;
    const std::vector<ConstantAt> costs = constant_costs(runs, options->policy(arms), constant.arm, constant.from);
    const ConstantAt* const most = worst(costs);
    Json rows = Json::array();
    for (const ConstantAt& each : costs) {
      const bool timed = !each.picked.empty();
      rows.push_back({{"m", each.m},
                      {"best", each.best},
                      {"best_us", each.best_ns / 1000},
                      {"picked", timed ? Json(each.picked) : Json(nullptr)},
                      {"picked_us", timed ? Json(each.picked_ns / 1000) : Json(nullptr)},
                      {"cost", timed ? Json(each.cost()) : Json(nullptr)}});
    }
    list.push_back({{"verdict", verdict.id.hex()},
                    {"problem", to_json(verdict.key.problem)},
                    {"device", to_json(verdict.key.device)},
                    {"regime", to_json(verdict.key.regime)},
                    {"worst_cost", most != nullptr ? Json(most->cost()) : Json(nullptr)},
                    {"worst_m", most != nullptr ? Json(most->m) : Json(nullptr)},
                    {"rows", std::move(rows)}});
    summary.rows.push_back({to_string(verdict.key.problem), describe(verdict.key.device), describe(verdict.key.regime),
                            most != nullptr ? fmt::format("{:.3f}", most->cost()) : "-",
                            most != nullptr ? std::to_string(most->m) : "-", most != nullptr ? most->picked : "-",
                            most != nullptr ? most->best : "-"});
    details.emplace_back(Heading{to_string(verdict.key.problem)});
    details.emplace_back(constant_table(costs));
  }
  for (const std::string& text : store.warnings()) warn(text);
  if (!named && !known.empty()) {
    throw InvalidArgument(fmt::format("unknown arm '{}'; the database has: {}", constant.arm,
                                      join(std::vector<std::string>(known.begin(), known.end()))));
  }

  document.json = {{"arm", constant.arm}, {"from", constant.from}, {"problems", std::move(list)}};
  if (summary.rows.empty()) {
    document.blocks.emplace_back(
        Paragraph{fmt::format("No verdicts{} in {}.", options->has("device") || only ? " of what was asked for" : "",
                              runtime->database().string())});
  } else {
    document.blocks.emplace_back(std::move(summary));
    document.blocks.insert(document.blocks.end(), std::make_move_iterator(details.begin()),
                           std::make_move_iterator(details.end()));
    document.blocks.emplace_back(
        Paragraph{"cost: the time of the constant's arm over that of the best; - was not timed."});
  }
  write_output(render(document, format));
  return kDone;
}

}  // namespace

constinit const Command kAuditConstantCommand{
    "audit",
    "constant",
    "what a constant such as 'this arm from M = 512 on' costs against the table",
    kAuditConstantUsage,
    "ARM:M",
    describe_audit_constant,
    run_audit_constant};

}  // namespace crossover::program
