#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compiled.sh <root> <compiler> [flag...]: every header that leaves its definitions to dspp::compiled is read by a unit of
# it. Otherwise a program that links the library lacks them.
set -eu
root=$1
shift
units=$root/include/dspp/compiled
failures=0 checked=0

# headers_of <condition>: those that ask it.
headers_of() { grep -rlF "#if $1()" "$root/include/dspp" --include='*.hpp'; }

# check <condition> <unit> [compiler and flags]
check() {
  condition=$1 unit=$2
  shift 2
  included=" $("$@" -std=c++20 -I"$root/include" -DDSPP_COMPILED=1 -M "$units/$unit" | tr -d '\\\n') "
  for header in $(headers_of "$condition"); do
    checked=$((checked + 1))
    case $included in *" $header "*) continue ;; esac
    failures=$((failures + 1))
    echo "dspp: ${header#"$root/include/"} leaves its definitions to dspp::compiled, whose $unit does not include it."
  done
}

check DSPP_HAS_DEFINITIONS definitions.cpp "$@"
check DSPP_HAS_KERNELS kernels_f32.cpp "$@"

echo "dspp: $checked headers, $failures that dspp::compiled does not define."
[ $failures -eq 0 ] && [ $checked -gt 50 ]
