#include "clock.hpp"

namespace crossover::cuda {
namespace {

constexpr std::uint64_t kMeasureNs = 10'000;

__device__ std::uint64_t global_ns() {
  std::uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// From one tick of the global timer to another: how coarse it is does not matter.
__global__ void clock_kernel(std::uint64_t* cycles, std::uint64_t* ns) {
  const std::uint64_t before = global_ns();
  std::uint64_t first = before, last = before;
  while (first == before) first = global_ns();
  const std::uint64_t first_cycle = static_cast<std::uint64_t>(clock64());
  while (last < first + kMeasureNs) last = global_ns();
  *cycles = static_cast<std::uint64_t>(clock64()) - first_cycle;
  *ns = last - first;
}

}  // namespace

SmClock::SmClock() {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, sizeof(Reading), cudaHostAllocMapped), "allocating pinned memory");
  memory_ = Owned<void*, &cudaFreeHost>(memory);
  reading_ = new (memory) Reading{};
}

void SmClock::enqueue(cudaStream_t stream) {
  *reading_ = {};
  void* device = nullptr;
  check(cudaHostGetDevicePointer(&device, reading_, 0), "mapping pinned memory");
  Reading* const reading = static_cast<Reading*>(device);
  clock_kernel<<<1, 1, 0, stream>>>(&reading->cycles, &reading->ns);
  check(cudaGetLastError(), "launching the clock kernel");
}

double SmClock::mhz() const noexcept {
  return reading_->ns == 0 ? 0 : static_cast<double>(reading_->cycles) / static_cast<double>(reading_->ns) * 1e3;
}

}  // namespace crossover::cuda
