#!/usr/bin/env bash
# One check of the installed package: check.sh NAME. Its surroundings are in BUILD, SOURCE, WORK, CMAKE, CXX, PKG_CONFIG,
# LIBDIR, C_LIBRARY (empty: this build has no C interface).
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd -P)
prefix=$WORK/prefix
elsewhere="$WORK/somewhere else/prefix"

# A database of its own for each program, and nothing from the user's surroundings.
run_consumer() {
  local folder
  folder=$(mktemp -d "$WORK/run-XXXXXX")
  env -i PATH="$PATH" HOME="$folder" ${LIBRARIES:+LD_LIBRARY_PATH="$LIBRARIES"} "$1" "$folder/tuning.db"
  rm -rf -- "$folder"
}

# with_cmake PREFIX FOLDER
with_cmake() {
  rm -rf -- "$2"
  "$CMAKE" -S "$here/consumer" -B "$2" -G Ninja -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_PREFIX_PATH="$1" \
    -DCMAKE_FIND_PACKAGE_PREFER_CONFIG=ON
  "$CMAKE" --build "$2"
  run_consumer "$2/consumer"
}

# with_pkg_config PREFIX PROGRAM [--static]. pkg-config escapes blanks for a shell to read.
with_pkg_config() {
  local escaped flags
  escaped=$(PKG_CONFIG_PATH="$1/$LIBDIR/pkgconfig" "$PKG_CONFIG" ${3:+"$3"} --cflags --libs crossover)
  eval "flags=($escaped)"
  "$CXX" -std=c++20 -Wall -Wextra -Werror "$here/consumer/main.cpp" -o "$2" "${flags[@]}"
  run_consumer "$2"
}

case $1 in
  into_a_prefix)
    rm -rf -- "$prefix"
    "$CMAKE" --install "$BUILD" --prefix "$prefix" >"$WORK/install.log"
    for path in bin/crossover include/crossover/dispatch/dispatcher.hpp include/crossover/db/store.hpp \
      "$LIBDIR/cmake/crossover/crossover-config.cmake" "$LIBDIR/pkgconfig/crossover.pc" share/doc/crossover/CHANGELOG.md \
      share/man/man1/crossover.1 share/bash-completion/completions/crossover share/zsh/site-functions/_crossover \
      share/fish/vendor_completions.d/crossover.fish; do
      [[ -s $prefix/$path ]] || { echo "$path was not installed" && exit 1; }
    done
    if [[ -n $C_LIBRARY ]]; then
      for path in "$LIBDIR/libcrossover.so" include/crossover/crossover.h "$LIBDIR/pkgconfig/crossover-c.pc"; do
        [[ -f $prefix/$path ]] || { echo "$path was not installed" && exit 1; }
      done
    fi
    ;;
  find_package)
    with_cmake "$prefix" "$WORK/consumer-cmake"
    ;;
  pkg_config)
    with_pkg_config "$prefix" "$WORK/consumer-pkg-config"
    with_pkg_config "$prefix" "$WORK/consumer-pkg-config-static" --static
    ;;
  headers_alone)
    count=0
    while IFS= read -r -d '' header; do
      echo "#include \"${header#"$prefix/include/"}\"" |
        "$CXX" -std=c++20 -Wall -Wextra -Werror -fsyntax-only -I"$prefix/include" -x c++ - || {
        echo "$header does not compile alone" && exit 1
      }
      count=$((count + 1))
    done < <(find "$prefix/include" -name '*.hpp' -print0)
    ((count >= 10)) || { echo "only $count headers are installed" && exit 1; }
    echo "$count headers"
    ;;
  c) # plain C, by both ways, and the plug-in of the examples, for which the header is enough
    rm -rf -- "$WORK/consumer-c" "$WORK/plugin"
    "$CMAKE" -S "$here/consumer_c" -B "$WORK/consumer-c" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DEXAMPLES="$SOURCE/tools/examples"
    "$CMAKE" --build "$WORK/consumer-c"
    run_consumer "$WORK/consumer-c/consumer"
    escaped=$(PKG_CONFIG_PATH="$prefix/$LIBDIR/pkgconfig" "$PKG_CONFIG" --cflags --libs crossover-c)
    eval "flags=($escaped)"
    cc -std=c11 -Wall -Wextra -Werror "$SOURCE/tools/examples/linear_layer.c" -o "$WORK/consumer-c-pkg-config" "${flags[@]}" -lm
    LIBRARIES=$prefix/$LIBDIR run_consumer "$WORK/consumer-c-pkg-config"
    "$CMAKE" -S "$SOURCE/tools/examples/plugin_softmax" -B "$WORK/plugin" -G Ninja -DCMAKE_PREFIX_PATH="$prefix"
    "$CMAKE" --build "$WORK/plugin"
    "$prefix/bin/crossover" arms --plugin "$WORK/plugin/libsoftmax.so" --operation softmax | grep -q build-id:
    ;;
  program)
    "$prefix/bin/crossover" --help >/dev/null
    "$prefix/bin/crossover" arms --device cpu --shape 128,128 | grep -q host_reference
    ;;
  no_build_paths)
    if grep -rlF -e "$SOURCE" -e "$BUILD" -- "$prefix"; then
      echo "these files name the folder that they were built in"
      exit 1
    fi
    if grep -rlF -e "$prefix" -- "$prefix"; then
      echo "these files name the folder that they were installed in"
      exit 1
    fi
    ;;
  elsewhere)
    rm -rf -- "${elsewhere%/*}"
    mkdir -p -- "${elsewhere%/*}"
    mv -- "$prefix" "$elsewhere"
    trap 'mv -- "$elsewhere" "$prefix"' EXIT
    with_cmake "$elsewhere" "$WORK/consumer-cmake-moved"
    with_pkg_config "$elsewhere" "$WORK/consumer-pkg-config-moved"
    ;;
  *)
    echo "unknown check '$1'"
    exit 1
    ;;
esac
