#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# step_figure.sh <project>: whether the figure in docs/tour.md is what the includes say, and of as many files as its text says,
# which are at most 25.
# step_figure.sh <project> write: puts it there. Comments before the figure name its files and those that they include besides:
# <!-- files of a step: a.hpp b.hpp --> and <!-- beside the way: c.hpp -->, each of one line or more.
set -u
cd "$1" || exit 1
tour=docs/tour.md
listed() { awk -v begin="<!-- $1: " 'index($0, begin) == 1 { inside = 1; $0 = substr($0, length(begin) + 1) } inside { end = sub(/ *-->.*/, ""); print } end { exit }' $tour | tr '\n' ' '; }
files=$(listed 'files of a step') beside=$(listed 'beside the way')
paths=
for file in $files; do
  [ -r "include/dspp/$file" ] || { echo "dspp: the figure of a step needs its files, but there is no $file. Mend $tour."; exit 1; }
  paths="$paths include/dspp/$file"
done
count=$(echo "$files" | wc -w) said=$(sed -n 's/.*leads through these \([0-9]*\) files.*/\1/p' $tour)
if [ "$count" -gt 25 ]; then echo "dspp: the way of a step has at most 25 files, but $tour names $count. Shorten it."; exit 1; fi
if [ "$count" -lt 5 ] || [ "$count" != "$said" ]; then
  echo "dspp: the way of a step has the $count files that $tour lists, but its text says '$said'. Write 'leads through these $count files'."
  exit 1
fi

# shellcheck disable=SC2086 # names without spaces
figure=$(awk -f tests/docs/step_figure.awk -v headers="$files" -v beside="$beside" $paths) || exit 1
with_figure=$(printf '%s\n' "$figure" | awk '
  NR == FNR { figure = figure $0 "\n"; next }
  /^```mermaid$/ && after { print; printf "%s", figure; inside = 1; next }
  /^```$/ { inside = 0 }
  /^<!-- files of a step: / { after = 1 }
  !inside { print }' - $tour)
if [ "${2-}" = write ]; then
  printf '%s\n' "$with_figure" >$tour
elif [ "$with_figure" != "$(cat $tour)" ]; then
  printf '%s\n' "$with_figure" | diff $tour -
  echo "dspp: the figure in $tour needs the includes of today, but shows others. Run tests/docs/step_figure.sh . write"
  exit 1
fi
