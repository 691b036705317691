#pragma once

#include <string>

namespace crossover {

// The BLAS that the arms of the CPU device call, "OpenBLAS 0.3.21"; "none" in a build without one.
std::string blas_version();

}  // namespace crossover
