#!/usr/bin/env bash
# From a fresh clone on Debian 12 to a first table: installs what is missing (as root; otherwise prints the line to run and
# stops), builds the program, times two real layers on this host's best device and shows what a dispatcher then picks.
#
#   tools/quickstart.sh [--db FILE]
#
# --db FILE: where the measurements go; default: build/quickstart/tuning.db of this clone, so that the database that your
# programs use is left alone. Running it again measures again and adds to what is there.
# CROSSOVER_JOBS: compilations at a time (default: one per processor).
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
exec </dev/null

database=$crossover_root/build/quickstart/tuning.db
while (($#)); do
  case $1 in
    --db)
      [[ -n ${2:-} ]] || die "--db needs a file"
      database=$(realpath -m -- "$2")
      shift 2
      ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) die "unknown argument '$1'; try --help" ;;
  esac
done

cd -- "$crossover_root"
jobs=$(crossover_jobs)
install_missing "${crossover_build_packages[@]}"

# The best device: a GPU where there is one and a compiler for it.
preset=cpu
if gpu_names=$(find_gpus); then
  say "GPU: ${gpu_names//$'\n'/, }"
  if nvcc=$(find_nvcc); then
    say "CUDA compiler: $nvcc"
    preset=dev
  else
    say "There is no CUDA compiler, so this goes on with the CPU. To use the GPU, install the CUDA Toolkit (13.0 is what"
    say "this is tested with; NVIDIA's package cuda-toolkit-13-0, or the runfile into /usr/local/cuda) and start again."
  fi
else
  say "No GPU: going on with the CPU."
fi

step "Building the program (preset $preset)"
log=$crossover_root/build/quickstart/build.log
mkdir -p -- "$crossover_root/build/quickstart"
if ! { cmake --preset "$preset" && cmake --build --preset "$preset" --parallel "$jobs" --target bin/crossover; } >"$log" 2>&1; then
  tail -n 60 -- "$log" >&2
  die "the build failed; all of its output is in $log"
fi

# What is set for other programs must not change what this shows.
unset CROSSOVER_DB CROSSOVER_ON_MISS CROSSOVER_DISABLE_ARMS CROSSOVER_FORCE_ARM CROSSOVER_THRESHOLD CROSSOVER_FROZEN
program=build/$preset/bin/crossover
run() {
  local word line=$program
  for word in "$@" --db "$database"; do
    [[ $word =~ ^[A-Za-z0-9_./:,=+-]+$ ]] || word=${word@Q}
    line+=" $word"
  done
  printf '\n$ %s\n' "$line"
  "$program" "$@" --db "$database"
}

# Two layers of models in use: the shape of one expert's down projection in Qwen3-30B-A3B, and of the indexer's key
# projection in DeepSeek-V3.2. On a CPU the rows stop where it still takes minutes, not hours.
layers=("2048,768" "128,7168")
device=cpu max_rows=256 budget=60s
if [[ $preset == dev ]] && "$program" device --device cuda:0 >/dev/null 2>&1; then
  device=cuda:0 max_rows=8192 budget=10s
fi

step "Timing every implementation of two layers on this host (N,K = ${layers[*]}; device $device)"
for layer in "${layers[@]}"; do
  run tune --device "$device" --shape "$layer" --max-rows "$max_rows" --budget "$budget"
done

step "What a dispatcher now picks"
for rows in 1 16 "$max_rows"; do
  run select --device "$device" --shape "${layers[0]}" --rows "$rows"
done

step "Done"
say "The measurements are in $database"
say "Next: $program audit list --db ${database@Q}"
