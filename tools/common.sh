# shellcheck shell=bash disable=SC2034
# Set-up that quickstart.sh and test.sh share. Sourced, with `set -euo pipefail` in force. Debian 12 is what it installs
# packages on; elsewhere it says what is needed and lets the build find out.

crossover_root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)

# Everything the build and the tests need, as Debian names it.
crossover_build_packages=(
  g++ cmake ninja-build pkg-config
  libfmt-dev nlohmann-json3-dev libxxhash-dev libsqlite3-dev libboost-program-options-dev libopenblas-dev
  libgtest-dev libgmock-dev libbenchmark-dev librapidcheck-dev)

say() { printf '%s\n' "$*"; }
step() { printf '\n==> %s\n' "$*"; }
die() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# Installs those of the named packages that are missing. Only root may; for anybody else it prints the line to run and
# stops. Needs no answer from anybody.
install_missing() {
  local package missing=()
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    say "This is no Debian: going on without looking for packages. What is needed, as Debian names it:"
    say "  $*"
    return
  fi
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true) == installed ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  if ((EUID != 0)); then
    say "Packages are missing. Run this line, then start again:" >&2
    say "  sudo apt-get update && sudo apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  step "Installing ${missing[*]}"
  (
    umask 022 # what a package installs is for everybody, whatever the caller's files are
    export DEBIAN_FRONTEND=noninteractive
    apt-get -q -o DPkg::Lock::Timeout=300 update &&
      apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "${missing[@]}"
  ) </dev/null || die "apt-get could not install: ${missing[*]}"
}

# Compilations that run at a time: $CROSSOVER_JOBS, else one per processor.
crossover_jobs() {
  local jobs=${CROSSOVER_JOBS:-$(nproc)}
  [[ $jobs =~ ^[1-9][0-9]{0,3}$ ]] || die "CROSSOVER_JOBS is '$jobs': it must be a whole number from 1 to 9999"
  printf '%s\n' "$jobs"
}

# Where the CUDA compiler is, as the build looks for it; fails if nowhere.
find_nvcc() {
  local candidate
  for candidate in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" \
    "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" /usr/local/cuda/bin/nvcc; do
    if [[ -n $candidate && -x $candidate ]]; then
      printf '%s\n' "$candidate"
      return 0
    fi
  done
  return 1
}

# Names of the NVIDIA GPUs that a driver has, one a line; fails if there is none.
find_gpus() {
  local gpus=()
  if command -v nvidia-smi >/dev/null; then
    mapfile -t gpus < <(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null </dev/null)
  fi
  if ((${#gpus[@]} == 0)); then
    mapfile -t gpus < <(sed -n 's/^Model:[[:space:]]*//p' /proc/driver/nvidia/gpus/*/information 2>/dev/null)
  fi
  ((${#gpus[@]})) && printf '%s\n' "${gpus[@]}"
}
