#pragma once
// Runs with known time curves, and the smallest possible operation, machine and source around them.

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "crossover/dispatch/dispatcher.hpp"

namespace crossover::synthetic {

// GoogleTest has a member named Run.
using RunRecord = crossover::Run;
using Runs = std::vector<crossover::Run>;

inline Id id_of(std::uint8_t n) {
  Id id;
  id.bytes.fill(n);
  return id;
}

struct ArmSpec {
  std::string name;
  std::function<double(Rows)> time_ns;  // not a positive number: no sample there
  std::string fingerprint = "f1";
  std::string numerics = "a16";
  bool batch_invariant = true;
  bool library = false;
  bool eligible = true;
  std::uint64_t cached_bytes = 0;
  std::uint64_t workspace_bytes = 0;
  std::string config = "-";
  double error = 1e-3;
};

struct RunSpec {
  std::vector<ArmSpec> arms;
  std::vector<DefaultArm> defaults;
  std::vector<Rows> rows{1, 2, 4, 8, 16, 32, 64, 128, 256};
  int rounds = 24;
  double noise = 0.004;  // relative, per sample and round
  double drift = 0.05;   // relative, common to a round
  std::uint64_t seed = 1;
  std::uint8_t id = 1;
  std::uint8_t process = 1;
  std::int64_t started_us = 1'000'000;
};

inline Device device() {
  return {.kind = "cpu",
          .model = "test",
          .compute_capability = "generic",
          .sm_count = 4,
          .l2_bytes = 1 << 20,
          .memory_gib = 8};
}
inline Problem problem() { return {.operation = "twice", .attributes = {{"n", "8"}}}; }
inline EvidenceKey key() { return {device(), problem(), Regime{}}; }
inline Environment environment() {
  return {{"driver", "none"}, {"cuda", "none"}, {"cublaslt", "none"}, {"blas", "b1"}, {"commit", "c1"}};
}

inline ArmSet arm_set(const std::vector<ArmSpec>& arms, std::vector<DefaultArm> defaults) {
  ArmSet set;
  for (const ArmSpec& arm : arms)
    set.arms.push_back({{arm.name, arm.fingerprint},
                        arm.numerics,
                        arm.batch_invariant,
                        arm.library,
                        arm.eligible,
                        arm.eligible ? "" : "made so"});
  set.defaults = defaults.empty() ? std::vector<DefaultArm>{{kMaxRows, arms.front().name}} : std::move(defaults);
  set.numerics = {{"a16", true}, {"w16", true}, {"a8", false}};
  return set;
}

inline Run run(const RunSpec& spec) {
  Run run;
  run.id = id_of(spec.id);
  run.process_uuid = id_of(spec.process);
  run.device = device();
  run.environment = environment();
  run.problem = problem();
  run.arm_set = arm_set(spec.arms, spec.defaults);
  run.started_us = spec.started_us;
  run.duration_us = 1;
  run.conditions["before"] = {{"governor", "performance"}};
  std::mt19937_64 generator(spec.seed);
  std::normal_distribution<double> normal;
  std::vector<double> common(static_cast<std::size_t>(spec.rounds));
  for (double& factor : common) factor = 1 + spec.drift * std::fabs(normal(generator));
  for (const Rows m : spec.rows)
    for (const ArmSpec& arm : spec.arms) {
      if (!arm.eligible || !(arm.time_ns(m) > 0)) continue;
      Sample sample;
      sample.m = m;
      sample.arm = arm.name;
      sample.config = arm.config;
      sample.launches = 2;
      sample.error = arm.error;
      sample.cached_bytes = arm.cached_bytes;
      sample.workspace_bytes = arm.workspace_bytes;
      for (std::size_t i = 0; i < common.size(); ++i)
        sample.raw.push_back({.number = static_cast<std::uint32_t>(i),
                              .flags = 0,
                              .total_ns = 2 * arm.time_ns(m) * common[i] * std::exp(spec.noise * normal(generator)),
                              .sm_clock_mhz = 0});
      sample.median_ns = median_ns(sample);
      sample.mad_ns = mad_ns(sample);
      run.samples.push_back(std::move(sample));
    }
  return run;
}

// Base 1000 ns + slope·m.
inline std::function<double(Rows)> line(double base, double slope) {
  return [=](Rows m) { return base + slope * static_cast<double>(m); };
}

class Source final : public EvidenceSource {
 public:
  std::vector<Run> stored;
  std::vector<Verdict> made;
  std::uint64_t changes = 1;
  bool broken = false;
  bool damaged = false;  // no digest holds

  std::vector<Run> runs(const EvidenceKey& key) override {
    const std::lock_guard lock(mutex_);
    if (broken) throw StoreError("the database is broken");
    std::vector<Run> result;
    for (const Run& run : stored)
      if (run.device == key.device && run.problem == key.problem && run.regime == key.regime) {
        result.push_back(run);
        result.back().samples.clear();
      }
    return result;
  }
  bool load(Run& run) override {
    const std::lock_guard lock(mutex_);
    if (damaged) return false;
    for (const Run& candidate : stored)
      if (candidate.id == run.id) {
        run.samples = candidate.samples;
        return true;
      }
    return false;
  }
  std::vector<Verdict> verdicts(const EvidenceKey& key) override {
    const std::lock_guard lock(mutex_);
    std::vector<Verdict> result;
    for (const Verdict& verdict : made)
      if (verdict.key == key) result.push_back(verdict);
    return result;
  }
  std::uint64_t generation() override { return changes; }
  std::vector<std::string> warnings() override { return {}; }

  void add(Run run) {
    const std::lock_guard lock(mutex_);
    stored.push_back(std::move(run));
    ++changes;
  }
  // Stores the verdict for the default policy over all runs, as a tuner does.
  Verdict conclude() {
    const std::lock_guard lock(mutex_);
    Verdict verdict = decide(synthetic::key(), stored, Policy{});
    verdict.id = synthetic::id_of(static_cast<std::uint8_t>(100 + made.size()));
    made.push_back(verdict);
    ++changes;
    return verdict;
  }

 private:
  std::mutex mutex_;
};

inline Current current(const RunSpec& spec) {
  return {device(), environment(), {{"governor", "performance"}}, synthetic::arm_set(spec.arms, spec.defaults)};
}

// The arms in order, the first is the default. small: best to 32 rows; large: a library, best from 64.
inline RunSpec two_arms() {
  RunSpec spec;
  spec.arms.push_back({.name = "small", .time_ns = line(1000, 100)});
  spec.arms.push_back({.name = "large", .time_ns = line(3000, 40), .library = true});
  return spec;
}

}  // namespace crossover::synthetic
