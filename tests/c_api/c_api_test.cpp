// The C interface as a caller sees it: links libcrossover.so and nothing else of ours.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "toy.h"

#ifndef __SANITIZE_ADDRESS__  // which has an operator new of its own
// Of this thread; the library's are among them, because this program's operator new is everybody's.
thread_local std::int64_t allocations = 0;

[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const data = std::malloc(bytes)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, std::size_t) noexcept { std::free(data); }
#endif

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr const char* kTooBusy = "this machine is too busy for a verdict";
constexpr const char* kProblem = "n=8,k=16";

template <typename Table>
Table sized() {
  Table table{};
  table.struct_size = sizeof(Table);
  return table;
}

struct alignas(256) Scratch {
  std::array<unsigned char, 65536> bytes;
};

// A launch with all of that as its workspace.
crossover_launch_options within(Scratch& scratch) {
  auto options = sized<crossover_launch_options>();
  options.workspace = scratch.bytes.data();
  options.workspace_bytes = scratch.bytes.size();
  return options;
}

std::string error() { return crossover_last_error(); }

// Whether a call failed as it should, with one sentence that has `part` in it.
void expect_error(crossover_status got, crossover_status expected, const std::string& part) {
  EXPECT_EQ(got, expected) << error();
  EXPECT_THAT(error(), HasSubstr(part));
  EXPECT_EQ(error().find('\n'), std::string::npos);
}

std::string taken(char* json) {
  const std::string text = json != nullptr ? json : "";
  crossover_free(json);
  return text;
}

class CApi : public ::testing::Test {
 protected:
  CApi() {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("crossover-c-api-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder_);
    database_ = (folder_ / "tuning.db").string();
    toy = {};
    for (const char* name : {"CROSSOVER_FORCE_ARM", "CROSSOVER_DISABLE_ARMS", "CROSSOVER_THRESHOLD", "CROSSOVER_FROZEN",
                             "CROSSOVER_ON_MISS"})
      unsetenv(name);
  }
  ~CApi() override {
    EXPECT_EQ(crossover_unbind(bound_), CROSSOVER_OK) << error();
    EXPECT_EQ(crossover_close(runtime_), CROSSOVER_OK) << error();
    std::filesystem::remove_all(folder_);
  }

  void open(crossover_on_miss on_miss = CROSSOVER_ON_MISS_FALLBACK, bool read_only = false) {
    auto options = sized<crossover_open_options>();
    options.database = database_.c_str();
    options.device = "cpu";
    options.on_miss = on_miss;
    options.read_only = read_only ? 1 : 0;
    options.max_rows = 16;
    options.budget_s = 0.2;
    ASSERT_EQ(crossover_open(&options, &runtime_), CROSSOVER_OK) << error();
  }

  // The layer n = 8, k = 16 of fp8_block_linear with weights 1 and a scale of 1/2.
  crossover_bind_options layer() {
    weights_ = sized<crossover_weights>();
    weights_.count = 2;
    weights_.data = weight_data_.data();
    auto options = sized<crossover_bind_options>();
    options.operation = "fp8_block_linear";
    options.problem = kProblem;
    options.weights = &weights_;
    return options;
  }

  void bind() {
    open();
    const auto options = layer();
    ASSERT_EQ(crossover_bind(runtime_, &options, &bound_), CROSSOVER_OK) << error();
  }

  crossover_arguments arguments() {
    auto table = sized<crossover_arguments>();
    table.input_count = table.output_count = 1;
    table.inputs = inputs_.data();
    table.outputs = outputs_.data();
    return table;
  }

  // Registers the toy under a name that no other test uses, and binds it.
  void bind_toy(crossover_on_miss on_miss = CROSSOVER_ON_MISS_FALLBACK, bool read_only = false) {
    open(on_miss, read_only);
    toy_fill(&tables_, name_.c_str(), "v1");
    ASSERT_EQ(crossover_register_operation(&tables_.operation), CROSSOVER_OK) << error();
    ASSERT_EQ(bind_toy_again(&bound_), CROSSOVER_OK) << error();
  }

  crossover_status bind_toy_again(crossover_bound** bound, const crossover_policy* policy = nullptr) {
    weights_ = sized<crossover_weights>();
    weights_.count = 1;
    weights_.data = toy_weights_.data();
    auto options = sized<crossover_bind_options>();
    options.operation = name_.c_str();
    options.problem = "";
    options.weights = &weights_;
    options.policy = policy;
    return crossover_bind(runtime_, &options, bound);
  }

  // On a busy or slow machine a verdict may be inconclusive, again and again.
  bool tuned() {
    return arm_at(4).find(" tuned") != std::string::npos && arm_at(8).find(" tuned") != std::string::npos;
  }

  // Measures the toy until the verdict is one, at most five times. Gives the last report.
  std::string tune_toy() {
    auto options = sized<crossover_tune_options>();
    options.operation = name_.c_str();
    options.problem = "unit=one";
    std::string report;
    for (int attempt = 0; attempt < 5 && !tuned(); ++attempt) {
      options.budget_s = 0.2 * (1 << attempt);
      char* json = nullptr;
      EXPECT_EQ(crossover_tune(runtime_, &options, &json), CROSSOVER_OK) << error();
      report = taken(json);
    }
    return report;
  }

  std::string arm_at(std::int64_t rows) {
    auto choice = sized<crossover_choice>();
    EXPECT_EQ(crossover_select(bound_, rows, CROSSOVER_LAUNCH_DEFAULT, &choice), CROSSOVER_OK) << error();
    return std::string(choice.arm) + " " + choice.origin_name;
  }

  std::filesystem::path folder_;
  std::string database_;
  crossover_runtime* runtime_ = nullptr;
  crossover_bound* bound_ = nullptr;
  std::vector<std::uint8_t> w_ = std::vector<std::uint8_t>(8 * 16, 0x38);
  float scale_ = 0.5f, toy_w_ = 3;
  std::array<const void*, 2> weight_data_{w_.data(), &scale_};
  std::array<const void*, 1> toy_weights_{&toy_w_};
  crossover_weights weights_{};
  alignas(16) std::array<std::uint16_t, 32 * 16> x_{};
  alignas(16) std::array<std::uint16_t, 32 * 8> y_{};
  Scratch workspace_{};
  std::array<const void*, 1> inputs_{x_.data()};
  std::array<void*, 1> outputs_{y_.data()};
  toy_tables tables_{};
  std::string name_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(CApi, VersionsAndTexts) {
  EXPECT_EQ(crossover_abi_version(), static_cast<std::uint32_t>(CROSSOVER_ABI_VERSION));
  EXPECT_STRNE(crossover_version(), "");
  EXPECT_STREQ(crossover_status_text(CROSSOVER_WORKSPACE_TOO_SMALL), "workspace too small");
  EXPECT_STREQ(crossover_status_text(12345), "unknown status");
  crossover_free(nullptr);
}

TEST_F(CApi, LaunchesTheBuiltInOperation) {
  bind();
  x_.fill(0x3F80);  // 1.0 in bf16
  const auto table = arguments();
  std::size_t bytes = 0;
  ASSERT_EQ(crossover_workspace_bytes(bound_, 3, &bytes), CROSSOVER_OK) << error();
  ASSERT_LE(bytes, workspace_.bytes.size());
  EXPECT_EQ(bytes % 256, 0u);
  const auto how = within(workspace_);
  ASSERT_EQ(crossover_launch(bound_, 3, &table, &how), CROSSOVER_OK) << error();
  for (int i = 0; i < 3 * 8; ++i) EXPECT_EQ(y_[static_cast<std::size_t>(i)], 0x4100) << i;  // 8.0
  EXPECT_EQ(y_[3 * 8], 0);
  EXPECT_EQ(arm_at(3), "host_vector fallback");
}

TEST_F(CApi, NothingIsLaunchedForNoRows) {
  bind();
  y_.fill(7);
  const auto table = arguments();
  EXPECT_EQ(crossover_launch(bound_, 0, &table, nullptr), CROSSOVER_OK) << error();
  EXPECT_EQ(crossover_launch(bound_, 0, nullptr, nullptr), CROSSOVER_OK) << error();
  EXPECT_EQ(y_[0], 7);
  EXPECT_EQ(arm_at(0), arm_at(1));
  std::size_t bytes = 1;
  EXPECT_EQ(crossover_workspace_bytes(bound_, 0, &bytes), CROSSOVER_OK) << error();
}

TEST_F(CApi, NullsAreErrors) {
  expect_error(crossover_open(nullptr, nullptr), CROSSOVER_INVALID_ARGUMENT, "crossover_runtime is NULL");
  EXPECT_EQ(crossover_close(nullptr), CROSSOVER_OK);
  EXPECT_EQ(crossover_unbind(nullptr), CROSSOVER_OK);
  expect_error(crossover_refresh(nullptr), CROSSOVER_INVALID_ARGUMENT, "NULL");
  bind();
  auto options = layer();
  auto choice = sized<crossover_choice>();
  char* json = nullptr;
  std::size_t bytes = 0;
  crossover_bound* bound = nullptr;
  expect_error(crossover_bind(nullptr, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "NULL");
  expect_error(crossover_bind(runtime_, nullptr, &bound), CROSSOVER_INVALID_ARGUMENT, "crossover_bind_options is NULL");
  expect_error(crossover_bind(runtime_, &options, nullptr), CROSSOVER_INVALID_ARGUMENT, "NULL");
  options.operation = nullptr;
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "operation is NULL");
  options = layer();
  options.problem = nullptr;
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "problem is NULL");
  options = layer();
  options.weights = nullptr;
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "the weights are W, S");
  options = layer();
  weights_.data = nullptr;
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "crossover_weights.data");
  options = layer();
  weight_data_[0] = nullptr;
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "null");
  EXPECT_EQ(bound, nullptr);

  expect_error(crossover_workspace_bytes(nullptr, 1, &bytes), CROSSOVER_INVALID_ARGUMENT, "crossover_bound is NULL");
  expect_error(crossover_workspace_bytes(bound_, 1, nullptr), CROSSOVER_INVALID_ARGUMENT, "NULL");
  expect_error(crossover_select(nullptr, 1, 0, &choice), CROSSOVER_INVALID_ARGUMENT, "crossover_bound is NULL");
  expect_error(crossover_select(bound_, 1, 0, nullptr), CROSSOVER_INVALID_ARGUMENT, "crossover_choice is NULL");
  expect_error(crossover_explain(nullptr, 1, 0, &json), CROSSOVER_INVALID_ARGUMENT, "NULL");
  expect_error(crossover_explain(bound_, 1, 0, nullptr), CROSSOVER_INVALID_ARGUMENT, "NULL");
  expect_error(crossover_tune(runtime_, nullptr, &json), CROSSOVER_INVALID_ARGUMENT, "NULL");
  expect_error(crossover_tune(nullptr, nullptr, &json), CROSSOVER_INVALID_ARGUMENT, "NULL");
  expect_error(crossover_register_operation(nullptr), CROSSOVER_INVALID_ARGUMENT, "crossover_operation is NULL");
  expect_error(crossover_load_plugin(nullptr), CROSSOVER_INVALID_ARGUMENT, "NULL");
  EXPECT_EQ(json, nullptr);

  auto table = arguments();
  expect_error(crossover_launch(nullptr, 1, &table, nullptr), CROSSOVER_INVALID_ARGUMENT, "crossover_bound is NULL");
  expect_error(crossover_launch(bound_, 1, nullptr, nullptr), CROSSOVER_INVALID_ARGUMENT,
               "crossover_arguments is NULL");
  table.inputs = nullptr;
  expect_error(crossover_launch(bound_, 1, &table, nullptr), CROSSOVER_INVALID_ARGUMENT, "inputs is NULL");
  table = arguments();
  table.input_count = 0;
  expect_error(crossover_launch(bound_, 1, &table, nullptr), CROSSOVER_INVALID_ARGUMENT, "");
  table.input_count = CROSSOVER_MAX_OPERANDS + 1;
  expect_error(crossover_launch(bound_, 1, &table, nullptr), CROSSOVER_INVALID_ARGUMENT, "17 inputs");
  table = arguments();
  inputs_[0] = nullptr;
  expect_error(crossover_launch(bound_, 1, &table, nullptr), CROSSOVER_INVALID_ARGUMENT, "null");
  inputs_[0] = x_.data();
  auto how = sized<crossover_launch_options>();
  how.workspace_bytes = 256;
  expect_error(crossover_launch(bound_, 1, &table, &how), CROSSOVER_INVALID_ARGUMENT, "workspace is NULL");
  how.workspace = workspace_.bytes.data() + 8;
  expect_error(crossover_launch(bound_, 1, &table, &how), CROSSOVER_INVALID_ARGUMENT, "aligned to 256");
}

TEST_F(CApi, BadValuesAreErrors) {
  bind();
  auto choice = sized<crossover_choice>();
  auto table = arguments();
  std::size_t bytes = 0;
  crossover_bound* bound = nullptr;
  for (const std::int64_t rows : {std::int64_t{-1}, std::numeric_limits<std::int64_t>::min()}) {
    expect_error(crossover_select(bound_, rows, 0, &choice), CROSSOVER_INVALID_ARGUMENT, "0 or more");
    expect_error(crossover_launch(bound_, rows, &table, nullptr), CROSSOVER_INVALID_ARGUMENT, "0 or more");
    expect_error(crossover_workspace_bytes(bound_, rows, &bytes), CROSSOVER_INVALID_ARGUMENT, "0 or more");
  }
  expect_error(crossover_select(bound_, 1, 3, &choice), CROSSOVER_INVALID_ARGUMENT, "crossover_launch_mode 3");
  EXPECT_EQ(crossover_select(bound_, kLargest, 0, &choice), CROSSOVER_OK) << error();
  EXPECT_EQ(crossover_workspace_bytes(bound_, kLargest, &bytes), CROSSOVER_OK) << error();

  auto options = layer();
  options.operation = "nosuch";
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "unknown operation 'nosuch'");
  for (const char* problem : {"n=8", "n=0,k=16", "n=-1,k=1", "n=9223372036854775808,k=9223372036854775807",
                              "n=8,k=16,x", "n=8,k=16,n=8", "n=8,k=16,colour=red", "=", "n=8,,k=16"}) {
    options = layer();
    options.problem = problem;
    expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "");
  }
  options = layer();
  auto policy = sized<crossover_policy>();
  options.policy = &policy;
  for (const double bound_of_error : {kNan, -1.0, std::numeric_limits<double>::infinity()}) {
    policy.max_error = bound_of_error;
    expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "max_error");
  }
  policy = sized<crossover_policy>();
  policy.workspace_bytes = -2;
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "workspace_bytes");
  policy = sized<crossover_policy>();
  policy.allow = "a16,b17";
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "unknown numerics class 'b17'");
  policy.allow = "a16,";
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "separated by commas");
  policy.allow = nullptr;
  policy.arms = "nosuch";
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "unknown arm 'nosuch'");
  EXPECT_EQ(bound, nullptr);

  weights_.count = std::numeric_limits<std::size_t>::max();
  options.policy = nullptr;
  expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT, "crossover_weights.count");

  auto tuned = sized<crossover_tune_options>();
  tuned.operation = "fp8_block_linear";
  tuned.problem = kProblem;
  for (const double budget : {kNan, -1.0, 1e300}) {
    tuned.budget_s = budget;
    expect_error(crossover_tune(runtime_, &tuned, nullptr), CROSSOVER_INVALID_ARGUMENT, "budget_s");
  }
  tuned.budget_s = 0;
  tuned.max_rows = -1;
  expect_error(crossover_tune(runtime_, &tuned, nullptr), CROSSOVER_INVALID_ARGUMENT, "max_rows");
  tuned.max_rows = 1;
  tuned.keep_arms = "host_vector,nosuch";
  expect_error(crossover_tune(runtime_, &tuned, nullptr), CROSSOVER_INVALID_ARGUMENT, "unknown arm 'nosuch'");
  tuned.keep_arms = nullptr;
  tuned.max_rows = kLargest;
  const crossover_status status = crossover_tune(runtime_, &tuned, nullptr);
  EXPECT_TRUE(status == CROSSOVER_OUT_OF_MEMORY || status == CROSSOVER_INVALID_ARGUMENT) << status << ": " << error();

  crossover_runtime* runtime = nullptr;
  auto opened = sized<crossover_open_options>();
  opened.device = "abacus";
  expect_error(crossover_open(&opened, &runtime), CROSSOVER_INVALID_ARGUMENT, "unknown device");
  opened = sized<crossover_open_options>();
  opened.on_miss = 4;
  expect_error(crossover_open(&opened, &runtime), CROSSOVER_INVALID_ARGUMENT, "crossover_on_miss 4");
  opened = sized<crossover_open_options>();
  opened.database = "";
  expect_error(crossover_open(&opened, &runtime), CROSSOVER_INVALID_ARGUMENT, "database is empty");
  opened = sized<crossover_open_options>();
  opened.l2 = -1;
  expect_error(crossover_open(&opened, &runtime), CROSSOVER_INVALID_ARGUMENT, "crossover_l2 -1");
  EXPECT_EQ(runtime, nullptr);
}

TEST_F(CApi, StructSizes) {
  bind();
  auto options = layer();
  crossover_bound* bound = nullptr;
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, offsetof(crossover_bind_options, problem),
                                 std::numeric_limits<std::size_t>::max()}) {
    options.struct_size = size;
    expect_error(crossover_bind(runtime_, &options, &bound), CROSSOVER_INVALID_ARGUMENT,
                 "struct_size is " + std::to_string(size));
  }
  // An older caller's struct: what it does not have is 0, whatever follows it in memory.
  auto policy = sized<crossover_policy>();
  policy.allow = "nosuch";
  options = layer();
  options.policy = &policy;
  options.struct_size = offsetof(crossover_bind_options, policy);
  ASSERT_EQ(crossover_bind(runtime_, &options, &bound), CROSSOVER_OK) << error();
  EXPECT_EQ(crossover_unbind(bound), CROSSOVER_OK);
  bound = nullptr;
  // A newer caller's struct: works unless it uses what this library does not know.
  struct {
    crossover_bind_options known;
    std::uint64_t unknown;
  } newer{layer(), 0};
  newer.known.struct_size = sizeof newer;
  ASSERT_EQ(crossover_bind(runtime_, &newer.known, &bound), CROSSOVER_OK) << error();
  EXPECT_EQ(crossover_unbind(bound), CROSSOVER_OK);
  newer.unknown = 1;
  expect_error(crossover_bind(runtime_, &newer.known, &bound), CROSSOVER_INVALID_ARGUMENT, "does not know");
  // Nothing beyond what the caller has is written.
  struct {
    std::size_t struct_size;
    const char* arm;
    std::uint64_t guard;
  } older{offsetof(crossover_choice, origin_name), nullptr, 42};
  ASSERT_EQ(crossover_select(bound_, 1, 0, reinterpret_cast<crossover_choice*>(&older)), CROSSOVER_OK) << error();
  EXPECT_STREQ(older.arm, "host_vector");
  EXPECT_EQ(older.guard, 42u);
  crossover_choice choice{};
  expect_error(crossover_select(bound_, 1, 0, &choice), CROSSOVER_INVALID_ARGUMENT, "struct_size is 0");
}

TEST_F(CApi, ClosedHandlesAreErrors) {
  bind();
  crossover_bound* const bound = bound_;
  crossover_runtime* const runtime = runtime_;
  bound_ = nullptr;
  runtime_ = nullptr;
  EXPECT_EQ(crossover_close(runtime), CROSSOVER_OK) << error();
  // What was bound goes on.
  auto choice = sized<crossover_choice>();
  EXPECT_EQ(crossover_select(bound, 1, 0, &choice), CROSSOVER_OK) << error();
  const auto table = arguments();
  const auto how = within(workspace_);
  EXPECT_EQ(crossover_launch(bound, 1, &table, &how), CROSSOVER_OK) << error();
  EXPECT_EQ(crossover_unbind(bound), CROSSOVER_OK) << error();

  expect_error(crossover_unbind(bound), CROSSOVER_INVALID_ARGUMENT, "the crossover_bound is closed");
  expect_error(crossover_select(bound, 1, 0, &choice), CROSSOVER_INVALID_ARGUMENT, "closed");
  expect_error(crossover_launch(bound, 0, &table, nullptr), CROSSOVER_INVALID_ARGUMENT, "closed");
  expect_error(crossover_close(runtime), CROSSOVER_INVALID_ARGUMENT, "the crossover_runtime is closed");
  expect_error(crossover_refresh(runtime), CROSSOVER_INVALID_ARGUMENT, "closed");
  const auto options = layer();
  crossover_bound* other = nullptr;
  expect_error(crossover_bind(runtime, &options, &other), CROSSOVER_INVALID_ARGUMENT, "closed");
}

TEST_F(CApi, ADatabaseThatCannotBeUsedIsAWarning) {
  std::vector<std::string> warnings;
  auto options = sized<crossover_open_options>();
  options.device = "cpu";
  options.on_miss = CROSSOVER_ON_MISS_FALLBACK;
  options.warn_context = &warnings;
  options.warn = [](void* context, const char* message) {
    static_cast<std::vector<std::string>*>(context)->emplace_back(message);
  };
  std::filesystem::create_directories(folder_ / "a folder");
  const std::string path = (folder_ / "a folder").string();
  options.database = path.c_str();
  ASSERT_EQ(crossover_open(&options, &runtime_), CROSSOVER_OK) << error();
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr("going on without a database"));
  const auto bind_options = layer();
  ASSERT_EQ(crossover_bind(runtime_, &bind_options, &bound_), CROSSOVER_OK) << error();
  EXPECT_EQ(arm_at(1), "host_vector fallback");
}

TEST_F(CApi, ErrorsBelongToTheThread) {
  expect_error(crossover_refresh(nullptr), CROSSOVER_INVALID_ARGUMENT, "NULL");
  const std::string mine = error();
  std::thread([] {
    EXPECT_EQ(error(), "");
    expect_error(crossover_load_plugin("/nosuch.so"), CROSSOVER_PLUGIN, "there is no plug-in /nosuch.so");
  }).join();
  EXPECT_EQ(error(), mine);
  EXPECT_STRNE(crossover_version(), "");  // a call that succeeds leaves it
  EXPECT_EQ(error(), mine);
}

TEST_F(CApi, ThreadsShareABound) {
  bind();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      alignas(16) std::array<std::uint16_t, 4 * 8> y;
      Scratch scratch;
      const auto how = within(scratch);
      const std::array<void*, 1> outputs{y.data()};
      auto table = arguments();
      table.outputs = outputs.data();
      for (int repeat = 0; repeat < 50; ++repeat) {
        auto choice = sized<crossover_choice>();
        EXPECT_EQ(crossover_select(bound_, 4, 0, &choice), CROSSOVER_OK);
        EXPECT_EQ(crossover_launch(bound_, 4, &table, &how), CROSSOVER_OK) << error();
        if (repeat % 10 == 0) {
          EXPECT_EQ(crossover_refresh(runtime_), CROSSOVER_OK);
        }
      }
    });
  }
  for (std::thread& each : threads) each.join();
}

TEST_F(CApi, ThreadsRegisterOperations) {
  std::vector<std::thread> threads;
  std::atomic<int> taken_names = 0;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string own = name_ + std::to_string(i);
      toy_tables tables;
      toy_fill(&tables, own.c_str(), "v1");
      EXPECT_EQ(crossover_register_operation(&tables.operation), CROSSOVER_OK) << error();
      tables.operation.name = name_.c_str();  // of the four that want this name one gets it
      if (crossover_register_operation(&tables.operation) == CROSSOVER_OK) ++taken_names;
    });
  }
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(taken_names, 1);
  open();
  EXPECT_EQ(bind_toy_again(&bound_), CROSSOVER_OK) << error();
}

// ---- Operations of the caller

TEST_F(CApi, AnOperationIsTunedAndDispatched) {
  bind_toy();
  EXPECT_EQ(arm_at(4), "plain fallback");
  EXPECT_EQ(arm_at(5), "tiled/2 fallback");
  const std::string report = tune_toy();
  if (!tuned()) GTEST_SKIP() << kTooBusy;
  EXPECT_THAT(report, AllOf(HasSubstr("{\"unit\":\"one\"}"), HasSubstr("\"segments\":[{\"from\":1,"),
                            HasSubstr("\"not_stored\":null"), HasSubstr("\"id\":\"")));

  char* json = nullptr;
  ASSERT_EQ(crossover_explain(bound_, 4, CROSSOVER_LAUNCH_EAGER, &json), CROSSOVER_OK) << error();
  const std::string why = taken(json);
  EXPECT_THAT(why, AllOf(HasSubstr("\"origin\":\"tuned\""), HasSubstr("\"verdict\":\""),
                         HasSubstr("\"measured_rows\":4"), HasSubstr("\"runners_up\":[{\"arm\":")));

  const std::array<float, 5> x{1, 2, 3, 4, 5};
  std::array<float, 6> y{};
  inputs_[0] = x.data();
  outputs_[0] = y.data();
  auto table = arguments();
  auto how = sized<crossover_launch_options>();
  how.workspace = workspace_.bytes.data();
  ASSERT_EQ(crossover_workspace_bytes(bound_, 5, &how.workspace_bytes), CROSSOVER_OK) << error();
  ASSERT_EQ(crossover_launch(bound_, 5, &table, &how), CROSSOVER_OK) << error();
  EXPECT_THAT(y, ::testing::ElementsAre(3, 6, 9, 12, 15, 0));
  // What was prepared is destroyed.
  EXPECT_EQ(crossover_unbind(bound_), CROSSOVER_OK);
  bound_ = nullptr;
  EXPECT_EQ(crossover_close(runtime_), CROSSOVER_OK);
  runtime_ = nullptr;
  EXPECT_GT(toy.prepared, 0);
  EXPECT_EQ(toy.prepared, toy.destroyed);
}

#ifndef __SANITIZE_ADDRESS__
TEST_F(CApi, SelectAndLaunchAllocateNothing) {
  allocations = 0;
  bind_toy();
  EXPECT_GT(allocations, 0);
  const float x = 2;
  float y = 0;
  inputs_[0] = &x;
  outputs_[0] = &y;
  const auto table = arguments();
  const auto how = within(workspace_);
  auto choice = sized<crossover_choice>();
  allocations = 0;
  const crossover_status selected = crossover_select(bound_, 1, CROSSOVER_LAUNCH_DEFAULT, &choice);
  const crossover_status launched = crossover_launch(bound_, 1, &table, &how);
  EXPECT_EQ(allocations, 0);
  EXPECT_EQ(selected, CROSSOVER_OK);
  EXPECT_EQ(launched, CROSSOVER_OK);
  EXPECT_EQ(y, 6);
}
#endif

TEST_F(CApi, AMissTunesAndTheConfigurationIsRestored) {
  setenv("CROSSOVER_DISABLE_ARMS", "plain", 1);
  bind_toy(CROSSOVER_ON_MISS_TUNE);
  EXPECT_GT(toy.launched, 0);  // bind() measured
  tune_toy();
  if (!tuned()) GTEST_SKIP() << kTooBusy;
  EXPECT_EQ(arm_at(8), "tiled/2 tuned");
  char* json = nullptr;
  ASSERT_EQ(crossover_explain(bound_, 8, CROSSOVER_LAUNCH_DEFAULT, &json), CROSSOVER_OK) << error();
  EXPECT_THAT(taken(json), HasSubstr("\"config\":\"step=2\""));
  // An arm that no longer knows the configuration which was measured is not served as tuned.
  toy.config = "step=3";
  crossover_bound* again = nullptr;
  ASSERT_EQ(bind_toy_again(&again), CROSSOVER_OK) << error();
  auto choice = sized<crossover_choice>();
  EXPECT_EQ(crossover_select(again, 8, 0, &choice), CROSSOVER_OK);
  EXPECT_NE(choice.origin, CROSSOVER_ORIGIN_TUNED);
  EXPECT_EQ(crossover_unbind(again), CROSSOVER_OK);
}

TEST_F(CApi, WhatIsReadOnlyStaysInMemory) {
  bind_toy(CROSSOVER_ON_MISS_FALLBACK, true);
  const std::string report = tune_toy();
  if (!tuned()) GTEST_SKIP() << kTooBusy;
  EXPECT_THAT(report, AllOf(HasSubstr("\"id\":null"), HasSubstr("\"not_stored\":\"")));
  EXPECT_FALSE(std::filesystem::exists(database_));
}

TEST_F(CApi, AWrongResultIsNotServed) {
  toy.wrong = 1;
  bind_toy();
  auto options = sized<crossover_tune_options>();
  options.operation = name_.c_str();
  options.problem = "";
  char* json = nullptr;
  ASSERT_EQ(crossover_tune(runtime_, &options, &json), CROSSOVER_OK) << error();
  EXPECT_THAT(taken(json), ::testing::Not(HasSubstr("\"arm\":\"tiled/2\"")));
  EXPECT_NE(arm_at(8), "tiled/2 tuned");
}

TEST_F(CApi, StatusesOfACallersFunctionsComeBack) {
  bind_toy();
  auto table = arguments();
  for (const crossover_status status : {CROSSOVER_INVALID_ARGUMENT, CROSSOVER_UNSUPPORTED, CROSSOVER_OUT_OF_MEMORY,
                                        CROSSOVER_WORKSPACE_TOO_SMALL, CROSSOVER_DEVICE}) {
    toy.launch_status = status;
    expect_error(crossover_launch(bound_, 1, &table, nullptr), status, "the arm");
  }
  toy.launch_status = 4711;
  expect_error(crossover_launch(bound_, 1, &table, nullptr), CROSSOVER_DEVICE, "the arm's launch failed");
  toy.launch_status = CROSSOVER_OK;
  expect_error(crossover_launch(bound_, 5, &table, nullptr), CROSSOVER_WORKSPACE_TOO_SMALL, "workspace");
  crossover_bound* again = nullptr;
  toy.normalise_status = CROSSOVER_INVALID_ARGUMENT;
  expect_error(bind_toy_again(&again), CROSSOVER_INVALID_ARGUMENT, "the toy refuses");
  toy.normalise_status = CROSSOVER_FAILED;
  expect_error(bind_toy_again(&again), CROSSOVER_FAILED, "the toy refuses");
  toy.normalise_status = CROSSOVER_OK;
  toy_weights_[0] = nullptr;
  expect_error(bind_toy_again(&again), CROSSOVER_INVALID_ARGUMENT, "the weights are w");
  EXPECT_EQ(again, nullptr);
}

TEST_F(CApi, ReasonsForPeopleArrive) {
  setenv("CROSSOVER_FORCE_ARM", "elsewhere", 1);
  open();
  toy_fill(&tables_, name_.c_str(), "v1");
  ASSERT_EQ(crossover_register_operation(&tables_.operation), CROSSOVER_OK) << error();
  expect_error(bind_toy_again(&bound_), CROSSOVER_INVALID_ARGUMENT, "this arm can do nothing (unit = any)");
}

TEST_F(CApi, TablesThatMakeNoSenseAreErrors) {
  const auto refused = [&](const char* part, const auto& change) {
    toy_fill(&tables_, name_.c_str(), "v1");
    change(tables_);
    expect_error(crossover_register_operation(&tables_.operation), CROSSOVER_INVALID_ARGUMENT, part);
  };
  refused("struct_size is 0", [](toy_tables& t) { t.operation.struct_size = 0; });
  refused("crossover_arm.struct_size is 8", [](toy_tables& t) { t.tiled.struct_size = 8; });
  refused("crossover_operation.name is NULL", [](toy_tables& t) { t.operation.name = nullptr; });
  refused("cannot be named ''", [](toy_tables& t) { t.operation.name = ""; });
  refused("cannot be named 'a b'", [](toy_tables& t) { t.operation.name = "a b"; });
  refused("already registered", [](toy_tables& t) { t.operation.name = "fp8_block_linear"; });
  refused("numerics is missing", [](toy_tables& t) { t.operation.numerics_count = 0; });
  refused("arms is missing", [](toy_tables& t) { t.operation.arms = nullptr; });
  refused("default_arms is missing", [](toy_tables& t) { t.operation.default_arms = nullptr; });
  refused("workload_check is missing", [](toy_tables& t) { t.operation.workload_check = nullptr; });
  refused("crossover_arm is NULL", [](toy_tables& t) { t.arms[1] = nullptr; });
  refused("crossover_numerics is NULL", [](toy_tables& t) { t.numerics[0] = nullptr; });
  refused("two arms", [](toy_tables& t) { t.tiled.name = "plain"; });
  refused("cannot be named 'a,b'", [](toy_tables& t) { t.tiled.name = "a,b"; });
  refused("launch is NULL", [](toy_tables& t) { t.tiled.launch = nullptr; });
  refused("supports is NULL", [](toy_tables& t) { t.tiled.supports = nullptr; });
  refused("numerics class 'fuzzy'", [](toy_tables& t) { t.tiled.numerics = "fuzzy"; });
  refused("a flag", [](toy_tables& t) { t.tiled.flags = 1u << 20; });
  refused("fingerprint is empty", [](toy_tables& t) { t.tiled.fingerprint = ""; });
  // This program is linked without a build-id, and its arms are in it.
  refused("has no build-id", [](toy_tables& t) { t.plain.fingerprint = nullptr; });
  // An older caller's tables: without the last field.
  toy_fill(&tables_, name_.c_str(), "v1");
  tables_.operation.struct_size = offsetof(crossover_operation, workload_destroy);
  tables_.plain.struct_size = offsetof(crossover_arm, destroy);
  EXPECT_EQ(crossover_register_operation(&tables_.operation), CROSSOVER_OK) << error();
  expect_error(crossover_register_operation(&tables_.operation), CROSSOVER_INVALID_ARGUMENT, "already registered");
}

// Nothing that is appended lands in the padding of an older struct.
#define CROSSOVER_ENDS_WITH(table, last) \
  static_assert(offsetof(table, last) + sizeof(table::last) == sizeof(table), #table " ends in padding")
CROSSOVER_ENDS_WITH(crossover_weights, row_strides);
CROSSOVER_ENDS_WITH(crossover_arguments, output_row_strides);
CROSSOVER_ENDS_WITH(crossover_launch_options, reserved);
CROSSOVER_ENDS_WITH(crossover_policy, extrapolate);
CROSSOVER_ENDS_WITH(crossover_open_options, warn);
CROSSOVER_ENDS_WITH(crossover_bind_options, policy);
CROSSOVER_ENDS_WITH(crossover_choice, reserved);
CROSSOVER_ENDS_WITH(crossover_tune_options, seed);
CROSSOVER_ENDS_WITH(crossover_text, capacity);
CROSSOVER_ENDS_WITH(crossover_problem, values);
CROSSOVER_ENDS_WITH(crossover_device, memory_gib);
CROSSOVER_ENDS_WITH(crossover_eligibility, reason);
CROSSOVER_ENDS_WITH(crossover_cost, bytes_moved);
CROSSOVER_ENDS_WITH(crossover_prepare, max_rows);
CROSSOVER_ENDS_WITH(crossover_arm, destroy);
CROSSOVER_ENDS_WITH(crossover_numerics, flags);
CROSSOVER_ENDS_WITH(crossover_default_arms, count);
CROSSOVER_ENDS_WITH(crossover_tile_edges, count);
CROSSOVER_ENDS_WITH(crossover_memory, fill);
CROSSOVER_ENDS_WITH(crossover_workload, seed);
CROSSOVER_ENDS_WITH(crossover_check, detail);
CROSSOVER_ENDS_WITH(crossover_operation, workload_destroy);
CROSSOVER_ENDS_WITH(crossover_plugin, operations);

}  // namespace
