#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# together.sh <folder> <compiler> [argument]... <unit>: compiles the unit that includes many mistakes, and writes into
# <folder>/<mistake>.txt the errors that name the mistake's file: where the error is, or from where its template was
# instantiated. Of what is said here of no mistake check.cmake asks the compiler with the mistake alone.
set -eu
reports=$1
shift
rm -rf "$reports"
mkdir -p "$reports"
if "$@" >"$reports/log" 2>&1; then
  echo 'dspp: the mistakes compile, but they should not.'
  exit 1
fi
# A paragraph for each error, as nvcc writes them. g++ says before an error from where a template was instantiated, the
# other two after it; what stands before an error is in no other paragraph, and an error without it begins one.
awk '
  { error = /^[^ ].*: (fatal )?error/
    before = /^In file included from |^ +from |: In [a-z].*:$|: At global scope:$|: +required (from|by) /
    before = before || /expansion of / }
  (error || before) && !was_before { print "" }
  { print; was_before = before }' "$reports/log" |
  awk -v RS= -v folder="$reports" '
  /: (fatal )?error/ {
    rest = $0
    name = ""
    while (match(rest, /\/compile_fail\/[a-z_0-9]+\.cpp/)) {
      found = substr(rest, RSTART + 14, RLENGTH - 18)
      if (name != "" && found != name) next  # of two it proves nothing
      name = found
      rest = substr(rest, RSTART + RLENGTH)
    }
    if (name != "") print $0 "\n" >>(folder "/" name ".txt")
  }'
echo "dspp: of $(find "$reports" -name '*.txt' | wc -l) mistakes something is said in one unit."
