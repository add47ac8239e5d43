// SPDX-License-Identifier: Apache-2.0
/// Dropout, drawn by position: every rank draws exactly its slice of the one global mask.
#pragma once

#include <dspp/nn/layer.hpp>
#include <dspp/ops/dropout.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

/// A place in the model where random numbers are drawn. visit() gives it its number.
struct RandomSite {
  int number = -1;
};

/// y = x / (1 - p) with probability 1 - p, else 0. Active in training steps, the identity otherwise.
///
///   x [batch, ...]   y like x
///
/// Placement   any finished one, kept; [batch, sequence, ...] is split along the sequence over Cp
/// Memory      none: backward draws the mask again
/// Note        two Dropouts draw two masks; one that is applied twice in a forward draws the same mask twice
/// Source      Srivastava et al. 2014; counters as in Salmon et al. 2011 (Philox)
template <class P>
struct Dropout : Layer<P> {
  RandomSite site;
  double probability;

  constexpr explicit Dropout(double p) : probability(p) {
    require(0 <= p && p < 1, "dspp: Dropout needs a probability from 0 to below 1, but got another. Change it.");
  }

  constexpr void visit(auto&& f) { f("site", site); }
  constexpr void describe(auto&& f) const { f("probability", probability); }

  template <Tracked X>
  constexpr X operator()(const X& x) const {
    using T = typename X::Element;
    using D = typename X::DeviceType;
    check_value_of<P, X>();
    check_activation<state_of<X>>();
    if (probability == 0 || !x.tape().context().training) return x;
    const ops::DropoutSite where = here(x);
    X y(ops::dropout(x.value(), probability, where), x.tape());
    y.on_backward([slot = x.slot(), p = probability, where](Tape<D>& tape, Tensor<T, X::rank, D> dy) {
      tape.give(slot, ops::dropout(std::move(dy), p, where));
    });
    return y;
  }

 private:
  template <class X>
  constexpr ops::DropoutSite here(const X& x) const;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class P>
template <class X>
constexpr ops::DropoutSite Dropout<P>::here(const X& x) const {
  if (site.number < 0)
    fail(ErrorCode::state,
         "dspp: a Dropout needs to be named by its layer's visit(), but it was reached without. Add it.");
  const auto& context = x.tape().context();
  ops::DropoutSite where{.key = context.random.key,
                         .step = context.random.step,
                         .site = static_cast<std::uint32_t>(site.number),
                         .first_sample = context.random.first_sample};
  if constexpr (shard_dimension<state_of<X>> == 0) where.first_sample += x[0] * context.tp->rank();
  for (int i = 1; i < X::rank; ++i) {
    const bool cut = shard_dimension<state_of<X>> == i, sequence = X::rank >= 3 && i == 1;
    const int outer = sequence ? context.cp_size() : 1, inner = cut ? context.tp->size() : 1;
    const int at = (sequence ? context.cp_rank() : 0) * inner + (cut ? context.tp->rank() : 0);
    where.window.global[i - 1] = x[i] * outer * inner;
    where.window.origin[i - 1] = x[i] * at;
  }
  return where;
}

}  // namespace dspp
