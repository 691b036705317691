#!/usr/bin/env bash
# One check of the C interface from outside: check.sh NAME. Its surroundings are in LIBRARY (libcrossover.so), HEADER,
# SOURCE, BIN (programs), PLUGINS (folder), WORK, SANITIZE. Exit code 77: skipped.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
examples=$SOURCE/tools/examples
folder=$(mktemp -d "$WORK/$1-XXXXXX")
trap 'rm -rf -- "$folder"' EXIT
export CROSSOVER_DB=$folder/tuning.db
unset CROSSOVER_ON_MISS CROSSOVER_DISABLE_ARMS CROSSOVER_FORCE_ARM CROSSOVER_THRESHOLD CROSSOVER_FROZEN

skip() {
  printf 'c_api.%s: Skipped\n%s\n' "$name" "$*"
  exit 77
}
fail() {
  echo "$*"
  exit 1
}
name=$1

# Programs whose own runtime is not the sanitizer's cannot load a library that is sanitized.
unsanitized() { [[ -z $SANITIZE ]] || skip "a program that is not sanitized cannot load a sanitized library"; }

# choices COMMAND…: it ends well (it checks its results itself), and the arm and the origin that it prints for each row count
# are those that `crossover select` gives from the database that it left.
choices() {
  local output rows arm origin
  output=$("$@")
  echo "$output"
  for rows in 1 7 64; do
    "$BIN/crossover" select --device cpu --shape 192,320 --rows "$rows" --json >"$folder/select.json"
    arm=$(sed -n 's/^  "arm": "\(.*\)",$/\1/p' "$folder/select.json")
    origin=$(sed -n 's/^  "origin": "\(.*\)",$/\1/p' "$folder/select.json")
    [[ -n $arm && -n $origin ]] || fail "no choice in $(cat -- "$folder/select.json")"
    grep -q -E "^ *$rows rows: $arm \($origin\), relative error" <<<"$output" || fail "crossover select says $arm ($origin) for $rows"
  done
  "$BIN/crossover" audit list | grep -q 'k=320, n=192' || fail "nothing was measured"
}

# refused FILE TEXT: exit code 2, one sentence with TEXT, nothing on standard output.
refused() {
  local code=0
  "$BIN/crossover" arms --plugin "$1" --operation bystander >"$folder/out" 2>"$folder/err" || code=$?
  cat -- "$folder/err"
  [[ $code == 2 ]] || fail "exit code $code for $1"
  [[ ! -s $folder/out && $(wc -l <"$folder/err") == 1 ]] || fail "not one sentence for $1"
  grep -qF -- "$2" "$folder/err" || fail "the sentence for $1 does not say: $2"
}

# untrusted PLUGIN OPTION…: tunes its operation with its arms in processes of their own, into tune.json, err and show.json.
untrusted() {
  local plugin=$PLUGINS/$1.so
  shift
  code=0
  "$BIN/crossover" tune --plugin "$plugin" --untrusted --arm-time-limit 500ms --operation untrusted --problem unit=one \
    --device cpu --max-rows 8 --budget "${budget:-1s}" "$@" --json >"$folder/tune.json" 2>"$folder/err" || code=$?
  cat -- "$folder/err"
  [[ -z $(find "$folder/tmp" -mindepth 1) ]] || fail "files were left: $(find "$folder/tmp")"
}
show() { "$BIN/crossover" audit show "$(sed -n 's/^      "id": "\(.*\)",$/\1/p' "$folder/tune.json")" --json >"$folder/show.json"; }
# outcome ARM OUTCOME TEXT: the stored run has exactly that one attempt for the arm, for all of it, and no sample.
outcome() {
  python3 - "$folder/show.json" "$@" <<'END' || fail "not so for $1: $2"
import json, sys
show, (arm, outcome, text) = json.load(open(sys.argv[1])), sys.argv[2:]
attempts = [a for run in show["runs"] for a in run.get("attempts", []) if a["arm"] == arm]
attempts += [a for a in show.get("attempts", []) if a["arm"] == arm]
print(attempts)
assert [(a["m"], a["outcome"]) for a in attempts] == [(0, outcome)] and text in attempts[0]["detail"]
assert not [m for m in show["measurements"] if m["arm"] == arm and m.get("median_us") is not None]
assert [m for m in show["measurements"] if m["arm"] == "right"]
END
}
mkdir "$folder/tmp"
export TMPDIR=$folder/tmp

case $name in
  symbols)
    nm -D --defined-only "$LIBRARY" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$folder/exported"
    grep -h -o -E '^CROSSOVER_API .*' "$HEADER" | grep -o -E 'crossover_[a-z_]+\(' | tr -d '(' | sort >"$folder/declared"
    [[ -s $folder/declared ]] || fail "no function found in $HEADER"
    diff -- "$folder/declared" "$folder/exported" || fail "declared (<) and exported (>) differ"
    readelf -d "$LIBRARY" | grep -q "SONAME.*\[libcrossover.so.$(sed -n 's/^#define CROSSOVER_ABI_VERSION //p' "$HEADER")\]" ||
      fail "the soname has another version than the header"
    wc -l <"$folder/exported"
    ;;
  abi)
    command -v abidw >/dev/null || skip "abidw and abidiff (Debian: abigail-tools) are not installed"
    [[ -z $SANITIZE ]] || skip "a sanitized build has too little debug information to compare"
    readelf -S "$LIBRARY" | grep -q '\.debug_info' || skip "this build has no debug information to compare"
    abidw --headers-dir "$(dirname -- "$HEADER")" --drop-private-types --exported-interfaces-only --no-elf-needed \
      --no-corpus-path --no-comp-dir-path --no-show-locs --out-file "$folder/now.abi" "$LIBRARY"
    if ! abidiff --no-show-locs "$here/crossover.abi" "$folder/now.abi"; then
      cp -- "$folder/now.abi" "$WORK/crossover.abi"
      fail "the interface is not what tests/c_api/crossover.abi says. If all that was done is appending fields and adding" \
        "functions, copy $WORK/crossover.abi there; else raise CROSSOVER_ABI_VERSION first."
    fi
    # It must be able to fail.
    sed 's/crossover_refresh/crossover_renew/g' "$here/crossover.abi" >"$folder/other.abi"
    if abidiff "$folder/other.abi" "$folder/now.abi" >/dev/null; then fail "abidiff sees no difference where there is one"; fi
    ;;
  c_header)
    # As C11 and as C++, alone, with every warning.
    for language in 'c -std=c11' 'c -std=c17' 'c++ -std=c++11' 'c++ -std=c++20'; do
      for compiler in gcc clang; do
        command -v "$compiler" >/dev/null || continue
        # shellcheck disable=SC2086
        echo '#include <crossover/crossover.h>' |
          "$compiler" -x $language -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only \
            -I"$(dirname -- "$(dirname -- "$HEADER")")" - || fail "not as $language with $compiler"
      done
    done
    ;;
  readme)
    # The first example of the README compiles, in a function that has what the text says an engine has.
    awk '/^```c$/ { on = 1; next } /^```$/ { exit } on' "$SOURCE/dispatch/c/README.md" >"$folder/example"
    {
      grep '^#include' "$folder/example"
      echo 'int fail(const char*); void* allocate(size_t); int layer_of_an_engine(void*, void*, void*, void*, int64_t, int64_t);'
      echo 'int layer_of_an_engine(void* w, void* scales, void* x, void* y, int64_t rows, int64_t max_rows) {'
      grep -v '^#include' "$folder/example"
      echo 'return 0; }'
    } >"$folder/example.c"
    cc -std=c11 -Wall -Wextra -Werror -fsyntax-only -I"$(dirname -- "$(dirname -- "$HEADER")")" "$folder/example.c"
    ;;
  c) choices "$BIN/crossover_example_c_linear_layer" ;;
  python)
    unsanitized
    for python in /usr/bin/python3 python3; do
      if command -v "$python" >/dev/null && "$python" -c 'import numpy' 2>/dev/null; then
        choices "$python" "$examples/linear_layer.py" "$LIBRARY"
        exit
      fi
    done
    skip "no python3 with numpy (Debian: python3-numpy)"
    ;;
  rust)
    unsanitized
    for rustc in /usr/bin/rustc rustc; do
      if command -v "$rustc" >/dev/null && "$rustc" --version 2>/dev/null; then
        "$rustc" --edition 2021 -D warnings -O -L "$(dirname -- "$LIBRARY")" -o "$folder/layer" "$examples/linear_layer.rs"
        choices env LD_LIBRARY_PATH="$(dirname -- "$LIBRARY")" "$folder/layer"
        exit
      fi
    done
    skip "no rustc that works (Debian: rustc)"
    ;;
  plugin)
    softmax=$PLUGINS/libsoftmax.so
    common=(--plugin "$softmax" --operation softmax --problem columns=512 --device cpu)
    for attempt in 1 2 3 4 5; do
      "$BIN/crossover" tune "${common[@]}" --max-rows 64 --budget 1s --json >"$folder/tune.json"
      ! grep -q -E '"status": "(provisional|confirmed)"' "$folder/tune.json" || break
      [[ $attempt != 5 ]] || skip "this machine is too busy for a verdict"
    done
    "$BIN/crossover" select "${common[@]}" --rows 7 --json | tee "$folder/select.json" | grep -q '"origin": "tuned"' ||
      fail "not served"
    chosen=$(sed -n 's/^  "arm": "\(.*\)",$/\1/p' "$folder/select.json")
    "$BIN/crossover" compare "${common[@]}" --arms three_pass,blocked --rows 1 --budget 200ms | grep -q blocked ||
      fail "not compared"
    build_id=$(readelf -n "$softmax" | sed -n 's/.*Build ID: //p')
    "$BIN/crossover" arms "${common[@]}" --json | grep -c "\"fingerprint\": \"build-id:$build_id\"" | grep -qx 2 ||
      fail "the fingerprints are not the build-id $build_id"
    "$BIN/crossover" audit list --plugin "$softmax" | grep 'softmax(columns=512)' | grep -q ' no$' || fail "not current"
    "$BIN/crossover" audit list | grep 'softmax(columns=512)' | grep -q '(unknown)$' || fail "known without the plug-in"
    "$BIN/crossover" audit verify --plugin "$softmax" >/dev/null
    # The same evidence through the C interface, by a program that has never heard of the operation.
    "$BIN/crossover_example_c_plugin_softmax_dispatch" "$softmax" | tee "$folder/dispatched"
    grep -q -F " 7 rows: $chosen (tuned)" "$folder/dispatched" || fail "the program and the library choose differently"
    # Another build of the same arms makes the evidence stale.
    cc -shared -fPIC -O1 -I"$(dirname -- "$(dirname -- "$HEADER")")" -Wl,--build-id "$examples/plugin_softmax/softmax.c" \
      -o "$folder/softmax.so" -lm
    "$BIN/crossover" select "${common[@]/$softmax/$folder/softmax.so}" --rows 7 --json | grep -q '"origin": "stale"' ||
      fail "the evidence of other code was served as if it were this code's"
    ;;
  bad_plugins)
    refused "$folder/nosuch.so" "there is no plug-in"
    refused "" "named by the path"
    refused "$folder" "is no file"
    refused "$here/check.sh" "cannot be loaded"
    refused "$PLUGINS/no_entry.so" "exports no crossover_plugin_entry"
    refused "$PLUGINS/wrong_version.so" "was compiled for version 2 of the interface, and this is version 1"
    refused "$PLUGINS/refuses.so" "cannot work here"
    refused "$PLUGINS/duplicate.so" "an operation 'fp8_block_linear' is already registered"
    refused "$PLUGINS/empty.so" "it has no operation"
    ;;
  untrusted)
    command -v python3 >/dev/null || skip "no python3"
    export UNTRUSTED_NOT_HUNGRY=1
    untrusted five
    [[ $code == 0 ]] || fail "exit code $code"
    show
    [[ -n $SANITIZE ]] || outcome crash failed "SIGSEGV at 1 row"
    outcome wrong wrong_result "1 row: row 0 is wrong"
    outcome endless timed_out "did not come back within 0.5 s at 1 row"
    outcome leave failed "exit code 0 at 1 row"
    [[ $(wc -l <"$folder/err") == 4 ]] || fail "not one line for each arm"
    grep -q '"status": "inconclusive"' "$folder/tune.json" || grep -q '"arm": "right"' "$folder/tune.json" || fail "not the right arm"
    ! grep -q -E '"arm": "(wrong|crash|endless|leave)"' "$folder/tune.json" || fail "a bad arm was chosen"
    "$BIN/crossover" audit show "$(sed -n 's/^      "id": "\(.*\)",$/\1/p' "$folder/tune.json")" | grep -q "timed_out" ||
      fail "not shown to people"
    "$BIN/crossover" audit verify >/dev/null
    # A comparison goes on without them too.
    "$BIN/crossover" compare --plugin "$PLUGINS/five.so" --untrusted --arm-time-limit 500ms --operation untrusted \
      --problem unit=one --device cpu --arms right,default,crash --rows 1,4 --budget 200ms 2>"$folder/err" |
      grep -q 'default' || fail "not compared"
    [[ -n $SANITIZE ]] || grep -q 'arm crash is left out: failed: SIGSEGV' "$folder/err" || fail "the crash is not named"
    ;;
  untrusted_memory)
    command -v python3 >/dev/null || skip "no python3"
    [[ -z $SANITIZE ]] || skip "a sanitizer needs the whole address space, so there is no limit"
    untrusted five --arm-memory-limit 256MiB
    [[ $code == 0 ]] || fail "exit code $code"
    show
    outcome hungry out_of_memory "in use at 1 row"
    ;;
  untrusted_late)
    command -v python3 >/dev/null || skip "no python3"
    budget=3s  # for two helpers that measure; under a sanitizer each needs half a second to start
    untrusted late
    [[ $code == 0 ]] || fail "exit code $code"
    show
    outcome crash failed "while it was measured with the others"
    [[ -n $SANITIZE ]] || outcome crash failed SIGABRT
    ;;
  untrusted_refused)
    refused_tuning() {
      untrusted "$2"
      [[ $code == "$1" ]] || fail "exit code $code for $2"
      [[ ! -s $folder/tune.json ]] || fail "something was printed for $2"
      grep -qF -- "$3" "$folder/err" || fail "$2 does not say: $3"
    }
    refused_tuning 2 crashes_on_load "cannot be loaded: "
    [[ $(wc -l <"$folder/err") == 1 ]] || fail "not one sentence"
    refused_tuning 1 bad_default "cannot be measured without its default arm crash: failed, "
    if "$BIN/crossover" tune --shape 8,16 --untrusted 2>"$folder/err"; then fail "--untrusted without --plugin"; fi
    grep -qF -- "--untrusted is for the arms of a --plugin" "$folder/err" || fail "$(cat -- "$folder/err")"
    ;;
  untrusted_killed)
    "$BIN/crossover" tune --plugin "$PLUGINS/five.so" --untrusted --arm-time-limit 100s --operation untrusted \
      --problem unit=one --device cpu --max-rows 8 --budget 1s >/dev/null 2>&1 &
    tuner=$!
    # The helper that is there for half a second is the one whose arm does not come back.
    helper=
    for ((i = 0, same = 0; i < 400 && same < 10; ++i)); do
      now=$(pgrep -P "$tuner" || true)
      if [[ -n $now && $now == "$helper" ]]; then same=$((same + 1)); else same=0; fi
      helper=$now
      sleep 0.05
    done
    [[ -n $helper ]] || fail "there is no helper"
    kill "$tuner"
    code=0
    wait "$tuner" || code=$?
    [[ $code == 143 ]] || fail "exit code $code"
    for ((i = 0; i < 100; ++i)); do
      kill -0 "$helper" 2>/dev/null || break
      sleep 0.05
    done
    if kill -9 "$helper" 2>/dev/null; then fail "the helper $helper outlived the tuner"; fi
    [[ -z $(find "$folder/tmp" -mindepth 1) ]] || fail "files were left"
    ;;
  *) fail "unknown check '$name'" ;;
esac
