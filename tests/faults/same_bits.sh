#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# same_bits.sh <train_gpt> <work folder>: row I1. Three models on 1, 2, 3 and 4 ranks, each trained again with the same seed,
# and again on one core: every loss and norm, all weights and all moments are the same bits. Another seed gives others.
# Operations on more threads than this machine has cores are tested in ops.parallel.
# One model on two worlds; with DSPP_FAULTS=full all 12 pairs.
set -u
program=$1 work=$2
# shellcheck source=tests/faults/work_folder.sh
. "$(dirname "$0")/work_folder.sh"

# print <seed> <command before the program>... -- <option>...: all results of a training, as one number
print() {
  seed=$1
  shift
  rm -rf one && mkdir one && cd one || exit 1
  "$@" --seed "$seed" --data ../text.txt --steps 8 --micro-batch 2 --save states --sample 40 >out.txt 2>&1 || { cat out.txt; exit 1; }
  {
    sed 's/"tokens_per_second":[^,]*,"seconds":[^,]*,//' runs/*/metrics.jsonl
    cat states/step_00000008/*.safetensors
    sed -n '/^--- sample/,/^  largest/p' out.txt
  } | cksum
  cd "$work" || exit 1
}

compared=0 failed=0
for model in '--layers 1 --width 32 --heads 2 --sequence 16' '--layers 3 --width 48 --heads 3 --sequence 33' \
  '--layers 2 --width 128 --heads 8 --sequence 64 --accumulate 3'; do
  for ranks in 1 2 3 4; do
    [ "${DSPP_FAULTS-}" = full ] || case $model$ranks in *"width 32"*3 | *"width 48"*1) ;; *) continue ;; esac
    # shellcheck disable=SC2086 # words
    {
      first=$(print 1 "$program" $model --ranks $ranks)
      second=$(print 1 "$program" $model --ranks $ranks)
      on_one_core=$(print 1 taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')" "$program" $model --ranks $ranks)
      other=$(print 2 "$program" $model --ranks $ranks)
    }
    compared=$((compared + 1))
    if [ "$first" != "$second" ] || [ "$first" != "$on_one_core" ] || [ "$first" = "$other" ]; then
      echo "dspp: a training needs the bits of its seed, but $model on $ranks ranks gives $first, $second, on one core $on_one_core, with another seed $other"
      failed=$((failed + 1))
    fi
  done
done
echo "$compared of 12 pairs of a model and a world, $failed failures"
[ $failed -eq 0 ] && [ $compared -gt 0 ]
