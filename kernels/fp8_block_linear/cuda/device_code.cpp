#include "device_code.hpp"

#include <cuda_runtime_api.h>

#include <initializer_list>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "cuda_arms.hpp"

namespace crossover::fp8_block_linear_detail {
namespace {

std::span<const DeviceCode> table() { return {kDeviceCode, kDeviceCodeCount}; }

// Code for architecture 10 · X + Y runs on devices X.Z with Z >= Y.
bool runs(unsigned architecture, unsigned major, unsigned minor) {
  return architecture / 10 == major && architecture % 10 <= minor;
}

// The architecture whose code runs on the first device; without a device the highest there is.
unsigned architecture() {
  static const unsigned found = [] {
    unsigned highest = 0, best = 0;
    int major = 0, minor = 0;
    const bool device = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess &&
                        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) == cudaSuccess;
    static_cast<void>(cudaGetLastError());
    for (const DeviceCode& code : table()) {
      highest = code.architecture > highest ? code.architecture : highest;
      if (device && runs(code.architecture, static_cast<unsigned>(major), static_cast<unsigned>(minor)) &&
          code.architecture > best) {
        best = code.architecture;
      }
    }
    return best != 0 ? best : highest;
  }();
  return found;
}

}  // namespace

std::string device_code_fingerprint(std::initializer_list<std::string_view> parts) {
  std::string fingerprint;
  for (const std::string_view part : parts) {
    std::string digest = "none";  // no device of this host runs it
    for (const DeviceCode& code : table()) {
      if (code.part == part && code.architecture == architecture()) digest = code.digest;
    }
    fingerprint += (fingerprint.empty() ? "" : ".") + digest;
  }
  return fingerprint;
}

bool has_code_for(std::string_view compute_capability, std::string& list) {
  const std::size_t dot = compute_capability.find('.');
  unsigned major = 0, minor = 0;
  for (const char c : compute_capability.substr(0, dot)) major = major * 10 + static_cast<unsigned>(c - '0');
  if (dot != std::string_view::npos) {
    for (const char c : compute_capability.substr(dot + 1)) minor = minor * 10 + static_cast<unsigned>(c - '0');
  }
  std::set<unsigned> have;
  for (const DeviceCode& code : table()) have.insert(code.architecture);
  for (const unsigned each : have) {
    if (runs(each, major, minor)) return true;
    list += (list.empty() ? "" : ", ") + std::to_string(each / 10) + "." + std::to_string(each % 10);
  }
  return false;
}

}  // namespace crossover::fp8_block_linear_detail
