#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# table.sh count <project>: how many rows of table.txt pass.
# table.sh check <project> <build folder> <ctest> [examples]: that every row is there once, that the tests that the rows
# name exist, and that README.md states the count. Without `examples` the build has none, nor their tests.
set -u
what=$1 project=$2
table=$project/tests/faults/table.txt

count() {
  awk -F ' [|] ' '
    /^#/ { next }
    { rows++ }
    $3 ~ /^passes: / || $3 ~ /^by hand: / { pass++ }
    $3 ~ /^by hand: / { hand++ }
    $3 ~ /^waits: / { wait++ }
    $3 ~ /^open/ { open++ }
    END {
      printf "%d of %d rows of faults pass (%d of them by hand alone), %d wait for a feature, %d %s open\n", \
        pass, rows, hand, wait, open, open == 1 ? "is" : "are"
    }' "$table"
}

if [ "$what" = count ]; then
  count
  exit
fi

build=$3 ctest=$4 examples=${5-}
failed=0
wrong() {
  echo "dspp: tests/faults/table.txt needs $1"
  failed=1
}

names=$(awk '!/^#/ { print $1 }' "$table")
expected=$(for rows in A10 B10 C8 D5 E6 F5 G5 H6 I6 J5 K6; do
  letter=${rows%"${rows#?}"} last=${rows#?} n=1
  while [ "$n" -le "$last" ]; do
    echo "$letter$n"
    n=$((n + 1))
  done
done)
[ "$names" = "$expected" ] || wrong "the rows A1 to K6, each once and in order, but it has $(echo "$names" | tr '\n' ' ')."
bad=$(awk -F ' [|] ' '!/^#/ && (NF != 3 || $2 == "" || $3 !~ /^(passes: .+|by hand: .+|waits: .+|open: .+)$/) { print $1 }' "$table")
[ -z "$bad" ] || wrong "three fields and a known state in each row, but has others in $(echo "$bad" | tr '\n' ' ')."
allowed=' A8 A9 B7 D1 D2 D3 G1 G2 G3 G4 G5 I4 J3 J4 '
waiting=$(awk -F ' [|] ' '!/^#/ && $3 ~ /^waits: / { print $1 }' "$table")
for row in $waiting; do
  case $allowed in *" $row "*) ;; *) wrong "to wait only for what is not there, but $row waits." ;; esac
done

tests=$("$ctest" --test-dir "$build" -N 2>/dev/null | sed -n 's/^ *Test *#[0-9]*: \([^ ]*\).*/\1/p')
named=$(awk -F ' [|] ' '!/^#/ && $3 ~ /^passes: / { sub(/^passes: /, "", $3); sub(/ full /, " ", $3); print $3 }' "$table")
for name in $named; do
  case $name in examples.*) [ "$examples" = examples ] || continue ;; esac
  # without MPI, one test stands for those of each number of ranks
  echo "$tests" | grep -qxF -e "$name" -e "${name%_[0-9]}" || wrong "tests that exist, but names $name."
done
grep -qF -- "$(count)" "$project/README.md" || {
  echo "dspp: README.md needs the count of tests/faults/table.txt, but says another. Write: $(count)"
  failed=1
}
[ $failed -ne 0 ] || count
exit $failed
