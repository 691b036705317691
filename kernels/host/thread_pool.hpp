#pragma once
// The threads that host arms share: one persistent pool per process, as many threads as the affinity mask allowed when
// the pool was first used, the caller of run() included.
//
// One job runs at a time. A caller that finds the pool busy does its whole job itself, as does a forked child, in which
// the workers do not exist. So run() never waits for another caller, and never fails.

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace crossover::host {

class ThreadPool {
 public:
  // The process's pool. The workers start with the first job that can use them.
  static ThreadPool& instance();

  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const noexcept { return threads_; }

  // Calls task(index, slot) for every index in [0, count), on at most `threads` threads, the calling one being one of
  // them, and returns when all calls have returned. slot is in [0, threads); calls with the same slot never overlap.
  // Which slot gets which index is not determined. The task must not throw and must not call run().
  template <class Task>
  void run(std::int64_t count, int threads, Task& task) noexcept {
    static_assert(std::is_nothrow_invocable_v<Task&, std::int64_t, int>);
    run_erased(
        count, threads,
        [](void* context, std::int64_t index, int slot) noexcept { (*static_cast<Task*>(context))(index, slot); },
        &task);
  }

 private:
  using Call = void (*)(void* context, std::int64_t index, int slot) noexcept;

  void run_erased(std::int64_t count, int threads, Call call, void* context) noexcept;
  void start() noexcept;
  void work() noexcept;
  void take(int slot) noexcept;
  int enter() noexcept;  // the slot that a worker gets in the open job; 0: none to be had
  void leave() noexcept;

  const int threads_;
  const pid_t process_;
  std::mutex busy_;  // held by the caller whose job it is; guards workers_
  std::vector<std::thread> workers_;
  bool started_ = false;

  // The job. Written by its caller while the job is closed and nobody is inside; read by workers that have entered.
  Call call_ = nullptr;
  void* context_ = nullptr;
  std::int64_t count_ = 0;
  std::uint32_t limit_ = 0;  // workers that may enter
  alignas(64) std::atomic<std::int64_t> next_{0};
  // kOpen | workers that have entered so far << 15 | workers inside now
  alignas(64) std::atomic<std::uint32_t> state_{0};
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // raised by every job; what idle workers watch
  std::atomic<bool> stop_{false};
};

}  // namespace crossover::host
