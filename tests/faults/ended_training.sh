#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ended_training.sh <dspp's folder> <train_gpt> <work folder>: row J1. A training is interrupted at any moment, as
# threads and under mpirun: one SIGINT, SIGTERM or SIGHUP ends its step, saves and reports it; a second ends it at once;
# a kill -9 of the program, of mpirun or of the shell that started it also ends it. No process of it is left: threads after
# a second, processes, which mpirun gives a second of its own, after three. 6 runs; with DSPP_FAULTS=full 500. Without mpirun
# all are threads.
set -u
root=$1 program=$2 work=$3
runs=6
[ "${DSPP_FAULTS-}" = full ] && runs=500
# shellcheck source=tests/faults/work_folder.sh
. "$(dirname "$0")/work_folder.sh"
export DSPP_ENDED_TRAINING="$work" # what the processes of a run are known by

# The processes of this run that are still there.
left() { grep -lsa "DSPP_ENDED_TRAINING=$work" /proc/[0-9]*/environ | sed 's/[^0-9]//g' | while read -r process; do
  case $(tr '\0' ' ' 2>/dev/null <"/proc/$process/cmdline") in *train_gpt*) echo "$process" ;; esac
done; }

# The shell of ./dspp train --mpi 2, without building anything.
# shellcheck disable=SC2016 # for the other shell
as_processes='
  root=$1 program=$2
  shift 2
  complain() { echo "dspp: $*" >&2; }
  . "$root/scripts/build.sh"
  start_processes 2 "$program" "$@"
'
run=0 failed=0 ended=0 saved=0
wrong() {
  failed=$((failed + 1))
  echo "dspp: run $run, $way as $kind after 0.$after s: $1"
  sed 's/^/  /' out.txt
}
while [ $run -lt $runs ]; do
  run=$((run + 1))
  rm -rf states runs out.txt
  kind=threads # a shell makes what it starts in the background ignore SIGINT; env restores it
  { [ $((run % 5)) -ne 0 ] && [ $run -ne 6 ]; } || ! command -v mpirun >/dev/null || kind=processes
  case $((run % 7)) in 0 | 1) way=INT ;; 2) way=TERM ;; 3) way=HUP ;; 4) way=twice ;; *) way=KILL ;; esac
  set -- --data text.txt --layers 1 --width 32 --heads 2 --sequence 16 --sample 0 --micro-batch 2 --seconds 60 --save states
  [ $way != twice ] || set -- "$@" --sample 1000000
  if [ $kind = threads ]; then
    env --default-signal=INT "$program" "$@" --ranks 2 >out.txt 2>&1 &
  else
    env --default-signal=INT sh -c "$as_processes" dspp "$root" "$program" "$@" >out.txt 2>&1 &
  fi
  started=$!
  waited=0
  while [ $waited -lt 300 ] && ! grep -qs '"step":2,' runs/*/metrics.jsonl; do
    sleep 0.05
    waited=$((waited + 1))
  done
  after=$((run * 37 % 30))
  [ $after -gt 9 ] || after=0$after
  sleep 0.$after
  begun=$(date +%s%3N)
  case $way in
    twice)
      kill -s INT $started
      sleep 0.3
      kill -s INT $started
      ;;
    KILL)
      killed=$started # the program, or the shell that started mpirun, or mpirun
      [ $kind = threads ] || [ $((run % 7)) -eq 5 ] || killed=$(left | while read -r process; do
        case $(tr '\0' ' ' 2>/dev/null <"/proc/$process/cmdline") in mpirun* | prterun* | */prterun*) echo "$process" ;; esac
      done)
      kill -s KILL "$killed"
      ;;
    *) kill -s $way $started ;;
  esac
  wait $started 2>/dev/null
  status=$?
  took=$(($(date +%s%3N) - begun))
  case $way in
    KILL) [ $status -eq 137 ] || wrong "its status is $status" ;;
    twice)
      [ $status -eq 130 ] || wrong "its status is $status"
      [ $took -le 3000 ] || wrong "it took $took ms"
      ;;
    *)
      [ $status -eq 0 ] || wrong "its status is $status"
      grep -q 'stopped after ' out.txt || wrong 'it does not say that it was stopped'
      [ -s states/latest ] || wrong 'there is no state'
      saved=$((saved + 1))
      ;;
  esac
  # after a kill -9 of the shell a guard ends mpirun, which gives its processes a second
  waited=0
  while [ -n "$(left)" ] && [ $waited -lt 60 ]; do
    sleep 0.05
    waited=$((waited + 1))
  done
  [ $waited -lt 60 ] || wrong "after 3 s processes are left: $(left | tr '\n' ' ')"
  [ $way != KILL ] || [ $kind = processes ] || [ $waited -le 20 ] || wrong "its threads were left for more than a second"
  ended=$((ended + 1))
done
echo "$ended runs were ended, $saved of them saved, $failed failures"
[ $failed -eq 0 ] && [ $saved -gt 0 ]
