// SPDX-License-Identifier: Apache-2.0
/// The one operation that changes a placement. Its backward is the reverse arrow.
#pragma once

#include <dspp/autograd/move.hpp>
#include <dspp/autograd/variable.hpp>

namespace dspp {

/// The same value in another state over Tp: `redistribute<Invariant>(x)`, `redistribute<Shard<1>>(x)`.
///
/// Cost     forward: the collective of arrow<From, To>; backward: that of arrow<adjoint<To>, adjoint<From>>. A group of
///          one makes both free. Table: docs/placement.md
/// Memory   see move_between. A sum is in place if the last handle is passed by move.
/// Source   Shoeybi et al. 2019, section 3; the algebra is that of JAX's sharding-in-types and meta-pytorch/spmd_types
template <class To, class T, int Rank, Device D, class Where>
constexpr auto redistribute(Variable<T, Rank, D, Where> x, CallSite site = CallSite::here()) {
  using From = typename Where::tp;
  using Target = canonical_state<To, Rank>;
  constexpr bool exists =
      arrow<From, Target> != Move::forbidden &&
      !(is_shard<From> && std::is_same_v<Target, Partial>)&&(!is_padded<Target> || std::is_same_v<From, Target>);
  constexpr bool regrouped = shard_dimension<From> == shard_dimension<Target> && is_shard<From> && is_shard<Target> &&
                             !std::is_same_v<From, Target> && !is_padded<From> && !is_padded<Target>;
  static_assert(
      !regrouped,
      "dspp: redistribute needs the groups of a cut kept, but this value is cut in other groups along the same "
      "dimension over Tp: a rank holds other elements. Take the groups by split<Dim, Groups>(x), or "
      "redistribute<Invariant>(x) first.");
  static_assert(
      exists || regrouped,
      "dspp: redistribute needs an arrow between the two states, but there is none. From Invariant one goes to "
      "Replicate or Shard, from Replicate to Shard, from Partial to Invariant, Replicate or Shard, from Shard to "
      "Invariant, Replicate or another Shard, from PaddedShard to Invariant or Replicate.");
  using Y = InState<Variable<T, Rank, D, Where>, To>;
  if constexpr (std::is_same_v<From, Target>) {
    return x;
  } else if constexpr (exists) {
    Tape<D>& current = x.tape();
    CalledAt here(site);
    const Slot slot = x.slot();
    const Size whole = x.whole();
    Y y(move_between<From, Target>(current.context(), std::move(x).take_value(), whole), x);
    y.on_backward([slot, site](Tape<D>& tape, Tensor<T, Rank, D> dy) {
      CalledAt there(site);
      tape.give(slot, move_between<adjoint<Target>, adjoint<From>>(tape.context(), std::move(dy)));
    });
    return y;
  } else {
    return Y();
  }
}

}  // namespace dspp
