// SPDX-License-Identifier: Apache-2.0
/// Pointwise non-linear functions and softmax on Variables.
#pragma once

#include <dspp/autograd/gelu.hpp>
#include <dspp/autograd/pointwise.hpp>
#include <dspp/ops/activation.hpp>
#include <dspp/ops/softmax.hpp>
#include <dspp/ops/swiglu.hpp>
#include <dspp/placement/context_rules.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

/// max(x, 0). Placement, Memory as gelu.
template <class T, int Rank, Device D, class W>
constexpr auto relu(const Variable<T, Rank, D, W>& x) {
  return detail::pointwise(pointwise::Relu{}, x);
}

/// x sigmoid(x). Placement, Memory as gelu.
template <class T, int Rank, Device D, class W>
constexpr auto silu(const Variable<T, Rank, D, W>& x) {
  return detail::pointwise(pointwise::Silu{}, x);
}

/// tanh(x). Placement, Memory as gelu.
template <class T, int Rank, Device D, class W>
constexpr auto tanh(const Variable<T, Rank, D, W>& x) {
  return detail::pointwise(pointwise::Tanh{}, x);
}

/// 1 / (1 + exp(-x)). Placement, Memory as gelu.
template <class T, int Rank, Device D, class W>
constexpr auto sigmoid(const Variable<T, Rank, D, W>& x) {
  return detail::pointwise(pointwise::Sigmoid{}, x);
}

/// exp(x). Placement, Memory as gelu.
template <class T, int Rank, Device D, class W>
constexpr auto exp(const Variable<T, Rank, D, W>& x) {
  return detail::pointwise(pointwise::Exp{}, x);
}

/// x x. Placement, Memory as gelu.
template <class T, int Rank, Device D, class W>
constexpr auto square(const Variable<T, Rank, D, W>& x) {
  return detail::pointwise(pointwise::Square{}, x);
}

/// The natural logarithm of x.
///
/// Placement   any finished one without padding, kept
/// Memory      keeps x
template <class T, int Rank, Device D, class W>
constexpr auto log(const Variable<T, Rank, D, W>& x) {
  check_equal_slices<typename W::tp>();
  return detail::pointwise(pointwise::Log{}, x);
}

/// The square root of x. Placement, Memory as log.
template <class T, int Rank, Device D, class W>
constexpr auto sqrt(const Variable<T, Rank, D, W>& x) {
  check_equal_slices<typename W::tp>();
  return detail::pointwise(pointwise::Sqrt{}, x);
}

namespace detail {
template <class T, int Rank, Device D>
struct SwigluBackward {
  Slot slot;
  Tensor<T, Rank, D> x;
  bool recomputes;

  constexpr void operator()(Tape<D>& tape, const Tensor<T, Rank, D>& dy) { tape.give(slot, ops::swiglu_vjp(x, dy)); }
  constexpr bool is_recomputable() const { return recomputes; }
  constexpr Tensor<T, Rank, D> again(Tape<D>&, const Shape<Rank>&) const { return ops::swiglu(x); }
  static constexpr const void* home() { return nullptr; }
};
}  // namespace detail

namespace operations {
template <class T, int Rank, Device D>
struct Swiglu {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(const TapedTensor<T, Rank, D>& x) {
    TapedTensor<T, Rank, D> y(ops::swiglu(x.value()), x.tape());
    y.on_backward(detail::SwigluBackward<T, Rank, D>{x.slot(), x.value(), x.tape().context().recomputes_functions});
    return y;
  }
};
}  // namespace operations

#define DSPP_ACTIVATION_OPERATIONS(TEMPLATE, T)                                         \
  TEMPLATE struct CompiledOperation<operations::Gelu<T, 2, Cpu>>;                       \
  TEMPLATE struct CompiledOperation<operations::Gelu<T, 3, Cpu>>;                       \
  TEMPLATE struct CompiledOperation<operations::Pointwise<pointwise::Relu, T, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Pointwise<pointwise::Relu, T, 3, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Pointwise<pointwise::Silu, T, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Pointwise<pointwise::Silu, T, 3, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Swiglu<T, 3, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_ACTIVATION_OPERATIONS)

/// silu(a) b, a and b the halves of x along the last dimension: [..., 2 n] -> [..., n].
///
/// Placement   any finished one, kept; features split in two groups, Shard<-1, 2>, give Shard<-1>. Features split in
///             one piece do not compile: no rank has both halves of its slice.
/// Memory      keeps x
template <class T, int Rank, Device D, class W>
constexpr auto swiglu(const Variable<T, Rank, D, W>& x) {
  check_activation<typename W::tp>();
  check_halves<typename W::tp, Rank>();
  check_whole_over_cp<W, -1, Rank>();
  using Y = InState<Variable<T, Rank, D, W>, halved_state<typename W::tp, Rank>>;
  return Y(perform<operations::Swiglu<T, Rank, D>>(x), x);
}

/// exp(x) / sum exp(x) along the last dimension.
///
/// Placement   finished and whole along the last dimension
/// Memory      keeps the result
template <class T, int Rank, Device D, class W>
constexpr auto softmax(const Variable<T, Rank, D, W>& x) {
  check_whole_features<typename W::tp, Rank>();
  check_whole_over_cp<W, -1, Rank>();
  Variable<T, Rank, D, W> y(ops::softmax(x.value()), x);
  y.on_backward([slot = x.slot(), v = y.value()](Tape<D>& tape, Tensor<T, Rank, D> dy) {
    tape.give(slot, ops::softmax_vjp(v, std::move(dy)));
  });
  return y;
}

}  // namespace dspp
