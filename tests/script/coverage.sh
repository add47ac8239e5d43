#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh <project> [at least percent] [test...]: the branch coverage of the headers of parsers, checkpoints and
# transport by their tests, by clang++ and llvm-cov, a line per header; fails below 95 percent, or the percentage given.
# A test is a path below tests/; by default all tests of those headers. By hand: it takes a quarter of an hour or more.
#
# Not counted: comm/mpi/, whose tests run under mpirun, whole training states and token files: checkpoint/,
# data/shard_*.hpp and data/token_*.hpp. A branch in a template counts once for all instances, and as taken if one
# instance takes it.
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
  set -- $(find io comm -name '*_test.cpp' ! -name 'mpi*' | LC_ALL=C sort) data/tokenizer_test.cpp \
    data/tokenizer_file_test.cpp data/bpe_test.cpp data/pre_tokenize_test.cpp data/byte_characters_test.cpp \
    hub/hugging_face_config_test.cpp \
    faults/files_test.cpp faults/collectives_test.cpp fuzz/corpus_test.cpp
fi
flags="-std=c++20 -O0 -DDOCTEST_CONFIG_SUPER_FAST_ASSERTS -I$project/include -I$project/tests ${CXXFLAGS-}
  -isystem ${EIGEN:-/usr/include/eigen3} -fprofile-instr-generate -fcoverage-mapping"
# clang++ below 16 cannot name a structured binding in CAPTURE, which only prints when a test fails.
cat >"$work/captures.hpp" <<'END'
#include <doctest/doctest.h>
#undef CAPTURE
#define CAPTURE(x) static_cast<void>(0)
END
objects='' number=0 failed=0
# shellcheck disable=SC2086 # lists of words
"$compiler" $flags -c main.cpp -o "$work/main.o"
for test in "$@"; do
  number=$((number + 1)) level=-O0 without=''
  # Otherwise over the 300 s below: the laws on thread ranks stay, those of groups and recorders over them are removed.
  [ "$test" != comm/threads_test.cpp ] ||
    { level=-O1 without='*random programs*,*erased and recorded*,*of an axis obey*'; }
  # shellcheck disable=SC2086 # lists of words
  "$compiler" $flags $level -include "$work/captures.hpp" \
    "-DDSPP_TESTS_DIRECTORY=\"$project/tests\"" "$test" "$work/main.o" -lpthread \
    -o "$work/test$number" 2>"$work/log" ||
    { cat "$work/log"; echo "dspp: $test does not compile. Mend it."; failed=1; continue; }
  LLVM_PROFILE_FILE="$work/$number-%p.profraw" timeout 300 "$work/test$number" -tce="$without" >"$work/log" 2>&1 ||
    { tail -n 20 "$work/log"; echo "dspp: $test fails. Mend it."; failed=1; }
  objects="$objects${objects:+ -object} $work/test$number"
done
"$profdata" merge -sparse "$work"/*.profraw -o "$work/all.profdata"
headers=$(cd "$project/include/dspp" && find io comm data/tokenizer.hpp data/tokenizer_file.hpp data/bpe.hpp \
  data/pre_tokenize.hpp data/byte_characters.hpp data/added_tokens.hpp hub/hugging_face_config.hpp \
  hub/hugging_face_fields.hpp -name '*.hpp' ! -path 'comm/mpi/*' | LC_ALL=C sort)
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
