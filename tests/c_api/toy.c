#include "toy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct toy_state toy;

static crossover_status normalise(void* context, const crossover_problem* problem, crossover_text* attributes,
                                  crossover_text* message) {
  (void)context;
  if (toy.normalise_status != CROSSOVER_OK) {
    snprintf(message->data, message->capacity, "the toy refuses");
    return toy.normalise_status;
  }
  const char* const unit = crossover_attribute(problem, "unit");
  snprintf(attributes->data, attributes->capacity, "unit=%s", unit != NULL ? unit : "one");
  return CROSSOVER_OK;
}

static crossover_status supports(void* context, const crossover_problem* problem, int64_t rows,
                                 const crossover_device* device, crossover_eligibility* eligibility) {
  (void)problem, (void)rows, (void)device;
  if (context == NULL) return CROSSOVER_OK;
  eligibility->eligible = 0;
  snprintf(eligibility->reason->data, eligibility->reason->capacity, "%s", (const char*)context);
  return CROSSOVER_OK;
}

static crossover_status tiled_cost(void* context, const crossover_problem* problem, int64_t rows,
                                   crossover_cost* cost) {
  (void)context, (void)problem;
  cost->workspace_bytes = 256;
  cost->flops = (double)rows;
  return CROSSOVER_OK;
}

struct prepared {
  const float* w;
};

static crossover_status prepare_plain(void* context, const crossover_prepare* request, void** prepared,
                                      crossover_text* config, crossover_text* message) {
  (void)context, (void)config;
  if (request->weights->count != 1 || request->weights->data[0] == NULL) {
    snprintf(message->data, message->capacity, "the weights are w");
    return CROSSOVER_INVALID_ARGUMENT;
  }
  struct prepared* const p = malloc(sizeof *p);
  if (p == NULL) return CROSSOVER_OUT_OF_MEMORY;
  p->w = request->weights->data[0];
  *prepared = p;
  ++toy.prepared;
  return CROSSOVER_OK;
}

static crossover_status prepare_tiled(void* context, const crossover_prepare* request, void** prepared,
                                      crossover_text* config, crossover_text* message) {
  const char* const settled = toy.config != NULL ? toy.config : "step=2";
  if (*request->config != '\0' && strcmp(request->config, settled) != 0) {
    snprintf(message->data, message->capacity, "there is no configuration '%s'", request->config);
    return CROSSOVER_CONFIG_NOT_RESTORABLE;
  }
  snprintf(config->data, config->capacity, "%s", settled);
  return prepare_plain(context, request, prepared, config, message);
}

static crossover_status launch(void* context, void* prepared, int64_t rows, const crossover_arguments* arguments,
                               const crossover_launch_options* options) {
  (void)context, (void)options;
  ++toy.launched;
  if (toy.launch_status != CROSSOVER_OK) return toy.launch_status;
  if (arguments->input_count != 1 || arguments->output_count != 1) return CROSSOVER_INVALID_ARGUMENT;
  const float* const x = arguments->inputs[0];
  float* const y = arguments->outputs[0];
  if (x == NULL || y == NULL) return CROSSOVER_INVALID_ARGUMENT;
  const float w = ((const struct prepared*)prepared)->w[0];
  for (int64_t r = 0; r < rows; ++r) y[r] = w * x[r];
  return CROSSOVER_OK;
}

static crossover_status launch_tiled(void* context, void* prepared, int64_t rows, const crossover_arguments* arguments,
                                     const crossover_launch_options* options) {
  if (options->workspace_bytes < 256) return CROSSOVER_WORKSPACE_TOO_SMALL;
  memset(options->workspace, 1, 256);
  const crossover_status status = launch(context, prepared, rows, arguments, options);
  if (status == CROSSOVER_OK && toy.wrong != 0) ((float*)arguments->outputs[0])[0] += 1;
  return status;
}

static void destroy(void* context, void* prepared) {
  (void)context;
  free(prepared);
  ++toy.destroyed;
}

static crossover_status default_arms(void* context, const crossover_problem* problem, const crossover_device* device,
                                     crossover_default_arms* defaults, crossover_text* message) {
  (void)context, (void)problem, (void)device, (void)message;
  defaults->up_to[0] = 4;
  defaults->arms[0] = "plain";
  defaults->up_to[1] = INT64_MAX;
  defaults->arms[1] = "tiled/2";
  defaults->count = 2;
  return CROSSOVER_OK;
}

static crossover_status tile_edges(void* context, const crossover_problem* problem, crossover_tile_edges* edges) {
  (void)context, (void)problem;
  edges->rows[0] = 5;
  edges->count = 1;
  return CROSSOVER_OK;
}

struct workload {
  const crossover_memory* memory;
  int32_t copies;
  void** data;  // w, x and y of every copy
};

static float value_of(int64_t row) { return (float)(row % 100) - 50.5F; }

static crossover_status workload_bytes(void* context, const crossover_problem* problem, int64_t max_rows,
                                       uint64_t* bytes_per_copy) {
  (void)context, (void)problem;
  *bytes_per_copy = 8 * (uint64_t)max_rows + 4;
  return CROSSOVER_OK;
}

static void workload_destroy(void* context, void* data) {
  (void)context;
  struct workload* const w = data;
  for (int32_t i = 0; i < 3 * w->copies; ++i) w->memory->release(w->memory->state, w->data[i]);
  free(w->data);
  free(w);
}

static crossover_status workload_create(void* context, const crossover_workload* request, void** workload,
                                        crossover_text* message) {
  (void)message;
  const crossover_memory* const memory = request->memory;
  const size_t bytes = (size_t)request->max_rows * sizeof(float);
  struct workload* const w = calloc(1, sizeof *w);
  float* const x = malloc(bytes);
  *w = (struct workload){memory, request->copies, calloc(3 * (size_t)request->copies, sizeof(void*))};
  for (int64_t r = 0; r < request->max_rows; ++r) x[r] = value_of(r);
  crossover_status status = CROSSOVER_OK;
  const float three = 3;
  for (int32_t i = 0; status == CROSSOVER_OK && i < w->copies; ++i) {
    void** const copy = w->data + 3 * i;
    for (int j = 0; status == CROSSOVER_OK && j < 3; ++j)
      status = memory->allocate(memory->state, j == 0 ? sizeof three : bytes, &copy[j]);
    if (status != CROSSOVER_OK) break;
    memory->upload(memory->state, copy[0], &three, sizeof three);
    memory->upload(memory->state, copy[1], x, bytes);
  }
  free(x);
  if (status != CROSSOVER_OK) {
    workload_destroy(context, w);
    return status;
  }
  *workload = w;
  return CROSSOVER_OK;
}

static crossover_status workload_weights(void* context, void* workload, int32_t copy, crossover_weights* weights) {
  (void)context;
  weights->count = 1;
  weights->data = (const void* const*)(((struct workload*)workload)->data + 3 * copy);
  return CROSSOVER_OK;
}

static crossover_status workload_arguments(void* context, void* workload, int64_t rows, int32_t copy,
                                           crossover_arguments* arguments) {
  (void)context, (void)rows;
  void** const data = ((struct workload*)workload)->data + 3 * copy;
  arguments->input_count = 1;
  arguments->inputs = (const void* const*)(data + 1);
  arguments->output_count = 1;
  arguments->outputs = data + 2;
  return CROSSOVER_OK;
}

static crossover_status workload_poison(void* context, void* workload, int64_t rows) {
  (void)context;
  const struct workload* const w = workload;
  return w->memory->fill(w->memory->state, w->data[2], 0xFF, (size_t)rows * sizeof(float));
}

static crossover_status workload_check(void* context, void* workload, int64_t rows, const char* numerics,
                                       crossover_check* check) {
  (void)context, (void)numerics;
  const struct workload* const w = workload;
  float* const y = malloc((size_t)rows * sizeof(float));
  w->memory->download(w->memory->state, y, w->data[2], (size_t)rows * sizeof(float));
  check->ok = 1;
  check->error = 0;
  for (int64_t r = 0; r < rows; ++r) {
    if (y[r] == 3 * value_of(r)) continue;
    check->ok = 0;
    check->error = 1;
    snprintf(check->detail->data, check->detail->capacity, "row %d is wrong", (int)r);
    break;
  }
  free(y);
  return CROSSOVER_OK;
}

void toy_fill(struct toy_tables* tables, const char* name, const char* fingerprint) {
  static char nothing[] = "this arm can do nothing (unit = any)";
  *tables = (struct toy_tables){
      .plain = {.struct_size = sizeof(crossover_arm),
                .name = "plain",
                .fingerprint = fingerprint,
                .numerics = "exact",
                .flags = CROSSOVER_ARM_BATCH_INVARIANT,
                .supports = supports,
                .prepare = prepare_plain,
                .launch = launch,
                .destroy = destroy},
      .exact = {.struct_size = sizeof(crossover_numerics), .name = "exact"},
      .rough = {.struct_size = sizeof(crossover_numerics), .name = "rough", .flags = CROSSOVER_NUMERICS_OPT_IN},
      .operation = {.struct_size = sizeof(crossover_operation),
                    .name = name,
                    .numerics_count = 2,
                    .numerics = tables->numerics,
                    .arm_count = 3,
                    .arms = tables->arms,
                    .default_arms = default_arms,
                    .normalise = normalise,
                    .tile_edges = tile_edges,
                    .workload_bytes = workload_bytes,
                    .workload_create = workload_create,
                    .workload_weights = workload_weights,
                    .workload_arguments = workload_arguments,
                    .workload_poison = workload_poison,
                    .workload_check = workload_check,
                    .workload_destroy = workload_destroy}};
  tables->tiled = tables->elsewhere = tables->plain;
  tables->tiled.name = "tiled/2";
  tables->tiled.cost = tiled_cost;
  tables->tiled.prepare = prepare_tiled;
  tables->tiled.launch = launch_tiled;
  tables->elsewhere.name = "elsewhere";
  tables->elsewhere.numerics = "rough";
  tables->elsewhere.context = nothing;
  tables->arms[0] = &tables->plain;
  tables->arms[1] = &tables->tiled;
  tables->arms[2] = &tables->elsewhere;
  tables->numerics[0] = &tables->exact;
  tables->numerics[1] = &tables->rough;
}

// What was compiled must stay as it is: plug-ins hold these, and no function of the library takes them.
_Static_assert(sizeof(crossover_plugin) == 32 && offsetof(crossover_plugin, abi_version) == 8 &&
                   offsetof(crossover_plugin, operation_count) == 16 && offsetof(crossover_plugin, operations) == 24,
               "the layout of crossover_plugin");
