#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mutations.sh <project> [number of mutants] [seed]: draws comparisons of the headers of parsers, checkpoints and
# transport, turns each round in a copy of the headers (< and <=, > and >=, == and !=), and builds and runs the tests
# about that header: a mutant is killed if one of them fails, or ends by itself no more. Fails where less than 80 of
# 100 are killed. By hand, a minute a mutant and less: 30 of them, seed 1, by default. CXX and CXXFLAGS are respected.
#
# A mutant that does not compile is killed by the compiler, and is not counted. `equivalent` has those that no test
# can kill.
set -u
project=$(cd "$1" && pwd) || exit 1
number=${2:-30} seed=${3:-1}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
flags="-std=c++20 -O0 -DDOCTEST_CONFIG_SUPER_FAST_ASSERTS
  -I$work/include -I$project/tests -isystem ${EIGEN:-/usr/include/eigen3} ${CXXFLAGS-}"

# header | tests about it
headers() {
  cat <<'LIST'
io/json.hpp | io/json_test.cpp
io/json_text.hpp | io/json_text_test.cpp
io/safetensors_header.hpp | io/safetensors_test.cpp
io/safetensors.hpp | io/safetensors_test.cpp
io/safetensors_index.hpp | io/safetensors_index_test.cpp
io/safetensors_folder.hpp | io/safetensors_folder_test.cpp
io/file.hpp | io/file_test.cpp
io/mapped_file.hpp | io/mapped_file_test.cpp
io/state_folder.hpp | io/state_folder_test.cpp
io/state_lock.hpp | io/state_lock_test.cpp
io/state_manifest.hpp | io/state_manifest_test.cpp io/state_folder_test.cpp
io/state_names.hpp | io/state_folder_test.cpp
io/state_writer.hpp | io/state_writer_test.cpp
data/tokenizer.hpp | data/tokenizer_test.cpp
data/tokenizer_file.hpp | data/tokenizer_file_test.cpp
data/bpe.hpp | data/bpe_test.cpp
engine/hugging_face_config.hpp | engine/hugging_face_config_test.cpp
engine/hugging_face_fields.hpp | engine/hugging_face_config_test.cpp
comm/check.hpp | comm/thread_world_test.cpp comm/communicator_test.cpp
comm/thread_rank.hpp | comm/thread_world_test.cpp comm/communicator_test.cpp
comm/thread_share.hpp | comm/thread_world_test.cpp comm/communicator_test.cpp
comm/thread_table.hpp | comm/thread_table_test.cpp
comm/shared_fate.hpp | comm/shared_fate_test.cpp
comm/pending.hpp | comm/pending_test.cpp
comm/posted.hpp | comm/posted_test.cpp
comm/same_facts.hpp | comm/same_facts_test.cpp
comm/traffic.hpp | comm/traffic_test.cpp
LIST
}

# Mutants that compute the same, a line each: header:line's text | why.
equivalent() {
  cat <<'LIST'
LIST
}

# comparisons <header>: a line for each comparison between two spaces, `header|line|column|operator|what takes its
# place`, comments, templates' heads and static assertions left out.
comparisons() {
  awk -v header="$1" '
    function blank(many) { return sprintf("%" many "s", "") }
    /^ *\/\// || /^ *template/ || /static_assert/ || /requires/ || /operator/ || /^#/ { next }
    {
      code = $0
      while (match(code, /"([^"\\]|\\.)*"/))
        code = substr(code, 1, RSTART - 1) blank(RLENGTH) substr(code, RSTART + RLENGTH)
      sub(/ \/\/ .*$/, "", code)
      for (at = 1; at <= length(code) - 2; at++) {
        three = substr(code, at, 4); two = substr(code, at, 3)
        if (three == " == ") print header "|" NR "|" at + 1 "|==|!="
        else if (three == " != ") print header "|" NR "|" at + 1 "|!=|=="
        else if (three == " <= ") print header "|" NR "|" at + 1 "|<=|<"
        else if (three == " >= ") print header "|" NR "|" at + 1 "|>=|>"
        else if (two == " < ") print header "|" NR "|" at + 1 "|<|<="
        else if (two == " > ") print header "|" NR "|" at + 1 "|>|>="
      }
    }' "$project/include/dspp/$1"
}

headers >"$work/headers"
while IFS= read -r line; do comparisons "${line%% |*}"; done <"$work/headers" >"$work/all"
awk -v seed="$seed" 'BEGIN { srand(seed) } { printf "%.9f|%s\n", rand(), $0 }' "$work/all" | LC_ALL=C sort |
  head -n "$number" | cut -d '|' -f 2- >"$work/drawn"
equivalent >"$work/equivalent"
cp -R "$project/include" "$work/include"
# shellcheck disable=SC2086 # a list of words
${CXX:-g++} $flags -c "$project/tests/main.cpp" -o "$work/main.o" || exit 1

: >"$work/passes"
# build <test>
build() {
  # shellcheck disable=SC2086 # a list of words
  ${CXX:-g++} $flags "-DDSPP_TESTS_DIRECTORY=\"$project/tests\"" "$project/tests/$1" "$work/main.o" -lpthread \
    -o "$work/test" 2>"$work/log"
}
run() { (cd "$work" && timeout 60 "$work/test" </dev/null >"$work/out" 2>&1); }

killed=0 tried=0
while IFS='|' read -r header line column from to; do
  tests=$(awk -F ' [|] ' -v header="$header" '$1 == header { print $2 }' "$work/headers")
  file=$work/include/dspp/$header original=$project/include/dspp/$header
  text=$(sed -n "${line}p" "$original" | sed 's/^ *//')
  if grep -qF -- "$header:$text |" "$work/equivalent"; then
    echo "equivalent $header:$line '$from' to '$to' in: $text"
    continue
  fi
  # A test that fails without a mutant would kill every one.
  for test in $tests; do
    if ! grep -qxF -- "$test" "$work/passes"; then
      if ! build "$test" || ! run; then
        cat "$work/log"
        echo "dspp: $test fails without a mutant. Mend it."
        exit 1
      fi
      echo "$test" >>"$work/passes"
    fi
  done
  awk -v line="$line" -v column="$column" -v from="$from" -v to="$to" '
    NR == line { $0 = substr($0, 1, column - 1) to substr($0, column + length(from)) } { print }' "$original" >"$file"
  outcome=survived
  for test in $tests; do
    if ! build "$test"; then
      outcome=uncompiled
    elif ! run; then
      outcome=killed
    fi
    [ $outcome = survived ] || break
  done
  cp "$original" "$file"
  echo "$outcome $header:$line '$from' to '$to' in: $text"
  [ $outcome != uncompiled ] || continue
  tried=$((tried + 1))
  [ $outcome != killed ] || killed=$((killed + 1))
done <"$work/drawn"
[ $tried -gt 0 ] || { echo "dspp: no mutant was tried. Ask for one or more."; exit 1; }
echo "dspp: $killed of $tried mutants were killed, seed $seed; at least 80 % are asked for."
[ $((100 * killed)) -ge $((80 * tried)) ]
