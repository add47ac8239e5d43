#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ccache_test.sh <project> <compiler>: dspp's own build compiles through a working ccache, and continues without one
# that is absent, fails or is not wanted; a project that adds dspp gets none. The ccaches are stubs; nothing is built.
set -u
project=$1 compiler=$2
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failures=0

# ccache_that <command>: the stub runs it; `exec "$@"` compiles.
ccache_that() { printf '#!/bin/sh\n%s\n' "$1" >"$work/ccache" && chmod +x "$work/ccache"; }

# through_ccache: whether the rules of $work/build compile by the stub. CMake 3.31 names it in build.ninja.
through_ccache() { cat "$work/build/CMakeFiles/rules.ninja" "$work/build/build.ninja" | grep -q "$work/ccache "; }

# expect <what> <yes|no> <said> [cmake option...]: whether compilations go through the stub, and CMake's message.
expect() {
  what=$1 through=$2 said=$3
  shift 3
  rm -rf "$work/build"
  cmake -S "$project" -B "$work/build" --preset cpu -DCMAKE_CXX_COMPILER="$compiler" -DDSPP_TESTS=OFF -DDSPP_BENCH=OFF \
    -DDSPP_CCACHE_PROGRAM="$work/ccache" "$@" >"$work/log" 2>&1 || { cat "$work/log"; failures=$((failures + 1)); }
  found=no
  ! through_ccache || found=yes
  { [ $found = "$through" ] && grep -qF -- "$said" "$work/log"; } || {
    failures=$((failures + 1))
    echo "dspp: with $what compilations go through it: $found. CMake said:"
    grep 'dspp:' "$work/log"
  }
}

ccache_that 'exec "$@"'
expect 'a ccache that works' yes "dspp: ccache: $work/ccache"
expect 'one that is not wanted' no 'dspp: OpenMP' -DDSPP_CCACHE=OFF
expect 'a launcher of the user' no 'dspp: OpenMP' -DCMAKE_CXX_COMPILER_LAUNCHER=/usr/bin/env
expect 'no ccache' no 'dspp: OpenMP' -DDSPP_CCACHE_PROGRAM=
ccache_that 'exit 1'
expect 'a ccache that fails' no 'dspp: ccache: off, it does not work here'

ccache_that 'exec "$@"'
rm -rf "$work/build"
mkdir "$work/user"
# shellcheck disable=SC2016 # for CMake
printf '%s\n' 'cmake_minimum_required(VERSION 3.25)' 'project(user LANGUAGES CXX)' "add_subdirectory($project dspp)" \
  'file(WRITE ${CMAKE_BINARY_DIR}/main.cpp "int main() {}")' 'add_executable(user ${CMAKE_BINARY_DIR}/main.cpp)' \
  'target_link_libraries(user PRIVATE dspp::compiled)' >"$work/user/CMakeLists.txt"
cmake -S "$work/user" -B "$work/build" -G Ninja -DCMAKE_CXX_COMPILER="$compiler" -DDSPP_CCACHE_PROGRAM="$work/ccache" \
  >"$work/log" 2>&1 || { cat "$work/log"; failures=$((failures + 1)); }
if through_ccache; then
  failures=$((failures + 1))
  echo 'dspp: a project that adds dspp compiles through ccache, but did not ask for it.'
fi
[ $failures -eq 0 ]
