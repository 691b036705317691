#pragma once
// A device that misbehaves as real ones do, in known ways and by a seed: drift, clock steps, outliers, throttling,
// noise, a slow start. The fake device of fake_backend.hpp with a world around it; the tuner is the one that measures
// real devices.

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fake_backend.hpp"

namespace crossover::simulator {

// What disturbs the device. Zero is off.
struct Disturbance {
  double noise = 0.003;        // of each launch: relative standard deviation
  double drift = 0;            // amplitude of a slow wave of the speed, relative; its period is some seconds
  double clock_step = 0;       // the clock drops by this share …
  double clock_step_rate = 0;  // … in this share of the slots of 100 ms
  double outlier_rate = 0;     // share of batches that take 5% to 100% longer
  double throttle_rate = 0;    // share of slots of 100 ms in which the hardware slows its clock by 30% and says so
  double cold_start_s = 0;     // until then the clock climbs from 70%
};

// Numbers that depend on nothing but seed, stream and index.
inline double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15u + stream * 0xd1b54a32d192ed03u + index * 0x8cb92ba72f3d8dd7u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

class Simulation {
 public:
  std::shared_ptr<fake::World> world;
  fake::FakeOperation operation;
  fake::FakeBackend backend;
  TuneOptions options;

  // The first arm is the default. The arms' own noise is that of the disturbance.
  Simulation(std::vector<fake::ArmSpec> arms, const Disturbance& what, std::uint64_t seed)
      : world(std::make_shared<fake::World>(seed)),
        operation(world, with_noise(std::move(arms), what.noise)),
        backend(world),
        disturbance_(what),
        seed_(seed),
        begin_ns_(world->now_ns) {
    options.max_rows = 64;
    options.seed = seed;
    options.budget = std::chrono::duration<double>(20);
    backend.has_clock = true;
    world->drift = [this](std::int64_t now) { return drift(now) / clock(now); };
    backend.tamper = [this](const fake::Timed&, Timing& timing) { disturb(timing); };
  }
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  Run measure() { return crossover::measure(backend, operation, operation.problem(), options); }

 private:
  static std::vector<fake::ArmSpec> with_noise(std::vector<fake::ArmSpec> arms, double noise) {
    for (fake::ArmSpec& arm : arms) arm.noise = noise;
    return arms;
  }
  double seconds(std::int64_t now) const { return static_cast<double>(now - begin_ns_) * 1e-9; }
  std::uint64_t slot(std::int64_t now) const { return static_cast<std::uint64_t>((now - begin_ns_) / 100'000'000); }

  double drift(std::int64_t now) const {
    const double period = 2 + 6 * uniform(seed_, 1, 0), phase = uniform(seed_, 1, 1);
    return 1 + disturbance_.drift * std::sin(6.283185307179586 * (seconds(now) / period + phase));
  }
  bool throttled(std::int64_t now) const { return uniform(seed_, 2, slot(now)) < disturbance_.throttle_rate; }
  double clock(std::int64_t now) const {
    double clock = 1;
    if (uniform(seed_, 3, slot(now)) < disturbance_.clock_step_rate) clock -= disturbance_.clock_step;
    if (throttled(now)) clock *= 0.7;
    if (seconds(now) < disturbance_.cold_start_s) clock *= 0.7 + 0.3 * seconds(now) / disturbance_.cold_start_s;
    return clock;
  }
  void disturb(Timing& timing) {
    const std::int64_t now = world->now_ns;
    ++batches_;
    if (uniform(seed_, 4, batches_) < disturbance_.outlier_rate) {
      const double longer = timing.total_ns * (0.05 + 0.95 * uniform(seed_, 5, batches_));
      timing.total_ns += longer;
      world->advance(longer);
    }
    timing.sm_clock_mhz = 1980 * clock(now);
    if (throttled(now)) timing.flags |= kDiscarded | kThrottled;
  }

  const Disturbance disturbance_;
  const std::uint64_t seed_;
  const std::int64_t begin_ns_;
  std::uint64_t batches_ = 0;
};

}  // namespace crossover::simulator
