// A program that uses the installed package: consumer DATABASE. Binds one layer without a database, through the parts,
// and with one, through the runtime, and compares what it computes with what is right.

#include <bit>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <vector>

#include "crossover/db/store.hpp"
#include "crossover/dispatch/dispatcher.hpp"
#include "crossover/kernels/fp8_block_linear.hpp"
#include "crossover/runtime.hpp"
#include "crossover/tuner/tuner.hpp"

namespace {

constexpr std::int64_t kN = 130, kK = 192, kRows = 5;

std::uint16_t bf16(float value) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16); }

// Weights 1.0, scales 0.5 and 2.0 for the two blocks of K, activations row + 1: every sum is exact in bf16.
struct Layer {
  std::vector<std::uint8_t> w = std::vector<std::uint8_t>(kN * kK, 0x38);
  std::vector<float> scales{0.5f, 2.0f, 0.5f, 2.0f};
  std::vector<std::uint16_t> x, y = std::vector<std::uint16_t>(kRows * kN, 0xffff);
  Layer() {
    for (std::int64_t row = 0; row < kRows; ++row) x.insert(x.end(), kK, bf16(static_cast<float>(row + 1)));
  }
};

bool launch_and_check(const crossover::Bound& bound, Layer& layer, const char* what) {
  std::vector<std::uint8_t> scratch(bound.workspace_bytes(kRows) + 256);
  void* aligned = scratch.data();
  std::size_t space = scratch.size();
  std::align(256, scratch.size() - 256, aligned, space);
  const crossover::Fp8BlockLinearArguments arguments(layer.x.data(), layer.y.data());
  const crossover::Status status = bound.launch(arguments, kRows, {aligned, scratch.size() - 256});
  if (!status.ok()) {
    std::printf("%s: the launch failed: %s\n", what, status.message);
    return false;
  }
  for (std::int64_t row = 0; row < kRows; ++row) {
    const std::uint16_t expected = bf16(static_cast<float>(row + 1) * (128 * 0.5f + 64 * 2.0f));
    for (std::int64_t column = 0; column < kN; ++column) {
      if (layer.y[static_cast<std::size_t>(row * kN + column)] == expected) continue;
      std::printf("%s: wrong at row %d, column %d\n", what, static_cast<int>(row), static_cast<int>(column));
      return false;
    }
  }
  const crossover::Choice choice = bound.select(kRows);
  const auto origin = crossover::to_string(choice.origin);
  std::printf("%s: %s (%.*s)\n", what, choice.arm->id().name.c_str(), static_cast<int>(origin.size()), origin.data());
  return true;
}

}  // namespace

int main(int, char** argv) {
  try {
    const crossover::Operation& operation = crossover::fp8_block_linear();
    crossover::Fp8BlockLinear shape;
    shape.n = kN;
    shape.k = kK;
    const crossover::Problem problem = shape.problem();
    std::printf("%s\n", to_string(problem).c_str());

    Layer parts;
    const auto store = crossover::Store::in_memory();
    const auto backend = crossover::cpu_backend();
    crossover::DispatcherOptions options;
    options.on_miss = crossover::MissMode::fallback;
    crossover::Dispatcher dispatcher(*backend, *store, nullptr, options);
    const crossover::Bound bound =
        dispatcher.bind(operation, problem, crossover::fp8_block_linear_weights(parts.w.data(), parts.scales.data()));
    if (!launch_and_check(bound, parts, "parts")) return 1;

    Layer joined;
    crossover::RuntimeOptions runtime_options;
    runtime_options.database = argv[1];
    runtime_options.device = "cpu";
    runtime_options.on_miss = crossover::MissMode::record;
    crossover::Runtime runtime(runtime_options);
    const crossover::Bound layer =
        runtime.bind(operation, problem, crossover::fp8_block_linear_weights(joined.w.data(), joined.scales.data()));
    if (!launch_and_check(layer, joined, "runtime")) return 1;
    if (runtime.store().requests().size() != 1) {
      std::printf("the miss was not recorded in %s\n", argv[1]);
      return 1;
    }
    return 0;
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
