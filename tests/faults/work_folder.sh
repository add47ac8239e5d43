# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154
# Creates an empty $work with a text to train on, and enters it. Sourced by the scripts that drive train_gpt.
rm -rf "$work" && mkdir -p "$work" && cd "$work" || exit 1
i=0
while [ $i -lt 2000 ]; do
  echo "line $((i * i % 97)) of the text"
  i=$((i + 1))
done >text.txt
