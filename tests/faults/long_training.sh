#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# long_training.sh <train_gpt> <work folder>: row F5. Over the steps of a long training the process takes no more memory
# than it had after a tenth of them, but for 16 pages. On one rank: with more, how far their allocations overlap is a matter of
# who is faster, and under load 200 kB were added in the first thousand steps before it was flat.
# 1,000 steps; with DSPP_FAULTS=full 10,000.
set -u
program=$1 work=$2
steps=1000
[ "${DSPP_FAULTS-}" = full ] && steps=10000
# shellcheck source=tests/faults/work_folder.sh
. "$(dirname "$0")/work_folder.sh"
"$program" --data text.txt --layers 2 --width 32 --heads 2 --sequence 16 --sample 0 --micro-batch 2 --accumulate 2 \
  --ranks 1 --steps $steps >out.txt 2>&1 &
started=$!
: >memory.txt
while kill -0 $started 2>/dev/null; do
  step=$(cat runs/*/metrics.jsonl 2>/dev/null | wc -l)
  kilobytes=$(sed -n 's/^VmRSS:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$started/status" 2>/dev/null)
  [ -z "$kilobytes" ] || echo "$step $kilobytes" >>memory.txt
  sleep 0.02
done
wait $started || { cat out.txt; exit 1; }
awk -v steps=$steps '
  $1 >= steps / 10 && $1 < steps { if (!n++) first = $2; if ($2 > most) most = $2; last = $1 }
  END {
    printf "%d samples from step %d on: %d kB, at most %d kB\n", n, steps / 10, first, most
    exit !(n >= 5 && last > steps / 2 && most <= first + 64)
  }' memory.txt
