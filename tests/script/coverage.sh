#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh <project> [at least percent] [test...]: the branch coverage of the headers of parsers, checkpoints and
# transport by their tests, by clang++ and llvm-cov, a line per header; fails below 95 percent, or the percentage given.
# A test is a path below tests/; by default all tests of those headers. By hand: it takes half an hour or more.
#
# Tests of MPI run on 1 to 4 ranks, if there is mpicxx; comm/mpi/ is not counted otherwise. Processes that are killed
# count, too. A branch in a template counts once for all instances, and as taken if one instance takes it.
set -eu
project=$(cd "$1" && pwd)
percent=${2:-95}
shift
[ $# -eq 0 ] || shift
# shellcheck source=tests/script/memory.sh
. "$project/tests/script/memory.sh"
work=$(TMPDIR=${TMPDIR:-$(folder_in_memory)} mktemp -d)
trap 'rm -rf "$work"' EXIT
compiler=${CLANGXX:-clang++}
version=$("$compiler" --version | sed -n 's/.*clang version \([0-9]*\).*/\1/p')
# tool <name>: that of the compiler's version, if there are several.
tool() { command -v "$1-$version" || command -v "$1" ||
  { echo "dspp: coverage needs $1. Install llvm." >&2; exit 1; }; }
cov=$(tool llvm-cov) profdata=$(tool llvm-profdata)
cd "$project/tests"
if [ $# -eq 0 ]; then
  # shellcheck disable=SC2046 # a list of words
  set -- $(find io comm checkpoint data launch -name '*_test.cpp' | LC_ALL=C sort) hub/hugging_face_config_test.cpp \
    faults/files_test.cpp faults/collectives_test.cpp faults/watches_test.cpp fuzz/corpus_test.cpp \
    faults/killed_rank.sh faults/hanging_rank.sh
fi
flags="-std=c++20 -O0 -DDOCTEST_CONFIG_SUPER_FAST_ASSERTS -I$project/include -I$project/tests ${CXXFLAGS-}
  -isystem ${EIGEN:-/usr/include/eigen3} -fprofile-instr-generate -fcoverage-mapping
  -mllvm -runtime-counter-relocation"
# clang++ below 16 cannot name a structured binding in CAPTURE, which only prints when a test fails.
cat >"$work/captures.hpp" <<'END'
#include <doctest/doctest.h>
#undef CAPTURE
#define CAPTURE(x) static_cast<void>(0)
END
objects='' number=0 failed=0
# shellcheck disable=SC2086 # lists of words
"$compiler" $flags -c main.cpp -o "$work/main.o"
# shellcheck source=tests/script/mpi.sh
. "$project/tests/script/mpi.sh"
# run <command>...: within 300 s, where a message is printed only on failure. %c: counts are in the file at once.
run() {
  LLVM_PROFILE_FILE="$work/$number-%p%c.profraw" timeout 300 "$@" >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log"; echo "dspp: $test fails. Mend it."; failed=1; }
}
# built <output> <argument of the compiler>...
built() {
  # shellcheck disable=SC2086 # a list of words
  "$compiler" $flags "-DDSPP_TESTS_DIRECTORY=\"$project/tests\"" -o "$@" 2>"$work/log" &&
    objects="$objects${objects:+ -object} $1" && return
  cat "$work/log"
  echo "dspp: $test does not compile. Mend it."
  failed=1
  return 1
}
for test in "$@"; do
  number=$((number + 1)) program=$work/test$number level=-O0 without=''
  case $test in
    *mpi_* | *.sh) [ -n "$mpi" ] || { echo "dspp: $test is left out: there is no mpicxx."; continue; } ;;
    # Otherwise over the 300 s: the laws on thread ranks stay, those of groups and recorders over them are removed.
    comm/threads_test.cpp) level=-O1 without='*random programs*,*erased and recorded*,*of an axis obey*' ;;
    checkpoint/*) level=-O1 ;;
  esac
  # shellcheck disable=SC2086 # lists of words
  case $test in
    comm/mpi_*)
      built "$program" $mpi -include "$work/captures.hpp" "$test" comm/mpi_main.cpp -lpthread $mpi_link || continue
      for ranks in 1 2 3 4; do run mpirun -n $ranks "$program"; done
      ;;
    *.sh)
      [ -x "$work/mpi_program" ] || built "$work/mpi_program" $mpi -O1 support/mpi_program.cpp -lpthread $mpi_link || continue
      run sh "$test" mpirun "$work/mpi_program" "$work/folder"
      ;;
    *)
      built "$program" -include "$work/captures.hpp" $level "$test" "$work/main.o" -lpthread || continue
      run "$program" -tce="$without"
      ;;
  esac
done
"$profdata" merge -sparse "$work"/*.profraw -o "$work/all.profdata"
headers=$(cd "$project/include/dspp" && find io comm checkpoint data hub/hugging_face_config.hpp \
  hub/hugging_face_fields.hpp -name '*.hpp' | LC_ALL=C sort)
[ -n "$mpi" ] || headers=$(printf '%s\n' "$headers" | grep -v '^comm/mpi/')
cd "$project/include/dspp"
# shellcheck disable=SC2086 # lists of words
"$cov" show -show-branches=count $objects -instr-profile="$work/all.profdata" $headers \
  >"$work/branches" 2>"$work/log" ||
  { cat "$work/log"; exit 1; }
[ -z "${DSPP_COVERAGE_LINES-}" ] || cp "$work/branches" "$DSPP_COVERAGE_LINES"
awk -v least="$percent" -v root="$project/include/dspp/" '
  function count(way, much) {
    if (!((file, place, way) in all)) { all[file, place, way] = 1; branches[file]++; total++ }
    if (much != "0" && !((file, place, way) in taken)) { taken[file, place, way] = 1; met[file]++; sum++ }
  }
  index($0, root) == 1 && /:$/ { file = substr($0, length(root) + 1); sub(/:$/, "", file); files[++n] = file }
  # "  Branch (12:7): [True: 3, False: 0]"; a constant condition is "Folded".
  /Branch \([0-9]+:[0-9]+\): \[True: / {
    place = $0; sub(/^.*Branch \(/, "", place); sub(/\).*$/, "", place)
    yes = $0; sub(/^.*True: /, "", yes); sub(/,.*$/, "", yes)
    no = $0; sub(/^.*False: /, "", no); sub(/\].*$/, "", no)
    count("true", yes); count("false", no)
  }
  END {
    for (i = 1; i <= n; i++) if (branches[files[i]])
      printf "%6.1f %% %4d of %4d  %s\n",
        100 * met[files[i]] / branches[files[i]], met[files[i]], branches[files[i]], files[i]
    if (!total) { print "dspp: no branch was counted. Look at the headers that are named in coverage.sh."; exit 1 }
    printf "dspp: %.1f %% of %d branches are taken; at least %s %% are asked for.\n", 100 * sum / total, total, least
    exit 100 * sum < least * total
  }' "$work/branches" && [ $failed -eq 0 ]
