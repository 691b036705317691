// One FP8 linear layer as an engine written in C would run it: bound when it is loaded, launched for every batch. On
// the CPU. Checks what comes out against its own reference.

#include <crossover/crossover.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kN = 192, kK = 320, kMaxRows = 64, kBlock = 128, kScales = 2 * 3 };  // blocks of 128, the last ones partial

static uint8_t w[kN * kK];         // e4m3
static float scales[kScales];      // one per 128 x 128 block of w
static uint16_t x[kMaxRows * kK];  // bf16
static uint16_t y[kMaxRows * kN];  // bf16
static float e4m3_values[256];     // what the codes of w mean

static float bf16_value(uint16_t code) {
  const uint32_t bits = (uint32_t)code << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

// A layer as if it had been loaded.
static void load(void) {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const float magnitude = exponent == 0 ? ldexpf((float)mantissa, -9) : ldexpf((float)(8 + mantissa), exponent - 10);
    e4m3_values[code] = code & 128 ? -magnitude : magnitude;
  }
  uint32_t state = 1;
  for (int i = 0; i < kN * kK; ++i) {
    state = state * 1664525U + 1013904223U;
    w[i] = (uint8_t)(state >> 24);
    if ((w[i] & 127) == 127) w[i] = 0;  // not a number
  }
  for (int i = 0; i < kScales; ++i) scales[i] = 0.01F * (float)(i + 1);
  for (int i = 0; i < kMaxRows * kK; ++i) {
    state = state * 1664525U + 1013904223U;
    x[i] = (uint16_t)((state >> 16 & 0x80FF) | 0x3F00);  // ±0.5 … ±2
  }
}

// Relative L2 distance of the first `rows` rows of y from the reference.
static double error_of(int64_t rows) {
  double difference = 0, norm = 0;
  for (int64_t m = 0; m < rows; ++m) {
    for (int n = 0; n < kN; ++n) {
      double sum = 0;
      for (int k = 0; k < kK; ++k) {
        const double scale = (double)scales[n / kBlock * 3 + k / kBlock];
        sum += (double)bf16_value(x[m * kK + k]) * (double)e4m3_values[w[n * kK + k]] * scale;
      }
      const double off = (double)bf16_value(y[m * kN + n]) - sum;
      difference += off * off;
      norm += sum * sum;
    }
  }
  return sqrt(difference / norm);
}

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, crossover_last_error());
  return EXIT_FAILURE;
}

int main(void) {
  load();

  // Once per process.
  crossover_runtime* runtime = NULL;
  const crossover_open_options open = {
      .struct_size = sizeof open, .device = "cpu", .max_rows = kMaxRows, .budget_s = 0.5};
  if (crossover_open(&open, &runtime) != CROSSOVER_OK) return failed("open");

  // Once per layer.
  const void* const loaded[] = {w, scales};
  const crossover_weights weights = {.struct_size = sizeof weights, .count = 2, .data = loaded};
  const crossover_bind_options bind = {.struct_size = sizeof bind,
                                       .operation = "fp8_block_linear",
                                       .problem = "n=192,k=320,dtype=bf16",
                                       .weights = &weights};
  crossover_bound* layer = NULL;
  if (crossover_bind(runtime, &bind, &layer) != CROSSOVER_OK) return failed("bind");
  crossover_launch_options how = {.struct_size = sizeof how};
  if (crossover_workspace_bytes(layer, kMaxRows, &how.workspace_bytes) != CROSSOVER_OK) return failed("workspace");
  if (how.workspace_bytes != 0) how.workspace = aligned_alloc(256, how.workspace_bytes);

  // For every batch.
  const void* const inputs[] = {x};
  void* const outputs[] = {y};
  const crossover_arguments arguments = {
      .struct_size = sizeof arguments, .input_count = 1, .inputs = inputs, .output_count = 1, .outputs = outputs};
  static const int64_t kRows[] = {1, 7, kMaxRows};
  for (size_t i = 0; i < sizeof kRows / sizeof *kRows; ++i) {
    memset(y, 0xFF, sizeof y);
    if (crossover_launch(layer, kRows[i], &arguments, &how) != CROSSOVER_OK) return failed("launch");
    crossover_choice choice = {.struct_size = sizeof choice};
    if (crossover_select(layer, kRows[i], CROSSOVER_LAUNCH_DEFAULT, &choice) != CROSSOVER_OK) return failed("select");
    const double error = error_of(kRows[i]);
    printf("%2d rows: %s (%s), relative error %.1e\n", (int)kRows[i], choice.arm, choice.origin_name, error);
    if (!(error < 4e-3)) return fprintf(stderr, "wrong result\n"), EXIT_FAILURE;
  }

  free(how.workspace);
  crossover_unbind(layer);
  crossover_close(runtime);
}
