// crossover audit show: one verdict with everything it was decided from.

#include <fmt/format.h>

#include <algorithm>

#include "audit.hpp"
#include "command.hpp"
#include "json.hpp"
#include "text.hpp"
#include "verdict_blocks.hpp"

namespace crossover::program {
namespace {

constexpr Usage kAuditShowUsage{
    "crossover audit show ID [options]",
    "Shows a verdict with its runs (conditions, environment, arms) and every measurement, those that are not believed\n"
    "included. ID is what `audit list` prints, or its first digits (at least four).",
    "crossover audit show 3f9a1c0b77e2"};

Verdict find(Store& store, const std::string& id) {
  constexpr std::size_t kFewest = 4;
  const bool digits =
      std::all_of(id.begin(), id.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
  std::vector<Verdict> found;
  if (digits && id.size() >= kFewest) found = store.find_verdicts(id);
  if (found.empty()) {
    throw NoVerdict(fmt::format("no verdict has the id '{}'{}", id,
                                digits && id.size() < kFewest ? ": at least four digits are needed" : ""),
                    "`crossover audit list` lists them");
  }
  if (found.size() > 1) {
    std::vector<std::string> ids;
    for (const Verdict& each : found) ids.push_back(each.id.hex());
    throw InvalidArgument(fmt::format("the id '{}' is ambiguous: {}", id, join(ids)));
  }
  return std::move(found.front());
}

Json run_json(const Run& run) {
  Json attempts = Json::array();
  for (const Attempt& each : run.attempts) {
    attempts.push_back(
        {{"m", each.m}, {"arm", each.arm}, {"outcome", to_string(each.outcome)}, {"detail", each.detail}});
  }
  return {{"id", run.id.hex()},
          {"process", run.process_uuid.hex()},
          {"started_at", iso_time(run.started_us)},
          {"duration_s", static_cast<double>(run.duration_us) / 1e6},
          {"protocol", run.protocol},
          {"seed", run.seed},
          {"host", run.host},
          {"received", run.received},
          {"clean", run.dirty_mask == 0},
          {"reasons", dirty_reasons(run.dirty_mask)},
          {"conditions", run.conditions},
          {"environment", run.environment},
          {"arm_set", to_json(run.arm_set)},
          {"attempts", std::move(attempts)}};
}

std::vector<std::string> reasons(const Run& run, const Sample& sample) {
  std::vector<std::string> all = dirty_reasons(sample.dirty_mask);
  for (const std::string& each : dirty_reasons(run.dirty_mask)) all.push_back("run: " + each);
  return all;
}

// Rounds that count; the same ones as in the median.
std::size_t count(const Sample& sample) {
  return static_cast<std::size_t>(
      std::count_if(sample.raw.begin(), sample.raw.end(), [](const Round& r) { return counts(r); }));
}

void describe_audit_show(Described& options) {
  add_plugin_option(options);
  add_database_option(options);
  add_output_options(options);
}

int run_audit_show(const Arguments& arguments) {
  const auto options = Options::parse(kAuditShowCommand, arguments);
  if (!options) return kDone;
  const Format format = options->format();
  const auto runtime = open_audited(*options);
  Store& store = runtime->store();

  const Verdict verdict = find(store, options->positional());
  std::vector<Run> runs = runs_of(store, verdict);
  const auto stale = Staleness(*runtime).of(verdict, runs);
  if (runs.size() < verdict.run_ids.size()) {
    warn(fmt::format("{} of the verdict's {} runs cannot be read", verdict.run_ids.size() - runs.size(),
                     verdict.run_ids.size()));
  }

  Document document;
  Json run_list = Json::array(), measurements = Json::array();
  Table run_table{{{"run"}, {"started at"}, {"s", true}, {"clean"}, {"environment"}, {"conditions before"}}, {}};
  Table dirty{{{"run"}, {"arm"}, {"M", true}, {"role"}, {"us", true}, {"not believed because"}}, {}};
  for (Run& run : runs) {
    if (!store.load(run)) warn(fmt::format("the samples of run {} are damaged and not shown", short_id(run.id)));
    run_list.push_back(run_json(run));
    for (const Sample& sample : run.samples) {
      const std::vector<std::string> why = reasons(run, sample);
      measurements.push_back({{"run", run.id.hex()},
                              {"arm", sample.arm},
                              {"m", sample.m},
                              {"role", to_string(sample.role)},
                              {"config", sample.config},
                              {"median_us", sample.median_ns / 1000},
                              {"mad_us", sample.mad_ns / 1000},
                              {"count", count(sample)},
                              {"clean", why.empty()},
                              {"reasons", why},
                              {"error", to_json(sample.error)},
                              {"launches", sample.launches},
                              {"workspace_bytes", sample.workspace_bytes},
                              {"cached_bytes", sample.cached_bytes}});
      if (!why.empty()) {
        dirty.rows.push_back({short_id(run.id), sample.arm, std::to_string(sample.m),
                              std::string(to_string(sample.role)), in_microseconds(sample.median_ns), join(why)});
      }
    }
    const auto listed = [](const std::map<std::string, std::string>& values) {
      std::vector<std::string> parts;
      for (const auto& [name, value] : values) parts.push_back(name + " " + value);
      return join(parts);
    };
    const auto before = run.conditions.find("before");
    run_table.rows.push_back({short_id(run.id), iso_time(run.started_us),
                              fmt::format("{:.1f}", static_cast<double>(run.duration_us) / 1e6),
                              run.dirty_mask == 0 ? "yes" : "no: " + join(dirty_reasons(run.dirty_mask)),
                              listed(run.environment), before == run.conditions.end() ? "" : listed(before->second)});
  }
  for (const std::string& text : store.warnings()) warn(text);

  const std::optional<std::string> measured_at =
      runs.empty() ? std::nullopt : std::optional(iso_time(runs.back().started_us));
  document.json = {{"id", verdict.id.hex()},
                   {"problem", to_json(verdict.key.problem)},
                   {"device", to_json(verdict.key.device)},
                   {"regime", to_json(verdict.key.regime)},
                   {"policy", to_json(verdict.policy)},
                   {"rule", verdict.rule},
                   {"status", to_string(verdict.status)},
                   {"why", verdict.why},
                   {"segments", to_json(std::span<const Segment>(verdict.segments))},
                   {"crossovers", to_json(std::span<const Crossover>(verdict.crossovers))},
                   {"threshold", to_json(verdict.threshold)},
                   {"first_win", to_json(verdict.first_win)},
                   {"library_arm", verdict.library_arm},
                   {"held_out", to_json(verdict.held_out)},
                   {"incumbent", to_json(std::span<const Segment>(verdict.incumbent))},
                   {"decided_at", iso_time(verdict.decided_us)},
                   {"measured_at", measured_at ? Json(*measured_at) : Json(nullptr)},
                   {"stale", stale ? to_json(std::span<const StaleReason>(*stale)) : Json(nullptr)},
                   {"runs", std::move(run_list)},
                   {"measurements", std::move(measurements)}};

  document.blocks.emplace_back(Heading{to_string(verdict.key.problem)});
  Fields fields = verdict_fields(verdict);
  fields.entries.emplace_back("device", describe(verdict.key.device));
  fields.entries.emplace_back("regime", describe(verdict.key.regime));
  fields.entries.emplace_back("decided", fmt::format("{}, by rule {}", iso_time(verdict.decided_us), verdict.rule));
  fields.entries.emplace_back("stale", !stale ? "(unknown)" : stale->empty() ? "no" : join(*stale));
  document.blocks.emplace_back(std::move(fields));
  const auto section = [&](const char* title, Table table) {
    if (table.rows.empty()) return;
    document.blocks.emplace_back(Heading{title});
    document.blocks.emplace_back(std::move(table));
  };
  section("medians (* is served by the verdict; ! is not believed; - was not timed)",
          median_table(runs, verdict.segments));
  section("not timed", attempt_table(runs));
  section("measured, but not believed", std::move(dirty));
  section("runs", std::move(run_table));
  if (!runs.empty()) {
    Table arms{{{"arm"}, {"class"}, {"eligible"}, {"fingerprint"}}, {}};
    for (const ArmRecord& arm : runs.back().arm_set.arms) {
      arms.rows.push_back({arm.id.name, arm.numerics, arm.eligible ? "yes" : "no: " + arm.reason, arm.id.fingerprint});
    }
    section("arms of the newest run", std::move(arms));
  }
  write_output(render(document, format));
  return kDone;
}

}  // namespace

constinit const Command kAuditShowCommand{"audit",         "show", "one verdict with its runs and measurements",
                                          kAuditShowUsage, "ID",   describe_audit_show,
                                          run_audit_show};

}  // namespace crossover::program
