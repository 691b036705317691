#include "thread_pool.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

namespace crossover::host {
namespace {

constexpr std::uint32_t kOpen = 1u << 31;
constexpr std::uint32_t kEntered = 1u << 15;
constexpr std::uint32_t kInsideMask = kEntered - 1;
constexpr std::uint32_t kEnteredMask = ~(kOpen | kInsideMask);
constexpr int kMaxThreads = 1024;
// How often an idle worker looks before it sleeps: some tens of microseconds, the gap between two layers of a model.
// Longer would take the core from whatever runs next, another library's threads for example.
constexpr int kSpins = 400;

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

int allowed_threads() noexcept {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::clamp(CPU_COUNT(&set), 1, kMaxThreads);
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads);
}

}  // namespace

ThreadPool& ThreadPool::instance() {
  static ThreadPool pool(allowed_threads());
  return pool;
}

ThreadPool::ThreadPool(int threads) : threads_(std::clamp(threads, 1, kMaxThreads)), process_(getpid()) {}

ThreadPool::~ThreadPool() {
  if (getpid() != process_) {
    // A forked child: there is no thread behind the handles, so they can be neither joined nor detached.
    static const auto* const abandoned = new std::vector<std::thread>(std::move(workers_));
    static_cast<void>(abandoned);
    return;
  }
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::start() noexcept {
  started_ = true;
  try {
    workers_.reserve(static_cast<std::size_t>(threads_ - 1));
    for (int i = 1; i < threads_; ++i) workers_.emplace_back([this] { work(); });
  } catch (const std::exception&) {
    // Fewer workers: slower, and still right.
  }
}

void ThreadPool::run_erased(std::int64_t count, int threads, Call call, void* context) noexcept {
  const std::int64_t wanted = std::min<std::int64_t>({count, threads, threads_});
  std::unique_lock lock(busy_, std::defer_lock);
  if (wanted <= 1 || !lock.try_lock()) {
    for (std::int64_t i = 0; i < count; ++i) call(context, i, 0);
    return;
  }
  if (!started_) start();
  call_ = call;
  context_ = context;
  count_ = count;
  limit_ = static_cast<std::uint32_t>(wanted - 1);
  next_.store(0, std::memory_order_relaxed);
  state_.store(kOpen, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  take(0);
  std::uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acquire) & ~kOpen;
  for (int spin = 0; (state & kInsideMask) != 0; ++spin) {
    if (spin < kSpins) {
      pause();
    } else {
      state_.wait(state, std::memory_order_acquire);
    }
    state = state_.load(std::memory_order_acquire);
  }
}

void ThreadPool::take(int slot) noexcept {
  for (;;) {
    const std::int64_t index = next_.fetch_add(1, std::memory_order_relaxed);
    if (index >= count_) return;
    call_(context_, index, slot);
  }
}

int ThreadPool::enter() noexcept {
  std::uint32_t state = state_.load(std::memory_order_acquire);
  for (;;) {
    if ((state & kOpen) == 0) return 0;
    const std::uint32_t entered = (state & kEnteredMask) / kEntered;
    // limit_ may be read only by a worker inside; one that is too many leaves again at once.
    if (state_.compare_exchange_weak(state, state + kEntered + 1, std::memory_order_acquire,
                                     std::memory_order_acquire)) {
      if (entered < limit_) return static_cast<int>(entered + 1);
      leave();
      return 0;
    }
  }
}

void ThreadPool::leave() noexcept {
  const std::uint32_t state = state_.fetch_sub(1, std::memory_order_release) - 1;
  if ((state & (kOpen | kInsideMask)) == 0) state_.notify_one();
}

void ThreadPool::work() noexcept {
  std::uint32_t seen = 0;
  for (;;) {
    std::uint32_t epoch = epoch_.load(std::memory_order_acquire);
    for (int spin = 0; epoch == seen; ++spin) {
      if (spin < kSpins) {
        pause();
      } else {
        epoch_.wait(seen, std::memory_order_acquire);
      }
      epoch = epoch_.load(std::memory_order_acquire);
    }
    seen = epoch;
    if (stop_.load(std::memory_order_relaxed)) return;
    if (const int slot = enter(); slot != 0) {
      take(slot);
      leave();
    }
  }
}

}  // namespace crossover::host
