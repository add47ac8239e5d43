// SPDX-License-Identifier: Apache-2.0
/// A feed-forward layer by chunks of tokens, computed again in backward.
#pragma once

#include <utility>

#include <dspp/models/recompute.hpp>
#include <dspp/nn/walk.hpp>

namespace dspp {

/// L, for which every token stands alone, over `Chunks` chunks of this rank's tokens: TiledMlp<Mlp<P>, 4>.
///
///   y[c] = L(x[c])       x [batch, sequence, width], its tokens one after another in Chunks parts   y like x
///
/// Placement   the residual stream's
/// Cost        one more forward of L in backward, its collectives over Tp included, as Recompute; each collective of L in
///             Chunks parts of the same bytes together. Parameters are gathered as L's and reduced once. A plan walks
///             through every chunk.
/// Memory      keeps x instead of what L saves; what L needs for one chunk; y, and dx in backward
/// Throws      Error(usage) on a layer that draws random numbers: a chunk would repeat the mask of another
///
/// Gradients are summed over the chunks where they lie: in bf16 and f16, unless gradients are F32, each chunk rounds once.
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

  constexpr void visit(auto&& f) { inner.visit(f); }
  constexpr Hidden<P> operator()(const Hidden<P>& x) const;

 private:
  using D = DeviceOf<P>;
  using Value = Tensor<ElementOf<P>, 3, D>;

  /// Tokens [begin, end) of all, as one sequence: a view.
  static constexpr Value chunk(const Value& x, int c) {
    const Size tokens = x[0] * x[1], begin = tokens * c / Chunks, end = tokens * (c + 1) / Chunks;
    return Value::view(x.storage(), x.offset() + begin * x[2], shape(Size{1}, end - begin, x[2]));
  }
  static constexpr void put(const Value& part, const Value& into) {
    if constexpr (D::real) std::copy_n(part.data(), part.count(), into.data());
  }
  constexpr Value forward(const Hidden<P>& x) const;
  constexpr Value backward(Tape<D>& tape, const Value& x, const Value& dy) const;
  template <class F>
  constexpr void for_each_parameter(F f) const;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// Calls f(p) for every parameter that a walk finds; stops at a place where random numbers are drawn.
template <class F>
struct EachParameter {
  F f;
  constexpr void parameter(const Path&, auto& p) { f(p); }
  constexpr void begin_unit(auto&) {}
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
  walk(const_cast<L&>(inner), each);  // visit() is not const: it also sets parameters up
}

template <class L, int Chunks>
constexpr Tensor<ElementOf<typename L::policy>, 3, DeviceOf<typename L::policy>> TiledMlp<L, Chunks>::forward(
    const Hidden<P>& x) const {
  const typename Tape<D>::Recording off(x.tape(), false);
  auto y = Value::uninitialized(x.shape(), x.memory(), Category::activations, "TiledMlp");
  for (int c = 0; c < Chunks; ++c) {
    const auto part = chunk(x.value(), c);
    if (part.count() > 0) put(Hidden<P>(inner(Hidden<P>(part, x.tape()))).value(), chunk(y, c));
  }
  return y;
}

template <class L, int Chunks>
constexpr Tensor<ElementOf<typename L::policy>, 3, DeviceOf<typename L::policy>> TiledMlp<L, Chunks>::backward(
    Tape<D>& tape, const Value& x, const Value& dy) const {
  auto dx = Value::uninitialized(x.shape(), tape.memory(), Category::activations, "TiledMlp");
  for (int c = 0; c < Chunks; ++c) {
    const auto part = chunk(x, c);
    if (part.count() == 0) continue;
    Tape<D> again(tape.context());
    Slot input, output;
    {
      const Hidden<P> in(part, again);
      input = in.slot();
      output = Hidden<P>(inner(in)).slot();
    }
    again.backward(output, chunk(dy, c));
    put(again.template take<ElementOf<P>, 3>(input, part.shape()), chunk(dx, c));
  }
  return dx;
}

template <class L, int Chunks>
constexpr Hidden<typename L::policy> TiledMlp<L, Chunks>::operator()(const Hidden<P>& x) const {
  Hidden<P> y(forward(x), x.tape());
  if (!x.tape().recording()) return y;
  for_each_parameter([](auto& p) { p.begin_parts(); });
  y.on_backward([self = this, slot = x.slot(), saved = x.value()](Tape<D>& tape, const Value& dy) {
    auto dx = self->backward(tape, saved, dy);
    self->for_each_parameter([](auto& p) { p.end_parts(); });
    tape.give(slot, std::move(dx));
  });
  return y;
}

}  // namespace dspp
