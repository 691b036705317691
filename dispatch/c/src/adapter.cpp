// Tables of C functions as an Operation: through the interfaces that C++ programs implement, and nothing else.

#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <utility>

#include "build_id.hpp"
#include "crossover/plugin.hpp"
#include "tables.hpp"

namespace crossover {
namespace {

using c::copied;

constexpr std::size_t kMessageBytes = 1024;
constexpr std::size_t kContentBytes = std::size_t{64} << 10;  // of a configuration, of a problem's attributes

// Room for a text that a function gives back.
class Reply {
 public:
  explicit Reply(std::size_t capacity = kMessageBytes)
      : data_(capacity, '\0'), text_{sizeof(crossover_text), data_.data(), data_.size()} {}
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  crossover_text* get() { return &text_; }
  // What is there, cut where there was no more room.
  std::string text() const {
    const std::size_t end = data_.find('\0');
    return end == std::string::npos ? data_ : data_.substr(0, end);
  }
  // All of it. Throws InvalidArgument where there was no room for it.
  std::string all(const std::string& what) const {
    std::string result = text();
    if (result.size() + 1 >= data_.size())
      throw InvalidArgument(what + " is longer than " + std::to_string(data_.size() - 2) + " bytes");
    return result;
  }

 private:
  std::string data_;
  crossover_text text_;
};

class ProblemTable {
 public:
  explicit ProblemTable(const Problem& problem) {
    for (const auto& [key, value] : problem.attributes) {
      keys_.push_back(key.c_str());
      values_.push_back(value.c_str());
    }
    table_ = {sizeof(crossover_problem), problem.operation.c_str(), keys_.size(), keys_.data(), values_.data()};
  }
  ProblemTable(const ProblemTable&) = delete;
  ProblemTable& operator=(const ProblemTable&) = delete;
  const crossover_problem* get() const { return &table_; }

 private:
  std::vector<const char*> keys_, values_;
  crossover_problem table_{};
};

crossover_device device_table(const Device& device) {
  return {sizeof(crossover_device), device.kind.c_str(), device.model.c_str(), device.compute_capability.c_str(),
          device.sm_count,          device.l2_bytes,     device.memory_gib};
}

class WeightsTable {
 public:
  explicit WeightsTable(const Weights& weights) {
    for (const ConstOperand& each : weights.operands) {
      data_.push_back(each.data);
      strides_.push_back(each.row_stride);
    }
    table_ = {sizeof(crossover_weights), data_.size(), data_.data(), strides_.data()};
  }
  WeightsTable(const WeightsTable&) = delete;
  WeightsTable& operator=(const WeightsTable&) = delete;
  const crossover_weights* get() const { return &table_; }

 private:
  std::vector<const void*> data_;
  std::vector<std::int64_t> strides_;
  crossover_weights table_{};
};

Status status_of(crossover_status status) noexcept {
  switch (status) {
    case CROSSOVER_OK:
      return {};
    case CROSSOVER_INVALID_ARGUMENT:
      return {Status::Code::invalid, status, "the arm takes other arguments"};
    case CROSSOVER_UNSUPPORTED:
      return {Status::Code::unsupported, status, "the arm cannot do this launch"};
    case CROSSOVER_WORKSPACE_TOO_SMALL:
      return {Status::Code::workspace_too_small, status, "the arm needs more workspace"};
    case CROSSOVER_OUT_OF_MEMORY:
      return {Status::Code::out_of_memory, status, "the arm ran out of memory"};
    default:
      return {Status::Code::device_failed, status, "the arm's launch failed"};
  }
}

class ForeignPrepared final : public Prepared {
 public:
  ForeignPrepared(const crossover_arm& arm, void* prepared) : arm_(arm), prepared_(prepared) {}
  ~ForeignPrepared() override {
    if (arm_.destroy != nullptr) arm_.destroy(arm_.context, prepared_);
  }
  ForeignPrepared(const ForeignPrepared&) = delete;
  ForeignPrepared& operator=(const ForeignPrepared&) = delete;

  void set_config(std::string config) { config_ = std::move(config); }
  std::string config() const override { return config_; }

  Status launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream stream) noexcept override {
    if (rows == 0) return {};
    if (rows < 0) return {Status::Code::invalid, 0, "the row count is negative"};
    const std::size_t input_count = arguments.inputs.size(), output_count = arguments.outputs.size();
    if (input_count > CROSSOVER_MAX_OPERANDS || output_count > CROSSOVER_MAX_OPERANDS)
      return {Status::Code::invalid, 0, "more than CROSSOVER_MAX_OPERANDS inputs or outputs"};
    std::array<const void*, CROSSOVER_MAX_OPERANDS> inputs;
    std::array<void*, CROSSOVER_MAX_OPERANDS> outputs;
    std::array<std::int64_t, CROSSOVER_MAX_OPERANDS> input_strides, output_strides;
    for (std::size_t i = 0; i < input_count; ++i) {
      inputs[i] = arguments.inputs[i].data;
      input_strides[i] = arguments.inputs[i].row_stride;
    }
    for (std::size_t i = 0; i < output_count; ++i) {
      outputs[i] = arguments.outputs[i].data;
      output_strides[i] = arguments.outputs[i].row_stride;
    }
    const crossover_arguments table{
        sizeof(crossover_arguments), input_count,          inputs.data(), output_count, outputs.data(),
        input_strides.data(),        output_strides.data()};
    const crossover_launch_options options{
        sizeof(crossover_launch_options), workspace.data, workspace.bytes, stream.handle, CROSSOVER_LAUNCH_DEFAULT, 0};
    try {
      return status_of(arm_.launch(arm_.context, prepared_, rows, &table, &options));
    } catch (const std::bad_alloc&) {
      return {Status::Code::out_of_memory, 0, "the arm ran out of memory, and threw"};
    } catch (...) {
      return {Status::Code::device_failed, 0, "the arm's launch threw, which it must not"};
    }
  }

 private:
  const crossover_arm arm_;
  void* const prepared_;
  std::string config_;
};

class ForeignArm final : public Arm {
 public:
  ForeignArm(const crossover_arm* given, const std::string& operation)
      : table_(copied(given, CROSSOVER_SIZE_TO(crossover_arm, launch), "crossover_arm")),
        numerics_(c::required_text(table_.numerics, "crossover_arm.numerics")) {
    id_.name = c::required_text(table_.name, "crossover_arm.name");
    what_ = operation + ", arm " + id_.name;
    if (table_.supports == nullptr) throw InvalidArgument(what_ + ": crossover_arm.supports is NULL");
    if (table_.launch == nullptr) throw InvalidArgument(what_ + ": crossover_arm.launch is NULL");
    constexpr std::uint64_t kFlags =
        CROSSOVER_ARM_BATCH_INVARIANT | CROSSOVER_ARM_NOT_CAPTURE_SAFE | CROSSOVER_ARM_LIBRARY;
    if ((table_.flags & ~kFlags) != 0)
      throw InvalidArgument(what_ + ": crossover_arm.flags has a flag that this version does not know");
    id_.fingerprint = table_.fingerprint != nullptr ? table_.fingerprint : build_id();
    if (id_.fingerprint.empty()) throw InvalidArgument(what_ + ": crossover_arm.fingerprint is empty");
    table_.name = table_.numerics = table_.fingerprint = nullptr;  // the caller's
  }

  const ArmId& id() const noexcept override { return id_; }
  std::string_view numerics() const noexcept override { return numerics_; }
  bool batch_invariant() const noexcept override { return has(CROSSOVER_ARM_BATCH_INVARIANT); }
  bool capture_safe() const noexcept override { return !has(CROSSOVER_ARM_NOT_CAPTURE_SAFE); }
  bool library() const noexcept override { return has(CROSSOVER_ARM_LIBRARY); }

  Eligibility supports(const Problem& problem, Rows rows, const Device& device) const override {
    const ProblemTable problem_table(problem);
    const crossover_device device_now = device_table(device);
    Reply reason;
    crossover_eligibility result{sizeof(crossover_eligibility), 1, 1, kMaxRows, 1, reason.get()};
    const crossover_status status = table_.supports(table_.context, problem_table.get(), rows, &device_now, &result);
    std::string why = reason.text();
    if (status != CROSSOVER_OK) return Eligibility::no(why.empty() ? c::status_text(status) : std::move(why));
    if (result.eligible == 0) return Eligibility::no(why.empty() ? "the arm gives no reason" : std::move(why));
    const RowDomain domain{result.min_rows, result.max_rows, result.rows_multiple_of};
    if (domain.min < 1 || domain.max < domain.min || domain.multiple < 1 || !domain.contains(rows))
      return Eligibility::no("the arm's range of row counts contradicts itself");
    return {true, {}, domain};
  }

  Cost cost(const Problem& problem, Rows rows) const override {
    if (table_.cost == nullptr) return {};
    const ProblemTable problem_table(problem);
    crossover_cost result{sizeof(crossover_cost), 0, 0, 0, 0};
    const crossover_status status = table_.cost(table_.context, problem_table.get(), rows, &result);
    if (status != CROSSOVER_OK) c::raise(status, what_ + ", cost", {});
    if (!(result.flops >= 0) || !(result.bytes_moved >= 0) || std::isinf(result.flops) ||
        std::isinf(result.bytes_moved))
      throw Failure(what_ + ", cost: flops and bytes_moved are no numbers of 0 or more");
    return {result.workspace_bytes, result.cached_bytes, result.flops, result.bytes_moved};
  }

  std::unique_ptr<Prepared> prepare(const Problem& problem, const Weights& weights, std::string_view config,
                                    Rows max_rows) const override {
    const std::string asked(config);
    Reply settled(kContentBytes), message;
    void* prepared = nullptr;
    if (table_.prepare != nullptr) {
      const ProblemTable problem_table(problem);
      const WeightsTable weights_table(weights);
      const crossover_prepare request{sizeof(crossover_prepare), problem_table.get(), weights_table.get(),
                                      asked == "-" ? "" : asked.c_str(), max_rows};
      const crossover_status status = table_.prepare(table_.context, &request, &prepared, settled.get(), message.get());
      if (status != CROSSOVER_OK) c::raise(status, what_, message.text());
    }
    auto result = std::make_unique<ForeignPrepared>(table_, prepared);
    std::string found = settled.all(what_ + ": the configuration");
    if (found.empty()) found = asked.empty() || table_.prepare == nullptr ? "-" : asked;
    if (!asked.empty() && found != asked)
      throw ConfigNotRestorable(what_ + ": the configuration '" + asked + "' came back as '" + found + "'");
    result->set_config(std::move(found));
    return result;
  }

 private:
  bool has(std::uint64_t flag) const noexcept { return (table_.flags & flag) != 0; }

  std::string build_id() const {
    const c::Module module = c::module_of(reinterpret_cast<const void*>(table_.launch));
    if (module.build_id.empty()) {
      throw InvalidArgument(what_ + " gives no fingerprint, and " +
                                (module.path.empty() ? "the program that holds its launch function" : module.path) +
                                " has no build-id",
                            "link it with -Wl,--build-id, or give a text that changes when the code does");
    }
    return "build-id:" + module.build_id;
  }

  crossover_arm table_;
  std::string numerics_;
  ArmId id_;
  std::string what_;  // for messages
};

// Device memory as functions. A workload's, hence one thread at a time.
class MemoryTable {
 public:
  explicit MemoryTable(Memory& memory)
      : table_{sizeof(crossover_memory), &memory, allocate, release, upload, download, fill} {}
  const crossover_memory* get() const { return &table_; }

 private:
  template <typename Body>
  static crossover_status guarded(const Body& body) noexcept {
    try {
      body();
      return CROSSOVER_OK;
    } catch (const OutOfMemory&) {
      return CROSSOVER_OUT_OF_MEMORY;
    } catch (const std::bad_alloc&) {
      return CROSSOVER_OUT_OF_MEMORY;
    } catch (...) {
      return CROSSOVER_DEVICE;
    }
  }
  static Memory& memory(void* state) { return *static_cast<Memory*>(state); }
  static crossover_status allocate(void* state, std::size_t bytes, void** data) {
    if (data == nullptr) return CROSSOVER_INVALID_ARGUMENT;
    return guarded([&] { *data = memory(state).allocate(bytes); });
  }
  static void release(void* state, void* data) {
    if (data != nullptr) memory(state).release(data);
  }
  static crossover_status upload(void* state, void* to, const void* from, std::size_t bytes) {
    return guarded([&] { memory(state).upload(to, from, bytes); });
  }
  static crossover_status download(void* state, void* to, const void* from, std::size_t bytes) {
    return guarded([&] { memory(state).download(to, from, bytes); });
  }
  static crossover_status fill(void* state, void* to, std::uint8_t byte, std::size_t bytes) {
    return guarded([&] { memory(state).fill(to, byte, bytes); });
  }

  crossover_memory table_;
};

class ForeignWorkload final : public Workload {
 public:
  ForeignWorkload(const crossover_operation& table, std::string what, const Problem& problem, const Regime& regime,
                  Memory& memory, Rows max_rows, int copies, std::uint64_t seed, std::size_t bytes_per_copy)
      : table_(table), what_(std::move(what)), memory_(memory), bytes_per_copy_(bytes_per_copy) {
    const ProblemTable problem_table(problem);
    const crossover_workload request{
        sizeof(crossover_workload),
        problem_table.get(),
        memory_.get(),
        max_rows,
        copies,
        regime.launch_mode == LaunchMode::graph ? CROSSOVER_LAUNCH_GRAPH : CROSSOVER_LAUNCH_EAGER,
        regime.l2 == L2State::hot ? CROSSOVER_L2_HOT : CROSSOVER_L2_COLD,
        regime.fill.c_str(),
        seed};
    Reply message;
    const crossover_status status = table_.workload_create(table_.context, &request, &data_, message.get());
    if (status != CROSSOVER_OK) c::raise(status, what_ + ", test data", message.text());
    try {
      for (int copy = 0; copy < copies; ++copy) weights_.push_back(weights_of(copy));
    } catch (...) {
      destroy();
      throw;
    }
  }
  ~ForeignWorkload() override { destroy(); }
  ForeignWorkload(const ForeignWorkload&) = delete;
  ForeignWorkload& operator=(const ForeignWorkload&) = delete;

  const Weights& weights(int copy) const override { return weights_.at(static_cast<std::size_t>(copy)); }

  Arguments arguments(Rows rows, int copy) const override {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = operands_.try_emplace({rows, copy});
    Operands& operands = found->second;
    if (is_new) {
      try {
        fill(operands, rows, copy);
      } catch (...) {
        operands_.erase(found);
        throw;
      }
    }
    return {operands.inputs, operands.outputs};
  }

  void poison(Rows rows) override {
    const crossover_status status = table_.workload_poison(table_.context, data_, rows);
    if (status != CROSSOVER_OK) c::raise(status, what_ + ", workload_poison", {});
  }

  Check check(Rows rows, std::string_view numerics) override {
    Reply detail;
    crossover_check result{sizeof(crossover_check), 0, std::numeric_limits<double>::quiet_NaN(), detail.get()};
    const crossover_status status =
        table_.workload_check(table_.context, data_, rows, std::string(numerics).c_str(), &result);
    if (status != CROSSOVER_OK) c::raise(status, what_ + ", workload_check", detail.text());
    return {result.ok != 0 && result.error >= 0 && std::isfinite(result.error), result.error, detail.text()};
  }

  std::size_t bytes_per_copy() const noexcept override { return bytes_per_copy_; }

 private:
  struct Operands {
    std::vector<ConstOperand> inputs;
    std::vector<Operand> outputs;
  };

  void destroy() noexcept {
    if (table_.workload_destroy != nullptr) table_.workload_destroy(table_.context, data_);
  }

  Weights weights_of(int copy) const {
    if (table_.workload_weights == nullptr) return {};
    crossover_weights given{sizeof(crossover_weights), 0, nullptr, nullptr};
    const crossover_status status = table_.workload_weights(table_.context, data_, copy, &given);
    if (status != CROSSOVER_OK) c::raise(status, what_ + ", workload_weights", {});
    if (given.count != 0 && given.data == nullptr) throw InvalidArgument(what_ + ", workload_weights: no array");
    Weights weights;
    for (std::size_t i = 0; i < given.count; ++i)
      weights.operands.push_back({given.data[i], given.row_strides != nullptr ? given.row_strides[i] : 0});
    return weights;
  }

  void fill(Operands& operands, Rows rows, int copy) const {
    crossover_arguments given{sizeof(crossover_arguments), 0, nullptr, 0, nullptr, nullptr, nullptr};
    const crossover_status status = table_.workload_arguments(table_.context, data_, rows, copy, &given);
    if (status != CROSSOVER_OK) c::raise(status, what_ + ", workload_arguments", {});
    if (given.input_count > CROSSOVER_MAX_OPERANDS || given.output_count > CROSSOVER_MAX_OPERANDS ||
        (given.input_count != 0 && given.inputs == nullptr) || (given.output_count != 0 && given.outputs == nullptr))
      throw InvalidArgument(what_ + ", workload_arguments: no array, or too many operands");
    for (std::size_t i = 0; i < given.input_count; ++i)
      operands.inputs.push_back({given.inputs[i], given.input_row_strides != nullptr ? given.input_row_strides[i] : 0});
    for (std::size_t i = 0; i < given.output_count; ++i)
      operands.outputs.push_back(
          {given.outputs[i], given.output_row_strides != nullptr ? given.output_row_strides[i] : 0});
  }

  const crossover_operation table_;
  const std::string what_;
  const MemoryTable memory_;
  const std::size_t bytes_per_copy_;
  void* data_ = nullptr;
  std::vector<Weights> weights_;
  mutable std::mutex mutex_;  // of operands_
  mutable std::map<std::pair<Rows, int>, Operands> operands_;
};

class ForeignOperation final : public Operation {
 public:
  explicit ForeignOperation(const crossover_operation* given)
      : table_(copied(given, CROSSOVER_SIZE_TO(crossover_operation, workload_check), "crossover_operation")),
        name_(c::required_text(table_.name, "crossover_operation.name")) {
    const auto require = [this](bool there, const char* field) {
      if (!there) throw InvalidArgument("the operation " + name_ + ": crossover_operation." + field + " is missing");
    };
    require(table_.numerics != nullptr && table_.numerics_count != 0, "numerics");
    require(table_.arms != nullptr && table_.arm_count != 0, "arms");
    require(table_.default_arms != nullptr, "default_arms");
    require(table_.workload_bytes != nullptr, "workload_bytes");
    require(table_.workload_create != nullptr, "workload_create");
    require(table_.workload_arguments != nullptr, "workload_arguments");
    require(table_.workload_poison != nullptr, "workload_poison");
    require(table_.workload_check != nullptr, "workload_check");
    for (std::size_t i = 0; i < table_.numerics_count; ++i) {
      const auto numerics =
          copied(table_.numerics[i], CROSSOVER_SIZE_TO(crossover_numerics, name), "crossover_numerics");
      numerics_.push_back({c::required_text(numerics.name, "crossover_numerics.name"),
                           (numerics.flags & CROSSOVER_NUMERICS_OPT_IN) == 0});
    }
    for (std::size_t i = 0; i < table_.arm_count; ++i) {
      owned_.push_back(std::make_unique<ForeignArm>(table_.arms[i], name_));
      arms_.push_back(owned_.back().get());
    }
    table_.name = nullptr;  // the caller's, as are the arrays
    table_.numerics = nullptr;
    table_.arms = nullptr;
  }

  std::string_view name() const noexcept override { return name_; }
  std::span<const Arm* const> arms() const noexcept override { return arms_; }
  std::span<const NumericsClass> numerics() const noexcept override { return numerics_; }

  std::vector<DefaultArm> default_arms(const Problem& problem, const Device& device) const override {
    constexpr std::size_t kMost = 64;
    const ProblemTable problem_table(problem);
    const crossover_device device_now = device_table(device);
    std::array<std::int64_t, kMost> up_to{};
    std::array<const char*, kMost> names{};
    crossover_default_arms given{sizeof(crossover_default_arms), kMost, up_to.data(), names.data(), 0};
    Reply message;
    const crossover_status status =
        table_.default_arms(table_.context, problem_table.get(), &device_now, &given, message.get());
    if (status != CROSSOVER_OK) c::raise(status, name_ + ", default_arms", message.text());
    std::vector<DefaultArm> result;
    for (std::size_t i = 0; i < std::min(given.count, kMost); ++i) {
      if (names[i] == nullptr || find(names[i]) == nullptr)
        throw InvalidArgument(name_ + ", default_arms: there is no arm '" + (names[i] != nullptr ? names[i] : "") +
                              "'");
      if (up_to[i] <= (i == 0 ? 0 : up_to[i - 1])) throw InvalidArgument(name_ + ", default_arms: not ascending");
      result.push_back({up_to[i], names[i]});
    }
    if (result.empty() || result.back().up_to != kMaxRows)
      throw InvalidArgument(name_ + ", default_arms: the last one must go up to INT64_MAX rows");
    return result;
  }

  Problem normalise(const Problem& problem) const override {
    if (problem.operation != name_) throw InvalidArgument("a problem of " + problem.operation + " is none of " + name_);
    if (table_.normalise == nullptr) return problem;
    const ProblemTable problem_table(problem);
    Reply attributes(kContentBytes), message;
    const crossover_status status =
        table_.normalise(table_.context, problem_table.get(), attributes.get(), message.get());
    if (status != CROSSOVER_OK) c::raise(status, name_, message.text());
    return {name_, c::parse_attributes(attributes.all(name_ + ", normalise: the problem"))};
  }

  std::vector<Rows> tile_edges(const Problem& problem) const override {
    if (table_.tile_edges == nullptr) return {};
    std::vector<Rows> rows(256);
    const ProblemTable problem_table(problem);
    crossover_tile_edges given{sizeof(crossover_tile_edges), rows.size(), rows.data(), 0};
    const crossover_status status = table_.tile_edges(table_.context, problem_table.get(), &given);
    if (status != CROSSOVER_OK) c::raise(status, name_ + ", tile_edges", {});
    rows.resize(std::min(given.count, rows.size()));
    std::erase_if(rows, [](Rows each) { return each < 1; });
    return rows;
  }

  std::size_t workload_bytes_per_copy(const Problem& problem, Rows max_rows) const override {
    const ProblemTable problem_table(problem);
    std::uint64_t bytes = 0;
    const crossover_status status = table_.workload_bytes(table_.context, problem_table.get(), max_rows, &bytes);
    if (status != CROSSOVER_OK) c::raise(status, name_ + ", workload_bytes", {});
    return bytes;
  }

  std::unique_ptr<Workload> workload(const Problem& problem, const Regime& regime, Memory& memory, Rows max_rows,
                                     int copies, std::uint64_t seed) const override {
    return std::make_unique<ForeignWorkload>(table_, name_, problem, regime, memory, max_rows, copies, seed,
                                             workload_bytes_per_copy(problem, max_rows));
  }

 private:
  crossover_operation table_;
  const std::string name_;
  std::vector<NumericsClass> numerics_;
  std::vector<std::unique_ptr<ForeignArm>> owned_;
  std::vector<const Arm*> arms_;
};

}  // namespace

std::unique_ptr<const Operation> operation_of(const crossover_operation* table) {
  return std::make_unique<const ForeignOperation>(table);
}

}  // namespace crossover
