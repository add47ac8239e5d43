#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# named_tests_test.sh <project>: docs/silent_bugs.md has no mistake, and each mistake made in a copy is found.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
project=$1 document=$1/docs/silent_bugs.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sh "$here/named_tests.sh" "$project" "$document"

# finds <the sentence's end> <sed command>: the mistake that the command makes
finds() {
  sed "$2" "$document" >"$work/slip.md"
  if sh "$here/named_tests.sh" "$project" "$work/slip.md" >"$work/found"; then :; fi
  grep -qF -- "$1" "$work/found" && return 0
  echo "dspp: named_tests.sh needs to find what '$2' does, but it says:"
  cat "$work/found"
  exit 1
}
finds 'names the test engine.no_such, but there is no ' 's/engine\.shared_parameter/engine.no_such/'
finds 'names the test compile_fail.no_such, but there is no ' 's/compile_fail\.partial_times_partial/compile_fail.no_such/'
finds 'has row A1 without a test that it names.' '/^| A1 |/s/[.]/ /g'
finds 'needs one row A1, but has 0.' '/^| A1 |/d'
finds 'needs one row L9, but has 2.' '/^| L9 |/p'
finds 'has row K5, which is none of the reports.' 's/^| K4 |/| K5 |/'
