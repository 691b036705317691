#include "crossover/cuda/device_probe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "crossover/dispatch/error.hpp"

namespace crossover {
namespace {

using testing::HasSubstr;

TEST(DeviceProbe, CountsDevicesOrSaysWhyThereAreNone) {
  const CudaDevices devices = cuda_devices();
  EXPECT_GE(devices.count, 0);
  EXPECT_EQ(devices.count == 0, !devices.why_none.empty())
      << devices.count << " devices, \"" << devices.why_none << '"';
}

TEST(DeviceProbe, RunsAKernelOnEveryDevice) {
  const CudaDevices devices = cuda_devices();
  if (devices.count == 0) GTEST_SKIP() << "needs a GPU: " << devices.why_none;
  for (int ordinal = 0; ordinal < devices.count; ++ordinal) EXPECT_NO_THROW(probe_cuda_device(ordinal)) << ordinal;
}

TEST(DeviceProbe, RefusesAnOrdinalThatIsNotThere) {
  const CudaDevices devices = cuda_devices();
  if (devices.count == 0) GTEST_SKIP() << "needs a GPU: " << devices.why_none;
  for (const int ordinal : {-1, devices.count}) {
    try {
      probe_cuda_device(ordinal);
      ADD_FAILURE() << "accepted ordinal " << ordinal;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr("valid: 0 to " + std::to_string(devices.count - 1)));
    }
  }
}

TEST(DeviceProbe, FailsWithTheReasonWhereThereIsNoDevice) {
  const CudaDevices devices = cuda_devices();
  if (devices.count > 0) GTEST_SKIP() << "needs a host without a GPU";
  try {
    probe_cuda_device(0);
    ADD_FAILURE() << "ran a kernel without a device";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr(devices.why_none));
  }
}

}  // namespace
}  // namespace crossover
