#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compile-time cost of dspp: includes against Eigen's, the example, each further policy, and constant-expression steps
# per tape node. Figures are seconds of processor time, the least of several compilations, so a busy machine changes them little.
#
# Environment: DSPP_ROOT, CXX, FLAGS (as the examples are compiled). Argument: --benchmark_out=FILE for the figures as JSON.
set -u
export CCACHE_DISABLE=1 # where the compiler's name is a link to ccache
out=
for argument in "$@"; do
  case $argument in --benchmark_out=*) out=${argument#--benchmark_out=} ;; esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
figures=

# record <name> <value> <unit> [<ratio> <to what>]
record() {
  printf '  %-44s %12s %s%s\n' "$1" "$2" "$3" "${4:+  ($4 times $5)}"
  figures="$figures${figures:+,}
  {\"name\": \"compile/$1\", \"value\": $2, \"unit\": \"$3\"${4:+, \"ratio\": $4}}"
}

# children_seconds: processor time of all ended children of this shell. (In a pipe `times` reports another shell.)
children_seconds() {
  times >"$work/times"
  awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += 60 * t[1] + t[2] } } END { printf "%.2f", s }' "$work/times"
}

# cost <times> <source> [flag...]: the least processor time of so many compilations, or nothing if one fails.
cost() {
  repeats=$1 source=$2 least=
  shift 2
  while [ "$repeats" -gt 0 ]; do
    repeats=$((repeats - 1))
    # A shell of its own, so that `times` counts this compilation alone.
    # shellcheck disable=SC2086 # FLAGS is a list of words
    seconds=$("$CXX" -std=c++20 -I"$DSPP_ROOT/include" $FLAGS "$@" -c -o "$work/object" "$source" 2>"$work/log" && children_seconds) ||
      { head -n 5 "$work/log" >&2; return 1; }
    least=$(printf '%s %s\n' "$seconds" "${least:-$seconds}" | awk '{ print ($1 < $2 ? $1 : $2) }')
  done
  printf '%s' "$least"
}

ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a / b }'; }
minus() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.2f", a - b }'; }

includes() {
  echo '#include <Eigen/Dense>' >"$work/eigen.cpp"
  eigen=$(cost 3 "$work/eigen.cpp" -fsyntax-only) || return 1
  record 'include Eigen/Dense' "$eigen" s
  echo '#include <dspp/dspp.hpp>' >"$work/umbrella.cpp"
  umbrella=$(cost 3 "$work/umbrella.cpp" -fsyntax-only) || return 1
  record 'include dspp/dspp.hpp' "$umbrella" s "$(ratio "$umbrella" "$eigen")" Eigen/Dense
  compiled=$(cost 3 "$work/umbrella.cpp" -fsyntax-only -DDSPP_COMPILED=1) || return 1
  record 'include dspp/dspp.hpp, dspp::compiled' "$compiled" s "$(ratio "$compiled" "$eigen")" Eigen/Dense
}

programs() {
  example=$(cost 1 "$DSPP_ROOT/examples/train_gpt.cpp") || return 1
  record 'examples/train_gpt.cpp' "$example" s
  for program in fill_masks complete_text classify_images match_pairs; do
    own=$(cost 1 "$DSPP_ROOT/examples/$program.cpp" -DDSPP_COMPILED=1) || return 1
    record "examples/$program.cpp, dspp::compiled" "$own" s "$(ratio "$own" "$eigen")" Eigen/Dense
  done
  one=$(cost 1 "$DSPP_ROOT/bench/compile/policies.cpp" -DDSPP_POLICIES=1) || return 1
  four=$(cost 1 "$DSPP_ROOT/bench/compile/policies.cpp" -DDSPP_POLICIES=4) || return 1
  record 'a program of one policy' "$one" s
  record 'each further policy' "$(minus "$four" "$one" | awk '{ printf "%.2f", $1 / 3 }')" s
}

# steps_for <layers>: the least -fconstexpr-steps with which clang plans so many layers, to 1 in 50.
steps_for() {
  low=50000 high=10000000
  while [ $((high - low)) -gt $((high / 50)) ]; do
    middle=$(awk -v a="$low" -v b="$high" 'BEGIN { printf "%d", (b > 2 * a ? sqrt(a) * sqrt(b) : (a + b) / 2) }')
    if plan_compiles "$1" "$middle"; then high=$middle; else low=$middle; fi
  done
  echo "$high"
}

plan_compiles() {
  cat >"$work/plan.cpp" <<'SOURCE'
#include "compile/plan_steps.hpp"
constexpr auto paper = dspp::plan<plan_steps::Model>(plan_steps::config, plan_steps::sizes, plan_steps::options);
static_assert(paper.peak > 0);
SOURCE
  # shellcheck disable=SC2086
  clang++ -std=c++20 -fsyntax-only -DDSPP_LAYERS="$1" -fconstexpr-steps="$2" -I"$DSPP_ROOT/include" -I"$DSPP_ROOT/bench" \
    $INCLUDES "$work/plan.cpp" 2>"$work/log"
}

constant_expressions() {
  if ! command -v clang++ >/dev/null 2>&1; then
    echo 'dspp: constant-expression steps are not counted, because clang++ was not found (package clang).'
    return 0
  fi
  plan_compiles 6 10000000 || { head -n 5 "$work/log" >&2; return 1; }
  few=$(steps_for 2)
  many=$(steps_for 6)
  cat >"$work/nodes.cpp" <<'SOURCE'
#include "compile/plan_steps.hpp"
#include <cstdio>
int main() { std::printf("%lld\n", static_cast<long long>(plan_steps::node_count())); }
SOURCE
  for layers in 2 6; do
    # shellcheck disable=SC2086
    "$CXX" -std=c++20 -O0 -DDSPP_LAYERS=$layers -I"$DSPP_ROOT/include" -I"$DSPP_ROOT/bench" $INCLUDES -pthread \
      -o "$work/nodes_$layers" "$work/nodes.cpp" 2>"$work/log" || { head -n 5 "$work/log" >&2; return 1; }
  done
  fewer=$("$work/nodes_2") more=$("$work/nodes_6")
  record 'constant-expression steps per tape node' "$(((many - few) / (more - fewer)))" steps
  record 'layers that clang plans by default (2^20 steps)' "$(((1048576 - few) / ((many - few) / 4) + 2))" layers
}

failed=0
includes || failed=1
programs || failed=1
constant_expressions || failed=1
[ -z "$out" ] || printf '{"benchmarks": [%s\n]}\n' "$figures" >"$out"
exit $failed
