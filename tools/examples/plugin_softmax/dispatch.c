// An engine that runs the plug-in's operation: dispatch LIBRARY [DATABASE]. Checks every row against a reference in
// f64.

#include <crossover/crossover.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kColumns = 512, kMaxRows = 64 };
static float x[kMaxRows * kColumns], y[kMaxRows * kColumns];

static int failed(const char* what) {
  fprintf(stderr, "%s: %s\n", what, crossover_last_error());
  return EXIT_FAILURE;
}

static int right(int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int i = 0; i < kColumns; ++i) sum += exp((double)x[r * kColumns + i]);
    for (int i = 0; i < kColumns; ++i) {
      const double expected = exp((double)x[r * kColumns + i]) / sum;
      if (!(fabs((double)y[r * kColumns + i] - expected) <= 1e-5 * expected)) return 0;
    }
  }
  return 1;
}

int main(int count, char** values) {
  if (count < 2) return fprintf(stderr, "dispatch LIBRARY [DATABASE]\n"), EXIT_FAILURE;
  for (int i = 0; i < kMaxRows * kColumns; ++i) x[i] = (float)(i * 7919 % 1000) / 125.0F - 4.0F;

  if (crossover_load_plugin(values[1]) != CROSSOVER_OK) return failed("load");
  crossover_runtime* runtime = NULL;
  crossover_bound* softmax = NULL;
  const crossover_open_options options = {.struct_size = sizeof options,
                                          .database = count > 2 ? values[2] : NULL,
                                          .device = "cpu",
                                          .on_miss = CROSSOVER_ON_MISS_FALLBACK};
  if (crossover_open(&options, &runtime) != CROSSOVER_OK) return failed("open");
  if (crossover_bind(
          runtime,
          &(crossover_bind_options){
              .struct_size = sizeof(crossover_bind_options), .operation = "softmax", .problem = "columns=512"},
          &softmax) != CROSSOVER_OK)
    return failed("bind");

  const void* const inputs[] = {x};
  void* const outputs[] = {y};
  const crossover_arguments arguments = {
      .struct_size = sizeof arguments, .input_count = 1, .inputs = inputs, .output_count = 1, .outputs = outputs};
  static const int64_t kRows[] = {1, 7, kMaxRows};
  for (size_t i = 0; i < sizeof kRows / sizeof *kRows; ++i) {
    memset(y, 0xFF, sizeof y);
    if (crossover_launch(softmax, kRows[i], &arguments, NULL) != CROSSOVER_OK) return failed("launch");
    crossover_choice choice = {.struct_size = sizeof choice};
    if (crossover_select(softmax, kRows[i], CROSSOVER_LAUNCH_DEFAULT, &choice) != CROSSOVER_OK) return failed("select");
    printf("%2d rows: %s (%s)\n", (int)kRows[i], choice.arm, choice.origin_name);
    if (!right(kRows[i])) return fprintf(stderr, "wrong result\n"), EXIT_FAILURE;
  }
  crossover_unbind(softmax);
  crossover_close(runtime);
}
