#pragma once
// Whether this process can use a CUDA device at all. Needs no CUDA header, and no driver to be installed.

#include <string>

namespace crossover {

struct CudaDevices {
  int count = 0;
  std::string why_none;  // one sentence for people where count is 0: no driver, one that is too old, no device
};
// Never throws for a host without a usable device: that is an answer. Thread-safe.
CudaDevices cuda_devices();

// Runs a small kernel on the device with this ordinal and compares every element it wrote: proves that the device takes
// code of this build. Waits for it; the caller's current device stays what it was. Thread-safe.
// Throws InvalidArgument for an ordinal that is not there (lists the valid ones), DeviceError for what the device or
// its driver could not do (a build without code for its architecture among it).
void probe_cuda_device(int ordinal);

}  // namespace crossover
