#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# killed_training.sh <train_gpt> <work folder>: row I2. A training is killed at any moment and resumed: every step of
# both runs, and the last checkpoint, are those of an uninterrupted training, bit for bit.
# 3 kills; with DSPP_FAULTS=full 200.
set -u
program=$1 work=$2
kills=3
[ "${DSPP_FAULTS-}" = full ] && kills=200
# shellcheck source=tests/faults/work_folder.sh
. "$(dirname "$0")/work_folder.sh"

# train <folder> <when it is killed> <option>...: returns its status. It is killed <milliseconds> after its step <step>
# was recorded, by <step>+<milliseconds>, whatever the machine's speed; by -, never.
train() {
  mkdir -p "$1" && cd "$1" || exit 1
  step=${2%+*} milliseconds=${2#*+}
  shift 2
  "$program" "$@" --data ../text.txt --layers 1 --width 32 --heads 2 --sequence 64 --sample 0 --steps 60 --save checkpoints \
    --save-every 5 --micro-batch 4 >out.txt 2>&1 &
  started=$!
  if [ "$step" != - ]; then
    waited=0
    while [ "$step" -gt 0 ] && [ $waited -lt 4000 ] && ! grep -qs "\"step\":$step," runs/*/metrics.jsonl; do
      sleep 0.005
      waited=$((waited + 1))
    done
    sleep "$(printf '0.%03d' "$milliseconds")"
    kill -KILL $started 2>/dev/null
  fi
  wait $started 2>/dev/null
  status=$?
  cd "$work" || exit 1
  return $status
}

# What does not depend on the time of day: steps, losses, rates and norms; a checkpoint without its run's name.
steps_of() { cat "$1"/runs/*/metrics.jsonl 2>/dev/null | sed -n 's/"tokens_per_second":[^,]*,"seconds":[^,]*,//; /}$/p'; }
state_of() {
  cksum <"$1/checkpoints/step_00000060/model.safetensors"
  cksum <"$1/checkpoints/step_00000060/optimizer.safetensors"
  sed -n 's/,"run":.*//; /^"training"/p' "$1/checkpoints/step_00000060/state.json"
}

for ranks in 1 2 3; do
  train "whole$ranks" - --ranks $ranks || { cat "whole$ranks/out.txt"; exit 1; }
  steps_of "whole$ranks" >"steps$ranks"
  state_of "whole$ranks" >"checkpoint$ranks"
  [ "$(wc -l <"steps$ranks")" -eq 60 ] || { echo "dspp: 60 steps were wanted, but $(wc -l <"steps$ranks") are there."; exit 1; }
done

killed=0 tried=0 begun_anew=0 failed=0
while [ $killed -lt $kills ] && [ $tried -lt $((4 * kills)) ]; do
  ranks=$((1 + tried % 3))
  # spread over all steps, and over the parts of a step; each eighth is killed before the first step, or in it
  at=$(((tried * 37 + 11) % 60))+$(((tried * 7 + 3) % 20))
  [ $((tried % 8)) -ne 7 ] || at=0+$(((tried * 61 + 17) % 101))
  tried=$((tried + 1))
  rm -rf one
  train one $at --ranks $ranks
  [ $? -eq 137 ] || continue # it was faster
  killed=$((killed + 1))
  echo "$killed" >progress
  resume='--resume checkpoints'
  if [ ! -e one/checkpoints/latest ]; then
    resume='' begun_anew=$((begun_anew + 1))
    for checkpoint in one/checkpoints/step_*; do # killed between the first checkpoint and the file that names it
      [ ! -e "$checkpoint" ] || resume="--resume checkpoints/${checkpoint##*/}"
    done
  fi
  # shellcheck disable=SC2086 # words
  if ! train one - --ranks $ranks $resume; then
    echo "dspp: a resumed training needs to end well, but after a kill at step $at ms on $ranks ranks it says:"
    cat one/out.txt
    failed=$((failed + 1))
    continue
  fi
  # the last line of the killed run may be partial: without } at its end
  steps_of one | sort -u >found
  sort -u "steps$ranks" >wanted
  state_of one >checkpoint
  if ! cmp -s found wanted || ! cmp -s checkpoint "checkpoint$ranks"; then
    echo "dspp: a resumed training needs the bits of one that went on, but after a kill at step $at ms on $ranks ranks it differs:"
    diff found wanted | head -n 4
    diff checkpoint "checkpoint$ranks"
    failed=$((failed + 1))
  fi
done
echo "$killed kills, $failed failures; $begun_anew came before the first checkpoint"
[ $failed -eq 0 ] && [ $killed -eq $kills ] && [ $begun_anew -lt $((killed / 2 + 1)) ]
