#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# meeting.sh <mpirun> <mpi_program> <the same without MPI> <the same, built otherwise> <work folder>: rows A6 and A7.
# Processes that were started differently, or do not all start: each ends with a sentence, in time, or starts after all.
# Every third case; with DSPP_FAULTS=full all of them.
set -u
mpirun=$1 program=$2 without=$3 other=$4 work=$5
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
number=0 runs=0 failed=0

# expect <seconds at most> <status: 0 or 1 for any other> <text of the output> <argument of mpirun>...
expect() {
  most=$1 wanted=$2 text=$3
  shift 3
  number=$((number + 1))
  [ "${DSPP_FAULTS-}" = full ] || [ $((number % 3)) -eq 1 ] || return
  runs=$((runs + 1))
  begun=$(date +%s%3N)
  timeout 60 "$mpirun" "$@" >out.txt 2>&1
  status=$?
  took=$(($(date +%s%3N) - begun))
  [ $status -eq 0 ] || status=1
  if [ $status -ne "$wanted" ] || ! grep -q "$text" out.txt || [ $took -gt $((most * 1000)) ]; then
    failed=$((failed + 1))
    echo "dspp: case $number needs the status $wanted and \"$text\" within $most s, but has $status after $took ms:"
    sed 's/^/  /' out.txt
  fi
}

# each <seconds at most> <status> <text> <command of rank 0> <command of rank 1>...: the same for ranks with commands of their
# own. Not by `mpirun ... : ...`, at which the mpirun of Open MPI 5.0.7 crashes: a shell of each rank runs its command.
each() {
  limits=$1 wish=$2 sentence=$3
  shift 3
  # shellcheck disable=SC2016 # for the shells of the ranks
  expect "$limits" "$wish" "$sentence" -n $# \
    sh -c 'rank=$((${OMPI_COMM_WORLD_RANK-$PMI_RANK} + 1)); eval "eval \"\${$rank}\""' sh "$@"
}
export program without other
# shellcheck disable=SC2016 # for the shells of the ranks
begins='"$program" ""'

# ranks that do not all start
expect 20 0 'sum 3 of 3' -n 3 "$program" late 1 1 10
expect 5 1 'rank 0 needs all 3 ranks to begin, but waited 1 s and not all came' -n 3 "$program" late 1 30 1
expect 5 1 'rank 0 needs all 2 ranks to begin, but waited 1 s and not all came' -n 2 "$program" late 1 30 1
expect 7 1 'rank [12] needs rank 0 to begin, but waited 1 s and not all came' -n 3 "$program" late 0 30 1
each 20 1 'Primary job\|non-zero' "$begins" 'exit 3' "$begins"
each 20 1 'Primary job\|signal 9' "$begins" 'kill -9 $$' "$begins"
each 20 1 'OMPI_COMM_WORLD_RANK says rank 0 of 2 and MPI says rank 1 of 2' "$begins" "OMPI_COMM_WORLD_RANK=0 $begins"
each 20 1 'needs a rank below the number of ranks, but OMPI_COMM_WORLD_RANK says rank 7 of 2' \
  "$begins" "OMPI_COMM_WORLD_RANK=7 $begins"
each 20 1 "needs a number in the variable OMPI_COMM_WORLD_RANK, but it holds 'first'" \
  "$begins" "OMPI_COMM_WORLD_RANK=first $begins"
expect 30 1 'nosuchhost' --host nosuchhost.invalid -n 2 "$program" ''
# ranks that were started differently
each 20 1 'OMPI_COMM_WORLD_RANK says rank 1 of 3 and MPI says rank 1 of 2' "$begins" "OMPI_COMM_WORLD_SIZE=3 $begins"
each 20 1 'PMI_RANK says rank 1 of 4' "$begins" "PMI_RANK=1 PMI_SIZE=4 $begins"
each 20 1 'SLURM_PROCID says rank 0 of 3' "$begins" "SLURM_PROCID=0 SLURM_NTASKS=3 $begins"
each 20 1 'is asked for 3 and OMPI_COMM_WORLD_RANK says rank 1 of 2' "$begins" '"$program" three'
each 20 1 'seed' '"$program" seed 1' '"$program" seed 2'
each 20 1 'sum order' '"$program" order 0' '"$program" order 1'
each 20 1 'was built without. Link dspp::mpi' "$begins" '"$without" ""'
each 20 1 'needs the arithmetic of IEEE 754, but' "$begins" '"$program" other_arithmetic'
each 20 1 'build' "$begins" '"$other" ""'
echo "$runs cases, $failed failures"
[ $failed -eq 0 ] && [ $runs -gt 0 ]
