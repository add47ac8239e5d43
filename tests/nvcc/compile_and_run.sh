#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile_and_run.sh <source> <program> <nvcc> <include folder>...
set -eu
source=$1 program=$2 nvcc=$3
shift 3
for folder in "$@"; do
  shift
  case $folder in
    */eigen3) set -- "$@" -isystem "$folder" ;;  # whose warnings are not ours
    *) set -- "$@" "-I$folder" ;;
  esac
done
if grep -q '^// compiled, not run' "$source"; then
  # 20011, 20013, 20014: a call of a host's function, which nvcc else compiles to nothing, with a warning
  exec "$nvcc" -x cu -std=c++20 -arch=sm_90 -diag-suppress=20012,20015 -diag-error=20011,20013,20014 "$@" -ptx -o "$program.ptx" "$source"
fi
# g++ collects its garbage from 1 GiB on, which takes an eighth less of its time.
case ${NVCC_CCBIN-g++} in *g++*) set -- "$@" -Xcompiler --param=ggc-min-heapsize=1048576 ;; esac
"$nvcc" -x cu -std=c++20 -Xcompiler -pthread "$@" -o "$program" "$source"
case $source in *.cu) ;; *) exec "$program" ;; esac
# A program for GPUs: one sentence where there is none.
said=$("$program" 2>&1) && exit 0
printf '%s\n' "$said"
case $said in 'dspp: '*' needs a GPU'*) ;; *) exit 1 ;; esac
