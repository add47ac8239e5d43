#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# named_tests.sh <project> <document>: a sentence for each mistake in docs/silent_bugs.md. Every `folder.name` in backticks is a
# test: tests/<folder>/<name>_test.cpp or tests/compile_fail/<name>.cpp. Every report has one row, and every row above "Rows that
# wait" names a test.
set -eu
project=$1 document=$2
LC_ALL=C awk -v project="$project" '
  function exists(path,   line, found) {
    found = (getline line <path) > 0
    close(path)
    return found
  }
  function slip(text) { print "dspp: " text; slips = 1 }
  BEGIN {
    # The number of reports of each class.
    split("A 12 B 5 C 7 D 17 E 4 F 7 G 4 H 7 I 11 J 6 K 4 L 9", classes, " ")
  }
  /^## / { waits = ($0 ~ /^## Rows that wait/) }
  {
    rest = $0
    named = 0
    while (match(rest, /`[a-z_]+\.[a-z0-9_]+`/)) {
      name = substr(rest, RSTART + 1, RLENGTH - 2)
      rest = substr(rest, RSTART + RLENGTH)
      folder = name
      sub(/\..*/, "", folder)
      sub(/.*\./, "", name)
      path = project "/tests/" folder "/" name (folder == "compile_fail" ? "" : "_test") ".cpp"
      if (exists(path)) named++
      else slip(FILENAME ":" FNR " names the test " folder "." name ", but there is no " path ".")
    }
    if (match($0, /^\| [A-L][0-9]+ \|/)) {
      row = substr($0, 3, RLENGTH - 4)
      rows[row]++
      if (!waits && !named) slip(FILENAME ":" FNR " has row " row " without a test that it names.")
    }
  }
  END {
    for (i = 1; i in classes; i += 2)
      for (n = 1; n <= classes[i + 1]; n++) {
        row = classes[i] n
        if (rows[row] != 1) slip(FILENAME " needs one row " row ", but has " rows[row] + 0 ".")
        delete rows[row]
      }
    for (row in rows) slip(FILENAME " has row " row ", which is none of the reports.")
    exit slips
  }' "$document"
