#ifndef CROSSOVER_CROSSOVER_H
#define CROSSOVER_CROSSOVER_H
// The C interface of crossover: C11, C++, and everything that calls C. dispatch/c/README.md is the introduction.
//
// Structs. The first member of every struct is struct_size: who fills it in sets it to sizeof of that struct. A field
// of value 0 (NULL) stands for its default; `reserved` ones are 0. Later versions append fields, and never into
// padding; a smaller struct of an older caller goes on working, and a larger one of a newer caller works as long as the
// fields that this library does not know are 0.
//
// Errors. A function that can fail returns a crossover_status and, unless that is CROSSOVER_OK, leaves a sentence for
// crossover_last_error() and its outputs as they were. No C++ exception leaves the library.
//
// Threads. Every function may be called from any thread, several at a time with the same handle, but for these: a
// handle is closed once, when no other call uses it; two launches at a time of the same handle have different
// workspaces and different arguments.
//
// Ownership. What a caller passes is read during the call, and copied if it is needed for longer, but for what the
// comments below say must outlive something. Texts are UTF-8 and end in NUL.

#include <stddef.h>
#include <stdint.h>
#include <string.h>

// NOLINTBEGIN(readability-identifier-naming)
#ifdef __cplusplus
#define CROSSOVER_NOEXCEPT noexcept
#else
#define CROSSOVER_NOEXCEPT
#endif
#define CROSSOVER_API __attribute__((visibility("default")))
#ifdef __cplusplus
extern "C" {
#endif

// Raised when a program or plug-in that was compiled for an older version would no longer work. Appended fields and new
// functions do not raise it. It is the library's SOVERSION.
#define CROSSOVER_ABI_VERSION 1
// Most inputs, and most outputs, of one launch.
#define CROSSOVER_MAX_OPERANDS 16

// Numbers are never reused.
typedef int32_t crossover_status;
enum {
  CROSSOVER_OK = 0,
  CROSSOVER_INVALID_ARGUMENT = 1,       // what was asked for cannot be
  CROSSOVER_NO_VERDICT = 2,             // nothing is known, and that was to be an error
  CROSSOVER_OUT_OF_MEMORY = 3,          // of the host or of the device
  CROSSOVER_CONFIG_NOT_RESTORABLE = 4,  // an arm cannot be brought back to the configuration that was measured
  CROSSOVER_STORE = 5,                  // the database cannot be used or written
  CROSSOVER_DEVICE = 6,                 // the device or its driver failed
  CROSSOVER_FAILED = 7,                 // anything else that went wrong on the way
  CROSSOVER_UNSUPPORTED = 8,            // the arm that was to run cannot do this launch
  CROSSOVER_WORKSPACE_TOO_SMALL = 9,    // ask crossover_workspace_bytes() again
  CROSSOVER_PLUGIN = 10                 // a file is no plug-in for this version
};

typedef int32_t crossover_launch_mode;
enum {
  CROSSOVER_LAUNCH_DEFAULT = 0,  // the device's own: eager on a CPU, graph on a GPU
  CROSSOVER_LAUNCH_EAGER = 1,
  CROSSOVER_LAUNCH_GRAPH = 2  // the stream captures
};

typedef int32_t crossover_l2;
enum { CROSSOVER_L2_COLD = 0, CROSSOVER_L2_HOT = 1 };

// How a choice came about; dispatch/README.md says when.
typedef int32_t crossover_origin;
enum {
  CROSSOVER_ORIGIN_TUNED = 1,
  CROSSOVER_ORIGIN_STALE = 2,
  CROSSOVER_ORIGIN_SHIPPED = 3,
  CROSSOVER_ORIGIN_FORCED = 4,
  CROSSOVER_ORIGIN_OUT_OF_RANGE = 5,
  CROSSOVER_ORIGIN_FALLBACK = 6
};

// What crossover_bind() does where nothing is known, unless CROSSOVER_ON_MISS says otherwise.
typedef int32_t crossover_on_miss;
enum {
  CROSSOVER_ON_MISS_TUNE = 0,      // measures now: the device had better be idle
  CROSSOVER_ON_MISS_RECORD = 1,    // leaves a request for `crossover tune --pending`
  CROSSOVER_ON_MISS_FALLBACK = 2,  // the default arm; nothing is written
  CROSSOVER_ON_MISS_ERROR = 3      // CROSSOVER_NO_VERDICT
};

// A device with the database: one per process and device.
typedef struct crossover_runtime crossover_runtime;
// One layer: an operation with one set of weights, ready to launch.
typedef struct crossover_bound crossover_bound;

// ---- What stays, what changes

// The weights of a layer, in the order that the operation documents. An absent optional one is NULL.
typedef struct crossover_weights {
  size_t struct_size;
  size_t count;
  const void* const* data;     // device memory, not copied: outlives the crossover_bound
  const int64_t* row_strides;  // in elements; 0, or no array: densely packed
} crossover_weights;

// Inputs and outputs of one launch, in the order that the operation documents; at most CROSSOVER_MAX_OPERANDS of each.
typedef struct crossover_arguments {
  size_t struct_size;
  size_t input_count;
  const void* const* inputs;  // device memory
  size_t output_count;
  void* const* outputs;
  const int64_t* input_row_strides;  // in elements; 0, or no array: densely packed
  const int64_t* output_row_strides;
} crossover_arguments;

// Where and how one launch runs. Zeros: no workspace, the default stream, the device's default launch mode.
typedef struct crossover_launch_options {
  size_t struct_size;
  void* workspace;  // device memory, aligned to 256 bytes; nobody else's while the launch runs
  size_t workspace_bytes;
  void* stream;  // cudaStream_t; NULL on a CPU, where a launch returns when its output is written
  crossover_launch_mode launch_mode;
  int32_t reserved;  // 0
} crossover_launch_options;

// What the caller allows. A filter: never a reason to measure again. Zeros: the defaults.
typedef struct crossover_policy {
  size_t struct_size;
  const char* allow;        // numerics classes, "a16,w16"; NULL: those that the operation allows by default
  const char* arms;         // names or families of the only arms to use; NULL: all
  uint64_t cached_bytes;    // that an arm may keep beside the weights
  int64_t workspace_bytes;  // that an arm may ask for; 0: 1 GiB; -1: none
  double max_error;         // relative L2 that an arm's measured error must not exceed; 0: no bound
  int32_t batch_invariant;  // not 0: one arm for every row count, whose rows do not depend on the row count
  int32_t extrapolate;      // not 0: the last segment goes on beyond the largest row count that was measured
} crossover_policy;

// ---- Opening, binding, launching

typedef struct crossover_open_options {
  size_t struct_size;
  const char* database;  // NULL: $CROSSOVER_DB, else $XDG_DATA_HOME/crossover/tuning.db, else below ~/.local/share
  const char* device;    // "cpu", "cuda:0"; NULL: the first GPU, else the CPU
  crossover_on_miss on_miss;
  crossover_l2 l2;     // what launches find in the last cache, when they are measured
  int64_t max_rows;    // largest row count that a miss measures; 0: 8192
  double budget_s;     // seconds for one problem and launch mode; 0: 10
  int32_t thorough;    // not 0: measures longer
  int32_t read_only;   // not 0: the database is never written; what a miss measures stays in memory
  uint64_t seed;       // of measuring; 0: from the process and the clock
  void* warn_context;  // for `warn`; both outlive the runtime and every crossover_bound of it
  // Any thread. `message` is valid during the call. NULL: one line on standard error, each text once.
  void (*warn)(void* warn_context, const char* message);
} crossover_open_options;

// Opens a device and the database. NULL options: the defaults. A database that cannot be used is one warning: nothing
// is then found, and what is tuned stays in memory. The environment variables of dispatch/README.md apply.
CROSSOVER_API crossover_status crossover_open(const crossover_open_options* options,
                                              crossover_runtime** runtime) CROSSOVER_NOEXCEPT;
// NULL does nothing. What was bound goes on working. A handle that was closed before is CROSSOVER_INVALID_ARGUMENT,
// until more than a thousand others have been closed after it; the same is so in every function that takes a handle.
CROSSOVER_API crossover_status crossover_close(crossover_runtime* runtime) CROSSOVER_NOEXCEPT;
// Makes what other threads and processes have stored since take effect; crossover_bind() does so once a second.
CROSSOVER_API crossover_status crossover_refresh(crossover_runtime* runtime) CROSSOVER_NOEXCEPT;

typedef struct crossover_bind_options {
  size_t struct_size;
  const char* operation;             // "fp8_block_linear", or one that was registered
  const char* problem;               // its attributes but for the row count: "n=7168,k=2048,dtype=bf16"
  const crossover_weights* weights;  // NULL: the operation has none
  const crossover_policy* policy;    // NULL: the defaults
} crossover_bind_options;

// When a layer is loaded: finds what is known of the problem on this device, or does what on_miss says, and makes the
// arms ready.
CROSSOVER_API crossover_status crossover_bind(crossover_runtime* runtime, const crossover_bind_options* options,
                                              crossover_bound** bound) CROSSOVER_NOEXCEPT;
// NULL does nothing. Before the weights go.
CROSSOVER_API crossover_status crossover_unbind(crossover_bound* bound) CROSSOVER_NOEXCEPT;
// Workspace that is enough for every arm of the current plan at up to `rows` rows; a multiple of 256.
CROSSOVER_API crossover_status crossover_workspace_bytes(const crossover_bound* bound, int64_t rows,
                                                         size_t* bytes) CROSSOVER_NOEXCEPT;

typedef struct crossover_choice {
  size_t struct_size;       // set by the caller; the rest by the library
  const char* arm;          // valid as long as the process
  const char* origin_name;  // "tuned", …; valid as long as the process
  crossover_origin origin;
  int32_t reserved;
} crossover_choice;

// For every batch: no lock, no allocation, no system call, unless they fail. 0 rows are answered as 1 is, and launch
// nothing.
CROSSOVER_API crossover_status crossover_select(const crossover_bound* bound, int64_t rows, crossover_launch_mode mode,
                                                crossover_choice* choice) CROSSOVER_NOEXCEPT;
// Runs the arm that crossover_select() would name. NULL options: zeros.
CROSSOVER_API crossover_status crossover_launch(const crossover_bound* bound, int64_t rows,
                                                const crossover_arguments* arguments,
                                                const crossover_launch_options* options) CROSSOVER_NOEXCEPT;
// Why that arm, as one JSON document with the fields of `crossover select --explain --json` but for what overrides do.
// *json is freed with crossover_free().
CROSSOVER_API crossover_status crossover_explain(const crossover_bound* bound, int64_t rows, crossover_launch_mode mode,
                                                 char** json) CROSSOVER_NOEXCEPT;

typedef struct crossover_tune_options {
  size_t struct_size;
  const char* operation;
  const char* problem;
  int64_t max_rows;  // 0: as the runtime was opened; so are budget_s and seed
  double budget_s;
  int32_t thorough;  // not 0: measures longer
  crossover_launch_mode launch_mode;
  crossover_l2 l2;
  const char* keep_arms;  // names or families that are measured however slow they are
  uint64_t seed;
} crossover_tune_options;

// Measures every eligible arm of a problem now, on an idle device, and stores it. json (may be NULL): the fields of one
// verdict of `crossover tune --json` and not_stored (why it is only in memory, or null); freed with crossover_free().
CROSSOVER_API crossover_status crossover_tune(crossover_runtime* runtime, const crossover_tune_options* options,
                                              char** json) CROSSOVER_NOEXCEPT;
CROSSOVER_API void crossover_free(char* json) CROSSOVER_NOEXCEPT;

// ---- Errors and versions

// What went wrong in the last call of this thread that failed: one sentence, and what to do about it where that is
// known.
// "" where none has failed. Valid until the next call of this thread that fails.
CROSSOVER_API const char* crossover_last_error(void) CROSSOVER_NOEXCEPT;
// "invalid argument", …; valid as long as the process.
CROSSOVER_API const char* crossover_status_text(crossover_status status) CROSSOVER_NOEXCEPT;
CROSSOVER_API uint32_t crossover_abi_version(void) CROSSOVER_NOEXCEPT;  // CROSSOVER_ABI_VERSION of the library
CROSSOVER_API const char* crossover_version(void) CROSSOVER_NOEXCEPT;   // "0.1.0"

// ---- Your own operation and arms
//
// Tables of functions, which crossover_register_operation() takes, or which a plug-in hands over. The library copies
// tables, arrays and texts; functions, and what the contexts point to, stay until the process ends, because nothing
// that was registered ever leaves. Unless a comment says otherwise the functions may be called from any thread, several
// at a time. They return CROSSOVER_OK, or another status and a sentence in `message`. None may throw or longjmp out.
//
// Structs that the library passes to a function, and what they point to, are valid during the call. Their struct_size
// is that of the library: a function that uses a field which was appended later looks at it first.

// Room for a text that a function gives back: at most capacity - 1 bytes and a NUL. One that is longer is an error.
typedef struct crossover_text {
  size_t struct_size;
  char* data;  // "" when the function is called
  size_t capacity;
} crossover_text;

// A problem as arms see it: normalised attributes, sorted by key.
typedef struct crossover_problem {
  size_t struct_size;
  const char* operation;
  size_t count;
  const char* const* keys;
  const char* const* values;
} crossover_problem;

// The value of an attribute, NULL if the problem has none of that name.
static inline const char* crossover_attribute(const crossover_problem* problem, const char* key) {
  for (size_t i = 0; i < problem->count; ++i) {
    if (strcmp(problem->keys[i], key) == 0) return problem->values[i];
  }
  return NULL;
}

typedef struct crossover_device {
  size_t struct_size;
  const char* kind;  // "cpu", "cuda"
  const char* model;
  const char* compute_capability;  // "9.0"; on a CPU its x86-64 level or "generic"
  int32_t sm_count;                // on a CPU the hardware threads that this process may use
  int64_t l2_bytes;                // on a CPU the last-level cache
  int64_t memory_gib;
} crossover_device;

// Filled in by the function; as it is passed: eligible at every row count.
typedef struct crossover_eligibility {
  size_t struct_size;
  int32_t eligible;
  int64_t min_rows, max_rows, rows_multiple_of;  // at which other row counts it is eligible too
  crossover_text* reason;                        // why not; names the value at fault: "columns % 8 != 0 (columns = 9)"
} crossover_eligibility;

// Filled in by the function; as it is passed: zeros.
typedef struct crossover_cost {
  size_t struct_size;
  uint64_t workspace_bytes;  // scratch for one launch; more rows never need less
  uint64_t cached_bytes;     // kept as long as the arm is prepared, beside the weights
  double flops;              // useful floating-point operations
  double bytes_moved;        // least bytes through device memory
} crossover_cost;

typedef struct crossover_prepare {
  size_t struct_size;
  const crossover_problem* problem;
  const crossover_weights* weights;  // the data outlives what is prepared
  const char* config;                // "": find the best one; else restore exactly this
  int64_t max_rows;                  // to find one for
} crossover_prepare;

enum {
  CROSSOVER_ARM_BATCH_INVARIANT = 1,   // a row's bits do not depend on the row count
  CROSSOVER_ARM_NOT_CAPTURE_SAFE = 2,  // launch() must not run while its stream captures
  CROSSOVER_ARM_LIBRARY = 4            // a vendor's library does the main work
};

typedef struct crossover_arm {
  size_t struct_size;
  const char* name;         // "online", or "family/variant"; stable: it is the arm's identity
  const char* fingerprint;  // any text that changes when the code that runs does; NULL: the build-id of launch's module
  const char* numerics;     // one of the operation's classes
  uint64_t flags;           // CROSSOVER_ARM_…
  void* context;
  // Whether the arm can do `rows` rows of the problem on that device. A status that is not OK: it cannot.
  crossover_status (*supports)(void* context, const crossover_problem* problem, int64_t rows,
                               const crossover_device* device, crossover_eligibility* eligibility);
  // NULL: zeros.
  crossover_status (*cost)(void* context, const crossover_problem* problem, int64_t rows, crossover_cost* cost);
  // Makes the arm ready for one set of weights. `config`: what it settled on, as text that restores exactly that; left
  // empty it is "-", for an arm without choices. *prepared may be NULL. CROSSOVER_CONFIG_NOT_RESTORABLE where
  // request->config is not one of this arm's. NULL function: nothing to make ready.
  crossover_status (*prepare)(void* context, const crossover_prepare* request, void** prepared, crossover_text* config,
                              crossover_text* message);
  // Enqueues on options->stream and returns; on a CPU returns when the output is written. At least 1 row. Never
  // allocates device memory, never synchronises. One thread at a time per workspace.
  crossover_status (*launch)(void* context, void* prepared, int64_t rows, const crossover_arguments* arguments,
                             const crossover_launch_options* options);
  void (*destroy)(void* context, void* prepared);  // NULL: nothing to free
} crossover_arm;

enum { CROSSOVER_NUMERICS_OPT_IN = 1 };  // used only where a policy allows the class by name

typedef struct crossover_numerics {
  size_t struct_size;
  const char* name;
  uint64_t flags;  // CROSSOVER_NUMERICS_…
} crossover_numerics;

// What a program would run without this library: by rows, ascending. Filled in by the function.
typedef struct crossover_default_arms {
  size_t struct_size;
  size_t capacity;
  int64_t* up_to;     // last row count of each; that of the last is INT64_MAX
  const char** arms;  // names; the texts stay valid until the next call
  size_t count;
} crossover_default_arms;

typedef struct crossover_tile_edges {
  size_t struct_size;
  size_t capacity;
  int64_t* rows;
  size_t count;
} crossover_tile_edges;

// Device memory for test data. One thread at a time, during workload_create() and as long as the workload lives.
typedef struct crossover_memory {
  size_t struct_size;
  void* state;
  crossover_status (*allocate)(void* state, size_t bytes, void** data);  // aligned to 256 bytes
  void (*release)(void* state, void* data);
  crossover_status (*upload)(void* state, void* device_destination, const void* host_source, size_t bytes);
  crossover_status (*download)(void* state, void* host_destination, const void* device_source, size_t bytes);
  crossover_status (*fill)(void* state, void* device_destination, uint8_t byte, size_t bytes);
} crossover_memory;

typedef struct crossover_workload {
  size_t struct_size;
  const crossover_problem* problem;
  const crossover_memory* memory;  // the struct stays valid as long as the workload
  int64_t max_rows;
  int32_t copies;  // of every operand, so that a tuner can rotate through more than the cache holds
  crossover_launch_mode launch_mode;
  crossover_l2 l2;
  const char* fill;  // distribution of the values: "normal"
  uint64_t seed;
} crossover_workload;

// Comparison of the outputs with the reference. Filled in by the function.
typedef struct crossover_check {
  size_t struct_size;
  int32_t ok;              // 0 as it is passed; NaN where it should not be, or an element never written, is not ok
  double error;            // relative L2 against a reference in f64; NaN if it could not be computed
  crossover_text* detail;  // names the first bad element
} crossover_check;

typedef struct crossover_operation {
  size_t struct_size;
  const char* name;  // letters, digits, _ and -
  void* context;
  size_t numerics_count;  // at least 1; the most exact first
  const crossover_numerics* const* numerics;
  size_t arm_count;  // at least 1
  const crossover_arm* const* arms;
  crossover_status (*default_arms)(void* context, const crossover_problem* problem, const crossover_device* device,
                                   crossover_default_arms* defaults, crossover_text* message);
  // Fills in defaults, makes values canonical: writes all attributes of the problem as "k=v,k=v", which normalise to
  // themselves. NULL: any attributes are taken as they are.
  crossover_status (*normalise)(void* context, const crossover_problem* problem, crossover_text* attributes,
                                crossover_text* message);
  // Row counts at which an arm's tiling has an edge, to be measured too. NULL: none.
  crossover_status (*tile_edges)(void* context, const crossover_problem* problem, crossover_tile_edges* edges);

  // Test data. A workload is used by one thread at a time; its functions get what workload_create() gave.
  crossover_status (*workload_bytes)(void* context, const crossover_problem* problem, int64_t max_rows,
                                     uint64_t* bytes_per_copy);
  crossover_status (*workload_create)(void* context, const crossover_workload* request, void** workload,
                                      crossover_text* message);
  // NULL: the operation has no weights. The arrays stay valid until the next call.
  crossover_status (*workload_weights)(void* context, void* workload, int32_t copy, crossover_weights* weights);
  // 1 to max_rows rows; the same rows and copy always have the same data. The arrays stay valid until the next call.
  crossover_status (*workload_arguments)(void* context, void* workload, int64_t rows, int32_t copy,
                                         crossover_arguments* arguments);
  // Fills the first `rows` rows of the outputs of copy 0 with a pattern that no arm writes.
  crossover_status (*workload_poison)(void* context, void* workload, int64_t rows);
  // Compares the outputs of copy 0 with the reference, at the bound of that numerics class.
  crossover_status (*workload_check)(void* context, void* workload, int64_t rows, const char* numerics,
                                     crossover_check* check);
  void (*workload_destroy)(void* context, void* workload);  // NULL: nothing to free
} crossover_operation;

// Makes the operation known by its name to every runtime of the process. An operation of that name, the same one
// included, is CROSSOVER_INVALID_ARGUMENT.
CROSSOVER_API crossover_status crossover_register_operation(const crossover_operation* operation) CROSSOVER_NOEXCEPT;

// ---- Plug-ins: operations in a shared library, for crossover_load_plugin() and `crossover --plugin FILE`

// What a plug-in gives back; stays until the process ends.
typedef struct crossover_plugin {
  size_t struct_size;
  uint32_t abi_version;    // CROSSOVER_ABI_VERSION that it was compiled for
  size_t operation_count;  // at least 1; all are registered, or none
  const crossover_operation* const* operations;
} crossover_plugin;

// The function that a plug-in defines, and the only one that is looked for; the library defines none. NULL: the plug-in
// cannot work here. A plug-in calls nothing of this library and does not link it.
__attribute__((visibility("default"))) const crossover_plugin* crossover_plugin_entry(void);

// Loads `path` (a path, never searched for) and registers its operations. Loaded plug-ins are never unloaded. A file
// that is missing or is no plug-in of this CROSSOVER_ABI_VERSION is CROSSOVER_PLUGIN.
CROSSOVER_API crossover_status crossover_load_plugin(const char* path) CROSSOVER_NOEXCEPT;

#ifdef __cplusplus
}
#endif
// NOLINTEND(readability-identifier-naming)
#endif
