#pragma once
// A CUDA device as the tuner needs it. Needs no CUDA header.

#include <memory>

#include "crossover/tuner/backend.hpp"

namespace crossover {

// The device with this ordinal. `build` names what was built: the environment fields crossover, commit, compiler and
// os; driver, cuda and cublaslt are read here. Launch modes: graph (the default), eager. All work runs on a stream of
// the back end's own. Throws InvalidArgument for an ordinal that is not there (lists the valid ones), DeviceError where
// CUDA cannot be used.
std::unique_ptr<Backend> cuda_backend(int ordinal, Environment build = {});

}  // namespace crossover
