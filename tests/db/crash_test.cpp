// Many processes and threads at once, and processes that die while they write.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>

#include "support.hpp"

namespace crossover {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::make_key;
using test::make_run;
using Access = Store::Access;

// A naive first open lost 27–30% of 640 processes. MIOpen#2214: locking errors.
TEST(Concurrency, MIOpen2214SixteenProcessesOfFourThreadsOpenANewDatabaseAndLoseNothing) {
  constexpr int kProcesses = 16, kThreads = 4, kRuns = 2;
  const Folder folder;
  const fs::path path = folder / "x" / "a.db";
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process)
    children.push_back(test::start_child([&] {
      ::close(gate[1]);
      char byte = 0;
      static_cast<void>(::read(gate[0], &byte, 1));  // until every process is there
      std::atomic<int> failures = 0;
      std::vector<std::thread> threads;
      for (int thread = 0; thread < kThreads; ++thread)
        threads.emplace_back([&, thread] {
          try {
            const auto store = Store::open(path, Access::read_write);
            for (int run = 0; run < kRuns; ++run) {
              const int number = (process * kThreads + thread) * kRuns + run;
              store->append(make_run(make_key(number % 3), static_cast<std::uint64_t>(number), 1));
              store->runs(make_key(number % 3));
            }
          } catch (const std::exception& error) {
            ADD_FAILURE() << error.what();
            ++failures;
          }
        });
      for (std::thread& thread : threads) thread.join();
      return failures.load();
    }));
  ::close(gate[0]);
  ::close(gate[1]);
  for (const pid_t child : children) EXPECT_EQ(test::wait_for(child), 0);
  const auto store = Store::open(path, Access::lookup_only);
  std::set<std::int64_t> started;
  for (int key = 0; key < 3; ++key)
    for (crossover::Run& run : store->runs(make_key(key))) {
      EXPECT_TRUE(store->load(run));
      started.insert(run.started_us);
    }
  EXPECT_EQ(started.size(), static_cast<std::size_t>(kProcesses * kThreads * kRuns));
  EXPECT_TRUE(store->warnings().empty());
}

TEST(Concurrency, OneStoreServesManyThreads) {
  const Folder folder;
  const auto store = Store::open(folder / "a.db", Access::read_write);
  const auto reader = Store::open(folder / "a.db", Access::lookup_only);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 10; ++i) {
        const EvidenceKey key = make_key(thread % 4);
        const Id id = store->append(make_run(key, static_cast<std::uint64_t>(thread * 100 + i), 1));
        store->put(test::make_verdict(key, {id}));
        store->generation();
        Request request;
        request.key = key;
        store->request(request);
        for (crossover::Run& run : reader->runs(key)) EXPECT_TRUE(reader->load(run));
        EXPECT_FALSE(store->verdicts(key).empty());
        EXPECT_TRUE(store->warnings().empty());
        reader->generation();
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::size_t runs = 0;
  for (int key = 0; key < 4; ++key) runs += store->runs(make_key(key)).size();
  EXPECT_EQ(runs, 80u);
  EXPECT_EQ(store->requests().size(), 4u);
}

// Starts a child that stores one run after the other, waits until it has said so of `progress` of them and then for
// `after`, kills it, and gives the runs that it had said were stored. Bound to the child's progress, not to the clock:
// on a slow machine a kill would else come before there is anything to lose.
std::vector<Id> write_until_killed(const fs::path& path, std::uint64_t first_seed, std::size_t progress,
                                   std::chrono::microseconds after) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = test::start_child([&] {
    ::close(ends[0]);
    const auto store = Store::open(path, Access::read_write);
    for (std::uint64_t seed = first_seed;; ++seed) {
      const Id id = store->append(make_run(make_key(1), seed, 2));
      if (::write(ends[1], id.bytes.data(), id.bytes.size()) != static_cast<ssize_t>(id.bytes.size())) return 1;
    }
  });
  ::close(ends[1]);
  std::vector<Id> stored;
  const auto next = [&] {
    Id id;
    if (::read(ends[0], id.bytes.data(), id.bytes.size()) != static_cast<ssize_t>(id.bytes.size())) return false;
    stored.push_back(id);
    return true;
  };
  while (stored.size() < progress && next()) {
  }
  std::this_thread::sleep_for(after);
  if (child <= 1) throw std::logic_error("no child to kill");
  ::kill(child, SIGKILL);
  EXPECT_EQ(test::wait_for(child), 128 + SIGKILL);
  while (next()) {
  }
  ::close(ends[0]);
  return stored;
}

// How long a new process takes here to open a new database and store one run.
std::chrono::microseconds time_of_first_write() {
  const Folder folder;
  const auto start = std::chrono::steady_clock::now();
  write_until_killed(folder / "x" / "a.db", 1, 1, std::chrono::microseconds(0));
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start);
}

// TensorRT-LLM#14441: half a file after a kill.
TEST(Crash, TensorRTLLM14441KilledWhileWritingKeepsWhatWasStored) {
  std::mt19937_64 random(1);
  int unfinished = 0;
  for (int database = 0; database < 10; ++database) {
    const Folder folder;
    const fs::path path = folder / "a.db";
    std::set<Id> stored;
    for (std::uint64_t round = 0; round < 30; ++round) {
      const std::chrono::microseconds after(random() % 3'000);
      for (const Id& id : write_until_killed(path, round * 100'000, 1 + random() % 3, after)) stored.insert(id);
      // What the lookup of another process sees at this moment: the truth, or a clear error.
      try {
        const auto lookup = Store::open(path, Access::lookup_only);
        EXPECT_GE(lookup->runs(make_key(1)).size(), stored.size());
        EXPECT_TRUE(lookup->warnings().empty());
      } catch (const StoreError& error) {
        ++unfinished;
        EXPECT_NE(std::string(error.what()).find("died while it wrote"), std::string::npos) << error.what();
      }
    }
    EXPECT_GE(stored.size(), 30u);
    const auto store = Store::open(path, Access::read_write);
    store->append(make_run(make_key(2), 1));
    std::set<Id> found;
    for (crossover::Run& run : store->runs(make_key(1))) {
      EXPECT_TRUE(store->load(run));
      found.insert(run.id);
    }
    for (const Id& id : stored) EXPECT_TRUE(found.contains(id)) << id.hex();
    EXPECT_TRUE(store->warnings().empty());
  }
  RecordProperty("kills_that_left_a_write_unfinished", unfinished);
}

TEST(Crash, KilledDuringTheFirstOpenLeavesSomethingThatCanBeUsed) {
  const auto whole = static_cast<std::uint64_t>(time_of_first_write().count());
  std::mt19937_64 random(2);
  for (int round = 0; round < 60; ++round) {
    const Folder folder;
    const fs::path path = folder / "x" / "a.db";
    const auto stored = write_until_killed(path, 1, 0, std::chrono::microseconds(random() % (whole + 1)));
    const auto store = Store::open(path, Access::read_write);
    store->append(make_run(make_key(2), 1));
    EXPECT_GE(store->runs(make_key(1)).size(), stored.size());
    EXPECT_EQ(store->runs(make_key(2)).size(), 1u);
    EXPECT_TRUE(store->warnings().empty());
  }
}

}  // namespace
}  // namespace crossover
