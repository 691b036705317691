#include "crossover/runtime.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "crossover/kernels/blas.hpp"
#include "crossover/kernels/fp8_block_linear.hpp"
#if CROSSOVER_HAVE_CUDA
#include "crossover/cuda/backend.hpp"
#include "crossover/cuda/device_probe.hpp"
#endif

namespace crossover {
namespace {

void warn_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard lock(mutex);
  if (seen.insert(text).second) std::fprintf(stderr, "crossover: warning: %s\n", text.c_str());
}

#if CROSSOVER_HAVE_CUDA
// "cuda:N" to N; -1 for anything else.
int cuda_ordinal(const std::string& device) {
  constexpr std::string_view kPrefix = "cuda:";
  int ordinal = -1;
  if (!device.starts_with(kPrefix)) return -1;
  const char* const end = device.data() + device.size();
  const auto [rest, error] = std::from_chars(device.data() + kPrefix.size(), end, ordinal);
  return error == std::errc{} && rest == end ? ordinal : -1;
}
#endif

std::unique_ptr<Backend> open_backend(const std::string& asked) {
  const std::vector<std::string> there = Runtime::device_names();
  const std::string device = asked.empty() ? there.front() : asked;
  if (std::find(there.begin(), there.end(), device) != there.end()) {
    if (device == "cpu") return cpu_backend({{std::string(environment_field::blas), blas_version()}});
#if CROSSOVER_HAVE_CUDA
    // What was built is the same for both: version, commit, compiler; the operating system too.
    Environment build = cpu_backend()->environment();
    for (const auto field : {environment_field::driver, environment_field::cuda, environment_field::cublaslt}) {
      build.erase(std::string(field));
    }
    return cuda_backend(cuda_ordinal(device), std::move(build));
#endif
  }
  std::string list;
  for (const std::string& name : there) list += (list.empty() ? "" : ", ") + name;
  std::string why = "unknown device";
  if (device.starts_with("cuda")) {
    why = "no such GPU";
#if CROSSOVER_HAVE_CUDA
    if (const CudaDevices devices = cuda_devices(); devices.count == 0) why += ", " + devices.why_none;
#else
    why += ", this build has no CUDA back end";
#endif
  }
  throw InvalidArgument(why + " ('" + asked + "'); the devices here are: " + list,
                        "leave the device out to use the first one there is");
}

struct OpenStore {
  std::unique_ptr<Store> store;
  std::filesystem::path path;  // empty: in memory
  std::string fault;
};

OpenStore open_store(std::filesystem::path path, Store::Access access) {
  if (path.empty()) path = default_database_path();
  std::string fault;
  try {
    if (!path.empty()) return {Store::open(path, access), path, {}};
    fault = "no path for the database: none of CROSSOVER_DB, XDG_DATA_HOME and HOME is set";
  } catch (const std::exception& error) {
    fault = error.what();
  }
  return {Store::in_memory(), {}, std::move(fault)};
}

// Never destroyed: what was registered is used until the process ends.
struct Registry {
  std::mutex mutex;
  std::vector<const Operation*> operations{&fp8_block_linear()};
};

Registry& registry() {
  static Registry* const all = new Registry;
  return *all;
}

// Names that options, environment variables and tables can hold; `also` are characters beside letters, digits, _ and -.
void check_name(const std::string& what, std::string_view name, std::string_view also) {
  const bool fits = !name.empty() && name.size() <= 128 && std::all_of(name.begin(), name.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
           also.find(c) != std::string_view::npos;
  });
  if (!fits) throw InvalidArgument(what + " cannot be named '" + std::string(name) + "'");
}

void check_names(const Operation* operation) {
  if (operation == nullptr) throw InvalidArgument("there is no operation to register");
  check_name("an operation", operation->name(), "");
  const std::string of = "of the operation " + std::string(operation->name());
  if (operation->arms().empty()) throw InvalidArgument("there is no arm " + of);
  std::set<std::string> classes, arms;
  for (const NumericsClass& each : operation->numerics()) {
    check_name("a numerics class " + of, each.name, "");
    if (!classes.insert(each.name).second)
      throw InvalidArgument("two numerics classes " + of + " are named '" + each.name + "'");
  }
  for (const Arm* arm : operation->arms()) {
    const auto& [name, fingerprint] = arm->id();
    check_name("an arm " + of, name, "/.+");
    if (!arms.insert(name).second) throw InvalidArgument("two arms " + of + " are named '" + name + "'");
    if (fingerprint.empty()) throw InvalidArgument("the arm " + name + " " + of + " has no fingerprint");
    if (!classes.contains(std::string(arm->numerics())))
      throw InvalidArgument("the arm " + name + " " + of + " has the numerics class '" + std::string(arm->numerics()) +
                            "', which the operation does not have");
  }
}

}  // namespace

struct Runtime::State {
  explicit State(RuntimeOptions options)
      : backend(open_backend(options.device)),
        opened(open_store(std::move(options.database), options.access)),
        tuner(*backend, *opened.store, options.tuning, std::move(options.progress)),
        dispatcher(*backend, *opened.store, &tuner, dispatcher_options(options, opened.fault)) {
    if (!opened.fault.empty()) {
      (options.warn ? options.warn : warn_once)(opened.fault + "; going on without a database");
    }
  }

  static DispatcherOptions dispatcher_options(RuntimeOptions& options, const std::string& fault) {
    DispatcherOptions result;
    result.overrides = options.overrides ? std::move(*options.overrides) : Overrides::from_environment();
    result.on_miss = options.on_miss;
    result.l2 = options.tuning.l2;
    result.max_rows = options.tuning.max_rows;
    result.flatten = options.flatten;
    result.assumptions = std::move(options.assumptions);
    result.no_database = fault;
    result.warn = options.warn ? options.warn : warn_once;
    return result;
  }

  // In the order in which they need each other.
  std::unique_ptr<Backend> backend;
  OpenStore opened;
  Tuner tuner;
  Dispatcher dispatcher;
};

Runtime::Runtime(RuntimeOptions options) : state_(std::make_unique<State>(std::move(options))) {}
Runtime::~Runtime() = default;

Bound Runtime::bind(const Operation& operation, const Problem& problem, const Weights& weights, const Policy& policy) {
  return state_->dispatcher.bind(operation, problem, weights, policy);
}

void Runtime::refresh() { state_->dispatcher.refresh(); }

Dispatcher& Runtime::dispatcher() noexcept { return state_->dispatcher; }
Store& Runtime::store() noexcept { return *state_->opened.store; }
Backend& Runtime::backend() noexcept { return *state_->backend; }
Tuner& Runtime::tuner() noexcept { return state_->tuner; }
const std::filesystem::path& Runtime::database() const noexcept { return state_->opened.path; }
const std::string& Runtime::database_fault() const noexcept { return state_->opened.fault; }

std::vector<std::string> Runtime::device_names() {
  std::vector<std::string> names;
#if CROSSOVER_HAVE_CUDA
  const int count = cuda_devices().count;
  for (int ordinal = 0; ordinal < count; ++ordinal) names.push_back("cuda:" + std::to_string(ordinal));
#endif
  names.push_back("cpu");
  return names;
}

std::vector<const Operation*> Runtime::operations() {
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  return known.operations;
}

void Runtime::register_operations(std::vector<std::unique_ptr<const Operation>> operations) {
  for (const auto& each : operations) check_names(each.get());
  Registry& known = registry();
  const std::lock_guard lock(known.mutex);
  std::vector<const Operation*> all = known.operations;
  for (const auto& each : operations) {
    if (std::any_of(all.begin(), all.end(), [&](const Operation* other) { return other->name() == each->name(); }))
      throw InvalidArgument("an operation '" + std::string(each->name()) + "' is already registered");
    all.push_back(each.get());
  }
  known.operations = std::move(all);
  for (auto& each : operations) static_cast<void>(each.release());
}

void Runtime::register_operation(std::unique_ptr<const Operation> operation) {
  std::vector<std::unique_ptr<const Operation>> one;
  one.push_back(std::move(operation));
  register_operations(std::move(one));
}

const Operation& Runtime::operation(std::string_view name) {
  std::string valid;
  for (const Operation* each : operations()) {
    if (each->name() == name) return *each;
    valid += (valid.empty() ? "" : ", ") + std::string(each->name());
  }
  throw InvalidArgument("unknown operation '" + std::string(name) + "'; there are: " + valid);
}

}  // namespace crossover
