#pragma once
// A synthetic operation on the fake device, and ways to look at what a measurement left behind.

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fake_backend.hpp"

namespace crossover::fake {

inline ArmSpec arm(std::string name, std::function<double(Rows)> ns, double noise = 0.002) {
  ArmSpec spec;
  spec.name = std::move(name);
  spec.ns = std::move(ns);
  spec.noise = noise;
  return spec;
}

struct Bench {
  std::shared_ptr<World> world;
  FakeOperation operation;
  FakeBackend backend;
  TuneOptions options;

  explicit Bench(std::vector<ArmSpec> specs, std::uint64_t seed = 1)
      : world(std::make_shared<World>(seed)), operation(world, std::move(specs)), backend(world) {
    options.max_rows = 64;
    options.seed = seed;
  }
  Run measure(std::span<const Run> known = {}, const OnProgress& progress = {}) {
    return crossover::measure(backend, operation, operation.problem(), options, known, progress);
  }
};

inline std::vector<const Sample*> samples_of(const Run& run, std::string_view arm, Role role = Role::grid) {
  std::vector<const Sample*> found;
  for (const Sample& sample : run.samples)
    if (sample.arm == arm && sample.role == role) found.push_back(&sample);
  return found;
}
inline const Sample* sample_of(const Run& run, std::string_view arm, Rows m, Role role = Role::grid) {
  for (const Sample* sample : samples_of(run, arm, role))
    if (sample->m == m) return sample;
  return nullptr;
}
inline const Attempt* attempt_of(const Run& run, std::string_view arm, Rows m) {
  for (const Attempt& attempt : run.attempts)
    if (attempt.arm == arm && attempt.m == m) return &attempt;
  return nullptr;
}
inline std::set<Rows> rows_of(const Run& run, std::string_view arm, Role role = Role::grid) {
  std::set<Rows> rows;
  for (const Sample* sample : samples_of(run, arm, role)) rows.insert(sample->m);
  return rows;
}
inline std::size_t counted(const Sample& sample) {
  return static_cast<std::size_t>(std::count_if(sample.raw.begin(), sample.raw.end(), counts));
}
inline auto constant(double ns) {
  return [ns](Rows) { return ns; };
}
inline auto linear(double base_ns, double per_row_ns) {
  return [=](Rows m) { return base_ns + per_row_ns * static_cast<double>(m); };
}

}  // namespace crossover::fake
