#include "evidence.hpp"

#include <cmath>

#include "crossover/kernels/fp8_block_linear.hpp"

namespace crossover::testing {
namespace {

constexpr std::int64_t kMeasured = 1'796'000'000'000'000;  // Unix time in microseconds, some day
constexpr int kRounds = 24;

Id id_from(std::uint64_t number) {
  Id id;
  for (int i = 0; i < 8; ++i) id.bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(number >> (8 * i));
  id.bytes[15] = 1;
  return id;
}

std::vector<Rows> row_counts() {
  std::vector<Rows> rows;
  for (Rows m = 1; m <= 16; ++m) rows.push_back(m);
  for (const Rows m : {23, 32, 45, 64, 91, 128, 181, 256}) rows.push_back(m);
  return rows;
}

// Times that differ from round to round by a known amount, the same for every arm of a round.
Sample sample(const std::string& arm, const std::string& config, Rows m, Role role, const Facts& facts) {
  Sample result;
  result.m = m;
  result.arm = arm;
  result.role = role;
  result.config = config;
  result.launches = 4;
  result.error = 1.5e-3;
  for (int round = 0; round < kRounds; ++round) {
    const double wave = std::sin(static_cast<double>(round) * 2.1);
    result.raw.push_back(
        {.number = static_cast<std::uint32_t>(round), .total_ns = 4 * facts.times(arm, m) * (1 + facts.spread * wave)});
  }
  result.median_ns = median_ns(result);
  result.mad_ns = mad_ns(result);
  if (arm == kSlow) result.dirty_mask = facts.sample_dirty;
  return result;
}

Id store_runs(Store& store, const Run& base, const Facts& facts) {
  std::vector<Run> runs;
  for (int process = 0; process < facts.processes; ++process) {
    Run run = base;
    run.process_uuid = id_from(static_cast<std::uint64_t>(process) + 1);
    run.seed = static_cast<std::uint64_t>(process) + 1;
    run.started_us = kMeasured + process * 1'000'000;
    run.duration_us = 500'000;
    run.host = "test";
    for (const ArmRecord& arm : run.arm_set.arms) {
      if (!arm.eligible) {
        run.attempts.push_back({.m = 0, .arm = arm.id.name, .outcome = Outcome::ineligible, .detail = arm.reason});
        continue;
      }
      const std::string config = run.device.kind == "cpu" ? config_of(arm.id.name) : "-";
      for (const Rows m : row_counts()) run.samples.push_back(sample(arm.id.name, config, m, Role::grid, facts));
      for (const Rows m : {20, 100, 200}) run.samples.push_back(sample(arm.id.name, config, m, Role::held_out, facts));
    }
    if (facts.edit) facts.edit(run);
    run.id = store.append(run);
    runs.push_back(std::move(run));
  }
  const EvidenceKey key{base.device, base.problem, base.regime};
  return store.put(decide(key, runs, Policy{}));
}

}  // namespace

double usual_times(const std::string& arm, Rows m) {
  const double rows = static_cast<double>(m);
  if (arm == kFast) return 5'000 + 1'000 * rows;
  if (arm == kLibrary) return 50'000 + 100 * rows;
  return 50'000 + 20'000 * rows;
}

std::string config_of(const std::string& arm) {
  const Operation& operation = fp8_block_linear();
  const auto backend = cpu_backend();
  const Problem problem = problem_of({});
  const auto workload = operation.workload(problem, Regime{}, backend->memory(), 1, 1, 1);
  return operation.find(arm)->prepare(problem, workload->weights(0), {}, kLargest)->config();
}

Problem problem_of(const Facts& facts) {
  return fp8_block_linear().normalise({"fp8_block_linear", {{"n", facts.n}, {"k", facts.k}, {"dtype", facts.dtype}}});
}

Id store_evidence(const std::filesystem::path& database, const Facts& facts) {
  Runtime runtime({.database = database, .device = "cpu", .overrides = Overrides{}});
  const Problem problem = problem_of(facts);
  const Current current = runtime.dispatcher().current(fp8_block_linear(), problem);
  Run run;
  run.device = current.device;
  run.environment = current.environment;
  run.problem = problem;
  run.regime = {LaunchMode::eager, L2State::cold, "normal"};
  run.arm_set = current.arm_set;
  run.conditions = {{"before", current.conditions}, {"after", current.conditions}};
  return store_runs(runtime.store(), std::move(run), facts);
}

Gpu store_gpu_evidence(const std::filesystem::path& database, const std::string& model) {
  const auto store = Store::open(database, Store::Access::read_write);
  Run run;
  run.device = {"cuda", model, "9.0", 132, 62'914'560, 140};
  run.environment = {{"driver", "580.65"}, {"cuda", "13.0"}, {"cublaslt", "13.0.2"}, {"crossover", "0.1.0"}};
  run.problem = problem_of({.n = "4096", .k = "7168"});
  run.regime = {LaunchMode::graph, L2State::cold, "normal"};
  const auto arm = [&](const char* name, const char* numerics, bool library) {
    ArmRecord record;
    record.id = {name, std::string("fingerprint of ") + name};
    record.numerics = numerics;
    record.library = library;
    run.arm_set.arms.push_back(std::move(record));
  };
  arm("dequant_cublaslt", "w16", true);
  arm("gemv_warp", "a16", false);
  arm("tensor_core/128x128", "a16", false);
  arm("tensor_core/64x128", "a16", false);
  run.arm_set.defaults = {{8, "gemv_warp"}, {kMaxRows, "tensor_core/64x128"}};
  run.arm_set.numerics = {{"a16", true}, {"w16", true}, {"a8", false}};
  run.conditions = {{"before", {{"power_limit_w", "700"}, {"ecc", "on"}}}};
  Facts facts;
  facts.processes = 2;
  facts.times = [](const std::string& name, Rows m) {
    const double rows = static_cast<double>(m);
    if (name == "gemv_warp") return 8'000 + 2'000 * rows;
    if (name == "tensor_core/64x128") return 20'000 + 300 * rows;
    if (name == "tensor_core/128x128") return 22'000 + 280 * rows;
    return 35'000 + 50 * rows;
  };
  const Device device = run.device;
  return {Store::id_of(device), store_runs(*store, std::move(run), facts)};
}

}  // namespace crossover::testing
