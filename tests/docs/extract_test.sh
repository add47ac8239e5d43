#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Every mistake in fixture_wrong.md is found, and fixture.md has none.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

mkdir "$work/right" "$work/wrong"
awk -v out="$work/right" -v name=fixture -f "$here/extract.awk" "$here/fixture.md"
awk -v out="$work/wrong" -v name=fixture_wrong -f "$here/extract.awk" "$here/fixture_wrong.md"

# expect <right|wrong> <line of the manifest>
expect() {
  grep -qF -- "$2" "$work/$1/manifest" && return 0
  echo "dspp: the manifest of the $1 fixture lacks: $2"
  failures=1
}

expect wrong 'fixture_wrong.md:3 is not marked'
expect wrong 'fixture_wrong.md:7 names a part `lonely` that no block uses.'
expect wrong 'fixture_wrong.md:11 asks for a part `absent`'
expect wrong 'fixture_wrong.md:15 must fail to compile, but no sentence follows it'
expect right 'run fixture_5 5'
expect right 'run fixture_19 19 --one two'
expect right 'build fixture_23 23'
expect right 'build fixture_32 32'
expect right 'fails fixture_43 43'
expect right 'fails fixture_51 51'
expect right 'fails fixture_61 61'
if grep -F 'wrong ' "$work/right/manifest"; then failures=1; fi
exit $failures
