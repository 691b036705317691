#include <algorithm>

#include "crossover/cuda/handles.hpp"
#include "find.hpp"

namespace crossover::cuda {
namespace {

constexpr unsigned kThreads = 256, kMostBlocks = 4096;

// Four elements a step where the address allows it, so that it runs at the memory's speed.
__global__ void find16_kernel(const std::uint16_t* data, unsigned long long count, unsigned mask, unsigned least,
                              unsigned long long* first) {
  const unsigned long long begin = blockIdx.x * static_cast<unsigned long long>(kThreads) + threadIdx.x;
  const unsigned long long step = static_cast<unsigned long long>(gridDim.x) * kThreads;
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % 8 == 0;
  const unsigned long long quads = aligned ? count / 4 : 0;
  unsigned long long found = count;
  const auto look = [&](unsigned value, unsigned long long index) {
    if ((value & mask) >= least && index < found) found = index;
  };
  for (unsigned long long i = begin; i < quads; i += step) {
    const ushort4 value = reinterpret_cast<const ushort4*>(data)[i];
    look(value.x, 4 * i);
    look(value.y, 4 * i + 1);
    look(value.z, 4 * i + 2);
    look(value.w, 4 * i + 3);
  }
  for (unsigned long long i = 4 * quads + begin; i < count; i += step) look(data[i], i);
  if (found < count) atomicMin(first, found);
}

}  // namespace

std::size_t find16(const void* data, std::size_t count, std::uint16_t mask, std::uint16_t least, cudaStream_t stream) {
  unsigned long long first = count;
  const Buffer result(sizeof(first));
  check(cudaMemcpyAsync(result.data(), &first, sizeof(first), cudaMemcpyHostToDevice, stream), "looking at an output");
  const std::size_t blocks = (count / 4 + kThreads - 1) / kThreads;
  find16_kernel<<<static_cast<unsigned>(std::clamp<std::size_t>(blocks, 1, kMostBlocks)), kThreads, 0, stream>>>(
      static_cast<const std::uint16_t*>(data), count, mask, least, result.as<unsigned long long>());
  check(cudaGetLastError(), "looking at an output");
  check(cudaMemcpyAsync(&first, result.data(), sizeof(first), cudaMemcpyDeviceToHost, stream), "looking at an output");
  check(cudaStreamSynchronize(stream), "looking at an output");
  return static_cast<std::size_t>(first);
}

}  // namespace crossover::cuda
