# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# Detects compilers, tools and headers by use rather than by package.

have() { command -v "$1" >/dev/null 2>&1; }

# at_least <version> <version>: true if the first is not older than the second.
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort -t. -k1,1n -k2,2n -k3,3n | head -n 1)" = "$2" ]; }

cmake_version() { cmake --version 2>/dev/null | sed -n 's/^cmake version \([0-9.]*\).*/\1/p'; }
compiler_version() { "$1" -dumpfullversion -dumpversion 2>/dev/null | head -n 1; }

# has_header <header> [flag...]: true if the compiler finds it.
has_header() {
  header=$1
  shift
  printf '#include <%s>\n' "$header" | "$CXX" -x c++ -std=c++20 -E -o /dev/null "$@" - >/dev/null 2>&1
}

# The unsuitable version that was found, for the error sentence; empty if none.
seen=

# g++ 11 has <concepts> too, but dspp is written for g++ 12 and clang++ 14.
has_compiler() {
  seen=
  have "$CXX" || return 1
  version=$(compiler_version "$CXX") oldest=12
  seen="$CXX $version"
  "$CXX" --version 2>/dev/null | grep -q clang && oldest=14
  at_least "$version" $oldest || return 1
  printf '#include <concepts>\nstatic_assert(std::integral<int>);' |
    "$CXX" -x c++ -std=c++20 -fsyntax-only - >/dev/null 2>&1 && return 0
  seen="$seen without <concepts>"
  return 1
}
has_cmake() {
  seen=
  have cmake || return 1
  version=$(cmake_version)
  seen="CMake $version"
  at_least "$version" 3.25
}
has_eigen() { has_header Eigen/Core -I/usr/include/eigen3 -I/usr/local/include/eigen3; }
has_cli11() { has_header CLI/CLI.hpp; }
has_doctest() { has_header doctest/doctest.h; }
has_benchmark() { has_header benchmark/benchmark.h; }
has_liburing() { has_header liburing.h; }
has_onednn() { has_header dnnl.h; }
