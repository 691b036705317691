// The acceptance of the protocol, on simulated devices whose truth is known: how often equal arms are called different,
// differences are found, the wrong arm wins, bounds hold. tuner/MEASURING.md has the table.

#include <gtest/gtest.h>

#include <cstdio>
#include <iterator>
#include <string>
#include <vector>

#include "bench.hpp"
#include "crossover/dispatch/decide.hpp"
#include "simulator.hpp"

namespace crossover::simulator {
namespace {

using fake::arm;
using fake::constant;
using fake::sample_of;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int kTunings = 6;  // that it runs is what a sanitizer adds; the rates are the same
#else
constexpr int kTunings = 150;
#endif

struct Named {
  const char* name;
  Disturbance what;
};
const Named kDevices[]{
    {"quiet", {.noise = 0.003}},
    {"drift 5%", {.noise = 0.003, .drift = 0.05}},
    {"clock steps of 10%", {.noise = 0.003, .clock_step = 0.10, .clock_step_rate = 0.3}},
    {"outliers, 5% of batches", {.noise = 0.003, .outlier_rate = 0.05}},
    {"throttling, 3% of the time", {.noise = 0.003, .throttle_rate = 0.03}},
    {"cold start", {.noise = 0.003, .cold_start_s = 1.5}},
    {"all of it",
     {.noise = 0.005,
      .drift = 0.03,
      .clock_step = 0.10,
      .clock_step_rate = 0.2,
      .outlier_rate = 0.03,
      .throttle_rate = 0.02,
      .cold_start_s = 1.5}},
};

Verdict verdict_of(const Run& run) {
  Run own = run;
  own.id.bytes.back() = 1;
  return decide({own.device, own.problem, own.regime}, {&own, 1}, Policy{});
}

struct Counts {
  int cases = 0, different = 0, faster = 0, slower = 0;
};

// Comparisons of `b` with the default arm `a`, at every row count of a tuning whose run is clean.
// One arm after the other: of every run, for the placebo finds most of them out.
Counts compare_arms(double ratio, const Disturbance& what, bool interleaved = true) {
  Counts counts;
  for (int tuning = 0; tuning < kTunings; ++tuning) {
    Simulation simulation({arm("a", constant(1e5)), arm("b", constant(1e5 / ratio))}, what,
                          static_cast<std::uint64_t>(1000 + tuning));
    simulation.options.keep_arms = {"b"};
    simulation.options.interleaved = interleaved;
    const crossover::Run run = simulation.measure();
    if (run.dirty_mask != 0 && interleaved) continue;
    for (const Sample& b : run.samples) {
      const Sample* a = sample_of(run, "a", b.m);
      if (b.arm != "b" || b.role != Role::grid || a == nullptr || (a->dirty_mask | b.dirty_mask) != 0) continue;
      const Ratio found = compare(paired_ratios(b, *a), kAlphaPerComparison);
      ++counts.cases;
      counts.faster += found.comparison == Comparison::win ? 1 : 0;
      counts.slower += found.comparison == Comparison::loss ? 1 : 0;
      counts.different += found.comparison == Comparison::win || found.comparison == Comparison::loss ? 1 : 0;
    }
  }
  return counts;
}

void print(const char* what, const char* device, double share, int cases) {
  std::printf("| %-28s | %-26s | %6.2f%% of %d\n", what, device, 100 * share, cases);
}

class Acceptance : public testing::TestWithParam<Named> {};

TEST_P(Acceptance, EqualArmsAreSeldomCalledDifferent) {
  const Counts counts = compare_arms(1, GetParam().what);
  ASSERT_GE(counts.cases, 18 * kTunings) << "runs or samples are dirty";
  const double share = counts.different / static_cast<double>(counts.cases);
  print("equal, called different", GetParam().name, share, counts.cases);
  EXPECT_LE(share, 0.05);
}

TEST_P(Acceptance, TwoPerCentAreFoundAndNeverTheWrongWay) {
  const Counts counts = compare_arms(1.02, GetParam().what);
  ASSERT_GE(counts.cases, 18 * kTunings) << "runs or samples are dirty";
  const double found = counts.faster / static_cast<double>(counts.cases);
  const double wrong = counts.slower / static_cast<double>(counts.cases);
  print("2% faster, found", GetParam().name, found, counts.cases);
  print("2% faster, called slower", GetParam().name, wrong, counts.cases);
  EXPECT_GE(found, 0.95);
  EXPECT_LE(wrong, 0.001);
}

// The plan at every row count of 1…64, measured or not, against the truth.
TEST_P(Acceptance, ThePlanIsRightAndItsBoundsHold) {
  int covered = 0, crossovers = 0, wrong = 0, rows = 0;
  for (int tuning = 0; tuning < kTunings; ++tuning) {
    const double slope = 2e3 + 10e3 * uniform(77, 6, static_cast<std::uint64_t>(tuning));
    const auto a = [=](Rows m) { return 1e5 + slope * static_cast<double>(m); };
    const double b = 1e5 + slope * (4.5 + 44 * uniform(77, 7, static_cast<std::uint64_t>(tuning)));
    Simulation simulation({arm("a", a), arm("b", constant(b)), arm("c", [=](Rows m) { return 1.3 * a(m); })},
                          GetParam().what, static_cast<std::uint64_t>(5000 + tuning));
    const crossover::Run run = simulation.measure();
    const Verdict verdict = verdict_of(run);
    EXPECT_EQ(verdict.status, VerdictStatus::provisional) << verdict.why;
    Rows truth = 1;
    while (a(truth) <= b) ++truth;
    ASSERT_EQ(verdict.crossovers.size(), 1u) << "seed " << 5000 + tuning;
    const Crossover& found = verdict.crossovers.front();
    ++crossovers;
    covered += found.m_low <= truth && truth <= found.m_high ? 1 : 0;
    for (const Segment& segment : verdict.segments) {
      for (Rows m = segment.from; m <= segment.to; ++m) {
        ++rows;
        const double served = segment.arm == "a" ? a(m) : segment.arm == "b" ? b : 1.3 * a(m);
        wrong += served > 1.03 * std::min(a(m), b) ? 1 : 0;
      }
    }
  }
  print("true crossover in its bounds", GetParam().name, covered / static_cast<double>(crossovers), crossovers);
  print("served over 3% too slow", GetParam().name, wrong / static_cast<double>(rows), rows);
  EXPECT_GE(covered, 0.95 * crossovers);
  EXPECT_LE(wrong, 0.001 * rows);
}

INSTANTIATE_TEST_SUITE_P(Device, Acceptance, testing::ValuesIn(kDevices), [](const auto& device) {
  std::string name;
  for (const char each : std::string(device.param.name)) name += std::isalnum(each) != 0 ? each : '_';
  return name;
});

// One arm after the other, on the device that drifts: what the rounds are for.
TEST(Sequence, WithoutInterleavingDriftManufacturesDifferences) {
  const Disturbance drifting{.noise = 0.003, .drift = 0.05};
  const Counts together = compare_arms(1, drifting), apart = compare_arms(1, drifting, false);
  const double share = apart.different / static_cast<double>(apart.cases);
  print("equal, one after the other", "drift 5%", share, apart.cases);
  EXPECT_GT(share, 0.2);
  EXPECT_LT(together.different / static_cast<double>(together.cases), share / 4);
}

}  // namespace
}  // namespace crossover::simulator
