#!/usr/bin/env bash
# On a machine with a GPU and the built preset `device`: tests, sanitizer, sweeps and benchmarks, results into a folder.
# Builds nothing and needs nothing but the CUDA run-time libraries.
#
#   tools/gpu_acceptance.sh --out DIR [--bin DIR]
#
# --bin: where the programs are; default: build/device/bin of this checkout. Parts whose program is not there are skipped and
# named. Exit code 0 only if everything that ran succeeded.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/build/device/bin out=
while (($#)); do
  case $1 in
    --out | --bin)
      [[ -n ${2:-} ]] || { printf '%s needs a folder\n' "$1" >&2; exit 2; }
      if [[ $1 == --out ]]; then out=$2; else bin=$2; fi
      shift 2
      ;;
    -h | --help)
      sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) printf 'unknown argument %s; try --help\n' "$1" >&2; exit 2 ;;
  esac
done
[[ -n $out ]] || { printf 'say --out DIR\n' >&2; exit 2; }
mkdir -p -- "$out"
out=$(cd -- "$out" && pwd)
crossover=$bin/crossover
[[ -x $crossover ]] || { printf '%s is missing: build the preset device first\n' "$crossover" >&2; exit 2; }
unset CROSSOVER_ON_MISS CROSSOVER_DISABLE_ARMS CROSSOVER_FORCE_ARM CROSSOVER_THRESHOLD CROSSOVER_FROZEN
export CROSSOVER_DB=$out/tuning.db

failed=() skipped=()
# part NAME COMMAND…: runs it with its output in NAME.txt.
part() {
  local name=$1 start=$SECONDS code=0
  shift
  "$@" >"$out/$name.txt" 2>&1 || code=$?
  ((code == 0)) || failed+=("$name (exit code $code)")
  printf '%-28s exit code %d, %d s\n' "$name" "$code" "$((SECONDS - start))"
}

part device "$crossover" device --device cuda:0
part arms_2113x7000 "$crossover" arms --device cuda:0 --shape 2113,7000
if [[ -x $bin/crossover_gpu_test ]]; then
  part gpu_test "$bin/crossover_gpu_test" --gtest_brief=1
  tail -n 3 -- "$out/gpu_test.txt"
  if command -v compute-sanitizer >/dev/null; then
    part memcheck timeout 240 compute-sanitizer --error-exitcode 9 --tool memcheck "$bin/crossover_gpu_test" \
      --gtest_brief=1 --gtest_filter='Edge/*:-*real_*:*split_*:*long_*:*tiles'
  else
    skipped+=("memcheck: no compute-sanitizer")
  fi
else
  skipped+=("gpu_test, memcheck: no $bin/crossover_gpu_test")
fi
# Twice, so that two processes can confirm each other.
for shape in 2112,7168 7168,2048 24576,1536 4096,7168 36864,7168 7168,18432; do
  for pass in 1 2; do part "tune_${shape/,/x}_$pass" "$crossover" tune --device cuda:0 --shape "$shape"; done
  part "explain_${shape/,/x}" "$crossover" select --device cuda:0 --shape "$shape" --rows 512 --explain
done
part audit_list "$crossover" audit list --device cuda:0 --json
if [[ -x $bin/crossover_benchmark ]]; then
  part benchmark env LD_LIBRARY_PATH="$bin/../lib:${LD_LIBRARY_PATH:-}" "$bin/crossover_benchmark"
else
  skipped+=("benchmark: no $bin/crossover_benchmark")
fi
((${#skipped[@]} == 0)) || printf 'skipped: %s\n' "${skipped[@]}"
((${#failed[@]} == 0)) || printf 'FAILED: %s\n' "${failed[@]}"
((${#failed[@]} == 0))
