#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# faults.sh <project> texts: whether each fault's text is there once, and no more. The tests run it.
#
# faults.sh <project> [number]...: puts faults into a copy of the headers, one at a time, and builds and runs random models
# that must find each, and nothing where there is none. By hand, since each takes a minute to build: all must be found. Found
# means that a law said how it `differs:`, which is printed; what does not compile or ends otherwise is not. CXX and CXXFLAGS
# are respected.
#
# A fault is a line `policy | header | text | what takes its place`; the text occurs once in the header. A policy with the word
# `bits` behind it stands for the law that ZeRO stages share their bits, one with `own` for models with batches of their own, one
# with `sources` for the law of data, and one with `muon` or `lamb` for that optimizer.
set -u
project=$(cd "$1" && pwd) || exit 1
shift
texts=
[ "${1-}" != texts ] || { texts=yes && shift; }
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
eigen=${EIGEN:-/usr/include/eigen3}
flags="-std=c++20 -O0 -I$work/include -isystem $eigen -I$project/tests ${CXXFLAGS-}"

faults() {
  cat <<'LIST'
F64, Tp<2> | autograd/move.hpp | all_reduce(group, buffer(x.data(), x.count()), Purpose::activation); | (void)group;
F64, Tp<2> | autograd/move.hpp | ops::exchange_leading(y, all, ranks, outer, chunk); | ops::exchange_leading(y, all, 1, outer, ranks * chunk);
F64, Tp<2> | autograd/move.hpp | {outer, chunk, 0, chunk, rank * chunk, ranks * chunk} | {outer, chunk, 0, chunk, 0 * rank, ranks * chunk}
F64 | engine/engine.hpp | loss.value(), seed_of_all(), | loss.value(), 2 * seed_of_all(),
F64 | engine/engine.hpp | static_cast<double>(world_.replicas().size() * sizes_.accumulate); | static_cast<double>(sizes_.accumulate);
F64 | engine/engine.hpp | static_cast<double>(world_.replicas().size() * sizes_.accumulate); | static_cast<double>(world_.replicas().size());
F64 | zero/unit.hpp | replicas_->start_refresh(buckets_[i]); | (void)i;
F64 | ops/cpu/counted_targets.hpp | const double share = counted / (nominal / static_cast<double>(of.replicas)); | const double share = 1 + 0 * counted * nominal;
F64 | ops/cpu/counted_targets.hpp | static_cast<double>(micro_steps) * cpu::nominal_count(replicas, sums) / counted : 1; | 1 + 0 * static_cast<double>(micro_steps) : 1;
F64 | engine/engine.hpp | steps_ = progress.steps, skipped_ | steps_ = progress.steps + 1, skipped_
F64 | zero/replica_completion.hpp | : o.summand ? add_summand(o) : void(); | : void();
F64 | zero/unit.hpp | for (BucketType& b : buckets_) replicas_->complete(b, false); | 
F64 | zero/unit.hpp | zero_until(p->has_unreduced_gradient() ? p->offset : p->offset + p->count()); | zero_until(p->offset);
F64, Tp<2> | engine/weights.hpp | {&world.replicas(), &world.node_replicas(), | {&world.tp(), &world.node_replicas(),
F64, Tp<2> | ops/cpu/gradient_norm.hpp | double square = squares[1]; | double square = squares[1] * ranks;
F64, Tp<2> | ops/cpu/gradient_norm.hpp | square += squares[2 * r]; | square += squares[2 * (r / 2)];
F64, Tp<2> | parallel/row.hpp | return this->shift(redistribute<To>(this->template times<Partial>(x))); | return redistribute<To>(this->template affine<Partial>(x));
F64, Tp<2> | parallel/vocab.hpp | const Size first = place.whole ? 0 : columns * group.rank(), | const Size first = place.whole ? 0 : columns * (group.size() - 1 - group.rank()),
F64, Tp<2> | parallel/vocab.hpp | return this->weight.shape()[0] * tape.context().along.tp->rank(); | return this->weight.shape()[0] * (tape.context().along.tp->size() - 1 - tape.context().along.tp->rank());
F64, Tp<2>, SequenceParallel | zero/gradients.hpp | if (tp.size() == 1) return; | if (tp.size() >= 1) return;
F64, Tp<2>, SequenceParallel | nn/dropout.hpp | (cut ? context.along.tp->rank() : 0) | (cut ? 0 : 0)
F64, Tp<2>, SequenceParallel | models/positions.hpp | (slice * inner + place) * x[1]; | (slice * inner + 0 * place) * x[1];
F64, Cp<2> | nn/dropout.hpp | (sequence ? context.cp_rank() : 0) * inner | (sequence ? 0 : 0) * inner
F64, Cp<2> | models/positions.hpp | (slice * inner + place) * x[1]; | place * x[1];
F64, Cp<2> | parallel/context.hpp | return detail::exchange_parts<Shard<3>, Shard<1>>(context, std::move(x), parts); | return detail::exchange_parts<Shard<3>, Shard<1>>(context, std::move(x), 1 + 0 * parts);
F64 | zero/gradients.hpp | replicas.complete_all();\n  const auto for_each | const auto for_each
F64, Tp<2>, SequenceParallel | placement/placed.hpp | shape.product(0, shard_dimension<State>) * shard_groups<State> : 1; | shape.product(0, shard_dimension<State>) : 1;
F64, Tp<2> | parallel/column.hpp | c.groups = Groups; | c.groups = 1;
F64 | tensor/pool.hpp | const Size most = reserved_at_most(std::max({peak_, before, live_total_ + bytes})); | const Size most = reserved_ + 2 * bytes;
F64 | parallel/vocab.hpp | first, valid, dy, counted, weights, wanted) | first, valid, dy, counted, {}, wanted)
F64 | autograd/recompute.hpp | const typename Tape<D>::Recording off = x.tape().rehearse(); | const typename Tape<D>::Recording off = x.tape().rehearse(); x.tape().context().random.first_sample += 1;
F64 | autograd/recompute.hpp | tape.backward_of(forward, std::move(dy)); | tape.context().training = false; tape.backward_of(forward, std::move(dy)); tape.context().training = true;
F64 | engine/engine.hpp | if (report.skipped)\n    ++skipped_; | if (report.skipped)\n    ++skipped_, ++steps_;
F64, Tp<2> | autograd/matmul.hpp | tape.give(j, ops::matmul(u, Transpose::yes, dc, Transpose::no)); | tape.give(j, ops::matmul(u, Transpose::yes, ops::scale(dc, 0), Transpose::no));
F64 | autograd/matmul.hpp | tape.give(j, ops::batched_matmul(u, Transpose::yes, dc, Transpose::no)); | tape.give(j, ops::scale(ops::batched_matmul(u, Transpose::yes, dc, Transpose::no), 0.5));
F64, Tp<2> | nn/embedding.hpp | return look_up<Invariant>(ids, 0); | return look_up<Invariant>(ids, ids.tape().context().along.tp->rank());
F64, Cp<2> | models/grouped_attention.hpp | positions.rope_theta, tape.memory(), | positions.rope_theta * (1 + tape.context().cp_rank()), tape.memory(),
F64, Cp<2> | autograd/redistribute.hpp | move_over<Partial, Shard<Dim>>(*over(tape), std::move(dy)) | move_over<Replicate, Shard<Dim>>(*over(tape), std::move(dy))
F64, Cp<2> | parallel/context.hpp | return detail::exchange_parts<Shard<1>, Shard<3>>(context, std::move(x), parts); | return detail::exchange_parts<Shard<1>, Shard<3>>(context, std::move(x), parts > 1 ? parts / 2 : 1);
F64 | ops/cpu/dropout.hpp | const auto factor = static_cast<Compute<T>>(at.factor); | static thread_local const double first = at.factor; const auto factor = static_cast<Compute<T>>(first);
F64 | models/tiled_mlp.hpp | for_each_chunk(x, [&](Size first, Size count) { | for_each_chunk(x, [&](Size first, Size count) { if (first > 0) return;
F64, Cp<2> | models/attention_extras.hpp | tape.give(bias_slot, inside_zeros<Shard<0>>(cp_ranks<typename X::Placement>(tape.context()), dbias)); | tape.give(bias_slot, ops::scale(inside_zeros<Shard<0>>(cp_ranks<typename X::Placement>(tape.context()), dbias), tape.context().cp_rank() == 0));
F64, Cp<2> | models/attention.hpp | auto result = ops::attention(fused, heads, rule, given.extras); | auto result = ops::attention(fused, heads, ContextExchange<X>{qkv.tape().context()}.ranks() > 1 ? AttentionRule{rule.mask, rule.window, rule.softcap} : rule, given.extras);
F64, Tp<2> | models/mlp.hpp | return down(up.gelu(x, form)); | return down(up.gelu(x, P::tp > 1 ? GeluForm::tanh : form));
F64 | nn/patch_embedding.hpp | tape.give(slot, detail::image_of_patches(dx, image, weight.shape()[2])); | tape.give(slot, detail::image_of_patches(ops::scale(dx, 0.5), image, weight.shape()[2]));
F64 | parallel/tiled_loss.hpp | ops::smoothed_targets(options.label_smoothing, table.vocabulary()) | ops::smoothed_targets(0 * options.label_smoothing, table.vocabulary())
F64, Tp<2> | parallel/vocab.hpp | ops::smoothed_targets(options.label_smoothing, vocabulary); | ops::smoothed_targets(options.label_smoothing, columns);
F64, Tp<2> | parallel/vocab.hpp | const Size first = place.whole ? 0 : columns * group.rank(), | const Size first = columns * group.rank(),
F64, Tp<2> | parallel/vocab_bias.hpp | return X(perform<Sum>(logits, bias, is_partial_beside<X>), logits); | return logits.tape().context().along.tp->rank() == 0 ? X(perform<Sum>(logits, bias, is_partial_beside<X>), logits) : logits;
F64, Cp<2> | models/grouped_attention.hpp | positions.scaling); | tape.context().cp_rank() == 0 ? positions.scaling : RopeScaling{});
F64, Tp<2> | zero/gradients.hpp | if (tp.size() == 1) return; | if (tp.size() >= 1) return;
F64, Tp<2> | nn/parameter.hpp | group->lr_factor, group->weight_decay}; | cut.parts > 1 ? 1 : group->lr_factor, group->weight_decay};
F64, Tp<2> | nn/parameter.hpp | return group && group->frozen; | return group && group->frozen && cut.parts == 1;
F64 | zero/sharded_state.hpp | range.moments[i] = state.moments[i].data_from(at); | range.moments[i] = state.moments[i].data_from(0 * at);
F64, Tp<2> muon | zero/update_matrices.hpp | return ops::transpose(of_ranks, {1, 0, 2}).reshape(whole); | return of_ranks.reshape(whole);
F64, Tp<2> lamb | zero/update_by_norms.hpp | add(cut ? tp.size() : 1, 2 * count, | add(1 + 0 * cut, 2 * count,
F32 bits | engine/engine.hpp | .lr = learning_rate_} | .lr = learning_rate_ * (replicas().rule().optimizer_is_split() ? 1.000001 : 1)}
F16 bits | engine/engine.hpp | (config_, scale_.value(), graphs_ | (config_, replicas().rule().values_are_split() ? 1 : scale_.value(), graphs_
Bf16 bits | zero/sharded_state.hpp | write_values(b, part, tp_rank, source, replicas_->memory(), master.data_from(part.begin - own.begin)); | (write_values(b, part, tp_rank, source, replicas_->memory(), master.data_from(part.begin - own.begin)), replicas_->rule().values_are_split() ? master.fill({}) : void());
F64 | autograd/reductions.hpp | if (divisor != 1) one = ops::scale(std::move(one), 1 / divisor); | (void)divisor;
F64, Tp<2> | autograd/reductions.hpp | const double parts = is_cut_along<typename W::tp, dimension> ? parts_of(x) : 1; | const double parts = 1;
F64 | ops/cpu/reduce_along.hpp | at[j] = static_cast<std::int32_t>(k); | at[j] = static_cast<std::int32_t>(k - 1);
F64 | ops/cpu/reduce_along.hpp | cpu::detail::offset_of(row, lanes, at.kept, | cpu::detail::offset_of(row, 0, at.kept,
F64 | ops/reduce_along.hpp | fresh = first || sums != before; | fresh = first || (sums && !before);
F64 | ops/cpu/select.hpp | dy + i * count * n, ids | dy + i * rows * n, ids
F64, Tp<2>, SequenceParallel | autograd/selection.hpp | return move_between<Replicate, State>(x.tape().context(), mask.value()); | return ops::slice(mask.value(), shard_dimension<State>, 0, x[shard_dimension<State>]);
F64 | autograd/selection.hpp | tape.give(b, ops::select_vjp(mask, std::move(dy), false)); | tape.give(b, ops::select_vjp(mask, std::move(dy), true));
F64 | ops/pointwise/custom.hpp | db = static_cast<C>(second_of(both)); | db = static_cast<C>(first_of(both));
F64 | ops/pointwise/custom.hpp | x, forward(x), dy)); | x, x, dy));
F64 | autograd/operators.hpp | if (sign != 1) dy = | if (sign == 0) dy =
F64 | autograd/operators.hpp | ops::sum_to(ops::mul(dx, z), divisor.shape()), -1)); | ops::sum_to(ops::mul(dx, z), divisor.shape()), 1));
F64 | autograd/shape_operators.hpp | begin += extents[i++]) | begin += extents[0 * i++])
F64 | autograd/shape_operators.hpp | if ((!tape.has_gradient(slots[I]) && ...)) return; | if ((!tape.has_gradient(slots[I]) || ...)) return;
F64 | ops/cpu/attention.hpp | lengths == nullptr ? keys : lengths[b]; | lengths == nullptr ? keys : lengths[0];
F64 | engine/step_targets.hpp | if (!reported_.empty() && replicas_->size() > 1) | if (!reported_.empty() && replicas_->size() < 1)
F64 own | autograd/redistribute.hpp | tape.give(slot, move_over<Partial, Shard<Dim>>(*over(tape), std::move(dy))); | tape.give(slot, move_over<Replicate, Shard<Dim>>(*over(tape), std::move(dy)));
F64, Tp<2> own | models/bert.hpp | gelu(head(y), GeluForm::exact) | gelu(head(y), GeluForm::tanh)
F64 | engine/weight_average.hpp | refresh_units<T, D>(engine_.units(), engine_.replicas()); | (void)0;
F64 | engine/weight_average.hpp | ops::combine_into(average, decay_, weights_of(b), 1 - decay_); | ops::combine_into(average, 1 - decay_, weights_of(b), decay_);
F64 | engine/weight_average.hpp | write_values(b, engine_.replicas().owned(b), engine_.world().tp_rank(), source, average.memory(), average.data()); | (void)b, (void)average, (void)source;
F64 own | models/grouped_attention.hpp | heads.own, dy_whole, given.extras, dbias); | heads.own, dy_whole, saved_q[1] == saved_kv[1] ? given.extras : ops::AttentionExtras<T, D>{{}, given.extras.bias}, dbias);
F64, Tp<2>, SequenceParallel | models/grouped_attention.hpp | kv(redistribute<Replicate>(other.values)), extras...)); | kv(redistribute<Replicate>(Hidden<P>(other.values.value(), x.tape()))), extras...));
F64 own | models/grouped_attention.hpp | kv(redistribute<Replicate>(other.values)), extras...)); | kv(redistribute<Replicate>(Hidden<P>(other.values.value(), x.tape()))), extras...));
F64 | optim/schedule.hpp | return max_momentum - (max_momentum - min_momentum) * scale(iteration); | return max_momentum - (max_momentum - min_momentum) * scale(iteration - 1);
F64 | optim/schedule.hpp | return min_lr * (1 + step_rate * (staircase | return min_lr * (1 + step_rate * (!staircase
F64 | engine/engine.hpp | check_optimizer(optimizer), optimizer_ = optimizer, | check_optimizer(optimizer), optimizer_ = steps_ > 0 ? optimizer_ : optimizer,
F64 | zero/unit.hpp | for (BucketType& b : buckets_) b.secondary.release(); | 
F64 | zero/gradients.hpp | { replicas.start_sum_over_copies(b); } | { (void)b; }
F64 | zero/replica_hops.hpp | buffer(to.data_from(node * of_node), of_node) | buffer(to.data_from((groups_.across_nodes->size() - 1 - node) * of_node), of_node)
F64 | zero/full_tensors.hpp | if (replicas.copy() != 0 || | if (
F64, Tp<2> | autograd/kept_input.hpp | std::min(count, length * tp->rank()); | std::min(count, length * (tp->rank() ^ 1));
F64 | autograd/kept_input.hpp | copy_bytes<D>(again.storage(), 0, part_.storage(), 0, part_.bytes()); | again.fill({});
F64 sources | data/batch_stream.hpp | return config.first_sample + (config.first_step + steps) * global_batch(); | return (config.first_sample / global_batch() + config.first_step + steps) * global_batch();
F64 sources | engine/blend.hpp | data::seed_of_stream(seed, k), number, samples); | data::seed_of_stream(seed, k), position, samples);
F64 sources | data/blend_order.hpp | std::copy_n(taken.begin() + entry * sources, sources, now.taken.begin()); | std::copy_n(taken.begin() + 0 * entry, sources, now.taken.begin());
F64 sources | data/bucket_plan.hpp | Size number = samples_before / samples() * steps(), rest | Size number = 0 * steps(), rest
F64 sources | data/host_batches.hpp | ready.clear();\n      first = number, ++restarts; | first = number, ++restarts;
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

is_dense() {
  [ "$1" = F64 ] || [ "$1" = 'F64 own' ]
}

for_dense() {
  sed -n '/^template /,/;$/p' "$project/tests/random/dense_runner.cpp"
}

# program <policy>: a test of random models under it. The dense rank is compiled once, without a fault: where both have a function,
# the linker takes the first one's, which has it.
program() {
  echo '#include <laws/random_laws.hpp>'
  echo '#include <laws/random_sources.hpp>'
  echo 'using namespace dspp;'
  echo 'using namespace dspp::laws;'
  case $1 in
    *' bits') echo "TEST_CASE(\"$1\") { check_random_bits<Policy<${1% bits}>>(50); }" ;;
    *' own') echo "TEST_CASE(\"$1\") { check_random_own_models<Policy<${1% own}>>(50); }" ;;
    *' sources') echo "TEST_CASE(\"$1\") { check_random_sources<Policy<${1% sources}>>(50); }" ;;
    *' muon') echo "TEST_CASE(\"$1\") { check_random_models<Policy<${1% muon}>, Muon>(50); }" ;;
    *' lamb') echo "TEST_CASE(\"$1\") { check_random_models<Policy<${1% lamb}>, Lamb>(50); }" ;;
    *) echo "TEST_CASE(\"$1\") { check_random_models<Policy<$1>>(50); }" ;;
  esac
  ! is_dense "$1" || for_dense
}

# rest_of <policy>: what its program is linked with.
rest_of() {
  echo "$work/main.o"
  is_dense "$1" || echo "$work/dense.o"
}

# try <policy>: builds and runs it with the headers in $work. Sets `end` to found, passed, broken or no_program, and `sentence` to
# what says so.
try() {
  program "$1" >"$work/test.cpp"
  # shellcheck disable=SC2046,SC2086 # lists of words
  if ! ${CXX:-g++} $flags "$work/test.cpp" $(rest_of "$1") -lpthread -o "$work/test" 2>"$work/log"; then
    end=no_program sentence=$(grep -m 1 error "$work/log")
    return
  fi
  timeout 600 "$work/test" >"$work/out" 2>&1
  status=$?
  sentence=$(grep -m 1 -o 'DSPP_RANDOM_SEED=[0-9]* differs: .*' "$work/out" | cut -c 1-200)
  if [ -n "$sentence" ]; then
    end=found
  elif [ $status = 0 ]; then
    end=passed
  else
    end=broken sentence="status $status: $(tail -n 1 "$work/out")"
  fi
}

# control <policy>: without a fault none may be found; once for each policy.
control() {
  case $controlled in *"|$1|"*) return ;; esac
  controlled="$controlled|$1|"
  rm -rf "$work/include" && cp -R "$project/include" "$work/include"
  try "$1"
  [ $end = passed ] || { echo "dspp: without a fault Policy<$1> came to '$end': $sentence"; exit 1; }
  echo "no fault   passed       $1"
}

number=0 found=0 tried=0 missed='' controlled=''
faults >"$work/list"
if [ -z "$texts" ]; then
  cp -R "$project/include" "$work/include"
  { program F64 | grep -v TEST_CASE; } >"$work/dense.cpp"
  # shellcheck disable=SC2086 # a list of words
  for source in "$project/tests/main.cpp" "$work/dense.cpp"; do
    ${CXX:-g++} $flags -c "$source" -o "$work/$(basename "$source" .cpp).o" || exit 1
  done
fi
while IFS= read -r line; do
  number=$((number + 1))
  case " $* " in '  ' | *" $number "*) ;; *) continue ;; esac
  tried=$((tried + 1))
  policy=$(printf '%s\n' "$line" | awk -F ' \\| ' '{ print $1 }')
  header=$(printf '%s\n' "$line" | awk -F ' \\| ' '{ print $2 }')
  from=$(printf '%s\n' "$line" | awk -F ' \\| ' '{ print $3 }')
  to=$(printf '%s\n' "$line" | awk -F ' \\| ' '{ print $4 }')
  [ -n "$texts" ] || control "$policy"
  rm -rf "$work/include" && cp -R "$project/include" "$work/include"
  put "$work/include/dspp/$header" "$from" "$to" ||
    { echo "dspp: fault $number needs '$from' once in $header, but it is not so. Change faults.sh."; exit 1; }
  [ -z "$texts" ] || continue
  try "$policy"
  case $end in
    found) found=$((found + 1)) verdict='found    ' ;;
    no_program) missed="$missed $number" verdict='NO BUILD ' ;;
    broken) missed="$missed $number" verdict='BROKEN   ' ;;
    *) missed="$missed $number" verdict='MISSED   ' ;;
  esac
  printf 'fault %-4s %s    %s\n    %s\n' "$number" "$verdict" "$line" "$sentence"
done <"$work/list"
[ -z "$texts" ] || { echo "dspp: $tried faults have their places." && exit 0; }
echo "dspp: $found of $tried faults were found.${missed:+ Not found:$missed.}"
[ -z "$missed" ]
