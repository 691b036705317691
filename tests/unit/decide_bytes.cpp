// Prints verdicts of synthetic evidence as canonical JSON. Compiled by several compilers at several optimisation
// levels; what they print must be the same. The evidence is made with integers and exact divisions only.

#include <cstdint>
#include <cstdio>
#include <string>

#include "codec.hpp"
#include "crossover/dispatch/decide.hpp"

namespace {

using crossover::Rows;

class Noise {
 public:
  explicit Noise(std::uint64_t seed) : state_(seed * 2862933555777941757u + 3037000493u) {}
  // 1 ± share, in steps that a double holds exactly.
  double factor(double share) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    const auto step = static_cast<std::int64_t>(state_ >> 48) - 32768;
    return 1 + share * static_cast<double>(step) / 32768;
  }

 private:
  std::uint64_t state_;
};

crossover::Run synthetic_run(std::uint8_t id, std::uint8_t process, double noise_share) {
  crossover::Run run;
  run.id.bytes.fill(id);
  run.process_uuid.bytes.fill(process);
  run.device = {
      .kind = "cpu", .model = "test", .compute_capability = "generic", .sm_count = 2, .l2_bytes = 1, .memory_gib = 1};
  run.problem = {.operation = "twice", .attributes = {{"n", "8"}}};
  run.started_us = id;
  run.arm_set.defaults = {{8, "gemv"}, {crossover::kMaxRows, "tiled"}};
  run.arm_set.numerics = {{"a16", true}, {"w16", true}};
  Noise noise(id);
  for (int arm = 0; arm < 5; ++arm) {
    static const char* const kNames[] = {"gemv", "tiled", "tensor/64", "tensor/128", "library"};
    static const double kBase[] = {1000, 1500, 2000, 2600, 4100}, kSlope[] = {211, 97, 61, 50, 31};
    run.arm_set.arms.push_back({{kNames[arm], "f"}, arm == 4 ? "w16" : "a16", arm != 3, arm == 4, true, ""});
    for (const Rows m : {1, 2, 3, 5, 8, 13, 16, 17, 24, 33, 48, 64, 65, 96, 128, 181, 256, 362, 512}) {
      crossover::Sample sample;
      sample.m = m;
      sample.arm = kNames[arm];
      sample.config = "-";
      sample.launches = 3;
      const int rounds = m % 2 == 0 ? 24 : 96;
      for (int round = 0; round < rounds; ++round)
        sample.raw.push_back({static_cast<std::uint32_t>(round), round % 17 == 0 ? crossover::kDiscarded : 0,
                              3 * (kBase[arm] + kSlope[arm] * static_cast<double>(m)) * noise.factor(noise_share), 0});
      sample.median_ns = median_ns(sample);
      sample.mad_ns = mad_ns(sample);
      run.samples.push_back(sample);
      if (m % 3 == 0) {
        sample.role = crossover::Role::held_out;
        ++sample.m;
        run.samples.push_back(sample);
      }
    }
  }
  return run;
}

}  // namespace

int main() {
  for (const double noise : {0.0, 0.01, 0.05, 0.3})
    for (int runs = 1; runs <= 3; ++runs) {
      std::vector<crossover::Run> evidence;
      for (int i = 0; i < runs; ++i)
        evidence.push_back(
            synthetic_run(static_cast<std::uint8_t>(i + 1), static_cast<std::uint8_t>(i / 2 + 1), noise));
      const crossover::EvidenceKey key{evidence[0].device, evidence[0].problem, evidence[0].regime};
      for (const crossover::Policy& policy : {crossover::Policy{}, crossover::Policy{.batch_invariant = true},
                                              crossover::Policy{.disabled = {"gemv", "tensor"}}}) {
        const crossover::Verdict verdict = decide(key, evidence, policy);
        std::puts(canonical_json(verdict).c_str());
        const std::vector<crossover::Segment> incumbent{{1, 512, "tensor/64", "-"}};
        std::puts(canonical_json(decide(key, evidence, policy, incumbent)).c_str());
      }
    }
}
