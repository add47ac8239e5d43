#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# long_training.sh <train_gpt> <work folder>: row F5. A long training does not grow in memory: one rank with one thread,
# from a quarter of 4,000 steps on, except for 64 pages, less than 100 bytes a step. With DSPP_FAULTS=full from a tenth
# of 10,000, except for 16 pages, and two ranks in their second half against the first: the overlap of the threads'
# allocations depends on their timing, and in the first thousand steps that added up to 200 kB before it was flat.
set -u
program=$1 work=$2
# shellcheck source=tests/faults/work_folder.sh
. "$(dirname "$0")/work_folder.sh"

# train <ranks> <steps> <the share of steps, in percent, after which memory must not grow> <tolerance in kB>
train() {
  rm -rf runs
  OMP_NUM_THREADS=1 "$program" --data text.txt --layers 2 --width 32 --heads 2 --sequence 16 --sample 0 --micro-batch 2 \
    --accumulate 2 --ranks "$1" --steps "$2" >out.txt 2>&1 &
  started=$!
  : >memory.txt
  while kill -0 $started 2>/dev/null; do
    # The memory first, so that the end of the run is never counted to a step before it.
    kilobytes=$(sed -n 's/^RssAnon:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$started/status" 2>/dev/null)
    step=$(cat runs/*/metrics.jsonl 2>/dev/null | wc -l)
    [ -z "$kilobytes" ] || echo "$step $kilobytes" >>memory.txt
    sleep 0.02
  done
  wait $started || { cat out.txt; exit 1; }
  awk -v ranks="$1" -v steps="$2" -v share="$3" -v slack="$4" '
    !$1 || $1 >= steps { next }
    $1 < steps * share / 100 { early++; if ($2 > before) before = $2; next }
    { late++; last = $1; if ($2 > after) after = $2 }
    END {
      printf "%d rank(s), %d samples up to step %d: %d kB, %d after: %d kB\n",
        ranks, early, steps * share / 100, before, late, after
      exit !(early && late >= 5 && last > steps * (100 + share) / 200 && after <= before + slack)
    }' memory.txt || exit 1
}

if [ "${DSPP_FAULTS-}" = full ]; then
  train 1 10000 10 64
  train 2 10000 50 64
else
  train 1 4000 25 256
fi
