#include "crossover/cuda/handles.hpp"

namespace crossover::cuda {

void check(cudaError_t error, const std::string& doing, SourceLocation where) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // what is not sticky must not surface in somebody else's next call
  const std::string text = doing + " failed: " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")";
  if (error == cudaErrorMemoryAllocation) throw OutOfMemory(text, {}, where);
  throw DeviceError(
      text,
      error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction
          ? "this build has no code for the device's architecture: configure with CMAKE_CUDA_ARCHITECTURES"
          : "",
      where);
}

Status status_of(cudaError_t error) noexcept {
  if (error == cudaSuccess) return {};
  static_cast<void>(cudaGetLastError());
  return {error == cudaErrorMemoryAllocation ? Status::Code::out_of_memory : Status::Code::device_failed,
          static_cast<std::int32_t>(error), cudaGetErrorString(error)};
}

CurrentDevice::CurrentDevice(int ordinal) : ordinal_(ordinal) {
  check(cudaGetDevice(&previous_), "asking for the current device");
  if (previous_ != ordinal_) {
    check(cudaSetDevice(ordinal_), "making CUDA device " + std::to_string(ordinal_) + " current");
  }
}

CurrentDevice::~CurrentDevice() {
  if (previous_ != ordinal_) static_cast<void>(cudaSetDevice(previous_));
}

int device_of(const void* data) {
  cudaPointerAttributes attributes{};
  check(cudaPointerGetAttributes(&attributes, data), "asking where memory lies");
  if (attributes.type != cudaMemoryTypeDevice && attributes.type != cudaMemoryTypeManaged) {
    throw InvalidArgument("the weights are not in a device's memory");
  }
  return attributes.device;
}

OwnedStream make_stream() {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
  return OwnedStream(stream);
}

OwnedEvent make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "making an event");
  return OwnedEvent(event);
}

Buffer::Buffer(std::size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), "allocating " + std::to_string(bytes) + " bytes of device memory");
  data_ = Owned<void*, &cudaFree>(data);
}

}  // namespace crossover::cuda
