#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# mutations.sh <project> texts: checks that the headers, tests and texts of its lists exist. Run by the tests.
#
# mutations.sh <project> [number of mutants] [seed]: inverts comparisons of the headers of parsers, checkpoints and
# transport (< and <=, > and >=, == and !=), one at a time, and runs the tests of that header: a mutant is killed if one
# of them fails, or takes five times as long. Fails if less than 80 of 100 are killed. By default all mutants, else the
# given number, drawn by the seed. By hand, an hour or more for all. Respects CXX and CXXFLAGS.
#
# DSPP_HEADERS=comm/mpi/ takes the headers whose names begin so.
#
# Tests of MPI run on 2 and 3 ranks, if there is mpicxx; otherwise comm/mpi/ has no mutants.
#
# Each test is built once, with headers whose comparisons are inverted at run time (turned.hpp). A mutant whose text
# does not compile is killed by the compiler, and is not counted; nor are those of `equivalent`, which no test can kill.
set -u
project=$(cd "$1" && pwd) || exit 1
number=${2-} seed=${3:-1}
# shellcheck source=tests/script/memory.sh
. "$project/tests/script/memory.sh"
work=$(TMPDIR=${TMPDIR:-$(folder_in_memory)} mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
# shellcheck source=tests/script/mpi.sh
. "$project/tests/script/mpi.sh"
flags="-std=c++20 -DDOCTEST_CONFIG_SUPER_FAST_ASSERTS -D_GLIBCXX_ASSERTIONS
  -I$project/tests -isystem ${EIGEN:-/usr/include/eigen3} ${CXXFLAGS-}"

# header | its tests
headers() {
  all_headers | grep "^${DSPP_HEADERS-}" | if [ -n "$mpi" ]; then cat; else grep -v '^comm/mpi/'; fi
}
all_headers() {
  cat <<'LIST'
io/json.hpp | io/json_test.cpp
base/json_writer.hpp | base/json_writer_test.cpp
io/json_text.hpp | io/json_text_test.cpp
io/safetensors_header.hpp | io/safetensors_header_test.cpp io/safetensors_test.cpp
io/safetensors.hpp | io/safetensors_header_test.cpp io/safetensors_test.cpp
io/safetensors_index.hpp | io/safetensors_index_test.cpp
io/safetensors_folder.hpp | io/safetensors_folder_test.cpp
io/file.hpp | io/file_test.cpp
io/file_system.hpp | io/file_system_test.cpp io/file_names_test.cpp
io/pickled.hpp | io/safetensors_folder_test.cpp faults/files_test.cpp
io/text_file.hpp | io/text_file_test.cpp
io/mapped_file.hpp | io/mapped_file_test.cpp
io/checkpoint_folder.hpp | io/checkpoint_folder_test.cpp
io/checkpoint_lock.hpp | io/checkpoint_lock_test.cpp
io/checkpoint_manifest.hpp | io/checkpoint_manifest_test.cpp io/checkpoint_folder_test.cpp
io/checkpoint_names.hpp | io/checkpoint_folder_test.cpp
io/checkpoint_writer.hpp | io/checkpoint_writer_test.cpp
data/tokenizer.hpp | data/tokenizer_test.cpp
data/tokenizer_file.hpp | data/tokenizer_file_test.cpp
data/bpe.hpp | data/bpe_test.cpp
data/added_tokens.hpp | data/tokenizer_test.cpp data/tokenizer_file_test.cpp
data/byte_characters.hpp | data/byte_characters_test.cpp
data/pre_tokenize.hpp | data/pre_tokenize_test.cpp
data/normal_form.hpp | data/normal_form_test.cpp
data/bert_text.hpp | data/bert_text_test.cpp
data/wordpiece.hpp | data/wordpiece_test.cpp
data/bpe_model.hpp | data/bpe_model_test.cpp
data/vocabulary.hpp | data/tokenizer_test.cpp
data/tokenizer_parts.hpp | data/tokenizer_file_test.cpp
data/shard_header.hpp | data/token_shards_test.cpp
data/shard_writer.hpp | data/token_shards_test.cpp data/token_files_writer_test.cpp
data/token_files_writer.hpp | data/token_files_writer_test.cpp
data/token_folder.hpp | data/token_folder_test.cpp
data/token_index.hpp | data/token_folder_test.cpp data/token_files_writer_test.cpp
data/token_shards.hpp | data/token_shards_test.cpp data/token_files_writer_test.cpp
checkpoint/checkpoint.hpp | checkpoint/checkpoint_test.cpp
checkpoint/training_facts.hpp | checkpoint/training_state_test.cpp checkpoint/training_state_faults_test.cpp
checkpoint/training_state.hpp | checkpoint/training_state_test.cpp checkpoint/training_state_faults_test.cpp
hub/hugging_face_config.hpp | hub/hugging_face_config_test.cpp
hub/hugging_face_fields.hpp | hub/hugging_face_config_test.cpp
comm/check.hpp | comm/check_test.cpp
comm/all_or_none.hpp | comm/all_or_none_test.cpp
comm/any_communicator.hpp | comm/communicator_test.cpp
comm/call_site.hpp | comm/call_site_test.cpp
comm/flight_recorder.hpp | comm/flight_recorder_test.cpp
comm/last_resort.hpp | launch/run_test.cpp faults/watches_test.cpp
comm/posting.hpp | comm/posted_test.cpp comm/threads_test.cpp
comm/rank_sum.hpp | comm/threads_test.cpp
comm/recorder.hpp | comm/recorder_test.cpp
comm/self.hpp | comm/self_test.cpp
comm/sum_order.hpp | comm/sum_order_test.cpp
comm/threads/rank.hpp | comm/threads_rank_test.cpp comm/failure_state_test.cpp comm/threads_test.cpp
comm/threads/run_ranks.hpp | launch/run_test.cpp faults/watches_test.cpp comm/threads_world_test.cpp
comm/threads/share.hpp | comm/threads_test.cpp
comm/threads/streamed_copy.hpp | comm/streamed_copy_test.cpp
comm/threads/table.hpp | comm/threads_table_test.cpp comm/threads_world_test.cpp
comm/threads/threads.hpp | comm/threads_test.cpp comm/threads_world_test.cpp
comm/threads/world.hpp | comm/threads_world_test.cpp comm/threads_test.cpp
comm/threads/failure_state.hpp | comm/failure_state_test.cpp
comm/pending.hpp | comm/pending_test.cpp
comm/posted.hpp | comm/posted_test.cpp
comm/same_facts.hpp | comm/same_facts_test.cpp
comm/traffic.hpp | comm/traffic_test.cpp
comm/tcp/failure_state.hpp | comm/tcp_failure_state_test.cpp comm/tcp_rendezvous_test.cpp comm/tcp_test.cpp
comm/tcp/links.hpp | comm/tcp_links_test.cpp comm/tcp_test.cpp
comm/tcp/rank.hpp | comm/tcp_test.cpp comm/tcp_failure_state_test.cpp comm/tcp_host_group_test.cpp
comm/tcp/reception.hpp | comm/tcp_rendezvous_test.cpp
comm/tcp/rendezvous.hpp | comm/tcp_rendezvous_test.cpp
comm/tcp/share.hpp | comm/tcp_test.cpp
comm/tcp/socket.hpp | comm/tcp_rendezvous_test.cpp
comm/tcp/world.hpp | comm/tcp_test.cpp comm/tcp_failure_state_test.cpp
comm/mpi/collectives.hpp | comm/mpi_collectives_test.cpp
comm/mpi/failure_state.hpp | comm/mpi_failure_state_test.cpp comm/mpi_test.cpp
comm/fingerprint.hpp | comm/fingerprint_test.cpp
comm/mpi/flights.hpp | comm/mpi_flights_test.cpp
comm/mpi/neighbour.hpp | comm/mpi_neighbour_test.cpp
comm/mpi/rank.hpp | comm/mpi_test.cpp comm/mpi_collectives_test.cpp comm/mpi_failure_state_test.cpp
comm/mpi/share.hpp | comm/mpi_test.cpp comm/mpi_collectives_test.cpp
comm/mpi/world.hpp | comm/mpi_test.cpp comm/mpi_failure_state_test.cpp
LIST
}

# Mutants with the same results, a line each: header | part of the line, the operator in brackets | why.
equivalent() {
  cat <<'LIST'
io/file.hpp | status.f_frsize [>] 0 | a file system says one of the two
io/safetensors_header.hpp | (data_bytes_ [<] end ? ": it is cut off" : "") | it is asked only where they differ
data/bpe.hpp | return a.rank != b.rank ? a.rank [>] b.rank : a.at > b.at; | asked where they differ
data/bpe.hpp | return a.rank != b.rank ? a.rank > b.rank : a.at [>] b.at; | such two are one pair, or one is skipped
comm/mpi/flights.hpp | if (readlink(path.c_str(), target, sizeof target - 1) [<] 0 | no link is empty
comm/threads/failure_state.hpp | if (s.sleepers.load() [>] 0) call(s); | calls where nobody sleeps
comm/threads/rank.hpp | } else if (left.spins [>] 0) { | spins once more
comm/threads/rank.hpp | } else if (left.yields [>] 0) { | yields once more
comm/posted.hpp | for (int r = 0; r [<] size; ++r) | no rank is behind the last
comm/rank_sum.hpp | for (; i + sum_block [<=] count; i += sum_block) { | the rest of the block is summed behind the loop
comm/rank_sum.hpp | if (i [<] count) sum_one_block( | sums nothing
comm/self.hpp | if (in.data != out.data && in.count [>] 0) copy_( | copies nothing
comm/threads/share.hpp | for (; at_ [<] p.count; at_ += tile) { | sums nothing
comm/threads/share.hpp | for (; at_ [<] bytes; at_ += copy_bytes) { | copies nothing
comm/threads/share.hpp | for (; begin + at_ [<] end; at_ += tile) { | sums nothing
comm/threads/share.hpp | for (; at_ [<] bytes; at_ += tile_bytes) { | copies nothing
comm/threads/share.hpp | for (Size i = 0; i [<] count; i += together) { | sums nothing
comm/threads/share.hpp | if (whole [>=] streamed_bytes) | the same bytes by the other way
comm/threads/share.hpp | if (places == 1 && whole [<] streamed_bytes) | the same bytes by the other way
comm/threads/share.hpp | const Size together = (whole [<] streamed_bytes ? | the same sums in other pieces
comm/threads/streamed_copy.hpp | if (bytes [<] before + streamed_line) { | the same bytes by the other way
LIST
}

# Lists what is missing from the lists.
missing() {
  headers | while IFS=' |' read -r header tests; do
    [ -r "$project/include/dspp/$header" ] || echo "dspp: the list of mutants needs headers, but there is no $header. Mend it."
    for test in $tests; do [ -r "$project/tests/$test" ] || echo "dspp: the list of mutants needs tests, but there is no $test. Mend it."; done
  done
  equivalent | while IFS= read -r line; do
    header=${line%% | *} rest=${line#* | }
    text=$(printf '%s\n' "${rest% | *}" | sed 's/\[\([<>=!]*\)\]/\1/')
    grep -qF -- "$text" "$project/include/dspp/$header" ||
      echo "dspp: the list of mutants needs texts of today's headers, but $header has no '$text'. Mend it."
  done
}
if [ "$number" = texts ]; then
  missing >"$work/missing"
  cat "$work/missing"
  [ ! -s "$work/missing" ]
  exit
fi

# comparisons <header>: a line for each comparison between two spaces, `header|line|column|operator`; without comments,
# template heads and compile-time conditions.
comparisons() {
  awk -v header="$1" '
    function blank(many) { return sprintf("%" many "s", "") }
    /^ *\/\// || /^ *template/ || /if constexpr/ || /static_assert/ || /requires/ || /operator/ || /^#/ { next }
    {
      code = $0
      while (match(code, /"([^"\\]|\\.)*"/))
        code = substr(code, 1, RSTART - 1) blank(RLENGTH) substr(code, RSTART + RLENGTH)
      sub(/ \/\/ .*$/, "", code)
      for (at = 1; at <= length(code) - 2; at++) {
        three = substr(code, at, 4); two = substr(code, at, 3)
        if (three == " == ") print header "|" NR "|" at + 1 "|=="
        else if (three == " != ") print header "|" NR "|" at + 1 "|!="
        else if (three == " <= ") print header "|" NR "|" at + 1 "|<="
        else if (three == " >= ") print header "|" NR "|" at + 1 "|>="
        else if (two == " < ") print header "|" NR "|" at + 1 "|<"
        else if (two == " > ") print header "|" NR "|" at + 1 "|>"
      }
    }' "$project/include/dspp/$1"
}

headers >"$work/headers"
while IFS= read -r entry; do comparisons "${entry%% |*}"; done <"$work/headers" | awk '{ print NR "|" $0 }' >"$work/all"
awk -v seed="$seed" 'BEGIN { srand(seed) } { printf "%.9f|%s\n", rand(), $0 }' "$work/all" | LC_ALL=C sort |
  head -n "${number:-$(wc -l <"$work/all")}" | cut -d '|' -f 2- | LC_ALL=C sort -n >"$work/drawn"
equivalent >"$work/equivalent"

# A copy of the headers in which comparison n is `a < Turned<n>{} < b`.
cp -R "$project/include" "$work/include"
cut -d ' ' -f 1 "$work/headers" | while IFS= read -r name; do
  awk -F '|' -v header="$name" '
    NR == FNR { if ($2 == header) { n = ++many[$3]; number[$3, n] = $1; at[$3, n] = $4; from[$3, n] = $5 } next }
    FNR in many {
      for (n = many[FNR]; n > 0; n--) {
        end = at[FNR, n] + length(from[FNR, n])
        $0 = substr($0, 1, end - 1) " ::dspp::turned::Turned<" number[FNR, n] ">{} " from[FNR, n] substr($0, end)
      }
    }
    { print }' "$work/all" "$project/include/dspp/$name" >"$work/include/dspp/$name"
done
# shellcheck disable=SC2086 # a list of words
${CXX:-g++} $flags -O0 -c "$project/tests/main.cpp" -o "$work/main.o" || exit 1

# build <test>: once, into a file of its name. A test that fails without a mutant would kill all.
build() {
  built=$work/$(echo "$1" | tr / -) main=$work/main.o link=-lpthread more=''
  [ ! -e "$built" ] || return 0
  case $1 in comm/mpi_*) main=$project/tests/comm/mpi_main.cpp link="-lpthread $mpi_link" more=$mpi ;; esac
  # shellcheck disable=SC2086 # lists of words
  ${CXX:-g++} $flags $more "-I$work/include" -w -include "$project/tests/script/turned.hpp" \
    "-DDSPP_TESTS_DIRECTORY=\"$project/tests\"" "-O$(level "$1")" \
    "$project/tests/$1" "$main" $link -o "$built" 2>"$work/log" ||
    { cat "$work/log"; echo "dspp: $1 does not compile with headers that turn round. Mend it."; exit 1; }
  began=$(date +%s)
  run "$built" 0 300 || { cat "$work/out"; echo "dspp: $1 fails without a mutant. Mend it."; exit 1; }
  echo $((5 + 5 * ($(date +%s) - began))) >"$built.seconds"
}
# comm/threads_test.cpp takes minutes: its laws on thread ranks stay, those of groups and recorders over them are
# removed.
level() { if [ "$1" = comm/threads_test.cpp ]; then echo 1; else echo 0; fi; }
# run <program> <number of the mutant> <seconds>
run() {
  case $1 in
    */comm-mpi_*) run_once "$@" mpirun -n 2 && run_once "$@" mpirun -n 3 ;;
    *) run_once "$@" ;;
  esac
}
# run_once <program> <number of the mutant> <seconds> [what starts it...]
run_once() {
  program=$1 turned=$2 seconds=$3
  shift 3
  rm -rf "$work/run"
  mkdir "$work/run"
  (cd "$work/run" && DSPP_TURNED=$turned TMPDIR=$work/run timeout -k 5 "$seconds" "$@" "$program" -aa=1 \
    -tce='*random programs*,*erased and recorded*,*of an axis obey*' </dev/null >"$work/out" 2>&1)
}

# compiles: true if the inverted text compiles, which constant expressions use.
compiles() {
  rm -rf "$work/text"
  cp -R "$project/include" "$work/text"
  awk -v line="$line" -v column="$column" -v from="$from" '
    BEGIN { to["=="] = "!="; to["!="] = "=="; to["<"] = "<="; to["<="] = "<"; to[">"] = ">="; to[">="] = ">" }
    FNR == line { $0 = substr($0, 1, column - 1) to[from] substr($0, column + length(from)) } { print }
    ' "$project/include/dspp/$header" >"$work/text/dspp/$header"
  # shellcheck disable=SC2086 # a list of words
  ${CXX:-g++} $flags $mpi "-I$work/text" "-DDSPP_TESTS_DIRECTORY=\"$project/tests\"" -w -fsyntax-only \
    "$project/tests/$test" 2>"$work/log"
}

killed=0 tried=0
while IFS='|' read -r mutant header line column from; do
  text=$(awk -v line="$line" -v column="$column" -v from="$from" '
    NR == line {
      $0 = substr($0, 1, column - 1) "[" from "]" substr($0, column + length(from)); sub(/^ */, ""); print
    }' "$project/include/dspp/$header")
  if [ -n "$(text=$text awk -F ' [|] ' -v header="$header" '$1 == header && index(ENVIRON["text"], $2)' \
    "$work/equivalent")" ]; then
    printf 'equivalent %s:%s %s\n' "$header" "$line" "$text"
    continue
  fi
  outcome=survived
  # shellcheck disable=SC2013 # a list of words
  for test in $(awk -F ' [|] ' -v header="$header" '$1 == header { print $2 }' "$work/headers"); do
    build "$test"
    # The shell's message about a signal goes with the test's output.
    run "$built" "$mutant" "$(cat "$built.seconds")" 2>"$work/log" || { outcome=killed; break; }
  done
  if [ $outcome = survived ] && ! compiles; then outcome=uncompiled; fi
  printf '%s %s:%s %s\n' "$outcome" "$header" "$line" "$text"
  [ $outcome != uncompiled ] || continue
  tried=$((tried + 1))
  [ $outcome != killed ] || killed=$((killed + 1))
done <"$work/drawn"
[ $tried -gt 0 ] || { echo "dspp: no mutant was tried. Ask for one or more."; exit 1; }
echo "dspp: $killed of $tried mutants were killed${number:+, seed $seed}; at least 80 % are asked for."
[ $((100 * killed)) -ge $((80 * tried)) ]
