// The runtime, as a C++ program uses it.

#include "crossover/runtime.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "crossover/kernels/blas.hpp"
#include "crossover/kernels/fp8_block_linear.hpp"
#include "evidence.hpp"
#include "harness.hpp"

namespace crossover::testing {
namespace {

using ::testing::HasSubstr;

struct Warnings {
  std::vector<std::string> texts;
  std::function<void(const std::string&)> handler() {
    return [this](const std::string& text) { texts.push_back(text); };
  }
};

// A layer of ones: every output is k, which bf16 holds exactly for the k of the tests.
class Layer {
 public:
  Layer(std::int64_t n, std::int64_t k, Rows rows)
      : n_(n),
        w_(aligned(n * k)),
        x_(aligned(2 * rows * k)),
        y_(aligned(2 * rows * n)),
        scales_(static_cast<std::size_t>(((n + 127) / 128) * ((k + 127) / 128)), 1.0f) {
    std::fill_n(w_.get(), n * k, std::uint8_t{0x38});  // 1.0
    auto* x = reinterpret_cast<std::uint16_t*>(x_.get());
    std::fill_n(x, rows * k, std::uint16_t{0x3f80});  // 1.0
  }
  Weights weights() const { return fp8_block_linear_weights(w_.get(), scales_.data()); }
  Fp8BlockLinearArguments arguments() const { return {x_.get(), y_.get()}; }
  std::uint16_t output(Rows row, std::int64_t column) const {
    return reinterpret_cast<const std::uint16_t*>(y_.get())[row * n_ + column];
  }

 private:
  using Bytes = std::unique_ptr<std::uint8_t[], void (*)(std::uint8_t*)>;
  static Bytes aligned(std::int64_t bytes) {
    const auto size = (static_cast<std::size_t>(bytes) + 255) / 256 * 256;
    return {static_cast<std::uint8_t*>(std::aligned_alloc(256, size)), [](std::uint8_t* data) { std::free(data); }};
  }
  std::int64_t n_;
  Bytes w_, x_, y_;
  std::vector<float> scales_;
};

class RuntimeTest : public ::testing::Test {
 protected:
  Folder folder_;
  std::filesystem::path database_ = folder_ / "tuning.db";
  Warnings warnings_;
};

TEST_F(RuntimeTest, BindsAndLaunchesWhatTheEvidenceSays) {
  store_evidence(database_);
  Runtime runtime({.database = database_, .device = "cpu", .overrides = Overrides{}, .on_miss = MissMode::error});
  const Layer layer(256, 256, 128);
  const Bound bound = runtime.bind(fp8_block_linear(), problem_of({}), layer.weights());
  EXPECT_EQ(bound.select(7).arm->id().name, kFast);
  EXPECT_EQ(bound.select(7).origin, Origin::tuned);
  EXPECT_EQ(bound.select(128).arm->id().name, kLibrary);
  for (const Rows rows : {7, 128}) {
    void* scratch = runtime.backend().memory().allocate(bound.workspace_bytes(rows) + 1);
    const Fp8BlockLinearArguments arguments = layer.arguments();
    EXPECT_TRUE(bound.launch(arguments, rows, {scratch, bound.workspace_bytes(rows)}).ok());
    EXPECT_EQ(layer.output(rows - 1, 255), 0x4380) << "256 in bf16";
    runtime.backend().memory().release(scratch);
  }
}

TEST_F(RuntimeTest, TunesOnFirstUse) {
  Runtime runtime({.database = database_,
                   .device = "cpu",
                   .overrides = Overrides{},
                   .tuning = {.max_rows = 4, .budget = std::chrono::milliseconds(500)},
                   .warn = warnings_.handler()});
  const Layer layer(128, 128, 4);
  runtime.bind(fp8_block_linear(), problem_of({.n = "128", .k = "128"}), layer.weights());
  EXPECT_EQ(runtime.store().all_verdicts().size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(database_));
  EXPECT_THAT(warnings_.texts, ::testing::IsEmpty());
}

TEST_F(RuntimeTest, AnUnusableDatabaseIsOneWarningAndTuningStaysInMemory) {
  const std::string text = "no database at all, but a text of some length";
  write_file(database_, text);
  Runtime runtime({.database = database_,
                   .device = "cpu",
                   .overrides = Overrides{},
                   .tuning = {.max_rows = 4, .budget = std::chrono::milliseconds(500)},
                   .warn = warnings_.handler()});
  EXPECT_THAT(warnings_.texts, ::testing::ElementsAre(HasSubstr("tuning.db")));
  EXPECT_NE(runtime.database_fault(), "");
  EXPECT_EQ(runtime.database(), "");
  const Layer layer(128, 128, 4);
  const Bound bound = runtime.bind(fp8_block_linear(), problem_of({.n = "128", .k = "128"}), layer.weights());
  EXPECT_NE(bound.select(2).arm, nullptr);
  EXPECT_EQ(runtime.store().all_verdicts().size(), 1u);
  EXPECT_EQ(file_bytes(database_), text);
  EXPECT_EQ(warnings_.texts.size(), 1u);
}

TEST_F(RuntimeTest, RefreshSeesWhatAnotherProcessStored) {
  Runtime runtime({.database = database_, .device = "cpu", .overrides = Overrides{}, .on_miss = MissMode::fallback});
  const Layer layer(256, 256, 1);
  const Bound bound = runtime.bind(fp8_block_linear(), problem_of({}), layer.weights());
  EXPECT_EQ(bound.select(128).origin, Origin::fallback);
  store_evidence(database_);
  runtime.refresh();
  EXPECT_EQ(bound.select(128).origin, Origin::tuned);
  EXPECT_EQ(bound.select(128).arm->id().name, kLibrary);
}

TEST_F(RuntimeTest, OverridesComeFromTheEnvironment) {
  ::setenv("CROSSOVER_ON_MISS", "nonsense", 1);
  EXPECT_THROW(Runtime({.database = database_, .device = "cpu"}), InvalidArgument);
  ::setenv("CROSSOVER_ON_MISS", "error", 1);
  Runtime runtime({.database = database_, .device = "cpu"});
  ::unsetenv("CROSSOVER_ON_MISS");
  EXPECT_THROW(runtime.dispatcher().lookup(fp8_block_linear(), problem_of({}), Regime{}), NoVerdict);
}

TEST_F(RuntimeTest, UnknownNamesListWhatThereIs) {
  for (const char* device : {"cuda:0", "tpu", "CPU"}) {
    try {
      Runtime runtime({.database = database_, .device = device});
      ADD_FAILURE() << device;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("cpu"));
    }
  }
  EXPECT_THROW(Runtime::operation("nosuch"), InvalidArgument);
  EXPECT_EQ(&Runtime::operation("fp8_block_linear"), &fp8_block_linear());
  EXPECT_EQ(Runtime::operations().front(), &fp8_block_linear());
}

// The built-in operation under a name of its own.
class Renamed final : public Operation {
 public:
  explicit Renamed(std::string name) : name_(std::move(name)) {}
  std::string_view name() const noexcept override { return name_; }
  std::span<const Arm* const> arms() const noexcept override { return inner_.arms(); }
  std::span<const NumericsClass> numerics() const noexcept override { return inner_.numerics(); }
  std::vector<DefaultArm> default_arms(const Problem& problem, const Device& device) const override {
    return inner_.default_arms(problem, device);
  }
  Problem normalise(const Problem& problem) const override {
    return {name_, inner_.normalise({std::string(inner_.name()), problem.attributes}).attributes};
  }
  std::size_t workload_bytes_per_copy(const Problem& problem, Rows max_rows) const override {
    return inner_.workload_bytes_per_copy(problem, max_rows);
  }
  std::unique_ptr<Workload> workload(const Problem& problem, const Regime& regime, Memory& memory, Rows max_rows,
                                     int copies, std::uint64_t seed) const override {
    return inner_.workload(problem, regime, memory, max_rows, copies, seed);
  }

 private:
  const std::string name_;
  const Operation& inner_ = fp8_block_linear();
};

TEST_F(RuntimeTest, OperationsOfOthersAreFoundByTheirNames) {
  const std::size_t before = Runtime::operations().size();
  std::vector<std::unique_ptr<const Operation>> both;
  both.push_back(std::make_unique<Renamed>("another_linear"));
  both.push_back(std::make_unique<Renamed>("fp8_block_linear"));
  EXPECT_THROW(Runtime::register_operations(std::move(both)), InvalidArgument);
  EXPECT_THROW(Runtime::operation("another_linear"), InvalidArgument);  // all, or none
  EXPECT_THROW(Runtime::register_operation(nullptr), InvalidArgument);
  EXPECT_THROW(Runtime::register_operation(std::make_unique<Renamed>("another linear")), InvalidArgument);
  EXPECT_EQ(Runtime::operations().size(), before);

  auto mine = std::make_unique<Renamed>("another_linear");
  const Operation* const there = mine.get();
  Runtime::register_operation(std::move(mine));
  EXPECT_EQ(&Runtime::operation("another_linear"), there);
  EXPECT_THROW(Runtime::register_operation(std::make_unique<Renamed>("another_linear")), InvalidArgument);
  EXPECT_EQ(Runtime::operations().back(), there);
}

TEST_F(RuntimeTest, EnvironmentNamesWhatTheArmsUse) {
  Runtime runtime({.database = database_, .device = "cpu", .overrides = Overrides{}});
  const Environment environment = runtime.backend().environment();
  EXPECT_TRUE(environment.contains("crossover"));
  EXPECT_TRUE(environment.contains("compiler"));
  ASSERT_TRUE(environment.contains("blas"));
  EXPECT_EQ(environment.at("blas"), blas_version());
  if (fp8_block_linear().find(kLibrary) != nullptr) {
    EXPECT_THAT(blas_version(), ::testing::MatchesRegex("OpenBLAS [0-9]+\\.[0-9.]+"));
  } else {
    EXPECT_EQ(blas_version(), "none");
  }
}

}  // namespace
}  // namespace crossover::testing
