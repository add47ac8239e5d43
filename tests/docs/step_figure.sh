#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# step_figure.sh <project>: whether the figure in docs/tour.md is what the includes say, of at most 15 files.
# step_figure.sh <project> write: puts it there. A line before the figure names its files: <!-- files of a step: a.hpp b.hpp -->
set -u
cd "$1" || exit 1
tour=docs/tour.md
files=$(sed -n 's/^<!-- files of a step: \(.*\) -->$/\1/p' $tour)
for file in $files; do [ -r "include/dspp/$file" ] || { echo "dspp: the figure of a step needs its files, but there is no $file. Mend $tour."; exit 1; }; done
count=$(echo "$files" | wc -w)
if [ "$count" -lt 5 ] || [ "$count" -gt 15 ]; then echo "dspp: the way of a step has at most 15 files, but $tour names $count."; exit 1; fi

drawn() {
  # shellcheck disable=SC2046 # names without spaces
  awk -f tests/docs/step_figure.awk -v headers="$files" $(find include/dspp -name '*.hpp')
}
figure=$(drawn) || exit 1
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
