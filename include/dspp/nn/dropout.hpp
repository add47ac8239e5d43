// SPDX-License-Identifier: Apache-2.0
/// Dropout, drawn by position: every rank draws its slice of the one global mask.
#pragma once

#include <dspp/nn/layer.hpp>
#include <dspp/ops/dropout.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

/// A random site: a place in the model that draws random numbers. visit() numbers it.
struct RandomSite {
  int number = -1;
};

/// y = x / (1 - p) with probability 1 - p, else 0. Active in training steps, the identity otherwise.
///
///   x [batch, ...]   y like x
///
/// Placement   any finished one, kept; groups only along the features. Cp may cut any dimension but the first; what it
///             does not cut has one mask on all its ranks.
/// Memory      none: backward draws the mask again
/// Throws      Error(shape) if the first dimension is not the batch
/// Note        two Dropouts draw two masks; one Dropout applied twice in a forward draws the same mask twice
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
    check_equal_slices<state_of<X>>();
    constexpr int cut = shard_dimension<state_of<X>>;
    static_assert(shard_groups<state_of<X>> == 1 || (cut > (X::rank >= 3 ? 1 : 0) && cut != X::Placement::cp_dimension),
                  "dspp: Dropout needs groups among the features only, but this value is split in groups along its "
                  "batch or sequence over Tp. redistribute<Invariant>(x) first.");
    static_assert(X::Placement::cp_dimension != 0,
                  "dspp: Dropout needs the batch as the first dimension, since it draws by the place in the batch, but "
                  "there is the sequence, which Cp cuts. Put it before the transpose, or after the way back.");
    if (probability == 0 || !x.tape().context().training) return x;
    const ops::DropoutSite where = here(x);
    X y(drop<state_of<X>>(x.value(), probability, where), x);
    y.on_backward([slot = x.slot(), p = probability, where](Tape<D>& tape, Tensor<T, X::rank, D> dy) {
      tape.give(slot, drop<state_of<X>>(std::move(dy), p, where));
    });
    return y;
  }

 private:
  template <class X>
  constexpr ops::DropoutSite here(const X& x) const;
  /// Groups become an extra dimension, so that a rank's part is one window of the global sample.
  template <class State, class T, int Rank, Device D>
  static constexpr Tensor<T, Rank, D> drop(Tensor<T, Rank, D> x, double p, const ops::DropoutSite& where) {
    if constexpr (shard_groups<State> == 1) {
      return ops::dropout(std::move(x), p, where);
    } else {
      constexpr int cut = shard_dimension<State>;
      const Shape<Rank> before = x.shape();
      Shape<Rank + 1> wider{};
      for (int i = 0; i < Rank; ++i) wider[i < cut ? i : i + 1] = before[i];
      wider[cut] = shard_groups<State>;
      wider[cut + 1] = before[cut] / shard_groups<State>;
      auto view = x.reshape(wider);
      x.release();
      return ops::dropout(std::move(view), p, where).reshape(before);
    }
  }
};

// ---------------------------------------------------------------------------------------------------------------------

template <class P>
template <class X>
constexpr ops::DropoutSite Dropout<P>::here(const X& x) const {
  if (site.number < 0)
    fail(ErrorCode::state,
         "dspp: a Dropout needs to be named by its layer's visit(), but it was reached without. Add it.");
  const auto& context = x.tape().context();
  const bool is_relative = context.numbers != nullptr;  // they have step and sample
  ops::DropoutSite where{.key = context.random.key,
                         .step = is_relative ? 0 : context.random.step,
                         .site = static_cast<std::uint32_t>(site.number),
                         .first_sample = is_relative ? 0 : context.random.first_sample,
                         .numbers = context.numbers};
  const Size samples = x[0] * (shard_dimension<state_of<X>> == 0 ? context.along.tp->size() : 1);
  if (context.random.samples > 0 && samples != context.random.samples)
    fail(ErrorCode::shape,
         "dspp: Dropout needs [batch, sequence, ...], since it draws by the place in the batch, but "
         "got " +
             to_string(x.shape()) + " for " + std::to_string(context.random.samples) +
             " samples. Put it before a reshape or transpose, or after the way back.");
  if constexpr (shard_dimension<state_of<X>> == 0) where.first_sample += x[0] * context.along.tp->rank();
  for (int i = 1; i < X::rank; ++i) {
    const bool cut = shard_dimension<state_of<X>> == i, sequence = X::Placement::cp_dimension == i;
    const int outer = sequence ? detail::cp_ranks<typename X::Placement>(context).size() : 1,
              inner = cut ? context.along.tp->size() : 1;
    const int at = (sequence ? context.cp_rank() : 0) * inner + (cut ? context.along.tp->rank() : 0);
    constexpr int groups = shard_groups<state_of<X>>;
    const int entry = groups > 1 && i >= shard_dimension<state_of<X>> ? i : i - 1;  // after the groups
    const Size extent = cut ? x[i] / groups : x[i];
    where.window.global[entry] = extent * outer * inner;
    where.window.origin[entry] = extent * at;
    if (groups > 1 && cut) where.window.global[entry - 1] = groups;
  }
  return where;
}

}  // namespace dspp
