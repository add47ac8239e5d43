#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# arithmetic.sh <root> <compiler>: a unit with flags that break IEEE 754 arithmetic does not compile, or, if the compiler has
# no macro for the flag, fails its check at the start; so does a program that is only linked with such a flag. The flags of
# dspp's own programs are allowed.
set -eu
root=$1 compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >unit.cpp <<'END'
#include <cstdio>
#include <dspp/base/arithmetic.hpp>
int main() {
  try {
    dspp::check_arithmetic();
  } catch (const dspp::Error& error) {
    return std::puts(error.what()), 2;
  }
}
END
checked=0 failures=0
complain() { echo "dspp: with $1: $2"; failures=$((failures + 1)); }
takes() { echo 'int main() {}' | $compiler "$@" -Werror -x c++ -o nothing - 2>/dev/null; }
compile() { $compiler -std=c++20 -I"$root/include" "$@" unit.cpp -o unit; }

# refused <word of the sentence> <flag>...: does not compile, or fails when it runs.
refused() {
  word=$1
  shift
  takes "$@" || return 0
  checked=$((checked + 1))
  if said=$(compile "$@" 2>&1) && said=$(./unit); then
    complain "$*" 'the unit compiles and its check finds nothing.'
  else
    case $said in *"dspp: "*" needs "*", but "*"$word"*) ;; *) complain "$*" "the sentence is not about $word: $said" ;; esac
  fi
}

allowed() {
  takes "$@" || return 0
  checked=$((checked + 1))
  said=$(compile "$@" 2>&1) && said=$(./unit) || complain "$*" "it should be allowed, but: $said"
}

for flags in -ffast-math -Ofast; do refused -ffast-math -O2 $flags; done
refused -ffinite-math-only -O2 -ffinite-math-only
refused -ffinite-math-only -O2 -fno-honor-nans
refused -ffinite-math-only -O2 -fno-honor-infinities
refused -fassociative-math -O2 -fassociative-math -fno-signed-zeros -fno-trapping-math
refused -fassociative-math -O2 -funsafe-math-optimizations
refused math -O2 -Ofast -fno-finite-math-only
refused -freciprocal-math -O2 -freciprocal-math
refused -fno-signed-zeros -O2 -fno-signed-zeros
refused -fassociative-math -O1 -funsafe-math-optimizations
refused -ffinite-math-only -O1 -fno-honor-infinities
allowed -O2 -fno-math-errno -fno-trapping-math
allowed -O2 -ffp-contract=fast -march=native
allowed -O2 -ffast-math -fno-fast-math
case $($compiler -dumpmachine) in x86_64*)
  refused -mfpmath=387 -O2 -mfpmath=387
  case $($compiler --version) in *clang*) ;; *) refused -fsingle-precision-constant -O2 -fsingle-precision-constant ;; esac
  # The linker adds start code that makes the processor flush subnormal numbers.
  $compiler -std=c++20 -I"$root/include" -O2 -c unit.cpp -o unit.o
  for flags in -ffast-math -Ofast; do
    checked=$((checked + 1))
    $compiler $flags unit.o -o unit
    ! said=$(./unit) || complain "$flags at the link" 'the check finds nothing.'
    case $said in *subnormal*fesetenv*) ;; *) complain "$flags at the link" "the sentence is: $said" ;; esac
  done ;;
esac
[ $checked -ge 12 ] || complain 'this compiler' "only $checked flags could be tried."
echo "dspp: $checked sets of flags, $failures not as they should be."
[ $failures -eq 0 ]
