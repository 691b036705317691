#include "counting.hpp"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <shared_mutex>

#include "crossover/dispatch/error.hpp"

namespace crossover::bench {
namespace {

thread_local constinit Counts thread_counts;

void* allocate(std::size_t size, std::size_t alignment) {
  ++thread_counts.allocations;
  if (size == 0) size = 1;
  void* memory = alignment <= alignof(std::max_align_t)
                     ? std::malloc(size)
                     : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

template <typename Lock>
int forward(const char* name, std::atomic<int (*)(Lock*)>& next, Lock* lock) {
  ++thread_counts.locks;
  int (*function)(Lock*) = next.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<int (*)(Lock*)>(dlsym(RTLD_NEXT, name));
    next.store(function, std::memory_order_relaxed);
  }
  return function(lock);
}

}  // namespace

Counts counts() noexcept { return thread_counts; }

void check_that_counting_works() {
  const Counts before = counts();
  std::mutex mutex;
  std::shared_mutex shared;
  {
    const std::lock_guard lock(mutex);
    const std::shared_lock reader(shared);
    delete new volatile int(1);
  }
  const Counts after = counts();
  if (after.allocations != before.allocations + 1 || after.locks != before.locks + 2)
    throw Failure("allocations or locks are not counted: this program cannot say that there were none");
}

}  // namespace crossover::bench

void* operator new(std::size_t size) { return crossover::bench::allocate(size, alignof(std::max_align_t)); }
void* operator new[](std::size_t size) { return crossover::bench::allocate(size, alignof(std::max_align_t)); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return crossover::bench::allocate(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return crossover::bench::allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

// NOLINTBEGIN(bugprone-macro-parentheses): an argument is a type, or the name of what is defined
// Visible, so that the shared libraries of this process find these before the C library's.
#define CROSSOVER_COUNTED_LOCK(function, type)                                 \
  extern "C" __attribute__((visibility("default"))) int function(type* lock) { \
    static constinit std::atomic<int (*)(type*)> next{nullptr};                \
    return crossover::bench::forward(#function, next, lock);                   \
  }
CROSSOVER_COUNTED_LOCK(pthread_mutex_lock, pthread_mutex_t)
CROSSOVER_COUNTED_LOCK(pthread_mutex_trylock, pthread_mutex_t)
CROSSOVER_COUNTED_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
CROSSOVER_COUNTED_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
CROSSOVER_COUNTED_LOCK(pthread_rwlock_tryrdlock, pthread_rwlock_t)
CROSSOVER_COUNTED_LOCK(pthread_rwlock_trywrlock, pthread_rwlock_t)
// NOLINTEND(bugprone-macro-parentheses)
