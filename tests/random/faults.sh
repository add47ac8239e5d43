#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# faults.sh <project> texts: whether each fault's text is there once, and no more. The tests run it.
#
# faults.sh <project> [number]...: puts faults into a copy of the headers, one at a time, and builds and runs the random models
# that must find each. By hand, since each takes a minute to build: all must be found. CXX and CXXFLAGS are respected.
#
# A fault is a line `test | header | text | what takes its place`; the text occurs once in the header.
set -u
project=$(cd "$1" && pwd) || exit 1
shift
texts=
[ "${1-}" != texts ] || { texts=yes && shift; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
eigen=${EIGEN:-/usr/include/eigen3}
flags="-std=c++20 -O1 -I$work/include -isystem $eigen -I$project/tests ${CXXFLAGS-}"

faults() {
  cat <<'LIST'
tensor | autograd/move.hpp | all_reduce(group, buffer(x.data(), x.count()), Purpose::activation); | (void)group;
tensor | autograd/move.hpp | ops::exchange_leading(y, all, ranks, outer, chunk); | ops::exchange_leading(y, all, 1, outer, ranks * chunk);
tensor | autograd/move.hpp | {outer, chunk, 0, chunk, rank * chunk, ranks * chunk} | {outer, chunk, 0, chunk, 0 * rank, ranks * chunk}
data | engine/engine.hpp | scale_.value() / micro_batches * share | scale_.value() * 2 / micro_batches * share
data | engine/engine.hpp | static_cast<double>(world_.replicas().size() * sizes_.accumulate); | static_cast<double>(sizes_.accumulate);
data | engine/engine.hpp | static_cast<double>(world_.replicas().size() * sizes_.accumulate); | static_cast<double>(world_.replicas().size());
data | engine/engine.hpp | replicas().start_refresh(b); | (void)b;
data | engine/step_targets.hpp | return own.counted / (nominal_ / static_cast<double>(replicas_->size())); | return 1 + 0 * own.counted;
data | engine/step_targets.hpp | static_cast<double>(micro_steps_) * nominal_ / counted : 1; | 1 : 1;
data | engine/engine.hpp | steps_ = progress.steps, skipped_ | steps_ = progress.steps + 1, skipped_
data | zero/replicas.hpp | if (o.summand) add_summand(o); | if (o.summand) (void)0;
data | zero/unit.hpp | zero_until(p->has_unreduced_gradient() ? p->offset : p->offset + p->count()); | zero_until(p->offset);
tensor | engine/weights.hpp | world.memory(), world.replicas(), | world.memory(), world.tp(),
tensor | ops/cpu/gradient_norm.hpp | double square = squares[1]; | double square = squares[1] * ranks;
tensor | ops/cpu/gradient_norm.hpp | square += squares[2 * r]; | square += squares[2 * (r / 2)];
tensor | parallel/row.hpp | return this->shift(redistribute<To>(this->template times<Partial>(x))); | return redistribute<To>(this->template affine<Partial>(x));
tensor | parallel/vocab.hpp | const Size first = columns * group.rank(), | const Size first = columns * (group.size() - 1 - group.rank()),
tensor | parallel/vocab.hpp | return this->weight.shape()[0] * tape.context().tp->rank(); | return this->weight.shape()[0] * (tape.context().tp->size() - 1 - tape.context().tp->rank());
sequence | zero/gradients.hpp | if (tp.size() == 1) return; | if (tp.size() >= 1) return;
sequence | nn/dropout.hpp | (cut ? context.tp->rank() : 0) | (cut ? 0 : 0)
sequence | models/positions.hpp | (context.cp_rank() * inner + place) * x[1]; | (context.cp_rank() * inner + 0 * place) * x[1];
context | nn/dropout.hpp | (sequence ? context.cp_rank() : 0) * inner | (sequence ? 0 : 0) * inner
context | models/positions.hpp | (context.cp_rank() * inner + place) * x[1]; | place * x[1];
context | parallel/context.hpp | return detail::exchange_parts<Shard<3>, Shard<1>>(context, std::move(x), parts); | return detail::exchange_parts<Shard<3>, Shard<1>>(context, std::move(x), 1 + 0 * parts);
data | engine/engine.hpp | replicas().complete_all();\n  if (replicas().checks_reductions()) | if (replicas().checks_reductions())
tensor | placement/placed.hpp | shape.product(0, shard_dimension<State>) * shard_groups<State> : 1; | shape.product(0, shard_dimension<State>) : 1;
tensor | parallel/column.hpp | c.groups = Groups; | c.groups = 1;
data | tensor/pool.hpp | const Size most = reserved_at_most(std::max(peak_, live_total_ + bytes)); | const Size most = reserved_ + 2 * bytes;
data | parallel/vocab.hpp | first, valid, scale, weights) | first, valid, scale)
LIST
}

# put <header> <text> <replacement>: exits with 1 unless the text occurs once.
put() {
  awk -v from="$2" -v to="$3" '
    { text = text $0 "\n" }
    END {
      at = index(text, from)
      if (!at || index(substr(text, at + 1), from)) exit 1
      printf "%s", substr(text, 1, at - 1) to substr(text, at + length(from))
    }' "$1" >"$1.new" && mv "$1.new" "$1"
}

number=0 found=0 tried=0 missed=''
faults >"$work/list"
while IFS= read -r line; do
  number=$((number + 1))
  case " $* " in '  ' | *" $number "*) ;; *) continue ;; esac
  tried=$((tried + 1))
  test=$(printf '%s\n' "$line" | awk -F ' \\| ' '{ print $1 }')
  header=$(printf '%s\n' "$line" | awk -F ' \\| ' '{ print $2 }')
  from=$(printf '%s\n' "$line" | awk -F ' \\| ' '{ print $3 }')
  to=$(printf '%s\n' "$line" | awk -F ' \\| ' '{ print $4 }')
  rm -rf "$work/include" && cp -R "$project/include" "$work/include"
  put "$work/include/dspp/$header" "$from" "$to" ||
    { echo "dspp: fault $number needs '$from' once in $header, but it is not so. Change faults.sh."; exit 1; }
  [ -z "$texts" ] || continue
  # The dense rank is in data_test.cpp.
  others=
  [ "$test" = data ] || others=$project/tests/random/data_test.cpp
  # shellcheck disable=SC2086 # lists of words
  ${CXX:-g++} $flags "$project/tests/random/${test}_test.cpp" $others "$project/tests/main.cpp" -lpthread -o "$work/test" \
    2>"$work/log" || { echo "fault $number does not compile:"; head -n 5 "$work/log"; exit 1; }
  if DSPP_RANDOM_MODELS=40 timeout 300 "$work/test" --source-file="*${test}_test.cpp" >"$work/out" 2>&1; then
    missed="$missed $number"
    echo "fault $number MISSED   $line"
  else
    found=$((found + 1))
    echo "fault $number found    $line"
  fi
done <"$work/list"
[ -z "$texts" ] || { echo "dspp: $tried faults have their places." && exit 0; }
echo "dspp: $found of $tried faults were found.${missed:+ Missed:$missed.}"
[ -z "$missed" ]
