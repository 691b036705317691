// What one lookup costs: the library's, and what it is an alternative to.

#include <benchmark/benchmark.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "benchmarks.hpp"
#include "counting.hpp"
#include "crossover/dispatch/error.hpp"
#include "evidence.hpp"

namespace crossover::bench {
namespace {

constexpr int kProblems = 256;  // as many as the layers of a large model have different shapes, and more

// Row counts as a server sees them: log-uniform over 1…8192, and the same for the 64 layers of a step.
constexpr std::size_t kSteps = 512, kLayers = 64;
const std::vector<Rows>& row_counts() {
  static const std::vector<Rows> counts = [] {
    std::mt19937_64 random(1);
    std::vector<Rows> result;
    for (std::size_t step = 0; step < kSteps; ++step) {
      const double exponent = static_cast<double>(random() >> 11) * 0x1p-53 * std::log2(double{kMaxMeasured});
      result.insert(result.end(), kLayers, static_cast<Rows>(std::exp2(exponent)));
    }
    return result;
  }();
  return counts;
}

class NextRows {
 public:
  Rows operator()() {
    const Rows rows = counts_[at_];
    at_ = (at_ + 1) % (kSteps * kLayers);
    return rows;
  }

 private:
  const Rows* counts_ = row_counts().data();
  std::size_t at_ = 0;
};

struct Tables {
  std::unique_ptr<Store> store = Store::in_memory();
  std::unique_ptr<Dispatcher> dispatcher;
  std::vector<Problem> problems;
  std::vector<Bound> bounds;
};

const Tables& tables() {
  static const Tables result = [] {
    Tables made;
    for (int number = 0; number < kProblems; ++number) {
      made.problems.push_back(lines_problem(number));
      const Verdict verdict = store_lines(*made.store, number);
      if (verdict.segments.size() != lines().arms().size())
        throw Failure("the verdict of benchmark_lines has " + std::to_string(verdict.segments.size()) +
                      " segments, not one per arm");
    }
    DispatcherOptions options;
    options.on_miss = MissMode::fallback;
    made.dispatcher = std::make_unique<Dispatcher>(host(), *made.store, nullptr, options);
    for (const Problem& problem : made.problems) made.bounds.push_back(made.dispatcher->bind(lines(), problem, {}));
    for (const Bound& bound : made.bounds)
      if (bound.select(1).origin != Origin::tuned) throw Failure(to_string(bound.problem()) + " is not tuned");
    return made;
  }();
  return result;
}

// Runs `body` in the loop and fails the benchmark if its thread allocated or locked anything meanwhile.
template <typename Body>
void run_clean(benchmark::State& state, Body body) {
  constexpr int kBatch = 1024;
  Counts inside;
  while (state.KeepRunningBatch(kBatch)) {
    const Counts before = counts();
    for (int i = 0; i < kBatch; ++i) body();
    const Counts after = counts();
    inside.allocations += after.allocations - before.allocations;
    inside.locks += after.locks - before.locks;
  }
  state.counters["allocations"] = static_cast<double>(inside.allocations);
  state.counters["locks"] = static_cast<double>(inside.locks);
  if (inside.allocations != 0) fail(state, "the hot path allocated");
  if (inside.locks != 0) fail(state, "the hot path took a lock");
}

void select_bound(benchmark::State& state) {
  const Bound& bound = tables().bounds.front();
  NextRows next;
  state.SetLabel("one layer's handle, four segments; rows change every 64 calls");
  run_clean(state, [&] { benchmark::DoNotOptimize(bound.select(next())); });
}

void select_miss(benchmark::State& state) {
  static const std::unique_ptr<Store> empty = Store::in_memory();
  DispatcherOptions options;
  options.on_miss = MissMode::fallback;
  Dispatcher dispatcher(host(), *empty, nullptr, options);
  const Bound bound = dispatcher.bind(lines(), lines_problem(0), {});
  if (bound.select(1).origin != Origin::fallback) throw Failure("an empty store gave a verdict");
  NextRows next;
  state.SetLabel("handle of a layer that nothing is known of: the default arm");
  run_clean(state, [&] { benchmark::DoNotOptimize(bound.select(next())); });
}

std::size_t hash(const Problem& problem) {
  std::size_t value = std::hash<std::string>{}(problem.operation);
  for (const auto& [name, text] : problem.attributes) {
    value = value * 31 + std::hash<std::string>{}(name);
    value = value * 31 + std::hash<std::string>{}(text);
  }
  return value;
}

void select_keyed(benchmark::State& state) {
  const Tables& known = tables();
  struct Hash {
    std::size_t operator()(const Problem& problem) const { return hash(problem); }
  };
  std::unordered_map<Problem, Bound, Hash> handles;
  for (std::size_t i = 0; i < known.bounds.size(); ++i) handles.emplace(known.problems[i], known.bounds[i]);
  NextRows next;
  std::size_t i = 0;
  state.SetLabel("std::unordered_map from the problem to its handle (the library has no keyed lookup), 256 problems");
  run_clean(state, [&] {
    i = (i + 1) % kProblems;
    benchmark::DoNotOptimize(handles.find(known.problems[i])->second.select(next()));
  });
}

// A table as engines keep one: numbers of the shape and of the bucket of rows to an arm, under one mutex.
void baseline_mutex_map(benchmark::State& state) {
  const Tables& known = tables();
  using Key = std::tuple<std::int64_t, std::int64_t, Rows>;
  std::map<Key, const Arm*> table;
  std::mutex mutex;
  const auto bucket = [](Rows rows) {
    Rows power = 1;
    while (power < rows) power *= 2;
    return power;
  };
  for (int number = 0; number < kProblems; ++number)
    for (Rows rows = 1; rows <= kMaxMeasured; rows *= 2)
      table[{std::int64_t{128} * (number + 1), 1024, rows}] =
          known.bounds[static_cast<std::size_t>(number)].select(rows).arm;
  NextRows next;
  std::int64_t number = 0;
  state.SetLabel("std::map by (n, k, rows rounded up to a power of two) under a std::mutex, 256 problems");
  for (auto _ : state) {
    number = (number + 1) % kProblems;
    const std::lock_guard lock(mutex);
    benchmark::DoNotOptimize(table.find({128 * (number + 1), 1024, bucket(next())})->second);
  }
}

// The same with the key as text, made for every lookup.
void baseline_string_keys(benchmark::State& state) {
  const Tables& known = tables();
  std::unordered_map<std::string, const Arm*> table;
  const auto key = [](std::int64_t n, std::int64_t k, Rows rows) {
    Rows power = 1;
    while (power < rows) power *= 2;
    return "fp8_block_linear:n=" + std::to_string(n) + ",k=" + std::to_string(k) + ",m=" + std::to_string(power);
  };
  for (int number = 0; number < kProblems; ++number)
    for (Rows rows = 1; rows <= kMaxMeasured; rows *= 2)
      table[key(std::int64_t{128} * (number + 1), 1024, rows)] =
          known.bounds[static_cast<std::size_t>(number)].select(rows).arm;
  NextRows next;
  std::int64_t number = 0;
  state.SetLabel("std::unordered_map by a string made of (n, k, rows rounded up), no lock, 256 problems");
  for (auto _ : state) {
    number = (number + 1) % kProblems;
    benchmark::DoNotOptimize(table.find(key(128 * (number + 1), 1024, next()))->second);
  }
}

}  // namespace

void register_select() {
  benchmark::RegisterBenchmark("select/bound", select_bound);
  benchmark::RegisterBenchmark("select/keyed", select_keyed);
  benchmark::RegisterBenchmark("select/miss", select_miss);
  benchmark::RegisterBenchmark("baseline/mutex_map", baseline_mutex_map);
  benchmark::RegisterBenchmark("baseline/string_keys", baseline_string_keys);
}

}  // namespace crossover::bench
