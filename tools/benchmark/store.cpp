// What opening a database costs: the start of every process that dispatches.

#include <benchmark/benchmark.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>

#include "benchmarks.hpp"
#include "crossover/dispatch/error.hpp"
#include "evidence.hpp"

namespace crossover::bench {
namespace {

namespace fs = std::filesystem;
constexpr int kStoredProblems = 1000;

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& where) {
    std::string pattern = (where / "crossover-benchmark-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw Failure("no temporary folder can be made in " + where.string());
    path_ = pattern;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// A database of 1,000 problems, each with its run and its verdict. Filled in memory, where a durable commit costs
// nothing, then copied to where temporary files go.
const fs::path& database() {
  static const TemporaryFolder folder(fs::temp_directory_path());
  static const fs::path path = [] {
    const fs::path memory = "/dev/shm";
    const TemporaryFolder fast(fs::is_directory(memory) ? memory : fs::temp_directory_path());
    {
      const auto store = Store::open(fast.path() / "tuning.db", Store::Access::read_write);
      for (int number = 0; number < kStoredProblems; ++number) store_lines(*store, number);
    }
    fs::copy_file(fast.path() / "tuning.db", folder.path() / "tuning.db");
    return folder.path() / "tuning.db";
  }();
  return path;
}

double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

void store_open(benchmark::State& state) {
  const fs::path& path = database();
  double open_ms = 0, read_ms = 0;
  for (auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    const auto store = Store::open(path, Store::Access::lookup_only);
    open_ms += ms_since(start);
    const auto opened = std::chrono::steady_clock::now();
    const std::vector<Verdict> verdicts = store->all_verdicts();
    read_ms += ms_since(opened);
    if (verdicts.size() != kStoredProblems) {
      fail(state, "the store did not give back every verdict");
      break;
    }
  }
  state.counters["open_ms"] = benchmark::Counter(open_ms, benchmark::Counter::kAvgIterations);
  state.counters["read_ms"] = benchmark::Counter(read_ms, benchmark::Counter::kAvgIterations);
  state.SetLabel("open for lookups, read and check the verdicts of 1,000 problems, close");
}

}  // namespace

void register_store() { benchmark::RegisterBenchmark("store/open", store_open)->Unit(benchmark::kMillisecond); }

}  // namespace crossover::bench
