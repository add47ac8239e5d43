#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# killed_rank.sh <mpirun> <mpi_program> <work folder>: rows A1 and J2. One of several processes ends, by a signal or by
# exit(), before, in and after each of the seven operations: the others end within a second, the job with a status that is
# not 0, one sentence names the rank, its process, its host and the operation, and nothing is left behind.
# Operations of MPI's own collectives are repeated with these. 15 runs; with DSPP_FAULTS=full 360.
set -u
mpirun=$1 program=$2 work=$3
shared=/dev/shm/dspp_faults_$$
export OMPI_MCA_btl_vader_backing_directory=$shared OMPI_MCA_btl_sm_backing_directory=$shared # Open MPI 4 and 5
rm -rf "$work" && mkdir -p "$work" "$shared" && cd "$work" || exit 1
trap 'rm -rf "$shared"' EXIT
host=$(uname -n)
every=25
[ "${DSPP_FAULTS-}" = full ] && every=1

number=0 runs=0 failed=0 slow=0
wrong() {
  failed=$((failed + 1))
  echo "dspp: rank $culprit of 4 that ends by $how $when operation $operation with sums in the order of $order: $1"
  sed 's/^/  /' err.txt
}

# one <operation> <when> <how>: in rank order, and one of the first three also in the transport's order
one() {
  one_of "$@" rank
  [ "$1" -gt 2 ] || one_of "$@" transport
}

# one_of <operation> <when> <how> <order>
one_of() {
  operation=$1 when=$2 how=$3 order=$4
  number=$((number + 1))
  [ $((number % every)) -eq 1 ] || [ $every -eq 1 ] || return
  runs=$((runs + 1))
  culprit=$((number % 4))
  rm -f died
  timeout 60 "$mpirun" -n 4 "$program" dies $culprit "$operation" "$when" "$how" "$work/died" "$order" >out.txt 2>err.txt &
  timeout 60 cat died.alive # until the last of the ranks, which hold it open, has ended
  ended=$(date +%s%3N)
  wait $!
  status=$?
  told=$(date +%s%3N)
  [ -s died ] || { wrong 'it did not end'; return; }
  took=$((ended - $(cat died)))
  echo "$took $culprit $operation $when $how $order" >>took.txt
  [ $took -le 1000 ] || slow=$((slow + 1))
  [ $took -le 3000 ] || wrong "the others ended after $took ms"
  [ $((told - $(cat died))) -le 2000 ] || wrong "mpirun ended after $((told - $(cat died))) ms"
  case $status in 0 | 124) wrong "the status of the job is $status" ;; esac
  said=$(grep -c 'dspp: ' err.txt)
  # Open MPI 5 prints nothing more of the others after an exit status that is not 0, but names the rank itself.
  if [ "$how" = e1 ] && [ "$said" -eq 0 ] && grep -q 'prterun detected' err.txt; then
    grep -q "@1,$culprit\]" err.txt || wrong 'mpirun does not name the rank'
  else
    [ "$said" -eq 1 ] || wrong "there are $said sentences"
    grep -q "dspp: .* needs rank $culprit in [a-z_]*.*, the [0-9]*[a-z]* operation of .*, but process [0-9]* of rank $culprit on $host is gone\." err.txt ||
      wrong 'no sentence names the rank, the operation, the process and the host'
  fi
  case $how in
    e0) ;; # mpirun has no number to tell
    e*) grep -q "Exit code: *${how#e}\$" err.txt || wrong 'mpirun does not tell the exit status' ;;
    *) tr -s '\n ' '  ' <err.txt | grep -q "process rank $culprit with PID [0-9]* on node $host exited on signal $how" || wrong 'mpirun does not tell the signal' ;;
  esac
  process=$(sed -n 's/.*, but process \([0-9]*\) of rank.*/\1/p' err.txt)
  [ -z "$process" ] || [ ! -e "/proc/$process" ] || wrong "process $process is still there"
  grep -lsa -- "$work/died" /proc/[0-9]*/cmdline >left.txt && {
    sleep 0.2
    grep -lsa -- "$work/died" /proc/[0-9]*/cmdline >left.txt && grep -qv "/proc/\(self\|$$\)/" left.txt && wrong "processes are left: $(cat left.txt)"
  }
  left=$(ls "$shared")
  [ -z "$left" ] || wrong "in /dev/shm is left: $left"
}

mkfifo died.alive || exit 1
: >took.txt
for operation in 0 1 2 3 4 5 6; do
  for how in 9 11 6 15 2 e0 e1; do
    for when in before begun during after; do one "$operation" "$when" "$how"; done
  done
done
# and 56 more during the largest ones, at random moments
again=8
while [ $again -gt 0 ]; do
  for operation in 0 1 2 3 4 5 3; do one "$operation" during 9; done
  again=$((again - 1))
done
sort -n took.txt >sorted.txt
echo "$runs runs, $failed failures; the others ended $(sed -n "$(((runs + 1) / 2))s, .*,,p" sorted.txt) ms after the rank in the median, \
$(sed -n "\$s, .*,,p" sorted.txt) ms at most, $slow took more than a second"
[ $failed -eq 0 ] && [ $((slow * 100)) -le "$runs" ]
