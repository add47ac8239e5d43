#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hanging_rank.sh <mpirun> <mpi_program> <work folder>: row A2. One of three processes stops, loops for ever or never calls, in
# each of the seven operations: after the timeout of 2 s, and half a second in which it could stop, one sentence names it, a
# list says what each rank called last, and the job ends. 1 run, which a busy machine may delay; with DSPP_FAULTS=full, on a
# quiet one, 21 within a second of the timeout.
set -u
mpirun=$1 program=$2 work=$3
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
mkfifo hung.alive || exit 1
every=15 most=20000
[ "${DSPP_FAULTS-}" = full ] && every=1 most=3000
number=0 runs=0 failed=0 longest=0
wrong() {
  failed=$((failed + 1))
  echo "dspp: rank $culprit of 3 that is $way in operation $operation: $1"
  sed 's/^/  /' err.txt
}
for operation in 0 1 2 3 4 5 6; do
  for way in stopped loops away; do
    number=$((number + 1))
    [ $((number % every)) -eq 0 ] || continue
    runs=$((runs + 1)) culprit=$((number % 3))
    rm -f hung
    timeout 60 "$mpirun" -n 3 "$program" hangs $culprit $operation $way 2 "$work/hung" >out.txt 2>err.txt &
    started=$!
    timeout 60 sed -n q hung.alive # opened, and for reading no longer
    waited=0
    while ! grep -q 'dspp: ' err.txt && [ $waited -lt 1000 ]; do
      sleep 0.02
      waited=$((waited + 1))
    done
    told=$(date +%s%3N)
    wait $started
    status=$?
    ended=$(date +%s%3N)
    [ -s hung ] || { wrong 'it did not hang'; continue; }
    took=$((told - $(cat hung)))
    [ $took -le "$longest" ] || longest=$took
    case $status in 0 | 124) wrong "the status of the job is $status" ;; esac
    { [ $took -ge 1900 ] && [ $took -le $most ]; } || wrong "the sentence came after $took ms"
    [ $((ended - told)) -le 3000 ] || wrong "the job ended $((ended - told)) ms later"
    [ "$(grep -c 'dspp: ' err.txt)" -eq 1 ] || wrong "there are $(grep -c 'dspp: ' err.txt) sentences"
    grep -q "dspp: rank [0-9] needs .*rank $culprit.* in [a-z_]*.*, the [0-9]*[a-z]* operation of .*, but waited 2 s and " err.txt ||
      wrong 'no sentence names the rank and the operation'
    # The list: once, with what the three ranks have called, the others what they wait in. A send is recorded by both ends.
    [ "$(grep -c 'the last operations of each rank' err.txt)" -eq 1 ] || wrong 'there is not one list'
    for rank in 0 1 2; do
      grep -q "    rank $rank   .*, the [12][a-z]* operation of .* at support/mpi_program.cpp:[0-9]" err.txt ||
        wrong "the list has nothing that rank $rank has done"
      [ $rank -eq $culprit ] || grep -q "    rank $rank > .*, the 3rd operation of " err.txt ||
        wrong "the list does not say what rank $rank waits in"
    done
    ! grep -q "    rank $culprit .* the 3rd operation of " err.txt || wrong 'the list has what the rank never called'
  done
done
echo "$runs runs, $failed failures; the sentence came after $longest ms at most, of a timeout of 2000"
[ $failed -eq 0 ] && [ $runs -gt 0 ]
