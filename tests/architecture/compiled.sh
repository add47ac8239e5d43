#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compiled.sh <root> <compiler> [flag...]: every header that leaves its definitions to dspp::compiled is read by a unit of
# it, and every list of operations is instantiated there. Otherwise a program that links the library lacks them.
set -eu
root=$1
shift
units=$root/include/dspp/compiled
failures=0 checked=0

# headers_of <condition>: those that ask it.
headers_of() { grep -rlF "#if $1()" "$root/include/dspp" --include='*.hpp'; }

# included_by <unit> [compiler and flags]: the headers that the unit includes.
included_by() {
  of=$1
  shift
  "$@" -std=c++20 -I"$root/include" -DDSPP_COMPILED=1 -M "$units/$of" | tr -d '\\\n'
}

# check <condition> <unit> [compiler and flags]
check() {
  condition=$1 unit=$2
  shift 2
  included=" $(included_by "$unit" "$@") "
  for header in $(headers_of "$condition"); do
    checked=$((checked + 1))
    case $included in *" $header "*) continue ;; esac
    failures=$((failures + 1))
    echo "dspp: ${header#"$root/include/"} leaves its definitions to dspp::compiled, whose $unit does not include it."
  done
}

check DSPP_HAS_DEFINITIONS definitions.cpp "$@"
check DSPP_HAS_KERNELS kernels_f32.cpp "$@"
check DSPP_HAS_OPTIONS options.cpp "$@"

# The lists of operations that headers declare for programs that link dspp::compiled are in the one of its units.
for list in $(grep -rhoE '^DSPP_DECLARE_OPERATIONS\(\w+' "$root/include/dspp" --include='*.hpp' | cut -d'(' -f2); do
  checked=$((checked + 1))
  grep -qF "$list(TEMPLATE, T)" "$units/operations.hpp" && continue
  failures=$((failures + 1))
  echo "dspp: $list is declared for dspp::compiled, whose operations.hpp does not have it."
done

# Consumers without CLI11 build every other unit.
for unit in definitions.cpp kernels_f32.cpp operations_f32.cpp training.cpp updates.cpp; do
  case $(included_by "$unit" "$@") in
    */CLI/*)
      failures=$((failures + 1))
      echo "dspp: $unit includes CLI11, which consumers need not have. Only options.cpp may."
      ;;
  esac
done

echo "dspp: $checked headers, $failures that dspp::compiled does not define."
[ $failures -eq 0 ] && [ $checked -gt 50 ]
