// SPDX-License-Identifier: Apache-2.0
/// The one operation that changes a placement. Its backward is the reverse arrow.
#pragma once

#include <dspp/autograd/move.hpp>
#include <dspp/autograd/variable.hpp>
#include <dspp/mesh/axis.hpp>

namespace dspp {

namespace detail {
/// The reverse arrow.
template <class From, class To, class T, int Rank, Device D>
struct ArrowBackward {
  Slot slot;
  CallSite site;

  constexpr void operator()(Tape<D>& tape, Tensor<T, Rank, D> dy) {
    CalledAt there(site);
    tape.give(slot, move_between<adjoint<To>, adjoint<From>>(tape.context(), std::move(dy)));
  }
};
/// The same where every rank has the value that it had: what computes x again has y.
template <class T, int Rank, Device D>
struct ReplicateBackward : ArrowBackward<Invariant, Replicate, T, Rank, D> {
  Recomputation of_x;

  constexpr bool is_recomputable() const { return of_x.exists; }
  constexpr Tensor<T, Rank, D> again(Tape<D>& tape, const Shape<Rank>& shape) const {
    return tape.template recomputed<T>(this->slot, shape);
  }
  constexpr const void* home() const { return of_x.home; }
};
}  // namespace detail

namespace operations {
/// From one state over Tp to another.
template <class From, class To, class T, int Rank, Device D>
struct Redistribute {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(TapedTensor<T, Rank, D>&& x, CallSite site) {
    Tape<D>& current = x.tape();
    CalledAt here(site);
    TapedTensor<T, Rank, D> y(move_between<From, To>(current.context(), std::move(x).take_value(), x.whole()), current);
    detail::ArrowBackward<From, To, T, Rank, D> backward{x.slot(), site};
    if constexpr (std::is_same_v<From, Invariant> && std::is_same_v<To, Replicate>)
      y.on_backward(detail::ReplicateBackward<T, Rank, D>{backward, x.recomputation()});
    else
      y.on_backward(std::move(backward));
    return y;
  }
};
}  // namespace operations

#define DSPP_REDISTRIBUTE_OPERATIONS(TEMPLATE, T)                                               \
  TEMPLATE struct CompiledOperation<operations::Redistribute<Invariant, Replicate, T, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Redistribute<Invariant, Replicate, T, 3, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Redistribute<Partial, Invariant, T, 2, Cpu>>;   \
  TEMPLATE struct CompiledOperation<operations::Redistribute<Partial, Invariant, T, 3, Cpu>>;   \
  TEMPLATE struct CompiledOperation<operations::Redistribute<Partial, Shard<1>, T, 3, Cpu>>;    \
  TEMPLATE struct CompiledOperation<operations::Redistribute<Shard<1>, Replicate, T, 3, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_REDISTRIBUTE_OPERATIONS)

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
    using Arrow = operations::Redistribute<From, Target, T, Rank, D>;
    return Y(perform<Arrow>(std::move(x), site), x);
  } else {
    return Y();
  }
}

namespace detail {
/// x gathered along dimension Dim over the ranks that `over(tape)` gives, as a Y; the sum of the gradients of all ranks
/// goes back to each rank's slice.
template <class Y, int Dim, class T, int Rank, Device D, class Where, class Over>
constexpr Y gathered(Variable<T, Rank, D, Where> x, Over over, CallSite site) {
  Tape<D>& current = x.tape();
  CalledAt here(site);
  const Slot slot = x.slot();
  const Size whole = x.whole();
  require_no_weights(x);
  Y y(move_over<Shard<Dim>, Replicate>(*over(current), std::move(x).take_value()), current, whole);
  y.on_backward([slot, site, over](Tape<D>& tape, Tensor<T, Rank, D> dy) {
    CalledAt there(site);
    tape.give(slot, move_over<Partial, Shard<Dim>>(*over(tape), std::move(dy)));
  });
  return y;
}
}  // namespace detail

/// What the ranks of another axis have, on each of them. `redistribute<Replicate, Axis::Cp>(keys)`: all positions of
/// the sequences that Cp cuts; where it cuts none, x itself. `redistribute<Replicate, Axis::Data>(embeddings)`: the
/// samples of all data ranks, along dimension 0 in the order of their ranks, for losses over the global batch; every
/// rank needs as many samples. Its loss is then that of its own samples against all: the mean over the ranks is the
/// global one, and gradients flow back to the rank of each sample.
///
/// Placement   any; Tp must not cut the same dimension
/// Cost        forward: an all-gather over the axis; backward: a reduce-scatter
/// Memory      the whole, and for a dimension that is not the first as much again for the time of the call
template <class To, Axis Over, class T, int Rank, Device D, class Where>
constexpr auto redistribute(Variable<T, Rank, D, Where> x, CallSite site = CallSite::here()) {
  using X = Variable<T, Rank, D, Where>;
  static_assert(
      (Over == Axis::Cp || Over == Axis::Data) && std::is_same_v<To, Replicate>,
      "dspp: redistribute over an axis needs Replicate and Axis::Cp or Axis::Data, but got another state or axis. "
      "Leave the axis out for a state over Tp.");
  constexpr int dimension = Over == Axis::Data ? 0 : Where::cp_dimension;
  constexpr bool cut_by_tp = dimension >= 0 && shard_dimension<typename Where::tp> == dimension;
  constexpr bool cut_by_both = cut_by_tp || (Over == Axis::Data && Where::cp_dimension == 0);
  static_assert(
      !cut_by_both || Over == Axis::Data,
      "dspp: redistribute over Cp needs the slices of a rank of Cp whole, but Tp cuts them along the same dimension. "
      "redistribute<Replicate>(x) over Tp first.");
  static_assert(!cut_by_both || Over == Axis::Cp,
                "dspp: redistribute over Data needs all samples of a data rank, but Tp or Cp cuts dimension 0. "
                "redistribute<Replicate>(x), or redistribute<Replicate, Axis::Cp>(x), first.");
  if constexpr (dimension < 0 || cut_by_both) {
    return x;
  } else if constexpr (Over == Axis::Data) {
    const auto over = [](Tape<D>& tape) { return &detail::data_ranks(tape.context()); };
    return detail::gathered<X, 0>(std::move(x), over, site);
  } else {
    const auto over = [](Tape<D>& tape) { return &detail::cp_ranks<Where>(tape.context()); };
    return detail::gathered<WholeOverCp<X>, dimension>(std::move(x), over, site);
  }
}

}  // namespace dspp
