#pragma once
// A device of synthetic arms under a fake clock, for tests: the same tuner, dispatcher and store run on it as on real
// devices. Launches really write their outputs (y[r] = weight · x[r], one double a row) and move the clock by what the
// arm's curve says; faults are switched on by filling in the functions below.

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "crossover/tuner/tuner.hpp"

namespace crossover::fake {

// A batch that was timed, or a launch that was run.
struct Timed {
  std::string arm;
  Rows rows = 0;
  std::size_t launches = 0;
  std::vector<const void*> weights;  // one per launch: tells the copies apart
  const void* batch = nullptr;       // which batch; null for run()
  bool copies_match = true;          // each launch had the weights and the arguments of the same copy
};

// Device memory with a limit; counts what is alive.
class FakeMemory final : public Memory {
 public:
  std::size_t limit_bytes = std::size_t{1} << 30;
  // Called before an allocation; may throw.
  std::function<void(std::size_t bytes)> on_allocate;
  std::function<void(std::size_t bytes)> on_fill;

  ~FakeMemory() override {
    for (const auto& [data, bytes] : blocks_) std::free(data);
  }
  void* allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    if (on_allocate) on_allocate(bytes);
    if (bytes > limit_bytes - live_bytes_)
      throw OutOfMemory(std::to_string(bytes) + " bytes asked for, " + std::to_string(limit_bytes - live_bytes_) +
                        " left");
    void* data = std::aligned_alloc(256, (std::max<std::size_t>(bytes, 1) + 255) / 256 * 256);
    if (data == nullptr) throw std::bad_alloc();
    blocks_[data] = bytes;
    live_bytes_ += bytes;
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
    return data;
  }
  void release(void* data) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(data);
    if (block == blocks_.end()) std::abort();  // not ours, or released twice
    live_bytes_ -= block->second;
    blocks_.erase(block);
    std::free(data);
  }
  void upload(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void download(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void copy(void* to, const void* from, std::size_t bytes) override { std::memcpy(to, from, bytes); }
  void fill(void* to, std::uint8_t byte, std::size_t bytes) override {
    if (on_fill) on_fill(bytes);
    std::memset(to, byte, bytes);
  }
  std::size_t available_bytes() override {
    const std::lock_guard lock(mutex_);
    return limit_bytes - live_bytes_;
  }
  std::size_t live_blocks() const {
    const std::lock_guard lock(mutex_);
    return blocks_.size();
  }
  std::size_t peak_bytes() const {
    const std::lock_guard lock(mutex_);
    return peak_bytes_;
  }

 private:
  mutable std::mutex mutex_;
  std::map<void*, std::size_t> blocks_;
  std::size_t live_bytes_ = 0, peak_bytes_ = 0;
};

// What arms, data and device share: the clock, the memory, the noise.
class World {
 public:
  explicit World(std::uint64_t seed = 1) : state_(seed) {}

  FakeMemory memory;
  std::atomic<std::int64_t> now_ns = 1'000'000'000;
  std::atomic<std::int64_t> unix_us = 1'790'000'000'000'000;
  std::function<double(std::int64_t now_ns)> drift;  // multiplies every launch's time; default 1
  std::function<double(Rows)> check_ns;              // what a comparison with the reference costs; default 0
  std::atomic<int> prepared = 0;                     // alive

  void advance(double ns) {
    const auto whole = static_cast<std::int64_t>(std::llround(std::max(0.0, ns)));
    now_ns += whole;
    unix_us += whole / 1000;
  }
  // About normal, mean 0, standard deviation 1.
  double noise() {
    const std::lock_guard lock(mutex_);
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += static_cast<double>(next() >> 11) * 0x1p-53;
    return sum;
  }

 private:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  std::mutex mutex_;
  std::uint64_t state_;
};

using RowsPredicate = std::function<bool(Rows)>;

// An arm: identity, curve, and the faults that are switched on.
struct ArmSpec {
  std::string name;
  std::function<double(Rows)> ns = [](Rows) { return 1e6; };  // of one launch
  double noise = 0;                                           // relative standard deviation of a launch's time
  std::string fingerprint = "1";
  std::string numerics = "exact";
  bool batch_invariant = true, capture_safe = true, library = false;
  std::function<Eligibility(Rows)> supports;  // default: always
  std::size_t workspace_bytes = 0, cached_bytes = 0;
  std::string finds_config = "-";                           // what prepare() settles on when it is asked to find one
  std::function<bool(std::string_view)> restores;           // default: every config
  std::function<void(std::string_view config)> on_prepare;  // may throw
  std::function<Status(Rows)> on_launch;                    // what a launch returns; default ok
  RowsPredicate wrong, writes_nan, writes_nothing;          // at these row counts
};

class FakePrepared final : public Prepared {
 public:
  FakePrepared(std::shared_ptr<World> world, const ArmSpec& spec, const Weights& weights, std::string config)
      : world_(std::move(world)), spec_(spec), weights_(weights), config_(std::move(config)) {
    if (spec.cached_bytes > 0) cache_ = world_->memory.allocate(spec.cached_bytes);
    ++world_->prepared;
  }
  ~FakePrepared() override {
    if (cache_ != nullptr) world_->memory.release(cache_);
    --world_->prepared;
  }
  FakePrepared(const FakePrepared&) = delete;
  FakePrepared& operator=(const FakePrepared&) = delete;
  std::string config() const override { return config_; }
  Status launch(const Arguments& arguments, Rows rows, Workspace workspace, Stream) noexcept override {
    if (rows == 0) return {};
    if (workspace.bytes < spec_.workspace_bytes) return {Status::Code::workspace_too_small, 0, "workspace too small"};
    if (spec_.on_launch) {
      if (const Status status = spec_.on_launch(rows); !status.ok()) return status;
    }
    const double drift = world_->drift ? world_->drift(world_->now_ns) : 1;
    world_->advance(spec_.ns(rows) * drift * std::max(0.01, 1 + (spec_.noise > 0 ? spec_.noise * world_->noise() : 0)));
    if (spec_.writes_nothing && spec_.writes_nothing(rows)) return {};
    const double weight = *static_cast<const double*>(weights_.operands[0].data);
    const auto* x = static_cast<const double*>(arguments.inputs[0].data);
    auto* y = static_cast<double*>(arguments.outputs[0].data);
    for (Rows row = 0; row < rows; ++row) y[row] = weight * x[row];
    if (spec_.wrong && spec_.wrong(rows)) y[rows - 1] *= 1.5;
    if (spec_.writes_nan && spec_.writes_nan(rows)) y[rows - 1] = std::numeric_limits<double>::quiet_NaN();
    return {};
  }
  const ArmSpec& spec() const { return spec_; }
  const void* weights() const { return weights_.operands[0].data; }

 private:
  std::shared_ptr<World> world_;
  const ArmSpec& spec_;
  Weights weights_;
  std::string config_;
  void* cache_ = nullptr;
};

class FakeArm final : public Arm {
 public:
  FakeArm(std::shared_ptr<World> world, ArmSpec what)
      : spec(std::move(what)), world_(std::move(world)), id_{spec.name, spec.fingerprint} {}
  ArmSpec spec;
  const ArmId& id() const noexcept override { return id_; }
  std::string_view numerics() const noexcept override { return spec.numerics; }
  bool batch_invariant() const noexcept override { return spec.batch_invariant; }
  bool capture_safe() const noexcept override { return spec.capture_safe; }
  bool library() const noexcept override { return spec.library; }
  Eligibility supports(const Problem&, Rows rows, const Device&) const override {
    return spec.supports ? spec.supports(rows) : Eligibility{};
  }
  Cost cost(const Problem&, Rows rows) const override {
    const auto m = static_cast<double>(rows);
    return {spec.workspace_bytes, spec.cached_bytes, m, 16 * m};
  }
  std::unique_ptr<Prepared> prepare(const Problem&, const Weights& weights, std::string_view config,
                                    Rows) const override {
    if (spec.on_prepare) spec.on_prepare(config);
    if (!config.empty() && spec.restores && !spec.restores(config))
      throw ConfigNotRestorable("no config " + std::string(config) + " here");
    return std::make_unique<FakePrepared>(world_, spec, weights,
                                          config.empty() ? spec.finds_config : std::string(config));
  }

 private:
  std::shared_ptr<World> world_;
  ArmId id_;
};

class FakeWorkload final : public Workload {
 public:
  FakeWorkload(std::shared_ptr<World> world, std::size_t weight_bytes, Rows max_rows, int copies)
      : world_(std::move(world)) {
    copies_.resize(static_cast<std::size_t>(copies));
    for (Copy& copy : copies_) {
      const std::size_t column = static_cast<std::size_t>(max_rows) * sizeof(double);
      copy.weight = Allocation(world_->memory, std::max(weight_bytes, sizeof(double)));
      copy.x = Allocation(world_->memory, column);
      copy.y = Allocation(world_->memory, column);
      *static_cast<double*>(copy.weight.data) = 3;
      for (Rows row = 0; row < max_rows; ++row) static_cast<double*>(copy.x.data)[row] = x(row);
      std::memset(copy.y.data, kPoison, column);
      copy.weights.operands = {{copy.weight.data, 0}};
      copy.inputs = {{{copy.x.data, 0}}};
      copy.outputs = {{{copy.y.data, 0}}};
    }
  }
  const Weights& weights(int copy) const override { return copies_[static_cast<std::size_t>(copy)].weights; }
  Arguments arguments(Rows, int copy) const override {
    const Copy& own = copies_[static_cast<std::size_t>(copy)];
    return {own.inputs, own.outputs};
  }
  void poison(Rows rows) override {
    std::memset(copies_[0].y.data, kPoison, static_cast<std::size_t>(rows) * sizeof(double));
  }
  Check check(Rows rows, std::string_view) override {
    if (world_->check_ns) world_->advance(world_->check_ns(rows));
    double difference = 0, sum = 0;
    std::array<unsigned char, sizeof(double)> poison;
    poison.fill(kPoison);
    for (Rows row = 0; row < rows; ++row) {
      const double y = static_cast<const double*>(copies_[0].y.data)[row];
      if (std::memcmp(&y, poison.data(), poison.size()) == 0)
        return {false, std::numeric_limits<double>::quiet_NaN(), "row " + std::to_string(row) + " was never written"};
      difference += (y - 3 * x(row)) * (y - 3 * x(row));
      sum += 9 * x(row) * x(row);
    }
    const double error = std::sqrt(difference / sum);
    return {error <= 1e-6, error, error <= 1e-6 ? "" : "row " + std::to_string(rows - 1) + " is wrong"};
  }
  std::size_t bytes_per_copy() const noexcept override {
    return copies_[0].weight.bytes + copies_[0].x.bytes + copies_[0].y.bytes;
  }

 private:
  static constexpr unsigned char kPoison = 0xf5;  // a double of these bytes is no product of ours
  static double x(Rows row) { return 1 + static_cast<double>(row % 7); }
  struct Allocation {
    Allocation() = default;
    Allocation(Memory& memory, std::size_t size) : owner(&memory), data(memory.allocate(size)), bytes(size) {}
    Allocation(Allocation&& other) noexcept { *this = std::move(other); }
    Allocation& operator=(Allocation&& other) noexcept {
      std::swap(owner, other.owner);
      std::swap(data, other.data);
      std::swap(bytes, other.bytes);
      return *this;
    }
    ~Allocation() {
      if (data != nullptr) owner->release(data);
    }
    Memory* owner = nullptr;
    void* data = nullptr;
    std::size_t bytes = 0;
  };
  struct Copy {
    Allocation weight, x, y;
    Weights weights;
    std::array<ConstOperand, 1> inputs;
    std::array<Operand, 1> outputs;
  };
  std::shared_ptr<World> world_;
  std::vector<Copy> copies_;
};

// y = weight · x. Problems may have any attributes. The default arm is the first unless `defaults` says otherwise.
class FakeOperation final : public Operation {
 public:
  FakeOperation(std::shared_ptr<World> world, std::vector<ArmSpec> specs) : world_(std::move(world)) {
    for (ArmSpec& spec : specs) arms_.push_back(std::make_unique<FakeArm>(world_, std::move(spec)));
    for (const auto& arm : arms_) pointers_.push_back(arm.get());
    if (!arms_.empty()) defaults = {{kMaxRows, arms_[0]->spec.name}};
  }
  std::vector<DefaultArm> defaults;
  std::vector<NumericsClass> classes{{"exact", true}, {"rounded", true}, {"opt_in", false}};
  std::vector<Rows> edges;
  std::size_t weight_bytes = 1024;
  std::function<void()> on_workload;  // may throw

  std::string_view name() const noexcept override { return "fake"; }
  std::span<const Arm* const> arms() const noexcept override { return pointers_; }
  std::span<const NumericsClass> numerics() const noexcept override { return classes; }
  std::vector<DefaultArm> default_arms(const Problem&, const Device&) const override { return defaults; }
  Problem normalise(const Problem& problem) const override {
    if (problem.operation != name()) throw InvalidArgument("not a problem of fake: " + problem.operation);
    return problem;
  }
  std::vector<Rows> tile_edges(const Problem&) const override { return edges; }
  std::size_t workload_bytes_per_copy(const Problem&, Rows max_rows) const override {
    return weight_bytes + 2 * sizeof(double) * static_cast<std::size_t>(max_rows);
  }
  std::unique_ptr<Workload> workload(const Problem&, const Regime&, Memory&, Rows max_rows, int copies,
                                     std::uint64_t) const override {
    if (on_workload) on_workload();
    return std::make_unique<FakeWorkload>(world_, weight_bytes, max_rows, copies);
  }
  ArmSpec& spec(std::string_view arm_name) {
    for (const auto& arm : arms_)
      if (arm->spec.name == arm_name) return arm->spec;
    std::abort();
  }
  Problem problem(std::map<std::string, std::string> attributes = {{"n", "64"}}) const {
    return {"fake", std::move(attributes)};
  }

 private:
  std::shared_ptr<World> world_;
  std::vector<std::unique_ptr<FakeArm>> arms_;
  std::vector<const Arm*> pointers_;
};

class FakeBackend final : public Backend {
 public:
  explicit FakeBackend(std::shared_ptr<World> a_world) : world(std::move(a_world)) {}

  std::shared_ptr<World> world;
  Device own_device{"fake", "Synthetic 1", "1.0", 8, 1 << 20, 16};
  Environment own_environment{{"driver", "1"}, {"cuda", "none"}, {"cublaslt", "none"}, {"crossover", "test"}};
  Conditions own_conditions{{"power_limit_w", "300"}};
  std::vector<LaunchMode> modes{LaunchMode::eager};
  std::size_t pool_bytes = 8192;
  CleanLimits clean_limits;
  double round_ns = 200e3;
  std::string uuid;
  bool shared = false, has_clock = false;
  double peak = 0;                                 // bytes per second
  double eager_overhead_ns = 0;                    // of each launch that is not in a graph
  std::function<void(Conditions&)> on_conditions;  // changes what is read
  std::atomic<int> conditions_read = 0;            // dispatchers read them on any thread
  // What time() reports instead of the truth, and whether it discards; called once per batch.
  std::function<void(const Timed&, Timing&)> tamper;
  std::function<void(const Timed&)> on_batch;  // may throw
  std::vector<Timed> runs, times;              // what run() and time() were asked for, in order
  std::int64_t slept_ns = 0;

  const Device& device() const override { return own_device; }
  Environment environment() const override { return own_environment; }
  Conditions conditions() override {
    ++conditions_read;
    Conditions now = own_conditions;
    if (on_conditions) on_conditions(now);
    return now;
  }
  double peak_bytes_per_second() const override { return peak; }
  bool is_shared() const override { return shared; }
  bool reads_clock() const override { return has_clock; }
  std::span<const LaunchMode> launch_modes() const override { return modes; }
  Memory& memory() override { return world->memory; }
  std::size_t cold_pool_bytes() override { return pool_bytes; }
  Timing run(const Launch& launch) override {
    runs.push_back(describe({&launch, 1}));
    return launch_all({&launch, 1}, eager_overhead_ns);
  }
  std::unique_ptr<Batch> batch(LaunchMode mode, std::vector<Launch> launches) override {
    if (on_batch) on_batch(describe(launches));
    return std::make_unique<FakeBatch>(std::move(launches), mode);
  }
  Timing time(Batch& batch) override {
    const std::vector<Launch>& launches = dynamic_cast<FakeBatch&>(batch).launches;
    times.push_back(describe(launches));
    times.back().batch = &batch;
    const bool eager = dynamic_cast<FakeBatch&>(batch).mode == LaunchMode::eager;
    Timing timing = launch_all(launches, eager ? eager_overhead_ns : 0);
    if (tamper) tamper(times.back(), timing);
    return timing;
  }
  double min_round_ns() const override { return round_ns; }
  CleanLimits limits() const override { return clean_limits; }
  std::string gpu_uuid() const override { return uuid; }
  std::int64_t now_ns() override { return world->now_ns; }
  std::int64_t unix_time_us() override { return world->unix_us; }
  void sleep_ns(std::int64_t ns) override {
    slept_ns += ns;
    world->advance(static_cast<double>(ns));
  }

 private:
  struct FakeBatch final : Batch {
    FakeBatch(std::vector<Launch> list, LaunchMode how) : launches(std::move(list)), mode(how) {}
    std::vector<Launch> launches;
    LaunchMode mode;
  };
  static Timed describe(std::span<const Launch> launches) {
    Timed timed;
    timed.rows = launches[0].rows;
    timed.launches = launches.size();
    std::set<const void*> weights, inputs;
    std::set<std::pair<const void*, const void*>> pairs;
    for (const Launch& launch : launches) {
      const auto* prepared = dynamic_cast<const FakePrepared*>(launch.prepared);
      timed.arm = prepared != nullptr ? prepared->spec().name : "?";
      if (prepared == nullptr) continue;
      timed.weights.push_back(prepared->weights());
      weights.insert(prepared->weights());
      inputs.insert(launch.arguments.inputs[0].data);
      pairs.emplace(prepared->weights(), launch.arguments.inputs[0].data);
    }
    timed.copies_match = weights.size() == pairs.size() && inputs.size() == pairs.size();
    return timed;
  }
  Timing launch_all(std::span<const Launch> launches, double overhead_ns) {
    Timing timing;
    const std::int64_t begin = world->now_ns;
    for (const Launch& launch : launches) {
      timing.status = launch.prepared->launch(launch.arguments, launch.rows, launch.workspace, {});
      if (!timing.status.ok()) break;
      world->advance(overhead_ns);
    }
    timing.total_ns = static_cast<double>(world->now_ns - begin);
    return timing;
  }
};

}  // namespace crossover::fake
