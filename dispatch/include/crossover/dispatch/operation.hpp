#pragma once
// The interfaces that an engine implements to bring its own operations and arms. The built-in operation uses nothing
// else.
//
// Thread rules. Everything const may be called from any thread at the same time. Prepared::launch is called by one
// thread at a time per workspace; two threads may launch the same Prepared with different workspaces and arguments.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/dispatch/problem.hpp"

namespace crossover {

// A matrix in device memory as an arm sees it: rows of elements, row_stride elements apart. 0 means densely packed.
// Not owned. Element types are attributes of the problem.
struct Operand {
  void* data = nullptr;
  std::int64_t row_stride = 0;
};
struct ConstOperand {
  const void* data = nullptr;
  std::int64_t row_stride = 0;
};

// What stays the same between launches. The operation documents the order of its operands; an absent optional one has a
// null pointer. The memory must outlive every Prepared made from it.
struct Weights {
  std::vector<ConstOperand> operands;
};

// What changes with every launch. The operation documents the order.
struct Arguments {
  std::span<const ConstOperand> inputs;
  std::span<const Operand> outputs;
};

// Scratch in device memory, at least Cost::workspace_bytes, aligned to 256 bytes. Owned by the caller.
struct Workspace {
  void* data = nullptr;
  std::size_t bytes = 0;
};

// cudaStream_t on CUDA; null on the CPU, where a launch returns when its output is written.
struct Stream {
  void* handle = nullptr;
};

// Result of a launch. `message` has static storage duration; `detail` is the failing library's own code.
struct Status {
  enum class Code : std::uint8_t { ok, invalid, unsupported, workspace_too_small, out_of_memory, device_failed };
  Code code = Code::ok;
  std::int32_t detail = 0;
  const char* message = "";
  bool ok() const noexcept { return code == Code::ok; }
};

// Identity: the stable name, and a digest of what it executes. Both matter: evidence holds for exactly this pair.
struct ArmId {
  std::string name;         // "gemv_warp", or "family/variant": "tensor_core/64x128"
  std::string fingerprint;  // any text that changes when the code that runs changes
  auto operator<=>(const ArmId&) const = default;
  bool operator==(const ArmId&) const = default;
};
// "tensor_core" for "tensor_core/64x128"; the name itself where there is no variant.
std::string_view family(std::string_view arm_name) noexcept;
// Whether `arm_name` is what `name_or_family` names.
bool names_arm(std::string_view name_or_family, std::string_view arm_name) noexcept;

// The row counts an arm takes.
struct RowDomain {
  Rows min = 1;
  Rows max = kMaxRows;
  Rows multiple = 1;  // rows % multiple == 0
  bool contains(Rows rows) const noexcept {
    return rows >= min && rows <= max && (multiple == 1 || rows % multiple == 0);
  }
  bool operator==(const RowDomain&) const = default;
};

// Whether an arm can do a problem. The reason is for people and names the value at fault: "N % 8 != 0 (N = 2113)".
// Where it is eligible, `rows` says at which other row counts it is too, so that a dispatcher need not ask per call.
struct Eligibility {
  bool eligible = true;
  std::string reason;
  RowDomain rows;
  explicit operator bool() const noexcept { return eligible; }
  static Eligibility no(std::string reason) { return {false, std::move(reason), {}}; }
};

// What a launch costs besides time: labels for people, filters for policies, and the roofline.
struct Cost {
  std::size_t workspace_bytes = 0;  // scratch for one launch at these rows; more rows never need less
  std::size_t cached_bytes = 0;     // kept as long as the Prepared lives, beside the weights themselves
  double flops = 0;                 // useful floating-point operations, 2·M·N·K for a matrix product
  double bytes_moved = 0;           // least bytes through device memory
};

// An arm made ready for one set of weights; holds whatever it derived from them. Dies before the weights do.
class Prepared {
 public:
  virtual ~Prepared() = default;
  // What the arm settled on, as text that prepare() restores exactly. Never empty: an arm without choices says "-".
  virtual std::string config() const = 0;
  // Enqueues on `stream` and returns. rows = 0 does nothing and is ok. Never allocates device memory, never
  // synchronises.
  virtual Status launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream stream) noexcept = 0;
};

class Arm {
 public:
  virtual ~Arm() = default;
  virtual const ArmId& id() const noexcept = 0;
  virtual std::string_view numerics() const noexcept = 0;      // one of Operation::numerics()
  virtual bool batch_invariant() const noexcept = 0;           // a row's bits do not depend on the row count
  virtual bool capture_safe() const noexcept { return true; }  // launch() may run while its stream captures
  virtual bool library() const noexcept {
    return false;
  }  // a vendor library does the main work (see Verdict::threshold)
  virtual Eligibility supports(const Problem& problem, Rows rows, const Device& device) const = 0;
  virtual Cost cost(const Problem& problem, Rows rows) const = 0;
  // An empty config: find the best one for 1…max_rows (may time candidates). Otherwise restore exactly that, or throw
  // ConfigNotRestorable. Throws OutOfMemory, DeviceError, InvalidArgument (weights that do not fit the problem).
  virtual std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                            Rows max_rows) const = 0;
};

// Device memory as workloads and tuners need it. One thread at a time.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // aligned to 256 bytes; throws OutOfMemory
  virtual void release(void* data) noexcept = 0;
  virtual void upload(void* device_destination, const void* host_source, std::size_t bytes) = 0;
  virtual void download(void* host_destination, const void* device_source, std::size_t bytes) = 0;
  virtual void copy(void* device_destination, const void* device_source, std::size_t bytes) = 0;
  virtual void fill(void* device_destination, std::uint8_t byte, std::size_t bytes) = 0;
  virtual std::size_t available_bytes() = 0;
  // Looks at `count` 16-bit elements where they lie: the index of the first whose bits under `mask` are at least
  // `least`, or `count`. Nothing if this memory has to be downloaded to be looked at.
  virtual std::optional<std::size_t> find16(const void* /*device_data*/, std::size_t /*count*/, std::uint16_t /*mask*/,
                                            std::uint16_t /*least*/) {
    return std::nullopt;
  }
};

// Comparison of an output with the reference. NaN where it should not be, or an element never written, is not ok.
struct Check {
  bool ok = false;
  double error = 0;    // relative L2 against the f64 reference; NaN if it could not be computed
  std::string detail;  // for people; names the first bad element where not ok
};

// Test data of one problem: `copies` of every operand, so that a tuner can rotate through more than the cache holds.
class Workload {
 public:
  virtual ~Workload() = default;
  virtual const Weights& weights(int copy) const = 0;
  // Valid until the workload dies. 1 ≤ rows ≤ max_rows. Rows r of two row counts hold the same data.
  virtual Arguments arguments(Rows rows, int copy) const = 0;
  // Fills the first `rows` rows of the outputs of copy 0, and whatever lies between them, with a pattern no arm writes.
  virtual void poison(Rows rows) = 0;
  // Compares the outputs of copy 0 with the reference at the bound of that numerics class. Above a documented size a
  // sample of the elements is compared with f64, and all of them are still looked at for NaN and for not being written.
  virtual Check check(Rows rows, std::string_view numerics) = 0;
  virtual std::size_t bytes_per_copy() const noexcept = 0;
};

// Numerics classes in the operation's own order, the most exact first.
struct NumericsClass {
  std::string name;
  bool allowed_by_default = true;
  bool operator==(const NumericsClass&) const = default;
};

// The default arm up to and including `up_to` rows; the last entry's up_to is kMaxRows.
struct DefaultArm {
  Rows up_to = kMaxRows;
  std::string arm;
  bool operator==(const DefaultArm&) const = default;
};

class Operation {
 public:
  virtual ~Operation() = default;
  virtual std::string_view name() const noexcept = 0;
  virtual std::span<const Arm* const> arms() const noexcept = 0;  // names are unique; the order means nothing
  virtual std::span<const NumericsClass> numerics() const noexcept = 0;
  // What an engine would run without us, by rows, ascending; each is always eligible there and always measured.
  // Data, not a function of rows, so that a plan can hold it and a database can record it.
  virtual std::vector<DefaultArm> default_arms(const Problem& problem, const Device& device) const = 0;
  // Fills in defaults, makes values canonical. Throws InvalidArgument with one clear sentence.
  virtual Problem normalise(const Problem& problem) const = 0;
  // Row counts at which some arm's tiling has an edge; the tuner adds them to its grid.
  virtual std::vector<Rows> tile_edges(const Problem& problem) const {
    static_cast<void>(problem);
    return {};
  }
  virtual std::size_t workload_bytes_per_copy(const Problem& problem, Rows max_rows) const = 0;
  virtual std::unique_ptr<Workload> workload(const Problem& problem, const Regime& regime, Memory& memory,
                                             Rows max_rows, int copies, std::uint64_t seed) const = 0;

  const Arm* find(std::string_view arm_name) const noexcept;  // null if there is none of that exact name
};

// The default arm at `rows`; `defaults` as Operation::default_arms gives them.
const std::string& default_arm(std::span<const DefaultArm> defaults, Rows rows);

}  // namespace crossover
