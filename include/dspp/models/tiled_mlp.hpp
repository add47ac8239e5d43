// SPDX-License-Identifier: Apache-2.0
/// A feed-forward layer in chunks of tokens, recomputed in backward.
#pragma once

#include <algorithm>
#include <utility>

#include <dspp/models/recompute.hpp>
#include <dspp/nn/walk.hpp>
#include <dspp/ops/copy.hpp>

namespace dspp {

/// L, a layer that maps each token by itself, over `Chunks` chunks of this rank's tokens: TiledMlp<Mlp<P>, 4>.
///
///   y[c] = L(x[c])       x [batch, sequence, width], its tokens in Chunks consecutive parts   y like x
///
/// Placement   the residual stream's
/// Cost        one more forward of L in backward, its collectives over Tp included, as Recompute; each collective of L
///             in Chunks parts of the same bytes in total. Parameters are gathered as L's and reduced once. A plan
///             walks through every chunk.
/// Memory      keeps x instead of what L saves; what L needs for one chunk; y, and dx in backward
/// Throws      Error(usage) on a layer that draws random numbers, since a chunk would repeat the mask of another, or
///             that has an InUnit, whose gradients each chunk would reduce
///
/// Gradients are summed over the chunks in their element type: in bf16 and f16 each chunk rounds once.
/// A Tiled layer inside gathers its tiles once per chunk.
/// Source      Bekman et al. 2025, arXiv:2506.13996, section 3.1
template <class L, int Chunks>
struct TiledMlp : Layer<typename L::policy> {
  static_assert(Chunks >= 1, "dspp: TiledMlp needs at least one chunk, but got less. Raise Chunks.");
  using P = typename L::policy;
  template <class Q>
  using on = TiledMlp<rebind<L, typename Q::DeviceType>, Chunks>;

  L inner;

  constexpr explicit TiledMlp(L layer) : inner(std::move(layer)) {}
  template <class... Config>
  requires std::is_constructible_v<L, const Config&...>
  constexpr explicit TiledMlp(const Config&... config) : inner(config...) {}

  constexpr void visit(auto&& f) {
    visited_ = &inner;
    visit_inner(inner, f);
  }
  constexpr Hidden<P> operator()(const Hidden<P>& x) const;

 private:
  using D = DeviceOf<P>;
  using Value = Tensor<ElementOf<P>, 3, D>;

  /// Calls f(first token, number of tokens) for every chunk that is not empty.
  template <class F>
  static constexpr void for_each_chunk(const Value& x, F f) {
    const Size tokens = x[0] * x[1], chunks = std::min<Size>(Chunks, tokens);
    for (Size c = 0; c < chunks; ++c) f(tokens * c / chunks, tokens * (c + 1) / chunks - tokens * c / chunks);
  }
  /// The tokens of all samples as one sequence: a view.
  static constexpr Value tokens_of(const Value& x, Size first, Size count) {
    return Value::view(x.storage(), x.offset() + first * x[2], shape(Size{1}, count, x[2]));
  }
  static constexpr void put(const Value& part, const Value& into, Size first) {
    ops::copy_into(into, first * into[2], part);
  }
  constexpr Value forward(const Hidden<P>& x) const;
  constexpr Value backward(Tape<D>& tape, const Value& x, const Value& dy) const;
  template <class F>
  constexpr void for_each_parameter(F f) const;

  L* visited_ = nullptr;  // `inner` since the visit: a walk is not const, since it also sets parameters up
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// Calls f(p) for every parameter that a walk finds; fails at a layer that draws random numbers, and at a unit.
template <class F>
struct EachParameter {
  F f;
  constexpr void parameter(const Path&, auto& p) { f(p); }
  constexpr void begin_unit(const Path&, auto& unit) {
    // clang-format off
    require(!unit.is_bounded(), "dspp: TiledMlp needs a layer that is no unit and has none, but an InUnit is in it: each chunk would reduce it. Put the InUnit around the TiledMlp.", ErrorCode::usage);
    // clang-format on
  }
  constexpr void end_unit(auto&) {}
  constexpr void site(const Path&, RandomSite&) {
    fail(ErrorCode::usage,
         "dspp: TiledMlp needs a layer that draws no random numbers, but a Dropout is in it: each chunk would have the "
         "same mask. Put the Dropout behind it.");
  }
};
}  // namespace detail

template <class L, int Chunks>
template <class F>
constexpr void TiledMlp<L, Chunks>::for_each_parameter(F f) const {
  detail::EachParameter<F> each{f};
  // clang-format off
  require(visited_ != nullptr, "dspp: a TiledMlp needs to be named by its layer's visit(), but it was reached in forward without. Add it to visit().", ErrorCode::state);
  // clang-format on
  walk(*visited_, each);
}

template <class L, int Chunks>
constexpr Tensor<ElementOf<typename L::policy>, 3, DeviceOf<typename L::policy>> TiledMlp<L, Chunks>::forward(
    const Hidden<P>& x) const {
  const typename Tape<D>::Recording off = x.tape().rehearse();
  auto y = Value::uninitialized(x.shape(), x.memory(), Category::activations, "TiledMlp");
  for_each_chunk(x.value(), [&](Size first, Size count) {
    const Hidden<P> out = inner(Hidden<P>(tokens_of(x.value(), first, count), x.tape()));
    put(out.value(), y, first);
  });
  return y;
}

template <class L, int Chunks>
constexpr Tensor<ElementOf<typename L::policy>, 3, DeviceOf<typename L::policy>> TiledMlp<L, Chunks>::backward(
    Tape<D>& tape, const Value& x, const Value& dy) const {
  auto dx = Value::uninitialized(x.shape(), tape.memory(), Category::activations, "TiledMlp");
  for_each_chunk(x, [&](Size first, Size count) {
    Tape<D> again(tape.context());
    Slot input, output;
    {
      const Hidden<P> in(tokens_of(x, first, count), again);
      const Hidden<P> out = inner(in);
      input = in.slot();
      output = out.slot();
    }
    again.backward(output, tokens_of(dy, first, count));
    const Value dx_part = again.template take<ElementOf<P>, 3>(input, shape(Size{1}, count, x[2]));
    if (dx_part)
      put(dx_part, dx, first);
    else
      tokens_of(dx, first, count).fill({});
  });
  return dx;
}

template <class L, int Chunks>
constexpr Hidden<typename L::policy> TiledMlp<L, Chunks>::operator()(const Hidden<P>& x) const {
  Hidden<P> y(forward(x), x);
  if (!x.tape().recording()) return y;
  for_each_parameter([&](auto& p) { p.begin_parts(x.tape()); });
  y.on_backward([self = this, slot = x.slot(), saved = x.value()](Tape<D>& tape, const Value& dy) {
    auto dx = self->backward(tape, saved, dy);
    self->for_each_parameter([](auto& p) { p.end_parts(); });
    tape.give(slot, std::move(dx));
  });
  return y;
}

}  // namespace dspp
