#pragma once
// Everything joined, for C++ users: a device, the database, the tuner and the dispatcher in one object.
//
//   crossover::Runtime runtime;
//   crossover::Bound layer = runtime.bind(operation, problem, weights);
//   layer.launch(arguments, rows, workspace);

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "crossover/db/store.hpp"
#include "crossover/dispatch/dispatcher.hpp"
#include "crossover/tuner/backend.hpp"
#include "crossover/tuner/tuner.hpp"

namespace crossover {

struct RuntimeOptions {
  std::filesystem::path database = {};  // empty: default_database_path()
  Store::Access access = Store::Access::read_write;
  std::string device = {};                    // one of Runtime::device_names(); empty: the first GPU, else the CPU
  std::optional<Overrides> overrides = {};    // absent: those of the environment
  MissMode on_miss = MissMode::tune;          // where the overrides say nothing
  TuneOptions tuning = {};                    // of the tunings that a miss starts: max_rows, budget, l2, …
  std::optional<bool> flatten = {};           // for Bound::launch_batched(); absent: on for kind "cuda" only
  std::vector<std::string> assumptions = {};  // as for assume(); for what-ifs and tests
  OnProgress progress = {};                   // of tunings
  std::function<void(const std::string&)> warn = {};  // any thread; default: one line on standard error, each text once
};

// Thread-safe once made, except for backend(). A Bound may outlive the runtime only where its arms need no device
// memory of the runtime: keep the runtime as long as its Bounds.
class Runtime {
 public:
  // Throws InvalidArgument (device, overrides) and DeviceError. A database that cannot be used is one warning: lookups
  // then find nothing, and what is tuned stays in memory.
  explicit Runtime(RuntimeOptions options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // First use of a layer; Dispatcher::bind says what it throws. The weights outlive the Bound.
  Bound bind(const Operation& operation, const Problem& problem, const Weights& weights, const Policy& policy = {});
  // Publishes what other threads and processes have stored since.
  void refresh();

  Dispatcher& dispatcher() noexcept;
  Store& store() noexcept;
  Backend& backend() noexcept;  // one thread at a time, and not while something is tuned
  Tuner& tuner() noexcept;
  const std::filesystem::path& database() const noexcept;  // empty: there is none, and everything stays in memory
  // Why the database cannot be used; empty: it can.
  const std::string& database_fault() const noexcept;

  // What this build and host have, as RuntimeOptions::device takes it; never empty.
  static std::vector<std::string> device_names();
  // The operations that come with the library, then those that were registered.
  static std::vector<const Operation*> operations();
  // Makes operations known by their names to every Runtime of the process, until the process ends: all of them, or
  // none. Throws InvalidArgument for a name that is taken or that no option could take, and for an operation without
  // arms.
  static void register_operations(std::vector<std::unique_ptr<const Operation>> operations);
  static void register_operation(std::unique_ptr<const Operation> operation);
  // Lives until the process ends. Throws InvalidArgument that lists them.
  static const Operation& operation(std::string_view name);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace crossover
