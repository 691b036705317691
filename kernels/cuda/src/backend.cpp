#include "crossover/cuda/backend.hpp"

#include <cublasLt.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "clock.hpp"
#include "crossover/cuda/device_probe.hpp"
#include "crossover/cuda/handles.hpp"
#include "find.hpp"
#include "nvml.hpp"

namespace crossover {
namespace {

using cuda::check;

std::string cuda_version(int number) {
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

class CudaMemory final : public Memory {
 public:
  CudaMemory(int ordinal, cudaStream_t stream) : ordinal_(ordinal), stream_(stream) {}

  void* allocate(std::size_t bytes) override {
    const cuda::CurrentDevice current(ordinal_);
    void* data = nullptr;
    check(cudaMalloc(&data, std::max<std::size_t>(bytes, 1)),
          "allocating " + std::to_string(bytes) + " bytes of device memory");
    return data;
  }
  void release(void* data) noexcept override { static_cast<void>(cudaFree(data)); }
  void upload(void* destination, const void* source, std::size_t bytes) override {
    transfer(destination, source, bytes, cudaMemcpyHostToDevice, "copying to the device");
  }
  void download(void* destination, const void* source, std::size_t bytes) override {
    transfer(destination, source, bytes, cudaMemcpyDeviceToHost, "copying from the device");
  }
  void copy(void* destination, const void* source, std::size_t bytes) override {
    transfer(destination, source, bytes, cudaMemcpyDeviceToDevice, "copying on the device");
  }
  void fill(void* destination, std::uint8_t byte, std::size_t bytes) override {
    const cuda::CurrentDevice current(ordinal_);
    if (bytes > 0) check(cudaMemsetAsync(destination, byte, bytes, stream_), "filling device memory");
    check(cudaStreamSynchronize(stream_), "filling device memory");
  }
  std::size_t available_bytes() override {
    const cuda::CurrentDevice current(ordinal_);
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "asking for free device memory");
    return free;
  }
  std::optional<std::size_t> find16(const void* data, std::size_t count, std::uint16_t mask,
                                    std::uint16_t least) override {
    const cuda::CurrentDevice current(ordinal_);
    return cuda::find16(data, count, mask, least, stream_);
  }

 private:
  void transfer(void* destination, const void* source, std::size_t bytes, cudaMemcpyKind kind, const char* doing) {
    const cuda::CurrentDevice current(ordinal_);
    if (bytes > 0) check(cudaMemcpyAsync(destination, source, bytes, kind, stream_), doing);
    check(cudaStreamSynchronize(stream_), doing);
  }

  const int ordinal_;
  const cudaStream_t stream_;
};

class CudaBatch final : public Batch {
 public:
  std::vector<Launch> launches;  // of an eager batch
  cuda::OwnedGraphExec graph;    // null: eager
  Status status;                 // of what could not be captured
};

class CudaBackend final : public Backend {
 public:
  // The device is current.
  CudaBackend(int ordinal, Environment build)
      : ordinal_(ordinal),
        environment_(std::move(build)),
        stream_(cuda::make_stream()),
        begin_(cuda::make_event()),
        end_(cuda::make_event()),
        memory_(ordinal, stream_.get()) {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal),
          "reading the properties of CUDA device " + std::to_string(ordinal));
    device_.kind = "cuda";
    device_.model = properties.name;
    device_.compute_capability = std::to_string(properties.major) + "." + std::to_string(properties.minor);
    device_.sm_count = properties.multiProcessorCount;
    device_.l2_bytes = properties.l2CacheSize;
    device_.memory_gib = std::llround(static_cast<double>(properties.totalGlobalMem) / double(1 << 30));

    char bus_id[32] = {};
    check(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), ordinal), "reading the device's bus id");
    nvml_.open(bus_id);

    int driver = 0, runtime = 0;
    check(cudaDriverGetVersion(&driver), "reading the driver's version");
    check(cudaRuntimeGetVersion(&runtime), "reading the CUDA runtime's version");
    const std::string driver_name = nvml_.driver_version();
    environment_[std::string(environment_field::driver)] =
        driver_name.empty() ? "cuda " + cuda_version(driver) : driver_name;
    environment_[std::string(environment_field::cuda)] = cuda_version(runtime);
    // Two transfers a clock: double data rate, as for every memory of a CUDA device so far.
    int memory_khz = 0, bus_bits = 0;
    check(cudaDeviceGetAttribute(&memory_khz, cudaDevAttrMemoryClockRate, ordinal), "reading the memory clock");
    check(cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, ordinal), "reading the memory bus width");
    peak_bytes_per_second_ = 2e3 * memory_khz * bus_bits / 8;
    environment_[std::string(environment_field::cublaslt)] = std::to_string(cublasLtGetVersion());
  }

  const Device& device() const override { return device_; }
  Environment environment() const override { return environment_; }
  Conditions conditions() override { return nvml_.conditions(idle_partners); }  // any thread
  std::span<const LaunchMode> launch_modes() const override {
    static constexpr LaunchMode kModes[]{LaunchMode::graph, LaunchMode::eager};
    return kModes;
  }
  Memory& memory() override { return memory_; }
  // Three times L2 would do; an H200's L2 keeps some lines longer than that.
  std::size_t cold_pool_bytes() override { return 4 * static_cast<std::size_t>(device_.l2_bytes); }

  Timing run(const Launch& launch) override {
    const cuda::CurrentDevice current(ordinal_);
    CudaBatch batch;
    batch.launches.push_back(launch);
    return time_on_stream(batch, false);
  }

  std::unique_ptr<Batch> batch(LaunchMode mode, std::vector<Launch> launches) override {
    const cuda::CurrentDevice current(ordinal_);
    auto batch = std::make_unique<CudaBatch>();
    batch->launches = std::move(launches);
    if (mode == LaunchMode::graph) capture(*batch);
    return batch;
  }

  Timing time(Batch& batch) override {
    const cuda::CurrentDevice current(ordinal_);
    Timing timing = time_on_stream(dynamic_cast<CudaBatch&>(batch), true);
    // What the device says of its clock holds for a while; asking after every batch would leave it idle in between.
    const std::int64_t now = now_ns();
    if (now - flags_read_ns_ >= kFlagsPeriodNs) {
      flags_ = nvml_.round_flags();
      flags_read_ns_ = now_ns();
    }
    timing.flags = flags_;
    return timing;
  }

  // Events resolve half a microsecond: 0.1% of this.
  double min_round_ns() const override { return 500e3; }
  CleanLimits limits() const override { return {}; }
  double peak_bytes_per_second() const override { return peak_bytes_per_second_; }
  bool is_shared() const override { return true; }
  bool reads_clock() const override { return true; }
  std::string gpu_uuid() const override { return nvml_.uuid(); }
  std::int64_t now_ns() override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  std::int64_t unix_time_us() override {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
  void sleep_ns(std::int64_t ns) override { std::this_thread::sleep_for(std::chrono::nanoseconds(ns)); }

 private:
  Status enqueue(const std::vector<Launch>& launches) {
    for (const Launch& launch : launches) {
      const Status status =
          launch.prepared->launch(launch.arguments, launch.rows, launch.workspace, Stream{stream_.get()});
      if (!status.ok()) return status;
    }
    return {};
  }

  void capture(CudaBatch& batch) {
    check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "beginning to capture a graph");
    batch.status = enqueue(batch.launches);
    cudaGraph_t raw = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream_.get(), &raw);
    const cuda::OwnedGraph graph(raw);
    if (batch.status.ok()) batch.status = cuda::status_of(error);
    if (!batch.status.ok()) {
      static_cast<void>(cudaGetLastError());
      return;
    }
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph.get(), 0),
          "making a graph of " + std::to_string(batch.launches.size()) + " launches");
    batch.graph = cuda::OwnedGraphExec(executable);
    check(cudaGraphUpload(executable, stream_.get()), "uploading a graph");
    check(cudaStreamSynchronize(stream_.get()), "uploading a graph");
  }

  Timing time_on_stream(CudaBatch& batch, bool with_clock) {
    Timing timing;
    timing.status = batch.status;
    if (!timing.status.ok()) return timing;
    const cudaStream_t stream = stream_.get();
    check(cudaEventRecord(begin_.get(), stream), "recording an event");
    timing.status = batch.graph.get() != nullptr ? cuda::status_of(cudaGraphLaunch(batch.graph.get(), stream))
                                                 : enqueue(batch.launches);
    check(cudaEventRecord(end_.get(), stream), "recording an event");
    if (with_clock) clock_.enqueue(stream);
    const Status status = cuda::status_of(cudaStreamSynchronize(stream));
    if (timing.status.ok()) timing.status = status;
    if (!timing.status.ok()) return timing;
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "reading the time between two events");
    timing.total_ns = static_cast<double>(milliseconds) * 1e6;
    if (with_clock) timing.sm_clock_mhz = clock_.mhz();
    return timing;
  }

  static constexpr std::int64_t kFlagsPeriodNs = 20'000'000;

  const int ordinal_;
  Device device_;
  Environment environment_;
  double peak_bytes_per_second_ = 0;
  std::uint32_t flags_ = 0;
  std::int64_t flags_read_ns_ = 0;
  cuda::OwnedStream stream_;
  cuda::OwnedEvent begin_, end_;
  cuda::SmClock clock_;
  cuda::Nvml nvml_;
  CudaMemory memory_;
};

}  // namespace

std::unique_ptr<Backend> cuda_backend(int ordinal, Environment build) {
  const CudaDevices devices = cuda_devices();
  if (devices.count == 0) throw DeviceError("CUDA device " + std::to_string(ordinal) + ": " + devices.why_none);
  if (ordinal < 0 || ordinal >= devices.count) {
    throw InvalidArgument("there is no CUDA device " + std::to_string(ordinal) + "; valid: 0 to " +
                          std::to_string(devices.count - 1));
  }
  const cuda::CurrentDevice current(ordinal);
  return std::make_unique<CudaBackend>(ordinal, std::move(build));
}

}  // namespace crossover
