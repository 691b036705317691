// A plug-in: the operation "softmax" with two arms for the CPU, in C, against crossover/crossover.h alone.
//
//   Y[M,columns] = exp(X - max X) / sum exp(X - max X), row by row; f32, row-major, row strides allowed
//
//   crossover tune --plugin libsoftmax.so --operation softmax --problem columns=512
//
// Operands: no weights; inputs { X }, outputs { Y }. The arms give no fingerprint: the build-id of this library stands
// in.

#include <crossover/crossover.h>
#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kMaxColumns = 1 << 24, kLanes = 16 };

static int64_t columns_of(const crossover_problem* problem) {
  const char* const text = crossover_attribute(problem, "columns");
  if (text == NULL || *text < '0' || *text > '9') return 0;
  char* end = NULL;
  errno = 0;
  const long long columns = strtoll(text, &end, 10);
  return errno == 0 && *end == '\0' && columns <= kMaxColumns ? columns : 0;
}

static crossover_status normalise(void* context, const crossover_problem* problem, crossover_text* attributes,
                                  crossover_text* message) {
  (void)context;
  for (size_t i = 0; i < problem->count; ++i) {
    if (strcmp(problem->keys[i], "columns") == 0) continue;
    snprintf(message->data, message->capacity, "unknown attribute '%s'; there is: columns", problem->keys[i]);
    return CROSSOVER_INVALID_ARGUMENT;
  }
  const int64_t columns = columns_of(problem);
  if (columns < 1) {
    snprintf(message->data, message->capacity, "columns must be a whole number from 1 to %d", kMaxColumns);
    return CROSSOVER_INVALID_ARGUMENT;
  }
  snprintf(attributes->data, attributes->capacity, "columns=%" PRId64, columns);
  return CROSSOVER_OK;
}

// ---- The arms

// Highest value, then exponentials and their sum, then the quotient; exponentials by the C library.
static void three_pass(const float* x, float* y, int64_t columns) {
  float highest = -FLT_MAX, sum = 0;
  for (int64_t i = 0; i < columns; ++i) highest = x[i] > highest ? x[i] : highest;
  for (int64_t i = 0; i < columns; ++i) sum += y[i] = expf(x[i] - highest);
  for (int64_t i = 0; i < columns; ++i) y[i] /= sum;
}

// exp(x) for x <= 0 as 2^n times a polynomial in the rest (Cephes, expf.c; about 1e-7 relative), in operations that a
// compiler turns into vectors.
static inline float exp_below_one(float x) {
  x = x > -87.0F ? x : -87.0F;
  const float whole = (x * 1.44269504F + 12582912.0F) - 12582912.0F;  // to the nearest integer
  const float rest = x - whole * 0.693359375F + whole * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * rest + 1.3981999507e-3F;
  p = p * rest + 8.3334519073e-3F;
  p = p * rest + 4.1665795894e-2F;
  p = p * rest + 1.6666665459e-1F;
  p = p * rest + 5.0000001201e-1F;
  const int32_t bits = ((int32_t)whole + 127) * (1 << 23);
  float power;
  memcpy(&power, &bits, sizeof power);
  return (p * rest * rest + rest + 1.0F) * power;
}

// The same in loops without a dependence from one column to the next: kLanes maxima and sums instead of one.
static void blocked(const float* restrict x, float* restrict y, int64_t columns) {
  float lane[kLanes];
  const int64_t whole = columns - columns % kLanes;
  float highest = -FLT_MAX, sum = 0;
  for (int j = 0; j < kLanes; ++j) lane[j] = -FLT_MAX;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
  }
  for (int j = 0; j < kLanes; ++j) highest = lane[j] > highest ? lane[j] : highest;
  for (int64_t i = whole; i < columns; ++i) highest = x[i] > highest ? x[i] : highest;

  for (int64_t i = 0; i < columns; ++i) y[i] = exp_below_one(x[i] - highest);

  for (int j = 0; j < kLanes; ++j) lane[j] = 0;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lane[j] += y[i + j];
  }
  for (int j = 0; j < kLanes; ++j) sum += lane[j];
  for (int64_t i = whole; i < columns; ++i) sum += y[i];
  const float factor = 1.0F / sum;
  for (int64_t i = 0; i < columns; ++i) y[i] *= factor;
}

struct arm_kernel {
  void (*row)(const float* x, float* y, int64_t columns);
};
static const struct arm_kernel three_pass_kernel = {three_pass}, blocked_kernel = {blocked};

static crossover_status supports(void* context, const crossover_problem* problem, int64_t rows,
                                 const crossover_device* device, crossover_eligibility* eligibility) {
  (void)context, (void)problem, (void)rows;
  if (strcmp(device->kind, "cpu") == 0) return CROSSOVER_OK;
  eligibility->eligible = 0;
  snprintf(eligibility->reason->data, eligibility->reason->capacity, "runs on a CPU, not on %s", device->kind);
  return CROSSOVER_OK;
}

static crossover_status cost(void* context, const crossover_problem* problem, int64_t rows, crossover_cost* cost) {
  (void)context;
  const double elements = (double)rows * (double)columns_of(problem);
  cost->flops = 4 * elements;  // maximum, difference, sum, quotient
  cost->bytes_moved = 2 * elements * sizeof(float);
  return CROSSOVER_OK;
}

// What is prepared is the number of columns.
static crossover_status prepare(void* context, const crossover_prepare* request, void** prepared,
                                crossover_text* config, crossover_text* message) {
  (void)context, (void)config;
  if (*request->config != '\0') {
    snprintf(message->data, message->capacity, "there is nothing to configure, so '%s' is none", request->config);
    return CROSSOVER_CONFIG_NOT_RESTORABLE;
  }
  int64_t* const columns = malloc(sizeof *columns);
  if (columns == NULL) return CROSSOVER_OUT_OF_MEMORY;
  *columns = columns_of(request->problem);
  *prepared = columns;
  return CROSSOVER_OK;
}

static crossover_status launch(void* context, void* prepared, int64_t rows, const crossover_arguments* arguments,
                               const crossover_launch_options* options) {
  (void)options;
  const struct arm_kernel* const kernel = context;
  const int64_t columns = *(const int64_t*)prepared;
  if (arguments->input_count != 1 || arguments->output_count != 1) return CROSSOVER_INVALID_ARGUMENT;
  const float* const x = arguments->inputs[0];
  float* const y = arguments->outputs[0];
  const int64_t x_stride = arguments->input_row_strides[0] != 0 ? arguments->input_row_strides[0] : columns;
  const int64_t y_stride = arguments->output_row_strides[0] != 0 ? arguments->output_row_strides[0] : columns;
  if (x == NULL || y == NULL || x_stride < columns || y_stride < columns) return CROSSOVER_INVALID_ARGUMENT;
  for (int64_t r = 0; r < rows; ++r) kernel->row(x + r * x_stride, y + r * y_stride, columns);
  return CROSSOVER_OK;
}

static void destroy(void* context, void* prepared) {
  (void)context;
  free(prepared);
}

static crossover_status default_arms(void* context, const crossover_problem* problem, const crossover_device* device,
                                     crossover_default_arms* defaults, crossover_text* message) {
  (void)context, (void)problem, (void)device, (void)message;
  defaults->up_to[0] = INT64_MAX;
  defaults->arms[0] = "three_pass";
  defaults->count = 1;
  return CROSSOVER_OK;
}

// ---- Test data: uniform in -8 … 8, the same for every copy

struct workload {
  const crossover_memory* memory;
  int64_t columns, max_rows;
  int32_t copies;
  float* host;  // X, then room for Y
  void** data;  // X and Y of every copy, in device memory
};

static void workload_destroy(void* context, void* data) {
  (void)context;
  struct workload* const w = data;
  if (w == NULL) return;
  for (int32_t i = 0; w->data != NULL && i < 2 * w->copies; ++i) w->memory->release(w->memory->state, w->data[i]);
  free(w->data);
  free(w->host);
  free(w);
}

static crossover_status workload_bytes(void* context, const crossover_problem* problem, int64_t max_rows,
                                       uint64_t* bytes_per_copy) {
  (void)context;
  const uint64_t row_bytes = 2 * sizeof(float) * (uint64_t)columns_of(problem);
  if ((uint64_t)max_rows > UINT64_MAX / 4 / row_bytes) return CROSSOVER_OUT_OF_MEMORY;
  *bytes_per_copy = (uint64_t)max_rows * row_bytes;
  return CROSSOVER_OK;
}

static crossover_status workload_create(void* context, const crossover_workload* request, void** workload,
                                        crossover_text* message) {
  const size_t elements = (size_t)(request->max_rows * columns_of(request->problem));
  struct workload* const w = calloc(1, sizeof *w);
  if (w == NULL) return CROSSOVER_OUT_OF_MEMORY;
  *w = (struct workload){.memory = request->memory,
                         .columns = columns_of(request->problem),
                         .max_rows = request->max_rows,
                         .copies = request->copies,
                         .host = malloc(2 * elements * sizeof(float)),
                         .data = calloc(2 * (size_t)request->copies, sizeof(void*))};
  crossover_status status = w->host != NULL && w->data != NULL ? CROSSOVER_OK : CROSSOVER_OUT_OF_MEMORY;
  uint64_t state = request->seed;
  for (size_t i = 0; status == CROSSOVER_OK && i < elements; ++i) {
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    w->host[i] = (float)(state >> 40) / (float)(1 << 24) * 16.0F - 8.0F;
  }
  for (int32_t i = 0; status == CROSSOVER_OK && i < 2 * w->copies; ++i) {
    status = w->memory->allocate(w->memory->state, elements * sizeof(float), &w->data[i]);
    if (status == CROSSOVER_OK && i % 2 == 0)
      status = w->memory->upload(w->memory->state, w->data[i], w->host, elements * sizeof(float));
  }
  if (status != CROSSOVER_OK) {
    snprintf(message->data, message->capacity, "no memory for %zu elements in %d copies", 2 * elements,
             (int)request->copies);
    workload_destroy(context, w);
    return status;
  }
  *workload = w;
  return CROSSOVER_OK;
}

static crossover_status workload_arguments(void* context, void* workload, int64_t rows, int32_t copy,
                                           crossover_arguments* arguments) {
  (void)context, (void)rows;
  const struct workload* const w = workload;
  arguments->input_count = 1;
  arguments->inputs = (const void* const*)&w->data[2 * copy];
  arguments->output_count = 1;
  arguments->outputs = &w->data[2 * copy + 1];
  return CROSSOVER_OK;
}

static crossover_status workload_poison(void* context, void* workload, int64_t rows) {
  (void)context;
  const struct workload* const w = workload;
  return w->memory->fill(w->memory->state, w->data[1], 0xFF, (size_t)(rows * w->columns) * sizeof(float));
}

static crossover_status workload_check(void* context, void* workload, int64_t rows, const char* numerics,
                                       crossover_check* check) {
  (void)context, (void)numerics;
  const struct workload* const w = workload;
  float* const y = w->host + w->max_rows * w->columns;
  const crossover_status status =
      w->memory->download(w->memory->state, y, w->data[1], (size_t)(rows * w->columns) * sizeof(float));
  if (status != CROSSOVER_OK) return status;
  double difference = 0, norm = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* const x_row = w->host + r * w->columns;
    double highest = -DBL_MAX, sum = 0;
    for (int64_t i = 0; i < w->columns; ++i) highest = fmax(highest, (double)x_row[i]);
    for (int64_t i = 0; i < w->columns; ++i) sum += exp((double)x_row[i] - highest);
    for (int64_t i = 0; i < w->columns; ++i) {
      const double expected = exp((double)x_row[i] - highest) / sum, got = (double)y[r * w->columns + i];
      if (!isfinite(got)) {
        snprintf(check->detail->data, check->detail->capacity, "row %" PRId64 ", column %" PRId64 " is %g", r, i, got);
        return CROSSOVER_OK;
      }
      difference += (got - expected) * (got - expected);
      norm += expected * expected;
    }
  }
  check->error = sqrt(difference / norm);
  check->ok = check->error < 1e-5;
  if (!check->ok)
    snprintf(check->detail->data, check->detail->capacity, "relative error %g, not below 1e-5", check->error);
  return CROSSOVER_OK;
}

// ---- The tables

#define ARM(NAME, KERNEL)                                                                                          \
  {                                                                                                                \
    .struct_size = sizeof(crossover_arm), .name = NAME, .numerics = "f32", .flags = CROSSOVER_ARM_BATCH_INVARIANT, \
    .context = (void*)KERNEL, .supports = supports, .cost = cost, .prepare = prepare, .launch = launch,            \
    .destroy = destroy                                                                                             \
  }

static const crossover_arm three_pass_arm = ARM("three_pass", &three_pass_kernel);
static const crossover_arm blocked_arm = ARM("blocked", &blocked_kernel);
static const crossover_arm* const arms[] = {&three_pass_arm, &blocked_arm};
static const crossover_numerics f32 = {.struct_size = sizeof(crossover_numerics), .name = "f32"};
static const crossover_numerics* const numerics[] = {&f32};
static const crossover_operation softmax = {
    .struct_size = sizeof(crossover_operation),
    .name = "softmax",
    .numerics_count = 1,
    .numerics = numerics,
    .arm_count = sizeof arms / sizeof *arms,
    .arms = arms,
    .default_arms = default_arms,
    .normalise = normalise,
    .workload_bytes = workload_bytes,
    .workload_create = workload_create,
    .workload_arguments = workload_arguments,
    .workload_poison = workload_poison,
    .workload_check = workload_check,
    .workload_destroy = workload_destroy,
};
static const crossover_operation* const operations[] = {&softmax};
static const crossover_plugin plugin = {.struct_size = sizeof(crossover_plugin),
                                        .abi_version = CROSSOVER_ABI_VERSION,
                                        .operation_count = 1,
                                        .operations = operations};

const crossover_plugin* crossover_plugin_entry(void) { return &plugin; }
