// A plug-in whose arms misbehave. Its operation is the toy's, and "right" is what the toy's arm "plain" does. KIND: 0
// all arms; 1: as 0, but the entry point crashes; 2: the default arm is the one that crashes; 3: one arm crashes only
// when it has been launched kLate times, beside "right".

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "toy.h"

enum { kLate = 30, kArms = 6 };

static crossover_status (*right)(void*, void*, int64_t, const crossover_arguments*, const crossover_launch_options*);

// Slower than "right", so that there is no doubt about the verdict.
static crossover_status launch_default(void* context, void* prepared, int64_t rows,
                                       const crossover_arguments* arguments, const crossover_launch_options* options) {
  for (int i = 0; i < 20; ++i) right(context, prepared, rows, arguments, options);
  return right(context, prepared, rows, arguments, options);
}

static crossover_status launch_wrong(void* context, void* prepared, int64_t rows, const crossover_arguments* arguments,
                                     const crossover_launch_options* options) {
  const crossover_status status = right(context, prepared, rows, arguments, options);
  ((float*)arguments->outputs[0])[rows - 1] += 1;
  return status;
}

static crossover_status launch_crash(void* context, void* prepared, int64_t rows, const crossover_arguments* arguments,
                                     const crossover_launch_options* options) {
  (void)context, (void)prepared, (void)rows, (void)arguments, (void)options;
  raise(SIGSEGV);
  return CROSSOVER_OK;
}

static crossover_status launch_endless(void* context, void* prepared, int64_t rows,
                                       const crossover_arguments* arguments, const crossover_launch_options* options) {
  (void)context, (void)prepared, (void)rows, (void)arguments, (void)options;
  volatile int more = 1;
  while (more != 0) {
  }
  return CROSSOVER_OK;
}

static crossover_status launch_hungry(void* context, void* prepared, int64_t rows, const crossover_arguments* arguments,
                                      const crossover_launch_options* options) {
  (void)context, (void)prepared, (void)rows, (void)arguments, (void)options;
  enum { kPiece = 1 << 22 };
  volatile int more = 1;
  while (more != 0) {
    void* const piece = mmap(NULL, kPiece, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(piece, 1, kPiece);  // a fault where there was none left
  }
  return CROSSOVER_OK;
}

static crossover_status launch_late(void* context, void* prepared, int64_t rows, const crossover_arguments* arguments,
                                    const crossover_launch_options* options) {
  static int launched = 0;
  if (++launched >= kLate) abort();
  return right(context, prepared, rows, arguments, options);
}

static crossover_status launch_leave(void* context, void* prepared, int64_t rows, const crossover_arguments* arguments,
                                     const crossover_launch_options* options) {
  (void)context, (void)prepared, (void)rows, (void)arguments, (void)options;
  exit(0);
}

static crossover_status default_arms(void* context, const crossover_problem* problem, const crossover_device* device,
                                     crossover_default_arms* defaults, crossover_text* message) {
  (void)context, (void)problem, (void)device, (void)message;
  defaults->up_to[0] = INT64_MAX;
  defaults->arms[0] = KIND == 2 ? "crash" : "default";
  defaults->count = 1;
  return CROSSOVER_OK;
}

const crossover_plugin* crossover_plugin_entry(void) {
  static struct toy_tables tables;
  static crossover_arm own[kArms + 1];
  static const crossover_arm* arms[kArms + 1];
  static const crossover_operation* operations[] = {&tables.operation};
  static const crossover_plugin plugin = {sizeof plugin, CROSSOVER_ABI_VERSION, 1, operations};
  if (KIND == 1) raise(SIGSEGV);
  toy_fill(&tables, "untrusted", "v1");
  right = tables.plain.launch;
  const struct {
    const char* name;
    crossover_status (*launch)(void*, void*, int64_t, const crossover_arguments*, const crossover_launch_options*);
  } all[] = {{"default", launch_default}, {"right", right},
             {"wrong", launch_wrong},     {"crash", KIND == 3 ? launch_late : launch_crash},
             {"leave", launch_leave},     {"endless", launch_endless},
             {"hungry", launch_hungry}};
  size_t count = 0;
  for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
    if (KIND >= 2 && i != 0 && i != 1 && i != 3) continue;
    if (getenv("UNTRUSTED_NOT_HUNGRY") != NULL && all[i].launch == launch_hungry) continue;
    own[count] = tables.plain;
    own[count].name = all[i].name;
    own[count].launch = all[i].launch;
    arms[count] = &own[count];
    ++count;
  }
  tables.operation.arms = arms;
  tables.operation.arm_count = count;
  tables.operation.default_arms = default_arms;
  return &plugin;
}
