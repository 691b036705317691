// crossover_results --trust DATABASE: how far one tuning can be trusted, from many of the same problem.
// crossover_results DATABASE: the generated part of kernels/fp8_block_linear/RESULTS.md on standard output, from the
// newest verdict of every problem of fp8_block_linear on a CUDA device.

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>

#include "audit.hpp"
#include "constant.hpp"
#include "crossover/db/store.hpp"
#include "document.hpp"
#include "text.hpp"
#include "trust.hpp"
#include "verdict_blocks.hpp"

namespace crossover::program {
namespace {

constexpr std::string_view kLibraryArm = "dequant_cublaslt";
constexpr Rows kConstants[] = {512, 5};
constexpr std::uint64_t kAnyCache = std::uint64_t{1} << 40;

struct NamedPolicy {
  std::string name;
  Policy policy;
};
std::vector<NamedPolicy> policies() {
  std::vector<NamedPolicy> all{{"default", {}}, {"with a cached copy", {}}, {"with a8", {}}, {"with both", {}}};
  for (const std::size_t i : {1, 3}) all[i].policy.cached_bytes = kAnyCache;
  for (const std::size_t i : {2, 3}) all[i].policy.allow = {"a16", "w16", "a8"};
  return all;
}

std::string segments_text(const Verdict& verdict) {
  std::vector<std::string> parts;
  for (const Segment& each : verdict.segments) parts.push_back(row_range(each.from, each.to) + " " + each.arm);
  return parts.empty() ? "inconclusive: " + verdict.why : join(parts);
}

// The library arm's threshold with the bounds of the crossover that it is.
std::string threshold_text(const Verdict& verdict) {
  if (!verdict.threshold) return "none";
  for (const Crossover& each : verdict.crossovers) {
    if (each.m == *verdict.threshold) return fmt::format("{} ({} to {})", each.m, each.m_low, each.m_high);
  }
  return std::to_string(*verdict.threshold);
}
std::string rows_text(const std::optional<Rows>& rows) { return rows ? std::to_string(*rows) : "none"; }

std::string worst_text(std::span<const ConstantAt> costs) {
  const ConstantAt* const most = worst(costs);
  return most == nullptr ? "-" : fmt::format("{:.2f} at M = {}", most->cost(), most->m);
}

struct Measured {
  Verdict verdict;
  std::vector<Run> runs;
};

std::string extents(const Problem& problem) { return problem.attributes.at("n") + "×" + problem.attributes.at("k"); }

void add_layer(Document& document, const Measured& measured) {
  document.blocks.emplace_back(Heading{extents(measured.verdict.key.problem)});
  document.blocks.emplace_back(median_table(measured.runs, measured.verdict.segments));
  Table decided{{{"policy"}, {"status"}, {"arms by M"}, {"library arm"}, {"threshold (95%)"}, {"first win", true}}, {}};
  for (const NamedPolicy& each : policies()) {
    const Verdict verdict = decide(measured.verdict.key, measured.runs, each.policy);
    decided.rows.push_back({each.name, std::string(to_string(verdict.status)), segments_text(verdict),
                            verdict.library_arm, threshold_text(verdict), rows_text(verdict.first_win)});
  }
  document.blocks.emplace_back(std::move(decided));
  Table costs{{{"M", true}, {"best"}, {"us", true}}, {}};
  std::map<Rows, std::vector<std::string>> rows;
  for (const Rows from : kConstants) {
    costs.columns.push_back({fmt::format("constant {}", from), false});
    costs.columns.push_back({"cost", true});
    for (const ConstantAt& each : constant_costs(measured.runs, Policy{}, kLibraryArm, from)) {
      std::vector<std::string>& row = rows[each.m];
      if (row.empty()) row = {std::to_string(each.m), each.best, in_microseconds(each.best_ns)};
      row.push_back(each.picked.empty() ? "-" : each.picked);
      row.push_back(each.picked.empty() ? "-" : fmt::format("{:.2f}", each.cost()));
    }
  }
  for (auto& [m, row] : rows) costs.rows.push_back(std::move(row));
  document.blocks.emplace_back(std::move(costs));
}

int write_results(const std::filesystem::path& path) {
  const auto store = Store::open(path, Store::Access::lookup_only);
  std::map<EvidenceKey, Measured> newest;
  for (const Verdict& verdict : store->all_verdicts()) {
    if (verdict.policy != Policy{} || verdict.key.device.kind != "cuda" || newest.contains(verdict.key)) continue;
    if (verdict.key.problem.operation != "fp8_block_linear") continue;
    Measured measured{verdict, runs_of(*store, verdict)};
    for (Run& run : measured.runs) {
      if (!store->load(run)) throw StoreError("a run cannot be read");
    }
    newest.emplace(verdict.key, std::move(measured));
  }
  if (const auto warnings = store->warnings(); !warnings.empty()) throw StoreError(warnings.front());
  if (newest.empty()) throw StoreError("the database has no verdict of fp8_block_linear on a CUDA device");
  std::vector<const Measured*> layers;
  for (const auto& [key, measured] : newest) layers.push_back(&measured);
  std::stable_sort(layers.begin(), layers.end(), [](const Measured* a, const Measured* b) {
    return a->runs.front().started_us < b->runs.front().started_us;  // as they were measured
  });

  Document document;
  const Run& run = layers.front()->runs.front();
  Fields fields;
  fields.entries.emplace_back("device", describe(run.device));
  fields.entries.emplace_back("regime", describe(run.regime));
  for (const auto& [name, value] : run.environment) fields.entries.emplace_back(name, value);
  fields.entries.emplace_back("measured from", iso_time(run.started_us));
  fields.entries.emplace_back("to", iso_time(layers.back()->runs.back().started_us));
  document.blocks.emplace_back(std::move(fields));
  Table summary{{{"layer (N×K)"}, {"status"}, {"arms by M"}, {"threshold (95%)"}, {"first win", true}}, {}};
  for (const Rows from : kConstants) summary.columns.push_back({fmt::format("worst cost of {}", from), false});
  summary.columns.push_back({"regret between grid points, mean", true});
  summary.columns.push_back({"max", true});
  for (const Measured* each : layers) {
    const Verdict& verdict = each->verdict;
    std::vector<std::string> row{extents(verdict.key.problem), std::string(to_string(verdict.status)),
                                 segments_text(verdict), threshold_text(verdict), rows_text(verdict.first_win)};
    for (const Rows from : kConstants)
      row.push_back(worst_text(constant_costs(each->runs, Policy{}, kLibraryArm, from)));
    row.push_back(verdict.held_out ? percent(verdict.held_out->mean_regret) : "-");
    row.push_back(verdict.held_out ? percent(verdict.held_out->max_regret) : "-");
    summary.rows.push_back(std::move(row));
  }
  document.blocks.emplace_back(std::move(summary));
  for (const Measured* each : layers) add_layer(document, *each);
  write_output(render(document, Format::markdown));
  return 0;
}

}  // namespace
}  // namespace crossover::program

int main(int count, char** values) {
  const bool trust = count == 3 && std::string_view(values[1]) == "--trust";
  if (count != 2 && !trust) {
    std::fputs("usage: crossover_results [--trust] DATABASE\n", stderr);
    return 2;
  }
  try {
    return trust ? crossover::program::write_trust(values[2]) : crossover::program::write_results(values[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "crossover_results: %s\n", error.what());
    return 1;
  }
}
