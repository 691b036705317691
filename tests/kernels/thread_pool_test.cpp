#include "../../kernels/host/thread_pool.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

namespace crossover::host {
namespace {

void expect_each_once(ThreadPool& pool, std::int64_t count, int threads) {
  std::vector<int> calls(static_cast<std::size_t>(count));
  std::vector<std::atomic<int>> inside(static_cast<std::size_t>(std::max(threads, 1)));
  std::atomic<bool> overlap{false}, bad_slot{false};
  auto task = [&](std::int64_t index, int slot) noexcept {
    if (slot < 0 || slot >= std::max(threads, 1)) {
      bad_slot = true;
      return;
    }
    if (inside[static_cast<std::size_t>(slot)].fetch_add(1) != 0) overlap = true;
    ++calls[static_cast<std::size_t>(index)];
    inside[static_cast<std::size_t>(slot)].fetch_sub(1);
  };
  pool.run(count, threads, task);
  EXPECT_FALSE(overlap);
  EXPECT_FALSE(bad_slot);
  for (const int n : calls) ASSERT_EQ(n, 1);
}

TEST(ThreadPool, CallsEveryIndexOnce) {
  ThreadPool pool(4);
  EXPECT_EQ(pool.threads(), 4);
  for (int round = 0; round < 200; ++round) {
    for (const std::int64_t count : {0, 1, 2, 3, 4, 5, 100}) {
      for (const int threads : {0, 1, 2, 3, 4, 9}) expect_each_once(pool, count, threads);
    }
  }
}

TEST(ThreadPool, WorkersSleepAndWakeAgain) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    expect_each_once(pool, 1000, 3);
    usleep(3000);
  }
}

TEST(ThreadPool, EndsWhetherUsedOrNot) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(1 + i % 5);
    if (i % 3 != 0) expect_each_once(pool, 7, 5);
  }
}

TEST(ThreadPool, SeveralCallersAtOnce) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  for (int c = 0; c < 4; ++c) {
    callers.emplace_back([&pool] {
      for (int i = 0; i < 300; ++i) expect_each_once(pool, 1 + i % 13, 3);
    });
  }
  for (std::thread& caller : callers) caller.join();
}

TEST(ThreadPool, ResultsAreSeenByTheCaller) {
  ThreadPool pool(4);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int64_t> values(64);
    auto task = [&](std::int64_t index, int) noexcept { values[static_cast<std::size_t>(index)] = index * round; };
    pool.run(64, 4, task);
    std::int64_t sum = 0;
    for (const std::int64_t value : values) sum += value;
    ASSERT_EQ(sum, std::int64_t{63} * 32 * round);
  }
}

#if !defined(__SANITIZE_THREAD__)
// Engines fork: a child has no workers, and must neither wait for them nor for their end.
TEST(ThreadPool, WorksInAForkedChild) {
  ThreadPool pool(4);
  expect_each_once(pool, 100, 4);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    std::int64_t sum = 0;
    auto task = [&sum](std::int64_t index, int) noexcept { sum += index; };
    pool.run(100, 4, task);
    pool.~ThreadPool();
    _exit(sum == 4950 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  expect_each_once(pool, 100, 4);
}
#endif

TEST(ThreadPool, TheProcessHasOne) {
  EXPECT_EQ(&ThreadPool::instance(), &ThreadPool::instance());
  EXPECT_GE(ThreadPool::instance().threads(), 1);
  expect_each_once(ThreadPool::instance(), 50, ThreadPool::instance().threads());
}

}  // namespace
}  // namespace crossover::host
