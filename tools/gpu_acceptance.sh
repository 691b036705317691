#!/usr/bin/env bash
# On a machine with a GPU and the built preset `device`: tests, sanitizer, sweeps and benchmarks, results into a folder.
# Builds nothing and needs nothing but the CUDA run-time libraries.
#
#   tools/gpu_acceptance.sh --out DIR [--bin DIR] [--only results|tests|trust|tunings=N,K]
#
# --bin: where the programs are; default: build/device/bin of this checkout. --only results: what
# kernels/fp8_block_linear/RESULTS.md is made from; --only tests: the tests and the sanitizer; --only tunings=N,K: twenty
# tunings of a layer in processes of their own (over three minutes; not part of the whole); --only trust: a tuning beside
# another process that loads the device, and comparisons one arm after the other. Parts whose program is not
# there are skipped and named. Exit code 0 only if everything that ran succeeded.
set -euo pipefail

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/build/device/bin out='' only=all
while (($#)); do
  case $1 in
    --out | --bin)
      [[ -n ${2:-} ]] || { printf '%s needs a folder\n' "$1" >&2; exit 2; }
      if [[ $1 == --out ]]; then out=$2; else bin=$2; fi
      shift 2
      ;;
    --only)
      [[ ${2:-} =~ ^(results|tests|trust|tunings=[0-9]+,[0-9]+)$ ]] || {
        printf '%s\n' '--only takes results, tests, trust or tunings=N,K' >&2
        exit 2
      }
      only=$2
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

# A tuning beside another process that uses the device: its run must not be clean, whatever it measures.
tune_beside_another() {
  "$crossover" compare --device cuda:0 --arms tensor_core/128x256,dequant_cublaslt --shape 36864,7168 \
    --rows 8192,8184,8176,8168,8160,8152,8144,8136 --budget 120s >/dev/null &
  local other=$!
  sleep 5
  "$crossover" tune --device cuda:0 --shape 7168,2048 --db "$out/beside.db" --json
  kill "$other" || return  # it ended too early to be beside anything
  wait "$other" || true
}

# Ten comparisons, each in its own process, and how often an arm differed from itself.
differs_from_itself() {
  local i
  for i in 1 2 3 4 5 6 7 8 9 10; do
    "$crossover" compare --device cuda:0 --arms tensor_core/64x64,dequant_cublaslt --shape 7168,2048 --rows 8,32,128,512,2048 \
      --budget 2s --json "$@" >"$out/compare.json" || return
    cat -- "$out/compare.json"
  done | awk '/"arm": ".* again"/ { again = 1 } again && /"outcome"/ { n++; differs += /"(win|loss)"/; again = 0 }
    END { printf "%d of %d comparisons of an arm with itself say win or loss\n", differs, n; exit n == 0 }'
}

if [[ $only == tunings=* ]]; then
  shape=${only#tunings=}
  for ((i = 1; i <= 20; i++)); do part "tuning_$i" "$crossover" tune --device cuda:0 --shape "$shape"; done
  part trust "$bin/crossover_results" --trust "$CROSSOVER_DB"
  cat -- "$out/trust.txt"
elif [[ $only == trust ]]; then
  part beside tune_beside_another
  part beside_runs "$crossover" audit list --db "$out/beside.db"
  part in_rounds differs_from_itself
  part in_sequence differs_from_itself --sequential
  cat -- "$out/beside_runs.txt" "$out/in_rounds.txt" "$out/in_sequence.txt"
elif [[ $only != tests ]]; then
  # Twice, so that two processes can confirm each other.
  for shape in 2112,7168 7168,2048 24576,1536 4096,7168 36864,7168 7168,18432; do
    for pass in 1 2; do part "tune_${shape/,/x}_$pass" "$crossover" tune --device cuda:0 --shape "$shape"; done
    part "explain_${shape/,/x}" "$crossover" select --device cuda:0 --shape "$shape" --rows 512 --explain
  done
  part audit_list "$crossover" audit list --device cuda:0 --json
  part constant_512 "$crossover" audit constant dequant_cublaslt:512
  # The padding of the scalar kernel: its times, and what it does to shared memory.
  for shape in 2112,7168 7168,2048 4096,7168; do
    part "padding_${shape/,/x}" "$crossover" compare --device cuda:0 --arms tiled_scalar_pad1,tiled_scalar_pad4 \
      --shape "$shape" --rows 5,32,128,512 --format markdown
  done
  if [[ ! -x $bin/crossover_gpu_test ]]; then
    skipped+=("padding_counters: no $bin/crossover_gpu_test")
  elif ! command -v ncu >/dev/null; then
    skipped+=("padding_counters: no ncu")
  else
    metrics=smsp__inst_executed_op_shared_ld.sum
    metrics+=,l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum
    metrics+=,l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum
    part padding_counters ncu --clock-control none --csv --print-units base --metrics "$metrics" \
      --kernel-name regex:tiled_scalar "$bin/crossover_gpu_test" --gtest_brief=1 --gtest_filter='Scalar/Padding.*'
  fi
  if [[ -x $bin/crossover_benchmark ]]; then
    part benchmark env LD_LIBRARY_PATH="$bin/../lib:${LD_LIBRARY_PATH:-}" "$bin/crossover_benchmark"
  else
    skipped+=("benchmark: no $bin/crossover_benchmark")
  fi
fi

if [[ $only == results || $only == trust || $only == tunings=* ]]; then
  :
elif [[ -x $bin/crossover_gpu_test ]]; then
  part gpu_test "$bin/crossover_gpu_test" --gtest_brief=1
  tail -n 3 -- "$out/gpu_test.txt"
  if command -v compute-sanitizer >/dev/null; then
    edges='Edge/*:-*real_*:*split_*:*long_*:*tiles'
    for tool in memcheck initcheck; do
      part "$tool" timeout 240 compute-sanitizer --error-exitcode 9 --tool "$tool" "$bin/crossover_gpu_test" \
        --gtest_brief=1 --gtest_filter="$edges"
    done
  else
    skipped+=("memcheck, initcheck: no compute-sanitizer")
  fi
else
  skipped+=("gpu_test, memcheck, initcheck: no $bin/crossover_gpu_test")
fi
((${#skipped[@]} == 0)) || printf 'skipped: %s\n' "${skipped[@]}"
((${#failed[@]} == 0)) || printf 'FAILED: %s\n' "${failed[@]}"
((${#failed[@]} == 0))
