// crossover audit list: every stored verdict, newest first.

#include <fmt/format.h>

#include "audit.hpp"
#include "command.hpp"
#include "json.hpp"
#include "text.hpp"

namespace crossover::program {
namespace {

constexpr Usage kAuditListUsage{
    "crossover audit list [options]",
    "Lists every verdict in the database, newest first. `stale` says what has changed on this host "
    "since; it is unknown for\n"
    "the verdicts of other devices.",
    "crossover audit list --json"};

std::string stale_text(const std::optional<std::vector<StaleReason>>& stale) {
  if (!stale) return "(unknown)";
  return stale->empty() ? "no" : join(*stale);
}

void describe_audit_list(Described& options) {
  add_device_option(options, true);
  add_plugin_option(options);
  add_database_option(options);
  add_output_options(options);
}

int run_audit_list(const Arguments& arguments) {
  const auto options = Options::parse(kAuditListCommand, arguments);
  if (!options) return kDone;
  const Format format = options->format();
  const auto runtime = open_audited(*options);
  const Target target(*runtime, *options);

  Document document;
  Json list = Json::array();
  Table table{{{"verdict"}, {"problem"}, {"device"}, {"regime"}, {"status"}, {"measured at"}, {"stale"}}, {}};
  Staleness staleness(*runtime);
  for (const Verdict& verdict : runtime->store().all_verdicts()) {
    if (options->has("device") && verdict.key.device != target.device()) continue;
    const std::vector<Run> runs = runs_of(runtime->store(), verdict);
    const std::optional<std::string> measured_at =
        runs.empty() ? std::nullopt : std::optional(iso_time(runs.back().started_us));
    const auto stale = staleness.of(verdict, runs);
    list.push_back({{"id", verdict.id.hex()},
                    {"problem", to_json(verdict.key.problem)},
                    {"device", to_json(verdict.key.device)},
                    {"status", to_string(verdict.status)},
                    {"measured_at", measured_at ? Json(*measured_at) : Json(nullptr)},
                    {"stale", stale ? to_json(std::span<const StaleReason>(*stale)) : Json(nullptr)},
                    {"regime", to_json(verdict.key.regime)},
                    {"policy", to_json(verdict.policy)},
                    {"threshold", to_json(verdict.threshold)},
                    {"decided_at", iso_time(verdict.decided_us)}});
    table.rows.push_back({short_id(verdict.id) + (verdict.policy == Policy{} ? "" : " (own policy)"),
                          to_string(verdict.key.problem), describe(verdict.key.device), describe(verdict.key.regime),
                          std::string(to_string(verdict.status)), measured_at.value_or("(unknown)"),
                          stale_text(stale)});
  }
  for (const std::string& text : runtime->store().warnings()) warn(text);
  document.json = {{"verdicts", std::move(list)}};
  if (table.rows.empty()) {
    document.blocks.emplace_back(Paragraph{fmt::format(
        "No verdicts{} in {}.", options->has("device") ? " of this device" : "", runtime->database().string())});
  } else {
    document.blocks.emplace_back(std::move(table));
  }
  write_output(render(document, format));
  return kDone;
}

}  // namespace

constinit const Command kAuditListCommand{
    "audit", "list", "every stored verdict", kAuditListUsage, "", describe_audit_list, run_audit_list};

}  // namespace crossover::program
