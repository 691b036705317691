// crossover audit verify: everything that is stored, computed again.

#include <fmt/format.h>

#include <cctype>

#include <algorithm>
#include <map>

#include "audit.hpp"
#include "command.hpp"
#include "json.hpp"
#include "text.hpp"

namespace crossover::program {
namespace {

constexpr Usage kAuditVerifyUsage{
    "crossover audit verify [options]",
    "Computes again what the database says: every digest and reference, every median from its rounds, and every "
    "verdict\n"
    "from the samples of the runs it names, by the rule it names. Each fault is a line; exit code 4 if there is one.",
    "crossover audit verify --db tuning.db"};

// What differs between a stored verdict and the one that its runs give now; empty: nothing.
std::string difference(const Verdict& stored, const Verdict& computed) {
  std::vector<std::string> parts;
  const auto compare = [&](const char* name, const auto& a, const auto& b) {
    if (!(a == b)) parts.emplace_back(name);
  };
  compare("status", stored.status, computed.status);
  compare("segments", stored.segments, computed.segments);
  compare("crossovers", stored.crossovers, computed.crossovers);
  compare("threshold", stored.threshold, computed.threshold);
  compare("first_win", stored.first_win, computed.first_win);
  compare("library_arm", stored.library_arm, computed.library_arm);
  compare("held_out", stored.held_out, computed.held_out);
  compare("run_ids", stored.run_ids, computed.run_ids);
  return join(parts);
}

// The table and the id that a fault's sentence names, each empty where it names none.
Json located(const std::string& fault) {
  static constexpr std::string_view kTables[] = {"device", "environment", "problem", "regime", "arm",     "run",
                                                 "sample", "attempt",     "verdict", "live",   "request", "meta"};
  std::string table, id, word;
  const auto take = [&] {
    for (const std::string_view each : kTables) {
      if (table.empty() && (word == each || word == fmt::format("{}s", each))) table = each;
    }
    const bool hex = word.size() >= 8 && word.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (hex && id.empty()) id = word;
    word.clear();
  };
  for (const char each : fault) {
    if (std::isalnum(static_cast<unsigned char>(each)) != 0) {
      word += each;
    } else {
      take();
    }
  }
  take();
  return {{"table", table}, {"id", id}, {"reason", fault}};
}

void describe_audit_verify(Described& options) {
  add_plugin_option(options);
  add_database_option(options);
  add_output_options(options);
}

int run_audit_verify(const Arguments& arguments) {
  const auto options = Options::parse(kAuditVerifyCommand, arguments);
  if (!options) return kDone;
  const Format format = options->format();
  const auto runtime = open_audited(*options);
  Store& store = runtime->store();

  std::vector<std::string> faults = store.check();
  const auto take_warnings = [&] {
    for (std::string& text : store.warnings()) faults.push_back(std::move(text));
  };
  std::size_t samples = 0, runs = 0, verdicts = 0, other_rules = 0;
  std::map<Id, Run> intact;
  for (Run& run : store.all_runs()) {
    ++runs;
    if (!store.load(run)) continue;  // the store's warning says why
    samples += run.samples.size();
    intact.emplace(run.id, std::move(run));
  }
  take_warnings();
  for (const Verdict& verdict : store.all_verdicts()) {
    ++verdicts;
    const std::string name = fmt::format("verdict {} of {}", short_id(verdict.id), to_string(verdict.key.problem));
    if (verdict.rule < 1 || verdict.rule > kRule) {
      ++other_rules;
      continue;
    }
    std::vector<Run> own;
    std::size_t missing = 0;
    for (const Id& id : verdict.run_ids) {
      const auto found = intact.find(id);
      if (found == intact.end()) {
        ++missing;
      } else {
        own.push_back(found->second);
      }
    }
    if (missing > 0) {
      faults.push_back(
          fmt::format("{}: {} of its {} runs are not there or are damaged", name, missing, verdict.run_ids.size()));
      continue;
    }
    const Verdict computed = decide(verdict.key, own, verdict.policy, verdict.incumbent, true, verdict.rule);
    if (const std::string what = difference(verdict, computed); !what.empty()) {
      faults.push_back(fmt::format("{}: its runs give another {}", name, what));
    }
  }
  take_warnings();

  Document document;
  document.json = {{"database", runtime->database().string()},
                   {"ok", faults.empty()},
                   {"runs", runs},
                   {"samples", samples},
                   {"verdicts", verdicts},
                   {"verdicts_of_other_rules", other_rules},
                   {"rule", kRule},
                   {"checked", runs + samples + verdicts},
                   {"failed", Json::array()},
                   {"faults", faults}};
  for (const std::string& text : faults) document.json["failed"].push_back(located(text));
  Fields fields;
  fields.entries = {
      {"database", runtime->database().string()},
      {"runs", std::to_string(runs)},
      {"samples", std::to_string(samples)},
      {"verdicts", std::to_string(verdicts)},
      {"result", faults.empty() ? "everything holds"
                                : fmt::format("{} {}", faults.size(), faults.size() == 1 ? "fault" : "faults")}};
  if (other_rules > 0) {
    fields.entries.emplace_back(
        "not computed again",
        fmt::format("{} verdicts of rules that this version does not know; it knows 1 to {}", other_rules, kRule));
  }
  document.blocks.emplace_back(std::move(fields));
  if (!faults.empty()) {
    Table table{{{"fault"}}, {}};
    for (const std::string& text : faults) table.rows.push_back({text});
    document.blocks.emplace_back(std::move(table));
  }
  write_output(render(document, format));
  return faults.empty() ? kDone : kVerificationFailed;
}

}  // namespace

constinit const Command kAuditVerifyCommand{
    "audit",           "verify", "every digest, reference and verdict, computed again",
    kAuditVerifyUsage, "",       describe_audit_verify,
    run_audit_verify};

}  // namespace crossover::program
