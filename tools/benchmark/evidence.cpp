#include "evidence.hpp"

#include <array>
#include <cstdint>
#include <utility>

#include "crossover/dispatch/error.hpp"
#include "crossover/tuner/tuner.hpp"

namespace crossover::bench {
namespace {

class IdlePrepared final : public Prepared {
 public:
  std::string config() const override { return "-"; }
  Status launch(const Arguments&, Rows, Workspace, Stream) noexcept override { return {}; }
};

// Takes fixed_ns + per_row_ns · M.
class LineArm final : public Arm {
 public:
  LineArm(std::string name, double fixed_ns, double per_row_ns)
      : id_{std::move(name), "line 1"}, fixed_ns_(fixed_ns), per_row_ns_(per_row_ns) {}
  const ArmId& id() const noexcept override { return id_; }
  std::string_view numerics() const noexcept override { return "exact"; }
  bool batch_invariant() const noexcept override { return true; }
  Eligibility supports(const Problem&, Rows, const Device&) const override { return {}; }
  Cost cost(const Problem&, Rows) const override { return {}; }
  std::unique_ptr<Prepared> prepare(const Problem&, const Weights&, std::string_view config, Rows) const override {
    if (!config.empty() && config != "-") throw ConfigNotRestorable("a line has no configurations");
    return std::make_unique<IdlePrepared>();
  }
  double nanoseconds(Rows rows) const { return fixed_ns_ + per_row_ns_ * static_cast<double>(rows); }

 private:
  ArmId id_;
  double fixed_ns_, per_row_ns_;
};

// Each is the fastest somewhere: they cross at 17, 125 and 2,500 rows.
class Lines final : public Operation {
 public:
  std::string_view name() const noexcept override { return "benchmark_lines"; }
  std::span<const Arm* const> arms() const noexcept override { return arms_; }
  std::span<const NumericsClass> numerics() const noexcept override { return numerics_; }
  std::vector<DefaultArm> default_arms(const Problem&, const Device&) const override { return {{kMaxRows, "line_a"}}; }
  Problem normalise(const Problem& problem) const override { return problem; }
  std::size_t workload_bytes_per_copy(const Problem&, Rows) const override { return 0; }
  std::unique_ptr<Workload> workload(const Problem&, const Regime&, Memory&, Rows, int, std::uint64_t) const override {
    throw InvalidArgument("benchmark_lines cannot be measured");
  }
  std::span<const LineArm> line_arms() const { return line_arms_; }

 private:
  std::array<LineArm, 4> line_arms_{LineArm("line_a", 1'000, 100), LineArm("line_b", 2'000, 40),
                                    LineArm("line_c", 6'000, 8), LineArm("line_d", 16'000, 4)};
  std::array<const Arm*, 4> arms_{&line_arms_[0], &line_arms_[1], &line_arms_[2], &line_arms_[3]};
  std::array<NumericsClass, 1> numerics_{NumericsClass{"exact", true}};
};

const Lines& the_lines() {
  static const Lines operation;
  return operation;
}

}  // namespace

const Operation& lines() { return the_lines(); }

Problem lines_problem(int number) {
  return {.operation = std::string(lines().name()),
          .attributes = {{"k", "1024"}, {"n", std::to_string(128 * (number + 1))}}};
}

Backend& host() {
  static const std::unique_ptr<Backend> backend = cpu_backend();
  return *backend;
}

std::vector<Rows> measured_rows() { return grid(kMaxMeasured, {}); }

Run lines_run(const Problem& problem, int number) {
  constexpr std::uint32_t kRounds = 40, kLaunches = 16;
  Run run;
  run.process_uuid.bytes[0] = 1;
  run.device = host().device();
  run.environment = host().environment();
  run.problem = problem;
  run.regime.launch_mode = host().launch_modes().front();
  run.arm_set = arm_set(lines(), problem, run.device);
  run.seed = static_cast<std::uint64_t>(number) + 1;
  run.started_us = 1'700'000'000'000'000 + number;
  run.duration_us = 1'000'000;
  run.conditions["before"] = run.conditions["after"] = host().conditions();
  for (const Rows m : measured_rows()) {
    for (const LineArm& arm : the_lines().line_arms()) {
      Sample sample;
      sample.m = m;
      sample.arm = arm.id().name;
      sample.config = "-";
      sample.launches = kLaunches;
      for (std::uint32_t round = 0; round < kRounds; ++round) {
        // A jitter of ±0.5%, the same for all arms of a round, as a clock that wanders makes it.
        const double jitter = 1 + 0.0005 * (static_cast<double>(round * 7 % 21) - 10);
        sample.raw.push_back({.number = round, .flags = 0, .total_ns = arm.nanoseconds(m) * kLaunches * jitter});
      }
      sample.median_ns = median_ns(sample);
      sample.mad_ns = mad_ns(sample);
      sample.error = 0;
      run.samples.push_back(std::move(sample));
    }
  }
  return run;
}

Verdict store_lines(Store& store, int number) {
  Run run = lines_run(lines_problem(number), number);
  run.id = store.append(run);
  Verdict verdict = decide({run.device, run.problem, run.regime}, {&run, 1}, {});
  verdict.id = store.put(verdict);
  return verdict;
}

}  // namespace crossover::bench
