#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compile_and_run.sh <source> <program> <nvcc> <include folder>...
set -eu
source=$1 program=$2 nvcc=$3
shift 3
for folder in "$@"; do
  shift
  set -- "$@" "-I$folder"
done
"$nvcc" -x cu -std=c++20 -Xcompiler -pthread "$@" -o "$program" "$source"
"$program"
