#pragma once
// Owners of what the CUDA runtime hands out, and the translation of its errors. For our own arms and back end, and for
// engines that bring theirs.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <utility>

#include "crossover/dispatch/error.hpp"
#include "crossover/dispatch/operation.hpp"

namespace crossover::cuda {

// Throws OutOfMemory or DeviceError with a sentence that begins with `doing`, for people: "allocating 64 bytes".
void check(cudaError_t error, const std::string& doing, SourceLocation where = SourceLocation::current());
// The same as a Status, for launches. Clears the runtime's last error.
Status status_of(cudaError_t error) noexcept;

// Makes a device current for the calling thread, and the previous one again at the end.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = 0, ordinal_ = 0;
};

// The device that holds `data`. Throws InvalidArgument for memory that no device holds.
int device_of(const void* data);

// A move-only owner of a handle. kDestroy must not throw; its result is ignored.
template <typename Handle, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Handle handle) noexcept : handle_(handle) {}
  Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, Handle{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != Handle{}) static_cast<void>(kDestroy(handle_));
  }
  Handle get() const noexcept { return handle_; }

 private:
  Handle handle_{};
};

using OwnedStream = Owned<cudaStream_t, &cudaStreamDestroy>;
using OwnedEvent = Owned<cudaEvent_t, &cudaEventDestroy>;
using OwnedGraph = Owned<cudaGraph_t, &cudaGraphDestroy>;
using OwnedGraphExec = Owned<cudaGraphExec_t, &cudaGraphExecDestroy>;

OwnedStream make_stream();  // does not wait for the legacy default stream
OwnedEvent make_event();    // with timing

// Device memory of the current device, aligned to 256 bytes. 0 bytes: nothing, a null pointer.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  void* data() const noexcept { return data_.get(); }
  std::size_t bytes() const noexcept { return bytes_; }
  template <typename T>
  T* as() const noexcept {
    return static_cast<T*>(data_.get());
  }

 private:
  Owned<void*, &cudaFree> data_;
  std::size_t bytes_ = 0;
};

}  // namespace crossover::cuda
