// crossover select: what a program that dispatches through the library would run, and where that answer comes from.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "command.hpp"
#include "host.hpp"
#include "json.hpp"
#include "text.hpp"

namespace po = boost::program_options;

namespace crossover::program {
namespace {

constexpr Usage kSelectUsage{
    "crossover select --shape N,K --rows M [options]",
    "Prints the arm for a problem at a row count and the origin of that choice. Looks up only: the database is not "
    "changed,\n"
    "unless CROSSOVER_ON_MISS is tune or record. The other CROSSOVER_ variables apply as they do in the library.",
    "crossover select --shape 1024,1024 --rows 7 --explain"};

// Everything `--explain` adds to a choice.
struct Explanation {
  std::vector<Run> runs;  // loaded, oldest first
  Verdict decided;        // with crossover bounds
  Standings standings;
};

Explanation explain(Store& store, Resolution& resolution, Rows rows) {
  Explanation result;
  for (Run& run : resolution.runs) {
    if (!run.samples.empty() || store.load(run)) result.runs.push_back(std::move(run));
  }
  result.decided = resolution.decided;
  if (result.runs.empty()) return result;
  const Verdict& decided = resolution.decided;
  if (decided.segments.size() > 1 && decided.crossovers.empty()) {
    result.decided = decide(decided.key, result.runs, decided.policy, decided.incumbent);
  }
  result.standings = standings(result.runs, decided.policy, std::max<Rows>(rows, 1));
  return result;
}

// The environment's choice of arms, as it was set. Empty: none.
std::vector<std::string> arm_overrides(const Overrides& overrides) {
  std::vector<std::string> set;
  if (overrides.force_arm) set.push_back("CROSSOVER_FORCE_ARM=" + *overrides.force_arm);
  if (const auto& threshold = overrides.threshold)
    set.push_back(fmt::format("CROSSOVER_THRESHOLD={}:{}", threshold->arm, threshold->rows));
  if (!overrides.disable_arms.empty())
    set.push_back(fmt::format("CROSSOVER_DISABLE_ARMS={}", fmt::join(overrides.disable_arms, ",")));
  return set;
}

// The same lookup without the environment's choice of arms, or `with` where it alone makes an answer possible.
Resolution without_overrides(const Current& current, Store& store, const EvidenceKey& key, const Policy& policy,
                             const Resolution& with) {
  try {
    return resolve(current, store, key.problem, key.regime, policy, Overrides{});
  } catch (const Error&) {
    return with;
  }
}

void mark_disabled(Standings& standings, const Overrides& overrides) {
  for (Standing& each : standings.arms) {
    const bool disabled = std::any_of(overrides.disable_arms.begin(), overrides.disable_arms.end(),
                                      [&](const std::string& name) { return names_arm(name, each.arm); });
    if (!disabled || !each.allowed) continue;
    each.allowed = false;
    each.why_not = "CROSSOVER_DISABLE_ARMS";
  }
}

Json runners_up(const Standings& standings, const std::string& arm) {
  const auto chosen =
      std::find_if(standings.arms.begin(), standings.arms.end(), [&](const Standing& each) { return each.arm == arm; });
  Json result = Json::array();
  for (const Standing& each : standings.arms) {
    if (each.arm == arm) continue;
    const bool timed = chosen != standings.arms.end() && chosen->median_ns > 0;
    result.push_back({{"arm", each.arm},
                      {"median_us", each.median_ns / 1000},
                      {"ratio", timed ? Json(each.median_ns / chosen->median_ns) : Json(nullptr)},
                      {"error", to_json(each.error)},
                      {"config", each.config},
                      {"allowed", each.allowed},
                      {"why_not", each.why_not}});
  }
  return result;
}

// `plain`: the choice without `overrides`.
void add_overrides(Document& document, const std::vector<std::string>& overrides, const PlanSegment& plain) {
  document.json["overrides"] = overrides;
  document.json["without_overrides"] = nullptr;
  if (overrides.empty()) return;
  document.json["without_overrides"] = {{"arm", plain.arm},
                                        {"config", plain.config.empty() ? Json(nullptr) : Json(plain.config)},
                                        {"origin", to_string(plain.origin)}};
  document.blocks.emplace_back(Fields{
      {{"overrides", join(overrides)}, {"without them", fmt::format("{} ({})", plain.arm, to_string(plain.origin))}}});
}

void add_explanation(Document& document, const Explanation& explanation, const Resolution& resolution,
                     const std::string& arm) {
  const Run* newest = explanation.runs.empty() ? nullptr : &explanation.runs.back();
  const Standings& standings = explanation.standings;
  const auto chosen =
      std::find_if(standings.arms.begin(), standings.arms.end(), [&](const Standing& each) { return each.arm == arm; });

  Json& json = document.json;
  json["why"] = resolution.why;
  json["measured_rows"] = newest != nullptr ? Json(standings.m) : Json(nullptr);
  json["median_us"] = chosen != standings.arms.end() ? Json(chosen->median_ns / 1000) : Json(nullptr);
  json["runners_up"] = runners_up(standings, arm);
  json["segments"] = to_json(std::span<const Segment>(explanation.decided.segments));
  json["crossovers"] = to_json(std::span<const Crossover>(explanation.decided.crossovers));
  json["held_out"] = to_json(explanation.decided.held_out);
  json["measured_at"] = newest != nullptr ? Json(iso_time(newest->started_us)) : Json(nullptr);
  json["environment"] = newest != nullptr ? Json(newest->environment) : Json(nullptr);
  json["conditions"] = newest != nullptr ? Json(newest->conditions) : Json(nullptr);

  if (newest == nullptr) return;
  document.blocks.emplace_back(Heading{fmt::format("measured at M = {}", standings.m)});
  Table table{{{"arm"}, {"us", true}, {"of the choice", true}, {"error", true}, {"config"}, {"not allowed because"}},
              {}};
  for (const Standing& each : standings.arms) {
    const bool timed = chosen != standings.arms.end() && chosen->median_ns > 0;
    table.rows.push_back({each.arm + (each.arm == arm ? " *" : ""), in_microseconds(each.median_ns),
                          timed ? fmt::format("{:.3f}", each.median_ns / chosen->median_ns) : "",
                          each.error ? fmt::format("{:.1e}", *each.error) : "", each.config, each.why_not});
  }
  document.blocks.emplace_back(std::move(table));
  Fields fields;
  for (const Crossover& each : explanation.decided.crossovers) {
    fields.entries.emplace_back("crossover", fmt::format("M = {} (95%: {} to {}), {} to {}", each.m, each.m_low,
                                                         each.m_high, each.from_arm, each.to_arm));
  }
  if (const auto& held_out = explanation.decided.held_out) {
    fields.entries.emplace_back("regret between grid points",
                                fmt::format("mean {}, max {}, at {} row counts", percent(held_out->mean_regret),
                                            percent(held_out->max_regret), held_out->points));
  }
  fields.entries.emplace_back("measured",
                              fmt::format("{}, {}, in {} run{}", iso_time(newest->started_us), age(newest->started_us),
                                          explanation.runs.size(), explanation.runs.size() == 1 ? "" : "s"));
  for (const auto& [name, value] : newest->environment) fields.entries.emplace_back(name, value);
  for (const auto& [when, conditions] : newest->conditions) {
    std::vector<std::string> parts;
    for (const auto& [name, value] : conditions) parts.push_back(name + " " + value);
    fields.entries.emplace_back("conditions " + when, parts.empty() ? "(unknown)" : join(parts));
  }
  document.blocks.emplace_back(std::move(fields));
}

// Of two values for the same thing the order would decide.
void require_consistent(const std::vector<std::string>& assumptions) {
  std::map<std::string, std::string> seen;  // by what they are about
  for (const std::string& each : assumptions) {
    constexpr std::string_view kNewArm = "new_arm=";
    std::string about = each.substr(0, each.find('='));
    if (each.starts_with(kNewArm)) about = "arm:" + each.substr(kNewArm.size());
    const auto [earlier, first] = seen.emplace(about, each);
    if (!first && earlier->second != each) {
      throw InvalidArgument(fmt::format("--assume {} and --assume {} contradict each other", earlier->second, each));
    }
  }
}

// The library's answer to a miss, for a device that is not here.
void handle_stored_miss(Runtime& runtime, const EvidenceKey& key, const Resolution& resolution, MissMode mode,
                        const TuneOptions& tuning) {
  if (!resolution.miss) return;
  switch (mode) {
    case MissMode::fallback:
      return;
    case MissMode::error:
      throw NoVerdict(fmt::format("no verdict for {}: {}", to_string(key.problem), resolution.why));
    case MissMode::record:
      require_database(runtime);
      runtime.store().request({.key = key, .max_m = tuning.max_rows, .reason = resolution.why});
      return;
    case MissMode::tune:
      throw InvalidArgument(fmt::format("CROSSOVER_ON_MISS=tune cannot measure on {}, which is not this host's device",
                                        describe(key.device)));
  }
}

void describe_select(Described& options) {
  options.add_options()("rows", po::value<std::string>()->value_name("M"), "the row count; 0 is nothing to launch")(
      "explain", "runners-up, margins, age, conditions")(
      "assume", po::value<std::vector<std::string>>()->value_name("KEY=VALUE"),
      "answer as if it were so (repeatable): driver, cuda, cublaslt, blas, sm_count, arm:NAME=FINGERPRINT, "
      "arm:NAME=absent, new_arm=NAME");
  add_problem_options(options);
  add_policy_options(options);
  add_regime_options(options);
  add_device_option(options, true);
  add_tuning_options(options);
  add_database_option(options);
  add_output_options(options);
}

int run_select(const Arguments& arguments) {
  const auto options = Options::parse(kSelectCommand, arguments);
  if (!options) return kDone;
  const Format format = options->format();

  const Operation& operation = options->operation();
  const auto asked = options->problem();
  if (!asked) throw InvalidArgument("select needs a problem: say --shape N,K or --problem k=v,...");
  const auto rows_text = options->text("rows");
  if (!rows_text) throw InvalidArgument("select needs a row count: say --rows M");
  const Rows rows = parse_integer("--rows", *rows_text, 0);
  const Problem problem = operation.normalise(*asked);
  const TuneOptions tuning = options->tuning();
  const std::vector<std::string> assumptions = options->texts("assume");
  require_consistent(assumptions);

  Overrides overrides = Overrides::from_environment();
  MissMode mode = overrides.on_miss.value_or(MissMode::fallback);
  bool writes = mode == MissMode::tune || mode == MissMode::record;
  // What is not so cannot be measured, and asks for nothing; what is frozen stays as it is.
  if (writes && (!assumptions.empty() || overrides.frozen)) {
    overrides.on_miss = mode = MissMode::fallback;
    writes = false;
  }
  TerminalProgress progress;
  progress.title(to_string(problem));
  const auto runtime =
      open_runtime(*options, {.access = writes ? Store::Access::read_write : Store::Access::lookup_only,
                              .overrides = overrides,
                              .on_miss = mode,
                              .tuning = tuning,
                              .assumptions = assumptions,
                              .progress = progress.handler()});
  const Target target(*runtime, *options);
  const Regime regime = target.regime(*options);
  Current current = target.current(operation, problem, regime);
  if (target.stored()) {
    for (const std::string& assumption : assumptions) assume(current, assumption);
  }
  const Policy policy = options->policy(current.arm_set);

  Resolution resolution;
  if (target.stored()) {
    resolution = resolve(current, runtime->store(), problem, regime, policy, overrides);
    if (!overrides.force_arm) handle_stored_miss(*runtime, {current.device, problem, regime}, resolution, mode, tuning);
  } else {
    resolution = runtime->dispatcher().lookup(operation, problem, regime, policy);
  }
  progress.clear();
  for (const std::string& text : runtime->store().warnings()) warn(text);

  const PlanSegment& chosen = at(resolution.plan, std::max<Rows>(rows, 1));
  if (const Arm* arm = operation.find(chosen.arm); arm != nullptr && chosen.origin == Origin::forced && rows > 0) {
    if (const Eligibility eligibility = arm->supports(problem, rows, current.device); !eligibility)
      throw InvalidArgument(fmt::format("{} is forced and cannot do {} rows of {}: {}", chosen.arm, rows,
                                        to_string(problem), eligibility.reason));
  }
  if (overrides.frozen && chosen.origin != Origin::tuned && chosen.origin != Origin::shipped &&
      chosen.origin != Origin::forced) {
    throw NoVerdict(fmt::format("CROSSOVER_FROZEN=1, and {} rows of {} would be answered by {} as {}{}", rows,
                                to_string(problem), chosen.arm, to_string(chosen.origin),
                                resolution.why.empty() ? "" : ": " + resolution.why));
  }

  Document document;
  const std::optional<Verdict>& stored = resolution.stored;
  document.json = {{"arm", chosen.arm},
                   {"config", chosen.config.empty() ? Json(nullptr) : Json(chosen.config)},
                   {"origin", to_string(chosen.origin)},
                   {"rows", rows},
                   {"problem", to_json(problem)},
                   {"device", to_json(current.device)},
                   {"regime", to_json(regime)},
                   {"verdict", stored ? to_json(stored->id) : Json(nullptr)},
                   {"status", stored ? Json(to_string(stored->status)) : Json(nullptr)},
                   {"stale", to_json(std::span<const StaleReason>(resolution.stale))}};
  Fields fields;
  fields.entries = {
      {"arm", chosen.arm},
      {"origin", std::string(to_string(chosen.origin))},
      {"config", chosen.config.empty() ? "(found when it is prepared)" : chosen.config},
      {"rows", rows == 0 ? "0 (nothing to launch)" : std::to_string(rows)},
      {"problem", to_string(problem)},
      {"device", describe(current.device)},
      {"regime", describe(regime)},
      {"verdict", stored ? fmt::format("{} ({})", short_id(stored->id), to_string(stored->status)) : "none"}};
  if (!resolution.stale.empty()) fields.entries.emplace_back("stale", join(resolution.stale));
  if (!resolution.why.empty()) fields.entries.emplace_back("why", resolution.why);
  document.blocks.emplace_back(std::move(fields));
  if (options->has("explain")) {
    const std::vector<std::string> set = arm_overrides(overrides);
    Resolution plain = set.empty() ? resolution
                                   : without_overrides(current, runtime->store(), {current.device, problem, regime},
                                                       policy, resolution);
    add_overrides(document, set, at(plain.plan, std::max<Rows>(rows, 1)));
    Explanation explanation = explain(runtime->store(), plain, rows);
    mark_disabled(explanation.standings, overrides);
    add_explanation(document, explanation, resolution, chosen.arm);
  }
  write_output(render(document, format));
  return kDone;
}

}  // namespace

constinit const Command kSelectCommand{
    "select",     "", "the arm for a problem and a row count, and where the answer comes from",
    kSelectUsage, "", describe_select,
    run_select};

}  // namespace crossover::program
