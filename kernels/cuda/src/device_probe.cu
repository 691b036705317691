#include "crossover/cuda/device_probe.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "crossover/dispatch/error.hpp"

namespace crossover {
namespace {

// A last block that is partly idle: 1,000 is no multiple of the block size.
constexpr std::uint32_t kProbeElements = 1000;
constexpr unsigned kProbeThreads = 128;
constexpr std::uint64_t kProbeSeed = 0x243f6a8885a308d3;

// The finaliser of SplitMix64 over seed + index: no element is what memory might happen to hold.
__host__ __device__ constexpr std::uint64_t probe_value(std::uint64_t seed, std::uint32_t index) {
  std::uint64_t z = seed + (std::uint64_t{index} + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

__global__ void probe_kernel(std::uint64_t* values, std::uint32_t count, std::uint64_t seed) {
  const std::uint32_t index = blockIdx.x * blockDim.x + threadIdx.x;
  if (index < count) values[index] = probe_value(seed, index);
}

void check(cudaError_t error, int ordinal, const char* doing) {
  if (error == cudaSuccess) return;
  cudaGetLastError();  // what is not sticky must not surface in somebody else's next call
  throw DeviceError(
      "CUDA device " + std::to_string(ordinal) + " failed while " + doing + ": " + cudaGetErrorString(error) + " (" +
          cudaGetErrorName(error) + ")",
      error == cudaErrorNoKernelImageForDevice
          ? "This build has no code for the device's architecture: configure with CMAKE_CUDA_ARCHITECTURES."
          : "");
}

class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal) {
    check(cudaGetDevice(&previous_), ordinal, "asking which device is current");
    check(cudaSetDevice(ordinal), ordinal, "being made current");
  }
  ~CurrentDevice() { cudaSetDevice(previous_); }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  int previous_ = 0;
};

struct OwnedStream {
  cudaStream_t handle = nullptr;
  ~OwnedStream() {
    if (handle != nullptr) cudaStreamDestroy(handle);
  }
};

struct OwnedMemory {
  std::uint64_t* data = nullptr;
  ~OwnedMemory() {
    if (data != nullptr) cudaFree(data);
  }
};

}  // namespace

CudaDevices cuda_devices() {
  CudaDevices found;
  const cudaError_t error = cudaGetDeviceCount(&found.count);
  if (error == cudaSuccess && found.count > 0) return found;
  cudaGetLastError();
  found.count = 0;
  switch (error) {
    case cudaSuccess:
    case cudaErrorNoDevice:
      found.why_none = "there is no CUDA device that this process may use";
      break;
    case cudaErrorInsufficientDriver: {
      int driver = 0;
      if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
      const auto version = [](int number) {
        return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
      };
      found.why_none = driver == 0 ? "no NVIDIA driver is loaded"
                                   : "the NVIDIA driver is too old: it supports CUDA " + version(driver) +
                                         ", this program was built with " + version(CUDART_VERSION);
      break;
    }
    default:
      found.why_none =
          std::string("CUDA cannot be used: ") + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
  }
  return found;
}

void probe_cuda_device(int ordinal) {
  const CudaDevices devices = cuda_devices();
  if (devices.count == 0) throw DeviceError("CUDA device " + std::to_string(ordinal) + ": " + devices.why_none);
  if (ordinal < 0 || ordinal >= devices.count) {
    throw InvalidArgument("there is no CUDA device " + std::to_string(ordinal) + "; valid: 0 to " +
                          std::to_string(devices.count - 1));
  }

  const CurrentDevice current(ordinal);
  OwnedStream stream;
  OwnedMemory memory;
  constexpr std::size_t kBytes = kProbeElements * sizeof(std::uint64_t);
  std::vector<std::uint64_t> values(kProbeElements);
  check(cudaStreamCreateWithFlags(&stream.handle, cudaStreamNonBlocking), ordinal, "making a stream");
  check(cudaMalloc(&memory.data, kBytes), ordinal, "allocating memory");
  check(cudaMemsetAsync(memory.data, 0xff, kBytes, stream.handle), ordinal, "filling memory");
  probe_kernel<<<(kProbeElements + kProbeThreads - 1) / kProbeThreads, kProbeThreads, 0, stream.handle>>>(
      memory.data, kProbeElements, kProbeSeed);
  check(cudaGetLastError(), ordinal, "launching the probe kernel");
  check(cudaMemcpyAsync(values.data(), memory.data, kBytes, cudaMemcpyDeviceToHost, stream.handle), ordinal,
        "copying back");
  check(cudaStreamSynchronize(stream.handle), ordinal, "running the probe kernel");
  for (std::uint32_t index = 0; index < kProbeElements; ++index) {
    if (values[index] != probe_value(kProbeSeed, index)) {
      throw DeviceError("CUDA device " + std::to_string(ordinal) + " computed a wrong value at element " +
                        std::to_string(index) + " of the probe kernel");
    }
  }
}

}  // namespace crossover
