#pragma once
// What the GPU tests share: the device, or the reason to skip; layers with the test's own data on it.

#include <gtest/gtest.h>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "../kernels/kernel_test.hpp"
#include "crossover/cuda/backend.hpp"
#include "crossover/cuda/device_probe.hpp"

namespace crossover::test {

// One for the whole process; null where there is no device.
inline Backend* gpu() {
  static const std::unique_ptr<Backend> backend = cuda_devices().count > 0 ? cuda_backend(0) : nullptr;
  return backend.get();
}
#define CROSSOVER_SKIP_WITHOUT_GPU() \
  if (::crossover::test::gpu() == nullptr) GTEST_SKIP() << "needs a GPU: " << ::crossover::cuda_devices().why_none

// The arms that run on a CUDA device of some kind, in the operation's order. Names only: no device is needed to list
// them.
inline const std::vector<std::string>& cuda_arm_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Arm* arm : fp8_block_linear().arms()) {
      if (!arm->id().name.starts_with("host_")) all.push_back(arm->id().name);
    }
    return all;
  }();
  return names;
}
inline const Arm& arm_named(const std::string& name) { return *fp8_block_linear().find(name); }
inline std::string as_test_name(std::string name) {
  for (char& c : name) {
    if (c == '/') c = '_';
  }
  return name;
}

class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) : data_(gpu()->memory().allocate(bytes)), bytes_(bytes) {
    gpu()->memory().fill(data_, 0xFF, bytes);
  }
  DeviceBytes(const void* host, std::size_t bytes) : DeviceBytes(bytes) { gpu()->memory().upload(data_, host, bytes); }
  ~DeviceBytes() { gpu()->memory().release(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  void* data() const { return data_; }
  operator Workspace() const { return {data_, bytes_}; }

 private:
  void* data_;
  std::size_t bytes_;
};

// A Layer on the device.
class DeviceLayer {
 public:
  explicit DeviceLayer(const Layer& layer)
      : layer_(layer),
        w_(layer.w, static_cast<std::size_t>(layer.p.n * layer.p.k)),
        scales_(layer.scales.data(), layer.scales.size() * 4),
        bias_(layer.bias.data(), layer.bias.size() * 4),
        x_(layer.x.data(), layer.x.size() * 2) {}

  Weights weights() const {
    return fp8_block_linear_weights(w_.data(), static_cast<const float*>(scales_.data()),
                                    layer_.p.bias == Element::f32 ? bias_.data() : nullptr);
  }
  std::unique_ptr<Prepared> prepare(const Arm& arm) const {
    return arm.prepare(layer_.p.problem(), weights(), "", layer_.rows);
  }
  // Rows [first, first + rows) of X; Y with its gaps.
  std::vector<std::uint16_t> run(const Arm& arm, Prepared& prepared, Rows first, Rows rows) const {
    std::vector<std::uint16_t> y(static_cast<std::size_t>(rows * layer_.p.y_row_stride), Layer::kUntouched);
    const DeviceBytes out(y.data(), y.size() * 2), workspace(arm.cost(layer_.p.problem(), rows).workspace_bytes);
    const Fp8BlockLinearArguments arguments(
        static_cast<const std::uint16_t*>(x_.data()) + first * layer_.p.x_row_stride, out.data(), layer_.p.x_row_stride,
        layer_.p.y_row_stride);
    const Timing timing = gpu()->run({&prepared, arguments, rows, workspace});
    EXPECT_TRUE(timing.status.ok()) << timing.status.message;
    gpu()->memory().download(y.data(), out.data(), y.size() * 2);
    return y;
  }
  std::vector<std::uint16_t> run(const Arm& arm) const { return run(arm, *prepare(arm), 0, layer_.rows); }

 private:
  const Layer& layer_;
  DeviceBytes w_, scales_, bias_, x_;
};

// Relative L2 of the rows against the layer's f64 reference; NaN anywhere gives NaN.
inline double relative_error(Layer& layer, const std::vector<std::uint16_t>& y) {
  double difference = 0, size = 0;
  for (Rows r = 0; r < layer.rows; ++r) {
    for (std::int64_t n = 0; n < layer.p.n; ++n) {
      const double expected = layer.reference(r, n).value;
      const double value = to_double(layer.p.dtype, y[static_cast<std::size_t>(r * layer.p.y_row_stride + n)]);
      difference += (value - expected) * (value - expected);
      size += expected * expected;
    }
  }
  return std::sqrt(difference / size);
}
inline double error_bound(const Arm& arm) {
  return arm.numerics() == "a16" ? 2.5e-3 : arm.numerics() == "w16" ? 4e-3 : 5e-2;
}

}  // namespace crossover::test
