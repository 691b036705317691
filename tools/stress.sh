#!/usr/bin/env bash
# Many processes on one database while tuners are killed: the whole size, some minutes. tools/test.sh runs a small one.
#
#   tools/stress.sh [option…]     options of crossover_stress, see tests/stress/main.cpp
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
cd -- "$crossover_root"
install_missing "${crossover_build_packages[@]}"
cmake --preset cpu -DCROSSOVER_BUILD_TESTS=ON >/dev/null
cmake --build --preset cpu --parallel "$(crossover_jobs)" --target crossover_stress
exec build/cpu/bin/crossover_stress "$@"
