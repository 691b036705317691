#include "crossover/kernels/blas.hpp"

#if CROSSOVER_HAVE_OPENBLAS
#include <cblas.h>
#endif

namespace crossover {

std::string blas_version() {
#if CROSSOVER_HAVE_OPENBLAS
  const std::string config = openblas_get_config();  // name, version, then how it was built
  return config.substr(0, config.find(' ', config.find(' ') + 1));
#else
  return "none";
#endif
}

}  // namespace crossover
