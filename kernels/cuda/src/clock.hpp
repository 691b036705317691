#pragma once
// The multiprocessors' clock, measured in the stream.

#include <cuda_runtime_api.h>

#include <cstdint>

#include "crossover/cuda/handles.hpp"

namespace crossover::cuda {

class SmClock {
 public:
  SmClock();  // of the current device
  // Enqueues a measurement of about 10 µs.
  void enqueue(cudaStream_t stream);
  // Of the last measurement, once the stream has been waited for. 0: unknown.
  double mhz() const noexcept;

 private:
  // Written by the device.
  struct Reading {
    std::uint64_t cycles, ns;
  };
  Owned<void*, &cudaFreeHost> memory_;
  Reading* reading_ = nullptr;
};

}  // namespace crossover::cuda
