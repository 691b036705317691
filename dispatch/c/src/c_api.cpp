// The functions of crossover/crossover.h: each reads its structs, calls the C++ interface, and leaves by one
// translator.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "crossover/crossover.h"
#include "crossover/plugin.hpp"
#include "crossover/runtime.hpp"
#include "json.hpp"
#include "tables.hpp"

namespace {

using namespace crossover;
using c::copied;

constexpr std::size_t kWorkspaceAlignment = 256;
constexpr std::uint64_t kOpen = 0x6f70656e63726f73, kClosed = 0x73687574'63726f73;

}  // namespace

// A closed handle's memory is kept for a while, so that whoever uses it is told so.
struct crossover_runtime {  // NOLINT(readability-identifier-naming)
  std::atomic<std::uint64_t> state{kOpen};
  std::shared_ptr<Runtime> runtime;
  TuneOptions tuning;
};

struct crossover_bound {  // NOLINT(readability-identifier-naming)
  std::atomic<std::uint64_t> state{kOpen + 1};
  std::shared_ptr<Runtime> runtime;  // outlives `bound`
  std::optional<Bound> bound;
  L2State l2 = L2State::cold;
};

namespace {

constexpr std::uint64_t open_state(const crossover_runtime*) { return kOpen; }
constexpr std::uint64_t open_state(const crossover_bound*) { return kOpen + 1; }
constexpr const char* type_name(const crossover_runtime*) { return "crossover_runtime"; }
constexpr const char* type_name(const crossover_bound*) { return "crossover_bound"; }

// ---- Errors

struct LastError {
  std::string text;
  const char* message = "";
};
thread_local LastError last_error;

crossover_status fail(crossover_status status, const char* message, const std::string& advice = {}) noexcept {
  try {
    last_error.text = message;
    if (!advice.empty()) last_error.text += "; " + advice;
    last_error.message = last_error.text.c_str();
  } catch (...) {
    last_error.message = "out of memory";
  }
  return status;
}

crossover_status status_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return CROSSOVER_INVALID_ARGUMENT;
    case ErrorCode::no_verdict:
      return CROSSOVER_NO_VERDICT;
    case ErrorCode::out_of_memory:
      return CROSSOVER_OUT_OF_MEMORY;
    case ErrorCode::config_not_restorable:
      return CROSSOVER_CONFIG_NOT_RESTORABLE;
    case ErrorCode::store:
      return CROSSOVER_STORE;
    case ErrorCode::device:
      return CROSSOVER_DEVICE;
    case ErrorCode::failed:
      break;
  }
  return CROSSOVER_FAILED;
}

// The one translator: what is being thrown, as a status and a sentence.
crossover_status translate() noexcept {
  try {
    throw;
  } catch (const PluginError& error) {
    return fail(CROSSOVER_PLUGIN, error.what(), error.advice());
  } catch (const Error& error) {
    return fail(status_of(error.code()), error.what(), error.advice());
  } catch (const std::bad_alloc&) {
    return fail(CROSSOVER_OUT_OF_MEMORY, "out of memory");
  } catch (const std::length_error&) {
    return fail(CROSSOVER_OUT_OF_MEMORY, "out of memory: more was asked for than any memory holds");
  } catch (const std::exception& error) {
    return fail(CROSSOVER_FAILED, error.what());
  } catch (...) {
    return fail(CROSSOVER_FAILED, "something was thrown that is no exception of ours");
  }
}

template <typename Body>
crossover_status guarded(const Body& body) noexcept {
  try {
    body();
    return CROSSOVER_OK;
  } catch (...) {
    return translate();
  }
}

// ---- Handles

template <typename Handle>
void require_open(const Handle* handle) {
  const std::string type = type_name(handle);
  if (handle == nullptr) throw InvalidArgument("the " + type + " is NULL");
  const std::uint64_t state = handle->state.load(std::memory_order_acquire);
  if (state == kClosed) throw InvalidArgument("the " + type + " is closed");
  if (state != open_state(handle)) throw InvalidArgument("this is no " + type);
}

template <typename Handle>
bool is_open(const Handle* handle) noexcept {
  return handle != nullptr && handle->state.load(std::memory_order_acquire) == open_state(handle);
}

template <typename Handle>
void close_handle(Handle* handle) {
  if (handle == nullptr) return;
  std::uint64_t expected = open_state(handle);
  if (!handle->state.compare_exchange_strong(expected, kClosed)) require_open(handle);
  if constexpr (std::is_same_v<Handle, crossover_bound>) handle->bound.reset();
  handle->runtime.reset();

  constexpr std::size_t kKept = 1024;
  static std::mutex mutex;
  static auto* const closed = new std::deque<std::unique_ptr<Handle>>;  // never destroyed: closing may come late
  const std::lock_guard lock(mutex);
  closed->emplace_back(handle);
  if (closed->size() > kKept) closed->pop_front();
}

// ---- Values

template <typename Pointer>
void require(const Pointer* pointer, const char* name) {
  if (pointer == nullptr) throw InvalidArgument(std::string(name) + " is NULL");
}

// A text of options, where NULL stands for the default, which is "" in C++.
std::string optional_text(const char* text, const char* name) {
  if (text != nullptr && *text == '\0') throw InvalidArgument(std::string(name) + " is empty; NULL is the default");
  return text != nullptr ? text : "";
}

void require_rows(Rows rows) {
  if (rows < 0) throw InvalidArgument("a row count is 0 or more, not " + std::to_string(rows));
}

std::optional<LaunchMode> mode_from(crossover_launch_mode mode) {
  switch (mode) {
    case CROSSOVER_LAUNCH_DEFAULT:
      return std::nullopt;
    case CROSSOVER_LAUNCH_EAGER:
      return LaunchMode::eager;
    case CROSSOVER_LAUNCH_GRAPH:
      return LaunchMode::graph;
    default:
      throw InvalidArgument("there is no crossover_launch_mode " + std::to_string(mode));
  }
}

L2State l2_from(crossover_l2 l2) {
  if (l2 == CROSSOVER_L2_COLD) return L2State::cold;
  if (l2 == CROSSOVER_L2_HOT) return L2State::hot;
  throw InvalidArgument("there is no crossover_l2 " + std::to_string(l2));
}

MissMode miss_mode_from(crossover_on_miss mode) {
  switch (mode) {
    case CROSSOVER_ON_MISS_TUNE:
      return MissMode::tune;
    case CROSSOVER_ON_MISS_RECORD:
      return MissMode::record;
    case CROSSOVER_ON_MISS_FALLBACK:
      return MissMode::fallback;
    case CROSSOVER_ON_MISS_ERROR:
      return MissMode::error;
    default:
      throw InvalidArgument("there is no crossover_on_miss " + std::to_string(mode));
  }
}

crossover_origin origin_of(Origin origin) noexcept {
  switch (origin) {
    case Origin::tuned:
      return CROSSOVER_ORIGIN_TUNED;
    case Origin::stale:
      return CROSSOVER_ORIGIN_STALE;
    case Origin::shipped:
      return CROSSOVER_ORIGIN_SHIPPED;
    case Origin::forced:
      return CROSSOVER_ORIGIN_FORCED;
    case Origin::out_of_range:
      return CROSSOVER_ORIGIN_OUT_OF_RANGE;
    case Origin::fallback:
      break;
  }
  return CROSSOVER_ORIGIN_FALLBACK;
}

// A row count of options, where 0 stands for `otherwise`.
Rows rows_or(std::int64_t rows, Rows otherwise, const char* name) {
  if (rows < 0) throw InvalidArgument(std::string(name) + " is " + std::to_string(rows) + ", and must not be negative");
  return rows == 0 ? otherwise : rows;
}

std::chrono::duration<double> budget_or(double seconds, std::chrono::duration<double> otherwise) {
  constexpr double kLongest = 1e6;
  if (!(seconds >= 0 && seconds <= kLongest))
    throw InvalidArgument("budget_s is " + std::to_string(seconds) + ", and must lie between 0 and a million seconds");
  return seconds == 0 ? otherwise : std::chrono::duration<double>(seconds);
}

// Names or families of the operation's arms.
std::vector<std::string> arms_from(const char* text, const char* field, const Operation& operation) {
  std::vector<std::string> names = c::parse_list(text, field);
  for (const std::string& name : names) {
    std::string valid;
    bool known = false;
    for (const Arm* arm : operation.arms()) {
      known = known || names_arm(name, arm->id().name);
      valid += (valid.empty() ? "" : ", ") + arm->id().name;
    }
    if (!known) throw InvalidArgument("unknown arm '" + name + "'; there are: " + valid);
  }
  return names;
}

Policy policy_from(const crossover_policy* given, const Operation& operation) {
  Policy policy;
  if (given == nullptr) return policy;
  const auto table = copied(given, sizeof given->struct_size, "crossover_policy");
  policy.allow = c::parse_list(table.allow, "crossover_policy.allow");
  for (const std::string& name : policy.allow) {
    std::string valid;
    bool known = false;
    for (const NumericsClass& each : operation.numerics()) {
      known = known || each.name == name;
      valid += (valid.empty() ? "" : ", ") + each.name;
    }
    if (!known) throw InvalidArgument("unknown numerics class '" + name + "'; there are: " + valid);
  }
  policy.arms = arms_from(table.arms, "crossover_policy.arms", operation);
  policy.cached_bytes = table.cached_bytes;
  if (table.workspace_bytes < -1)
    throw InvalidArgument("crossover_policy.workspace_bytes is " + std::to_string(table.workspace_bytes) +
                          ", and must be -1, 0 or a number of bytes");
  if (table.workspace_bytes == -1) policy.workspace_bytes = 0;
  if (table.workspace_bytes > 0) policy.workspace_bytes = static_cast<std::uint64_t>(table.workspace_bytes);
  if (!(table.max_error >= 0) || std::isinf(table.max_error))
    throw InvalidArgument("crossover_policy.max_error is " + std::to_string(table.max_error) +
                          ", and must be 0 or a relative error");
  if (table.max_error > 0) policy.max_error = table.max_error;
  policy.batch_invariant = table.batch_invariant != 0;
  policy.extrapolate = table.extrapolate != 0;
  return policy;
}

Weights weights_from(const crossover_weights* given) {
  if (given == nullptr) return {};
  const auto table = copied(given, CROSSOVER_SIZE_TO(crossover_weights, data), "crossover_weights");
  constexpr std::size_t kMost = 4096;
  if (table.count > kMost) throw InvalidArgument("crossover_weights.count is " + std::to_string(table.count));
  if (table.count != 0) require(table.data, "crossover_weights.data");
  Weights weights;
  for (std::size_t i = 0; i < table.count; ++i)
    weights.operands.push_back({table.data[i], table.row_strides != nullptr ? table.row_strides[i] : 0});
  return weights;
}

// A text that the caller frees.
char* given_away(const std::string& text) {
  auto* const copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

Choice choice_at(const Bound& bound, Rows rows, std::optional<LaunchMode> mode) {
  return mode ? bound.select(rows, *mode) : bound.select(rows);
}

LaunchMode mode_of(Runtime& runtime, std::optional<LaunchMode> asked) {
  const auto modes = runtime.backend().launch_modes();
  return asked && std::find(modes.begin(), modes.end(), *asked) != modes.end() ? *asked : modes.front();
}

crossover_status status_of(Status::Code code) noexcept {
  switch (code) {
    case Status::Code::ok:
      return CROSSOVER_OK;
    case Status::Code::invalid:
      return CROSSOVER_INVALID_ARGUMENT;
    case Status::Code::unsupported:
      return CROSSOVER_UNSUPPORTED;
    case Status::Code::workspace_too_small:
      return CROSSOVER_WORKSPACE_TOO_SMALL;
    case Status::Code::out_of_memory:
      return CROSSOVER_OUT_OF_MEMORY;
    case Status::Code::device_failed:
      break;
  }
  return CROSSOVER_DEVICE;
}

// Arrays of a launch as the C++ interface has them; nothing is allocated.
template <typename Operand, typename Pointer>
std::span<const Operand> operands_from(std::array<Operand, CROSSOVER_MAX_OPERANDS>& room, std::size_t count,
                                       Pointer const* data, const std::int64_t* strides, const char* name) {
  if (count > CROSSOVER_MAX_OPERANDS)
    throw InvalidArgument("there are " + std::to_string(count) + " " + name + "; at most " +
                          std::to_string(CROSSOVER_MAX_OPERANDS) + " are possible");
  if (count != 0) require(data, name);
  for (std::size_t i = 0; i < count; ++i) room[i] = {data[i], strides != nullptr ? strides[i] : 0};
  return std::span<const Operand>(room.data(), count);
}

}  // namespace

extern "C" {

uint32_t crossover_abi_version(void) noexcept { return CROSSOVER_ABI_VERSION; }
const char* crossover_version(void) noexcept { return CROSSOVER_VERSION; }
const char* crossover_last_error(void) noexcept { return last_error.message; }
const char* crossover_status_text(crossover_status status) noexcept { return c::status_text(status); }
void crossover_free(char* json) noexcept { std::free(json); }

crossover_status crossover_open(const crossover_open_options* options, crossover_runtime** runtime) noexcept {
  return guarded([&] {
    require(runtime, "the place for the crossover_runtime");
    crossover_open_options table{};
    if (options != nullptr) table = copied(options, sizeof options->struct_size, "crossover_open_options");
    RuntimeOptions opened;
    opened.database = optional_text(table.database, "crossover_open_options.database");
    opened.device = optional_text(table.device, "crossover_open_options.device");
    opened.access = table.read_only != 0 ? Store::Access::lookup_only : Store::Access::read_write;
    opened.on_miss = miss_mode_from(table.on_miss);
    opened.tuning.l2 = l2_from(table.l2);
    opened.tuning.max_rows = rows_or(table.max_rows, opened.tuning.max_rows, "crossover_open_options.max_rows");
    opened.tuning.budget = budget_or(table.budget_s, opened.tuning.budget);
    opened.tuning.thorough = table.thorough != 0;
    opened.tuning.seed = table.seed;
    if (table.warn != nullptr)
      opened.warn = [warn = table.warn, context = table.warn_context](const std::string& text) {
        warn(context, text.c_str());
      };
    auto handle = std::make_unique<crossover_runtime>();
    handle->tuning = opened.tuning;
    handle->runtime = std::make_shared<Runtime>(std::move(opened));
    *runtime = handle.release();
  });
}

crossover_status crossover_close(crossover_runtime* runtime) noexcept {
  return guarded([&] { close_handle(runtime); });
}

crossover_status crossover_refresh(crossover_runtime* runtime) noexcept {
  return guarded([&] {
    require_open(runtime);
    runtime->runtime->refresh();
  });
}

crossover_status crossover_bind(crossover_runtime* runtime, const crossover_bind_options* options,
                                crossover_bound** bound) noexcept {
  return guarded([&] {
    require_open(runtime);
    require(bound, "the place for the crossover_bound");
    const auto table = copied(options, CROSSOVER_SIZE_TO(crossover_bind_options, problem), "crossover_bind_options");
    const Operation& operation =
        Runtime::operation(c::required_text(table.operation, "crossover_bind_options.operation"));
    const Problem problem{std::string(operation.name()),
                          c::parse_attributes(c::required_text(table.problem, "crossover_bind_options.problem"))};
    const Policy policy = policy_from(table.policy, operation);
    auto handle = std::make_unique<crossover_bound>();
    handle->runtime = runtime->runtime;
    handle->l2 = runtime->tuning.l2;
    handle->bound = handle->runtime->bind(operation, problem, weights_from(table.weights), policy);
    *bound = handle.release();
  });
}

crossover_status crossover_unbind(crossover_bound* bound) noexcept {
  return guarded([&] { close_handle(bound); });
}

crossover_status crossover_workspace_bytes(const crossover_bound* bound, int64_t rows, size_t* bytes) noexcept {
  return guarded([&] {
    require_open(bound);
    require(bytes, "the place for the number of bytes");
    require_rows(rows);
    *bytes = bound->bound->workspace_bytes(rows);
  });
}

crossover_status crossover_select(const crossover_bound* bound, int64_t rows, crossover_launch_mode mode,
                                  crossover_choice* choice) noexcept {
  return guarded([&] {
    if (!is_open(bound)) require_open(bound);
    require_rows(rows);
    require(choice, "the crossover_choice");
    constexpr std::size_t kLeast = CROSSOVER_SIZE_TO(crossover_choice, arm);
    const std::size_t size = choice->struct_size;
    if (size < kLeast || size > c::kLargestStruct) static_cast<void>(copied(choice, kLeast, "crossover_choice"));
    const Choice chosen = choice_at(*bound->bound, rows, mode_from(mode));
    const crossover_choice answer{size, chosen.arm->id().name.c_str(), to_string(chosen.origin).data(),
                                  origin_of(chosen.origin), 0};
    if (size >= sizeof answer) {
      *choice = answer;
    } else {
      std::memcpy(choice, &answer, size);
    }
  });
}

crossover_status crossover_launch(const crossover_bound* bound, int64_t rows, const crossover_arguments* arguments,
                                  const crossover_launch_options* options) noexcept {
  Status status;
  const crossover_status judged = guarded([&] {
    if (!is_open(bound)) require_open(bound);
    require_rows(rows);
    if (rows == 0) return;
    const auto table = copied(arguments, CROSSOVER_SIZE_TO(crossover_arguments, outputs), "crossover_arguments");
    crossover_launch_options how{};
    if (options != nullptr) how = copied(options, sizeof options->struct_size, "crossover_launch_options");
    if (how.workspace_bytes != 0 && how.workspace == nullptr)
      throw InvalidArgument("crossover_launch_options.workspace is NULL, and workspace_bytes is not 0");
    if (reinterpret_cast<std::uintptr_t>(how.workspace) % kWorkspaceAlignment != 0)
      throw InvalidArgument("crossover_launch_options.workspace is not aligned to 256 bytes");
    std::array<ConstOperand, CROSSOVER_MAX_OPERANDS> inputs;
    std::array<Operand, CROSSOVER_MAX_OPERANDS> outputs;
    const Arguments operands{
        operands_from(inputs, table.input_count, table.inputs, table.input_row_strides, "inputs"),
        operands_from(outputs, table.output_count, table.outputs, table.output_row_strides, "outputs")};
    const Workspace workspace{how.workspace, how.workspace_bytes};
    const std::optional<LaunchMode> mode = mode_from(how.launch_mode);
    status = mode ? bound->bound->launch(operands, rows, workspace, {how.stream}, *mode)
                  : bound->bound->launch(operands, rows, workspace, {how.stream});
  });
  if (judged != CROSSOVER_OK || status.ok()) return judged;
  return fail(status_of(status.code), status.message);
}

crossover_status crossover_explain(const crossover_bound* bound, int64_t rows, crossover_launch_mode mode,
                                   char** json) noexcept {
  return guarded([&] {
    require_open(bound);
    require_rows(rows);
    require(json, "the place for the text");
    const LaunchMode asked = mode_of(*bound->runtime, mode_from(mode));
    const Resolution& resolution = bound->bound->resolution(asked);
    const Regime regime{.launch_mode = asked, .l2 = bound->l2};
    *json = given_away(
        c::explanation(bound->runtime->backend().device(), bound->bound->problem(), regime, resolution, rows));
  });
}

crossover_status crossover_tune(crossover_runtime* runtime, const crossover_tune_options* options,
                                char** json) noexcept {
  return guarded([&] {
    require_open(runtime);
    const auto table = copied(options, CROSSOVER_SIZE_TO(crossover_tune_options, problem), "crossover_tune_options");
    const Operation& operation =
        Runtime::operation(c::required_text(table.operation, "crossover_tune_options.operation"));
    const Problem problem =
        operation.normalise({std::string(operation.name()),
                             c::parse_attributes(c::required_text(table.problem, "crossover_tune_options.problem"))});
    TuneOptions tuning = runtime->tuning;
    tuning.max_rows = rows_or(table.max_rows, tuning.max_rows, "crossover_tune_options.max_rows");
    tuning.budget = budget_or(table.budget_s, tuning.budget);
    tuning.thorough = table.thorough != 0;
    tuning.launch_mode = mode_from(table.launch_mode);
    tuning.l2 = l2_from(table.l2);
    tuning.keep_arms = arms_from(table.keep_arms, "crossover_tune_options.keep_arms", operation);
    if (table.seed != 0) tuning.seed = table.seed;
    const Tuning result = runtime->runtime->tuner().tune(operation, problem, tuning);
    runtime->runtime->refresh();
    if (json != nullptr) *json = given_away(c::report(result));
  });
}

crossover_status crossover_register_operation(const crossover_operation* operation) noexcept {
  return guarded([&] { Runtime::register_operation(operation_of(operation)); });
}

crossover_status crossover_load_plugin(const char* path) noexcept {
  return guarded([&] { static_cast<void>(load_plugin(c::required_text(path, "the path of the plug-in"))); });
}

}  // extern "C"
