// SPDX-License-Identifier: Apache-2.0
/// Learned positions, added to the residual stream.
#pragma once

#include <dspp/nn/layer.hpp>
#include <dspp/ops/arithmetic.hpp>

namespace dspp {

namespace operations {
/// x [batch, sequence, width] plus the rows of the table from `first` on. `partial`: see Parameter::used.
template <class T, Device D>
struct Positions {
  using DeviceType = D;
  static constexpr TapedTensor<T, 3, D> run(const TapedTensor<T, 3, D>& x, const Parameter<T, 2, D>& weight, Size first,
                                            bool partial) {
    // [batch, sequence width] plus one row: the positions in use are one contiguous piece of the table
    const Shape<2> flat{{x[0], x[1] * x[2]}};
    const Shape<1> piece{{x[1] * x[2]}};
    const auto table = weight.value();
    const auto in_use = Tensor<T, 1, D>::view(table.storage(), table.offset() + first * x[2], piece);
    TapedTensor<T, 3, D> y(ops::add_bias(x.value().reshape(flat), in_use).reshape(x.shape()), x.tape());
    if (!x.tape().recording()) return y;
    weight.used(x.tape(), partial);
    y.on_backward([&weight, slot = x.slot(), first, flat, piece](Tape<D>& tape, Tensor<T, 3, D> dy) {
      const auto write = [&](auto dw, Write how) {
        if (how == Write::overwrite) dw.fill({});  // positions not in use
        auto into = decltype(dw.reshape(piece))::view(dw.storage(), dw.offset() + first * dy[2], piece);
        ops::sum_rows_into(into, Write::accumulate, dy.reshape(flat));
      };
      if (!weight.is_frozen()) weight.accumulate(write);
      tape.give(slot, std::move(dy));
    });
    return y;
  }
};
}  // namespace operations

#define DSPP_POSITIONS_OPERATIONS(TEMPLATE, T) TEMPLATE struct CompiledOperation<operations::Positions<T, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_POSITIONS_OPERATIONS)

/// y[b, s] = x[b, s] + table[s]       x [batch, sequence, width]   table [longest, width]
///
/// Placement   the residual stream's, kept. Under Cp and SequenceParallel a rank adds its slice of the positions, and
///             the table's gradient is summed over Tp before the step.
/// Throws      Error(shape) if the sequence is longer than the table
template <class P>
struct Positions : Layer<P> {
  ParameterOf<P, 2> weight;

  constexpr Positions(Size longest, Size width, Initial initial = Initial::normal(0.02))
      : weight("Positions weight", shape(longest, width), initial) {}

  constexpr void visit(auto&& f) { f("weight", weight); }

  constexpr Hidden<P> operator()(const Hidden<P>& x) const {
    const auto& context = x.tape().context();
    const int inner = P::sequence_parallel ? context.along.tp->size() : 1,
              place = P::sequence_parallel ? context.along.tp->rank() : 0;
    const int slices = P::cp > 1 ? detail::cp_ranks<typename Hidden<P>::Placement>(context).size() : 1,
              slice = P::cp > 1 ? context.cp_rank() : 0;
    const Size first = (slice * inner + place) * x[1];
    const Size needed = slices * inner * x[1];
    if (needed > weight.shape()[0])
      fail(ErrorCode::shape, "dspp: Positions needs a sequence of at most " + std::to_string(weight.shape()[0]) +
                                 ", but it is " + std::to_string(needed) +
                                 " long. Shorten it, or give the model more positions.");
    using Sum = operations::Positions<ElementOf<P>, DeviceOf<P>>;
    return Hidden<P>(perform<Sum>(x, weight, first, is_partial_beside<Hidden<P>>), x);
  }
};

}  // namespace dspp
