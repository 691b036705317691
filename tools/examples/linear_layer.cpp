// One FP8 linear layer as an engine would run it: bound when it is loaded, launched for every batch. On the CPU.

#include <crossover/kernels/fp8_block_linear.hpp>
#include <crossover/runtime.hpp>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

int main() {
  constexpr std::size_t kN = 256, kK = 512, kMaxRows = 64;
  // What an engine has loaded: e4m3 codes, a scale per 128 x 128 block, activations in bf16.
  const std::vector<std::uint8_t> w(kN * kK, 0x38);  // 1.0
  const std::vector<float> scales((kN / 128) * (kK / 128), 0.5F);
  const std::vector<std::uint16_t> x(kMaxRows * kK, 0x3F80);  // 1.0
  std::vector<std::uint16_t> y(kMaxRows * kN);

  // Once per process, once per layer.
  crossover::Runtime runtime({.device = "cpu", .tuning = {.max_rows = kMaxRows, .budget = std::chrono::seconds(2)}});
  const crossover::Bound layer =
      runtime.bind(crossover::fp8_block_linear(), crossover::Fp8BlockLinear{.n = kN, .k = kK}.problem(),
                   crossover::fp8_block_linear_weights(w.data(), scales.data()));
  const std::size_t bytes = layer.workspace_bytes(kMaxRows);  // a multiple of 256
  const std::unique_ptr<void, void (*)(void*)> workspace(std::aligned_alloc(256, bytes), std::free);

  // For every batch.
  for (const crossover::Rows rows : {1, 7, 64}) {
    const crossover::Status status =
        layer.launch(crossover::Fp8BlockLinearArguments(x.data(), y.data()), rows, {workspace.get(), bytes});
    if (!status.ok()) return std::fprintf(stderr, "%s\n", status.message), EXIT_FAILURE;
    const crossover::Choice choice = layer.select(rows);
    std::printf("%2d rows: %s (%s), y = %g\n", static_cast<int>(rows), choice.arm->id().name.c_str(),
                std::string(crossover::to_string(choice.origin)).c_str(), y[0] == 0x4380 ? 256.0 : -1.0);
    if (y[0] != 0x4380 || y[static_cast<std::size_t>(rows) * kN - 1] != 0x4380)
      return EXIT_FAILURE;  // 512 · 0.5 in bf16
  }
}
