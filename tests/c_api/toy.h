#ifndef CROSSOVER_TOY_H
#define CROSSOVER_TOY_H
// An operation of the tests: y[r] = w[0] * x[r], one f32 a row. Its arms are "plain" and "tiled/2"; "tiled/2" settles
// on a configuration and needs 256 bytes of workspace, and "elsewhere" can do nothing.

#include <crossover/crossover.h>

#ifdef __cplusplus
extern "C" {
#endif

// What the operation does from now on, and what it has done. Not thread-safe but for reading.
struct toy_state {
  crossover_status launch_status;         // of launch(), instead of running
  crossover_status normalise_status;      // of normalise(), with the message "the toy refuses"
  const char* config;                     // that tiled/2 settles on; NULL: "step=2"
  int32_t wrong;                          // not 0: tiled/2 computes nonsense
  int64_t prepared, destroyed, launched;  // calls
};
extern struct toy_state toy;

// Tables to copy and change. `fingerprint`: of all arms; NULL: none is given.
struct toy_tables {
  crossover_arm plain, tiled, elsewhere;
  crossover_numerics exact, rough;
  const crossover_arm* arms[3];
  const crossover_numerics* numerics[2];
  crossover_operation operation;
};
void toy_fill(struct toy_tables* tables, const char* name, const char* fingerprint);

#ifdef __cplusplus
}
#endif
#endif
