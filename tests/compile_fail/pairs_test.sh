#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Plants sentences without a mistake in a small project and looks for what the comparison says; a whole catalogue must pass.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT
failures=0

build_whole_catalogue() {
  rm -rf "${project:?}"/*
  mkdir -p "$project/include/dspp" "$project/tests/compile_fail"
  cat >"$project/include/dspp/a.hpp" <<'HEADER'
static_assert(sizeof(int) == 4);  // static_assert(false, "dspp: a comment needs nothing.")
static_assert(f("no sentence(") && g<A, (B > 0)>,
              "dspp: a needs one of the \"first\" kind, but "
              "got another. Give it one.");
  static_assert(x, "dspp: a needs one of the second kind, but got another. Give it one.");
HEADER
  cat >"$project/tests/compile_fail/mistake.cpp" <<'MISTAKE'
// expected-error {{dspp: a needs one of the 'first' kind, but got}}
// expected-error {{another. Give it one.}}
// expected-error {{dspp: a needs one of the second}}
MISTAKE
  : >"$project/tests/compile_fail/pairs_waivers.txt"
}

# expect <what> <exit status> <sentence part>: runs the comparison on the project as it is now.
expect() {
  status=0
  said=$(sh "$here/pairs.sh" "$project") || status=$?
  case $said in *"$3"*) found=1 ;; *) found=0 ;; esac
  if [ "$status" -ne "$2" ] || [ $found -eq 0 ]; then
    printf 'dspp: the comparison of %s gave status %s and said\n%s\n' "$1" "$status" "$said"
    failures=1
  fi
  build_whole_catalogue
}

header() { printf '%s\n' "$1" >>"$project/include/dspp/a.hpp"; }
waiver() { printf '%s\n' "$1" >>"$project/tests/compile_fail/pairs_waivers.txt"; }

build_whole_catalogue
expect 'a whole catalogue' 0 'dspp: 2 sentences of static_asserts have their mistakes, 0 are waived.'
header 'static_assert(z, "dspp: b needs more, but got less. Give it more.");'
expect 'a sentence that no file says' 1 'include/dspp/a.hpp:6: a static_assert needs a mistake in tests/compile_fail'
header 'static_assert(z, "dspp: b needs more, but got less. Give it more.");'
waiver 'dspp: b needs more | the machine has no less'
expect 'a waived sentence' 0 '1 are waived'
header 'static_assert(z, "dspp: a needs one of the second hand, but got none. Buy one.");'
expect 'a beginning that two sentences share' 1 'include/dspp/a.hpp:5: a static_assert needs a mistake'
waiver 'dspp: a needs one of the second | of habit'
expect 'a waiver of a sentence that a file says' 1 'needs a sentence without a mistake'
waiver 'dspp: c needs | of habit'
expect 'a waiver of no sentence' 1 'needs a static_assert whose sentence it begins'
header 'static_assert(z, "dspp: b needs more, but got less. Give it more.");'
waiver 'dspp: b needs more | '
expect 'a waiver without a reason' 1 'but has no reason'
: >"$project/include/dspp/a.hpp"
expect 'no sentences' 1 'but has none'
exit $failures
