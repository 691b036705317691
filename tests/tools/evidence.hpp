#pragma once
// Evidence with known times, written with the library's own store: what a tuning would have stored had every launch
// taken exactly that long.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "crossover/runtime.hpp"

namespace crossover::testing {

inline constexpr const char* kFast = "host_vector";           // the default arm; wins at small M
inline constexpr const char* kLibrary = "host_dequant_blas";  // wins from kCrossover on
inline constexpr const char* kSlow = "host_reference";
inline constexpr Rows kLargest = 256;
inline constexpr Rows kCrossover = 64;  // the first row count of the grid at which kLibrary is faster

// Nanoseconds of one launch.
using Times = std::function<double(const std::string& arm, Rows m)>;
double usual_times(const std::string& arm, Rows m);

struct Facts {
  std::string n = "256", k = "256";
  std::string dtype = "bf16";
  int processes = 1;  // one is provisional, two that agree are confirmed
  Times times = usual_times;
  double spread = 0.001;           // of the times, relative
  std::uint64_t sample_dirty = 0;  // on the slowest arm's samples
  std::function<void(Run&)> edit;  // before it is stored
};

Problem problem_of(const Facts& facts);
// What the arm of this build settles on when it is prepared here.
std::string config_of(const std::string& arm);
// For the device of this host. Returns the id of the verdict for the default policy.
Id store_evidence(const std::filesystem::path& database, const Facts& facts = {});

// A GPU that is not here: an H200 with arms gemv_warp, tensor_core/64x128, tensor_core/128x128 and dequant_cublaslt,
// which wins from 64 rows on. Confirmed by two processes, in launch mode graph.
struct Gpu {
  Id device, verdict;
};
Gpu store_gpu_evidence(const std::filesystem::path& database, const std::string& model = "NVIDIA H200");

}  // namespace crossover::testing
