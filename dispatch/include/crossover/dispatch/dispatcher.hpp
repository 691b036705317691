#pragma once
// First use and the hot path. bind() when a layer is loaded; select() or launch() for every batch.

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "crossover/dispatch/error.hpp"
#include "crossover/dispatch/flatten.hpp"
#include "crossover/dispatch/operation.hpp"
#include "crossover/dispatch/resolve.hpp"

namespace crossover {

// The device that a dispatcher works for, as it is now. A back end is one.
class Machine {
 public:
  virtual ~Machine() = default;
  virtual const Device& device() const = 0;
  virtual Environment environment() const = 0;
  virtual Conditions conditions() = 0;                           // read now; cheap enough for every bind
  virtual std::span<const LaunchMode> launch_modes() const = 0;  // the first is the default
};

// A lookup that found nothing, or something that ought to be measured again.
struct Miss {
  const Operation* operation = nullptr;
  EvidenceKey key;
  Rows max_rows = 0;
  std::string reason;         // for people
  bool low_priority = false;  // there is an answer, but a provisional or stale one
};

// What becomes of a miss. Implemented by the tuner. May throw; the dispatcher then warns once and goes on with the
// default arm.
class OnMiss {
 public:
  virtual ~OnMiss() = default;
  // Measures now, stores, returns when the evidence source has it. False, at once: somebody else is measuring, this
  // problem or on this device; ask again later.
  virtual bool tune(const Miss& miss) = 0;
  virtual void record(const Miss& miss) = 0;  // leaves a request for a later tuning
};

// The answer for one row count. Valid as long as the Bound lives.
struct Choice {
  const Arm* arm = nullptr;
  Prepared* prepared = nullptr;
  Origin origin = Origin::fallback;
};

// One operation with one set of weights, and the arms that its plans use, prepared. Movable; copies share. Everything
// const is thread-safe, allocates nothing, takes no lock, does no I/O.
class Bound {
 public:
  // Never throws, measures or waits. Rows below 1 are answered as 1 is.
  Choice select(Rows rows, LaunchMode mode) const noexcept;
  Choice select(Rows rows) const noexcept;  // in the machine's default launch mode
  // select() and Prepared::launch(), in the machine's default launch mode or in the one that the caller is in (graph:
  // the stream captures). rows = 0 does nothing; rows < 0 is Status::Code::invalid.
  Status launch(const Arguments& arguments, Rows rows, Workspace workspace = {}, Stream stream = {}) const noexcept;
  Status launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream stream,
                LaunchMode mode) const noexcept;
  // The same for operands with leading dimensions, [B, T, K] for instance. One launch of all rows where the Bound
  // flattens and the rows of every operand lie evenly apart; else one launch for each innermost dimension (T rows, B
  // times), one after the other, each with the arm for its own row count. An extent of 0 does nothing. Strides that
  // flatten_rows() refuses are Status::Code::invalid with its reason, before anything is launched. What a launch itself
  // refuses ends the call, and what was launched before it stays: a begin that is less aligned than the problem says,
  // or a row stride that is not the problem's. The workspace is for the rows of one launch; all launches share it.
  Status launch_batched(const BatchedArguments& arguments, Workspace workspace = {}, Stream stream = {}) const noexcept;
  Status launch_batched(const BatchedArguments& arguments, Workspace workspace, Stream stream,
                        LaunchMode mode) const noexcept;
  bool flattens() const noexcept;  // DispatcherOptions::flatten, or what the device makes of it
  // Enough for every arm of the current plans at up to `rows` rows; a multiple of 256. A plan that is published later
  // (refresh(), or any bind() of the dispatcher) may need more, and launch() then returns workspace_too_small: ask
  // again, or keep Policy::workspace_bytes at what there is.
  std::size_t workspace_bytes(Rows rows) const;
  Rows largest_out_of_range() const noexcept;           // 0: none so far
  const Resolution& resolution(LaunchMode mode) const;  // what the current plan was made from
  const Problem& problem() const noexcept;
  struct State;

 private:
  friend class Dispatcher;
  explicit Bound(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};

struct DispatcherOptions {
  Overrides overrides;
  MissMode on_miss = MissMode::tune;  // where the overrides say nothing
  L2State l2 = L2State::cold;
  Rows max_rows = 8192;                          // largest M that a tuning started by bind() measures
  std::optional<bool> flatten;                   // for launch_batched(); absent: on for kind "cuda" only
  std::vector<std::string> assumptions;          // as for assume(); for what-ifs and tests
  std::string no_database;                       // why the source is empty, where it stands in for a database
  std::function<void(const std::string&)> warn;  // default: one line on standard error, each text once
};

// Thread-safe. The machine, the source and the miss handler outlive it; a Bound may outlive the dispatcher.
class Dispatcher {
 public:
  Dispatcher(Machine& machine, EvidenceSource& source, OnMiss* on_miss, DispatcherOptions options);
  ~Dispatcher();
  Dispatcher(const Dispatcher&) = delete;
  Dispatcher& operator=(const Dispatcher&) = delete;

  // Resolves, handles a miss as MissMode says, prepares the arms. Of several threads that miss on the same problem one
  // tunes; the others get the default arm at once and the new plan when it is there.
  // Throws InvalidArgument (problem, overrides), NoVerdict (MissMode::error, frozen), and what preparing the default
  // arm throws. The database never makes it throw.
  Bound bind(const Operation& operation, const Problem& problem, const Weights& weights, const Policy& policy = {});

  // The same lookup without weights: what `crossover select` prints. Handles a miss in the same way.
  Resolution lookup(const Operation& operation, const Problem& problem, const Regime& regime,
                    const Policy& policy = {});

  // Publishes what other threads and processes have stored since. Cheap when nothing has. Under MissMode::tune it also
  // measures what a bind() was refused because somebody else was measuring, and nobody has stored since.
  void refresh();

  Current current(const Operation& operation, const Problem& normalised) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossover
