# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2034,SC2154
# ./dspp bench: builds benchmarks, runs them, merges their figures. Sourced by ./dspp.

bench() {
  json='' names=''
  while [ $# -gt 0 ]; do
    case $1 in
      --no-install) may_install=no ;;
      --json)
        [ $# -gt 1 ] || refuse "--json needs a file name, but nothing follows it."
        [ -n "$2" ] || refuse "--json needs a file name, but got \"\"."
        json=$2
        shift
        ;;
      -*) unknown option "$1" --json --no-install ;;
      *)
        is_word "$1" || refuse "./dspp bench needs names of benchmarks, but got \"$1\". See ./dspp help."
        names="$names $1"
        ;;
    esac
    shift
  done
  if [ -n "$json" ]; then
    json_folder=$(dirname -- "$json")
    { [ -d "$json_folder" ] && [ -w "$json_folder" ]; } ||
      refuse "--json needs a file in a folder that can be written, but $json_folder is none."
  fi
  # shellcheck disable=SC2086 # a list of words
  case "$names " in
    ' peers '*) compare_peers ${names# peers}; return ;;
    *' peers '*) refuse "./dspp bench needs peers before its workloads, but got$names. Write ./dspp bench peers alone." ;;
  esac
  provide_build
  provide_benchmarks
  folder=$root/build/cpu
  configure cpu "$folder" -DDSPP_BENCH=ON
  known=$(cut -d ' ' -f 1 "$folder/bench/benchmarks.txt")
  # shellcheck disable=SC2086 # lists of words
  for name in $names; do
    printf '%s\n' "$known" | grep -qxF -- "$name" || unknown benchmark "$name" $known
  done
  [ -n "$names" ] || names=$known
  targets=
  for name in $names; do targets="$targets bench_$(printf '%s' "$name" | tr / _)"; done
  # shellcheck disable=SC2086 # a list of words
  build "$folder" $targets || exit 1
  figures=$(mktemp -d) || exit 1
  trap 'rm -rf "$figures"' EXIT
  failed=
  for name in $names; do
    program=$(awk -v name="$name" '$1 == name { $1 = ""; print substr($0, 2) }' "$folder/bench/benchmarks.txt")
    say "benchmark $name"
    (cd "$folder/bench" && "$program" --benchmark_out="$figures/$(printf '%s' "$name" | tr / _)" --benchmark_out_format=json) ||
      failed="$failed $name"
  done
  if [ -n "$json" ]; then
    # shellcheck disable=SC2086 # a list of words
    merge_figures "$figures" $names >"$json" || exit 1
    say "the figures are in $json"
  fi
  [ -z "$failed" ] || { complain "these benchmarks failed:$failed."; exit 1; }
}

# merge_figures <folder> <name>...: one JSON object with each benchmark's JSON under its name.
merge_figures() {
  from=$1
  shift
  separator='{'
  for name in "$@"; do
    file=$from/$(printf '%s' "$name" | tr / _)
    [ -s "$file" ] || continue
    printf '%s\n"%s":\n' "$separator" "$name"
    cat "$file"
    separator=,
  done
  [ "$separator" = , ] || printf '{'
  printf '}\n'
}
