// SPDX-License-Identifier: Apache-2.0
/// Activation recomputation: a function runs again in backward instead of keeping its saved activations.
#pragma once

#include <type_traits>
#include <utility>

#include <dspp/autograd/kept_input.hpp>
#include <dspp/autograd/variable.hpp>

namespace dspp {

/// `function(x)`, keeping only x and what the function has captured. In backward the function runs again, recorded, and
/// that part of the tape runs backward at once.
///
/// Cost     one more forward of the function, its collectives included
/// Memory   x until the backward, as KeptInputs of its context says, and what the function saves during its backward
/// Source   Chen et al. 2016, arXiv:1604.06174
///
/// Gradients of x, of captured variables and of parameters are those without recompute, bit for bit; on Cuda unless the
/// function ends with a gelu, whose derivative a product outside of it then does not take (autograd/gelu.hpp). Random
/// numbers are drawn by position (Philox), so the second run repeats the first and no state is saved. A layer must
/// outlive the tape, and so must what any other function, which is copied or moved, captured by reference. Using a
/// variable that left the function other than as its result is an error.
template <class Function, class T, int Rank, Device D, class Where>
constexpr auto recompute(Function&& function, const Variable<T, Rank, D, Where>& x);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// A visitor that does nothing. A named type, since nvcc takes no lambda in a concept.
struct NoVisitor {
  constexpr void operator()(auto&&, auto&) const {}
};

/// Reads as: something with parameters, which must not be copied.
template <class F>
concept HasParts = requires(F& layer, NoVisitor visitor) {
  layer.visit(visitor);
};

/// A function kept for the backward: owned, or a reference to a layer.
template <class F>
struct KeptFunction {
  F own;
  constexpr const F& operator*() const { return own; }
};
template <HasParts F>
struct KeptFunction<F> {
  const F* layer;
  constexpr const F& operator*() const { return *layer; }
};

template <class F, class Function>
constexpr KeptFunction<F> kept(Function&& function) {
  if constexpr (HasParts<F>)
    return {&function};
  else
    return {std::forward<Function>(function)};
}

template <class Where>
inline constexpr bool is_shared_over_tp =
    std::is_same_v<typename Where::tp, Invariant> || std::is_same_v<typename Where::tp, Replicate>;

template <class F, class Function>
constexpr void check_recomputed() {
  static_assert(!HasParts<F> || std::is_lvalue_reference_v<Function>,
                "dspp: recompute needs a layer that outlives the tape, but this one is a temporary. Make it a part of "
                "the model that visit() names.");
  static_assert(HasParts<F> || std::is_constructible_v<F, Function>,
                "dspp: recompute needs a function that it can keep until backward, but this one cannot be copied. Give "
                "it by std::move.");
}

}  // namespace detail

template <class Function, class T, int Rank, Device D, class Where>
constexpr auto recompute(Function&& function, const Variable<T, Rank, D, Where>& x) {
  using F = std::remove_cvref_t<Function>;
  using X = Variable<T, Rank, D, Where>;
  using Y = std::remove_cvref_t<decltype(std::as_const(function)(x))>;
  detail::check_recomputed<F, Function>();
  if (!x.tape().recording()) return Y(std::as_const(function)(x));
  const auto silently = [&] {
    const typename Tape<D>::Recording off = x.tape().rehearse();
    return Y(std::as_const(function)(x));
  };
  Y y = [](const Y& result) { return Y(result.value(), result); }(silently());
  if constexpr (!detail::HasParts<F> || std::is_lvalue_reference_v<Function>)
    y.on_backward(
        [again_with = detail::kept<F>(std::forward<Function>(function)), slot = x.slot(),
         kept = detail::KeptInput<T, Rank, D>(x.value(), x.tape().context(), detail::is_shared_over_tp<Where>),
         whole = x.whole(), more = detail::MoreOf<T, Rank, D>(x)](Tape<D>& tape, auto dy) mutable {
          const auto forward = [&] {
            auto again = X::with_slot(kept.take(tape.context()), tape, slot, whole);
            static_cast<detail::MoreOf<T, Rank, D>&>(again) = std::move(more);
            return (*again_with)(std::move(again)).slot();
          };
          tape.backward_of(forward, std::move(dy));
        });
  return y;
}

}  // namespace dspp
