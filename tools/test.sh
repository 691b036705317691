#!/usr/bin/env bash
# Runs every test that this machine can run, from a bare Debian 12: installs what is missing (as root), builds the presets,
# runs their tests, checks the sources. Says what it skipped and why. Exit code 0 only if nothing failed.
#
#   tools/test.sh             everything
#   tools/test.sh NAME…       only these: format shellcheck dev cpu asan tsan clang tidy
#
# CROSSOVER_JOBS: compilations and tests at a time (default: one per processor).
set -euo pipefail
# shellcheck source=tools/common.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/common.sh"
exec </dev/null

known=(format shellcheck dev cpu asan tsan clang tidy)
for name in "$@"; do
  [[ " ${known[*]} " == *" $name "* ]] || die "unknown part '$name'; valid: ${known[*]}"
done

cd -- "$crossover_root"
jobs=$(crossover_jobs)
install_missing "${crossover_build_packages[@]}" ccache clang clang-format clang-tidy shellcheck sqlite3 \
  abigail-tools python3-numpy rustc xz-utils

# The presets to run: CUDA is compiled once, in dev; everything else does without. Sources are compiled several at a time,
# which takes a third of the time off; the preset clang compiles those of the library and the program one by one.
if nvcc=$(find_nvcc); then
  main_preset=dev
  say "CUDA compiler: $nvcc"
else
  main_preset=cpu
  say "No CUDA compiler: the CUDA code is not compiled"
fi
parts=("$@")
((${#parts[@]})) || parts=(format shellcheck "$main_preset" asan tsan clang tidy)

log_folder=$crossover_root/build/test
mkdir -p -- "$log_folder"
total_passed=0 total_failed=0 total_skipped=0
summary=()

# note NAME PASSED FAILED SKIPPED SECONDS [REMARK]
note() {
  total_passed=$((total_passed + $2))
  total_failed=$((total_failed + $3))
  total_skipped=$((total_skipped + $4))
  summary+=("$(printf '%-12s %6d passed %4d failed %4d skipped %5d s  %s' "$1" "$2" "$3" "$4" "$5" "${6:-}")")
}

# check NAME COMMAND…: a check that either passes or fails; its output is shown where it fails.
check() {
  local name=$1 start=$SECONDS log=$log_folder/$1.log
  shift
  step "$name"
  if "$@" >"$log" 2>&1; then
    note "$name" 1 0 0 $((SECONDS - start))
  else
    tail -n 100 -- "$log"
    note "$name" 0 1 0 $((SECONDS - start)) "see $log"
  fi
}

# Sources as git knows them, NUL-separated, so that build folders and editors' files stay out; without git, as found.
sources() {
  if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard -- "$@"
  else
    local pattern arguments=()
    for pattern in "$@"; do arguments+=(-o -path "./$pattern"); done
    find . -path ./build -prune -o -type f \( "${arguments[@]:1}" \) -print0
  fi
}

check_format() { sources '*.cpp' '*.hpp' '*.cu' '*.cuh' '*.c' '*.h' | xargs -0 -r clang-format --dry-run -Werror; }
check_shellcheck() { sources '*.sh' '.ci/run' | xargs -0 -r shellcheck --external-sources; }
# Everything but the tests, by clang: another compiler's warnings, each source by itself.
check_clang() {
  cmake --preset clang -DCROSSOVER_WERROR=ON -DCROSSOVER_BUILD_TESTS=OFF -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O0 &&
    cmake --build --preset clang --parallel "$jobs"
}
# The same sources, several at a time: most of what clang-tidy does is to read headers. CUDA is not among them.
check_tidy() {
  local folder=build/tidy
  cmake --preset clang -B "$folder" -DCROSSOVER_WERROR=ON -DCROSSOVER_BUILD_TESTS=OFF -DCMAKE_UNITY_BUILD=ON &&
    cmake --build "$folder" --target crossover_version || return 1
  sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' "$folder/compile_commands.json" | grep -v /fingerprints/ | tr '\n' '\0' |
    xargs -0 -r -n 1 -P "$jobs" clang-tidy -p "$folder" --quiet --warnings-as-errors='*' \
      --checks=-bugprone-suspicious-include --header-filter='(dispatch|db|tuner|kernels|tools)/.*\.cpp$|/include/crossover/'
}

# count NAME FILE: that number from the root element of a JUnit file; 0 if it is not there.
count() {
  local number
  number=$(sed -n "1,/<testcase/s/.*[[:space:]]$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1)
  printf '%s\n' "${number:-0}"
}

# Reasons that skipped tests gave, each with how many gave it.
skip_reasons() {
  awk '/: Skipped$/ { getline; sub(/^[ \t]+/, ""); print }' "$1" | sort | uniq -c | sort -rn |
    awk '{ n = $1; $1 = ""; printf "%s%d:%s", sep, n, $0; sep = "; " }' | sed 's/&quot;/"/g; s/&apos;/'"'"'/g; s/&amp;/\&/g'
}

# Without fixed addresses ThreadSanitizer of gcc 12 fails where the kernel randomises more than 28 bits.
without_aslr=()
if setarch "$(uname -m)" -R true 2>/dev/null; then without_aslr=(setarch "$(uname -m)" -R); fi

# preset NAME [ctest option…]
preset() {
  local name=$1 start=$SECONDS log=$log_folder/$1.log junit=$log_folder/$1.xml prefix=() lines=() targets=() built
  shift
  if [[ $name == tsan ]]; then  # its tests are those with threads in one process: not those of the program
    prefix=("${without_aslr[@]}")
    targets=(--target dispatch_test db_test test_tuner kernels_test c_api_tests)
  fi
  step "Preset $name: building"
  rm -f -- "$junit"
  # What is debugged is built by hand; here line numbers do.
  [[ $name == dev || $name == cpu ]] && lines=(-DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1 -DNDEBUG")
  if ! { "${prefix[@]}" cmake --preset "$name" -DCROSSOVER_WERROR=ON -DCROSSOVER_BUILD_TESTS=ON -DCMAKE_UNITY_BUILD=ON \
    "${lines[@]}" &&
    "${prefix[@]}" cmake --build --preset "$name" --parallel "$jobs" "${targets[@]}"; } >"$log" 2>&1; then
    grep -n -m 20 -E 'error|FAILED|Error' -- "$log" || true
    tail -n 60 -- "$log"
    note "$name" 0 1 0 $((SECONDS - start)) "does not build, see $log"
    return
  fi
  built=$((SECONDS - start))
  grep -h -E '^-- (CUDA|OpenBLAS): ' "$log" || true
  step "Preset $name: testing (built in $built s)"
  if ! "${prefix[@]}" ctest --preset "$name" --parallel "$jobs" --output-junit "$junit" "$@" >>"$log" 2>&1; then
    sed -n '/^The following tests FAILED/,$p' "$log"
    awk '/\*\*\*Failed|\*\*\*Exception|\*\*\*Timeout|\*\*\*Not Run/ && ++shown <= 10 { on = 60 } on-- > 0' "$log"
  fi
  if [[ ! -s $junit ]]; then
    tail -n 40 -- "$log"
    note "$name" 0 1 0 $((SECONDS - start)) "ran no test, see $log"
    return
  fi
  local tests failures skipped
  tests=$(count tests "$junit") failures=$(count failures "$junit")
  skipped=$(($(count skipped "$junit") + $(count disabled "$junit")))
  note "$name" $((tests - failures - skipped)) "$failures" "$skipped" $((SECONDS - start)) "$(skip_reasons "$junit")"
}

for part in "${parts[@]}"; do
  case $part in
    format | shellcheck | clang | tidy) check "$part" "check_$part" ;;
    *) preset "$part" ;;
  esac
done

step "Summary ($SECONDS s)"
printf '%s\n' "${summary[@]}"
if ! find_gpus >/dev/null; then say "No GPU on this machine: what needs one was skipped."; fi
if [[ $main_preset == cpu ]]; then say "No CUDA compiler on this machine: CUDA code was neither compiled nor tested."; fi
say "$total_passed passed, $total_failed failed, $total_skipped skipped"
((total_failed == 0))
