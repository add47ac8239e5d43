// SPDX-License-Identifier: Apache-2.0
/// The linear layer: y = x W^T + b.
#pragma once

#include <dspp/autograd/gelu.hpp>
#include <dspp/nn/layer.hpp>
#include <dspp/ops/activation.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/matmul.hpp>
#include <dspp/placement/rules.hpp>

namespace dspp {

namespace detail {
/// [..., n] as [rows, n].
template <class T, int Rank, Device D>
constexpr Tensor<T, 2, D> as_rows(const Tensor<T, Rank, D>& x) {
  return x.reshape(Shape<2>{{x.shape().rows(), x[-1]}});
}

/// The value of x in backward where it was saved.
template <class Value>
struct KeptValue {
  Value value;
  template <Device D>
  constexpr const Value& operator()(Tape<D>&) const {
    return value;
  }
};

/// The same where it need not be saved: see TapedTensor::recomputation.
template <class Value>
struct RecomputedValue {
  Slot slot;
  Shape<Value::rank> shape;
  Value value;  // if it was saved

  template <class X>
  constexpr RecomputedValue(const X& x, const void* home) : slot(x.slot()), shape(x.shape()) {
    if (!x.recomputation().serves(home)) value = x.value();
  }
  template <Device D>
  constexpr Value operator()(Tape<D>& tape) const {
    if (value) return value;
    return tape.template recomputed<typename Value::Element>(slot, shape);
  }
};
}  // namespace detail

struct LinearConfig {
  Size in = 0, out = 0;
  bool bias = true;
  Initial initial = Initial::normal(0.02);
  /// The outputs are `groups` equal groups, one tensor each in files: 3 for a fused query, key, value. Over Tp each
  /// group is cut by itself; ColumnParallel needs them in its type too: InGroups<3>.
  Size groups = 1;

  constexpr Size outputs_of_group() const {
    // clang-format off
    require(groups >= 1, "dspp: Linear needs at least one group of outputs, but got less. Raise groups.", ErrorCode::usage, {{"groups", groups}});
    // clang-format on
    return out / groups;
  }
};

/// y = x W^T + b       x [..., in]   W [groups, out / groups, in]   b [groups, out / groups]   y [..., out]
///
/// Placement   features whole; any other state is kept. Beside a value that is not Invariant the parameters
///             enter as Replicate.
/// Cost        2 rows in out operations forward, twice that backward; no communication
/// Memory      keeps x, unless the policy has a SelectiveRecompute of what it is
/// Throws      Error(shape) if x has other features
///
/// `times` and `shift` are the two halves; parallel wrappers, which inherit, redistribute between them.
template <class P>
struct Linear : Layer<P> {
  ParameterOf<P, 3> weight;
  ParameterOf<P, 2> bias;
  bool has_bias;

  constexpr explicit Linear(const LinearConfig& c) : Linear(c, Cut{}, Cut{}) {}
  constexpr Linear(Size in, Size out) : Linear(LinearConfig{.in = in, .out = out}) {}
  /// For parallel wrappers: how weight [groups, out / groups, in] and bias [groups, out / groups] are cut.
  constexpr Linear(const LinearConfig& c, Cut weight_cut, Cut bias_cut);

  constexpr void visit(auto&& f) {
    f("weight", weight);
    if (has_bias) f("bias", bias);
  }

  template <Tracked X>
  constexpr auto operator()(const X& x) const {
    check_value_of<P, X>();
    check_whole_features<state_of<X>, X::rank>();
    if constexpr (is_value_of<P, X>)
      return affine<state_of<X>>(x);
    else
      return x;
  }

  /// gelu of it, in the product's pass where there is a bias and the device's product can. On Cuda that is by tanh, in
  /// 16 bits, where rows are multiples of 16 bytes; gelu is then taken before x W^T + b is rounded.
  ///
  /// Memory      as Linear's, and keeps what gelu is taken of
  template <Tracked X>
  constexpr auto gelu(const X& x, GeluForm form = GeluForm::tanh) const {
    check_value_of<P, X>();
    check_whole_features<state_of<X>, X::rank>();
    if constexpr (is_value_of<P, X>)
      return affine_gelu<state_of<X>>(x, form);
    else
      return x;
  }

  /// y + b.
  template <Tracked Y>
  constexpr auto shift(const Y& y) const;

 protected:  // for parallel wrappers, which choose State
  template <class X>
  using KeptOf = detail::KeptValue<Tensor<ElementOf<P>, X::rank, DeviceOf<P>>>;
  template <class X>
  using RecomputedOf = detail::RecomputedValue<Tensor<ElementOf<P>, X::rank, DeviceOf<P>>>;

  /// x W^T: a contraction over a split dimension is Partial.
  template <class State, Tracked X>
  constexpr auto times(const X& x) const;

  /// x W^T + b in one pass. `keep(tape)` returns the value of x in backward.
  template <class State, Tracked X, class Keep>
  constexpr auto affine(const X& x, Keep keep) const;
  template <class State, Tracked X>
  constexpr auto affine(const X& x) const {
    return affine<State>(x, keep(x));
  }

  /// gelu(x W^T + b) in one pass.
  template <class State, Tracked X, class Keep>
  constexpr auto affine_gelu(const X& x, GeluForm form, Keep keep) const;
  template <class State, Tracked X>
  constexpr auto affine_gelu(const X& x, GeluForm form) const {
    return affine_gelu<State>(x, form, keep(x));
  }

  /// What has the value of x in backward.
  template <Tracked X>
  constexpr KeptOf<X> keep(const X& x) const {
    return {x.value()};
  }
  template <Tracked X>
  requires(P::recomputes_norms || P::recomputes_functions) constexpr RecomputedOf<X> keep(const X& x) const {
    return {x, weight.home};
  }

 private:
  /// x W^T, and + b if `added` is the bias.
  template <class State, class X, class Keep>
  constexpr auto product(const X& x, const ParameterOf<P, 2>* added, Keep keep) const;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class P>
constexpr Linear<P>::Linear(const LinearConfig& c, Cut weight_cut, Cut bias_cut)
    : weight("Linear weight", dspp::shape(c.groups, c.outputs_of_group(), c.in), c.initial, weight_cut),
      bias("Linear bias", dspp::shape(c.groups, c.outputs_of_group()), Initial::zeros(), bias_cut),
      has_bias(c.bias) {
  // clang-format off
  require(c.in > 0 && c.out > 0, "dspp: Linear needs at least one input and one output, but got none. Give in and out.");
  // clang-format on
  require(c.out % c.groups == 0, "dspp: Linear needs outputs that its groups divide, but they do not. Change out.");
  weight.groups_first = bias.groups_first = true;
  bias.decays = false;
}

// What does not depend on the policy is instantiated once for an element type.
namespace detail {
/// weight [groups, rows of a group, columns] as a matrix.
template <class T, Device D>
constexpr Tensor<T, 2, D> matrix_of(const Parameter<T, 3, D>& weight) {
  const Shape<3>& s = weight.shape();
  return weight.value().reshape(dspp::shape(s[0] * s[1], s[2]));
}
template <class T, Device D>
constexpr Tensor<T, 1, D> vector_of(const Parameter<T, 2, D>& bias) {
  return bias.value().reshape(dspp::shape(bias.shape().count()));
}

template <class T, int Rank, Device D>
constexpr void require_features(const Tensor<T, Rank, D>& x, const Parameter<T, 3, D>& weight) {
  if (x[-1] != weight.shape()[2])
    fail(ErrorCode::shape, "dspp: Linear needs " + std::to_string(weight.shape()[2]) + " features, but its input is " +
                               to_string(x.shape()) + ". Check the width of the layer before it.");
}

/// x W^T, plus b unless `bias` is null.
template <class T, int Rank, Device D>
constexpr Tensor<T, Rank, D> linear(const Tensor<T, Rank, D>& x, const Parameter<T, 3, D>& weight,
                                    const Parameter<T, 2, D>* bias) {
  require_features(x, weight);
  const auto matrix = matrix_of(weight);
  const auto y_shape = x.shape().with(-1, matrix[0]);
  if (bias == nullptr) return ops::matmul(as_rows(x), Transpose::no, matrix, Transpose::yes).reshape(y_shape);
  return ops::matmul_bias(as_rows(x), Transpose::no, matrix, Transpose::yes, vector_of(*bias)).reshape(y_shape);
}

/// gelu(x W^T + b), and its argument.
template <class T, int Rank, Device D>
struct LinearGelu {
  Tensor<T, Rank, D> y, pre;
};
template <class T, int Rank, Device D>
constexpr LinearGelu<T, Rank, D> linear_gelu(const Tensor<T, Rank, D>& x, const Parameter<T, 3, D>& weight,
                                             const Parameter<T, 2, D>* bias, GeluForm form) {
  if (bias == nullptr) {
    auto pre = linear(x, weight, bias);
    return {ops::gelu(pre, form), pre};
  }
  require_features(x, weight);
  const auto matrix = matrix_of(weight);
  const auto y_shape = x.shape().with(-1, matrix[0]);
  const auto both = ops::matmul_bias_gelu(as_rows(x), Transpose::no, matrix, Transpose::yes, vector_of(*bias), form);
  return {both.y.reshape(y_shape), both.pre.reshape(y_shape)};
}

/// The bias's gradient.
template <class T, Device D>
constexpr void accumulate_rows(const Parameter<T, 2, D>& bias, const Tensor<T, 2, D>& dy_rows) {
  if (bias.is_frozen()) return;
  bias.accumulate(
      [&](auto db, Write how) { ops::sum_rows_into(db.reshape(dspp::shape(bias.shape().count())), how, dy_rows); });
}

/// Gives dy W to x; where x is gelu(pre), to pre what that gives, in the product's pass where the device's can.
template <class T, int Rank, Device D>
constexpr void give_gradient(Tape<D>& tape, Slot x, const Shape<Rank>& shape, const Tensor<T, 2, D>& dy,
                             const Tensor<T, 2, D>& weight) {
  const GeluArgument<D>* const gelu = tape.gelu_of(x);
  if (gelu == nullptr) {
    tape.give(x, ops::matmul(dy, Transpose::no, weight, Transpose::no).reshape(shape));
    return;
  }
  if (!gelu->slot.takes_gradient()) return;
  const auto pre = Tensor<T, 2, D>::view(gelu->storage, gelu->offset, dspp::shape(dy[0], weight[1]));
  tape.give(gelu->slot, ops::matmul_gelu_vjp(dy, Transpose::no, weight, Transpose::no, pre, gelu->form).reshape(shape));
}

/// Its backward. `kept(tape)` is the value of x.
template <class T, int Rank, Device D, class Keep>
constexpr auto linear_backward(const Parameter<T, 3, D>& weight, const Parameter<T, 2, D>* bias, Slot slot,
                               const Shape<Rank>& shape, Keep keep) {
  return [&weight, bias, slot, shape, kept = std::move(keep)](Tape<D>& tape, Tensor<T, Rank, D> dy) {
    const auto dy_rows = as_rows(dy);
    if (!weight.is_frozen()) {
      const auto x_rows = as_rows(kept(tape));  // first: it may be computed with another layer's parameters
      weight.accumulate([&](auto dw, Write how) {
        ops::matmul_into(dw.reshape(dspp::shape(dy_rows[1], weight.shape()[2])), how, dy_rows, Transpose::yes, x_rows,
                         Transpose::no);
      });
    }
    if (bias) accumulate_rows(*bias, dy_rows);
    if (slot.takes_gradient()) give_gradient(tape, slot, shape, dy_rows, matrix_of(weight));
  };
}
}  // namespace detail

namespace operations {
/// x W^T, plus b unless `bias` is null. `partial`: see Parameter::used.
template <class T, int Rank, Device D, class Keep = detail::KeptValue<Tensor<T, Rank, D>>>
struct Linear {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(const TapedTensor<T, Rank, D>& x, const Parameter<T, 3, D>& weight,
                                               const Parameter<T, 2, D>* bias, bool partial, Keep&& keep) {
    TapedTensor<T, Rank, D> y(detail::linear(x.value(), weight, bias), x.tape());
    if (!x.tape().recording()) return y;
    weight.used(x.tape(), partial);
    if (bias) bias->used(x.tape(), partial);
    y.on_backward(detail::linear_backward<T, Rank>(weight, bias, x.slot(), x.shape(), std::move(keep)));
    return y;
  }
};

/// gelu(x W^T + b).
template <class T, int Rank, Device D, class Keep = detail::KeptValue<Tensor<T, Rank, D>>,
          class Backward = detail::GeluBackward<T, Rank, D>>
struct LinearGelu {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(const TapedTensor<T, Rank, D>& x, const Parameter<T, 3, D>& weight,
                                               const Parameter<T, 2, D>* bias, GeluForm form, bool partial,
                                               Keep&& keep) {
    auto both = detail::linear_gelu(x.value(), weight, bias, form);
    Tape<D>& tape = x.tape();
    if (!tape.recording()) return {std::move(both.y), tape};
    weight.used(tape, partial);
    if (bias) bias->used(tape, partial);
    const Slot pre = tape.template new_slot<T>(both.pre.shape());
    tape.template record<T>(pre, both.pre.shape(),
                            detail::linear_backward<T, Rank>(weight, bias, x.slot(), x.shape(), std::move(keep)));
    TapedTensor<T, Rank, D> y(std::move(both.y), tape);
    y.on_backward(Backward(pre, both.pre, form));
    return y;
  }
};

/// y + b.
template <class T, int Rank, Device D>
struct Shift {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(const TapedTensor<T, Rank, D>& y, const Parameter<T, 2, D>& bias,
                                               bool partial) {
    TapedTensor<T, Rank, D> z(ops::add_bias(y.value(), detail::vector_of(bias)), y.tape());
    if (!y.tape().recording()) return z;
    bias.used(y.tape(), partial);
    z.on_backward([&bias, slot = y.slot()](Tape<D>& tape, Tensor<T, Rank, D> dz) {
      detail::accumulate_rows(bias, detail::as_rows(dz));
      tape.give(slot, std::move(dz));
    });
    return z;
  }
};
}  // namespace operations

#define DSPP_LINEAR_OPERATIONS(TEMPLATE, T)                             \
  TEMPLATE struct CompiledOperation<operations::Linear<T, 2, Cpu>>;     \
  TEMPLATE struct CompiledOperation<operations::Linear<T, 3, Cpu>>;     \
  TEMPLATE struct CompiledOperation<operations::LinearGelu<T, 2, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::LinearGelu<T, 3, Cpu>>; \
  TEMPLATE struct CompiledOperation<operations::Shift<T, 2, Cpu>>;      \
  TEMPLATE struct CompiledOperation<operations::Shift<T, 3, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_LINEAR_OPERATIONS)

template <class P>
template <class State, class X, class Keep>
constexpr auto Linear<P>::product(const X& x, const ParameterOf<P, 2>* added, Keep keep) const {
  check_whole_over_cp<typename X::Placement, -1, X::rank>();
  using Product = operations::Linear<ElementOf<P>, X::rank, DeviceOf<P>, Keep>;
  return InState<X, State>(perform<Product>(x, weight, added, is_partial_beside<X>, std::move(keep)), x);
}

template <class P>
template <class State, Tracked X>
constexpr auto Linear<P>::times(const X& x) const {
  return product<State>(x, nullptr, keep(x));
}

template <class P>
template <class State, Tracked X, class Keep>
constexpr auto Linear<P>::affine(const X& x, Keep keep) const {
  return product<State>(x, has_bias ? &bias : nullptr, std::move(keep));
}

template <class P>
template <class State, Tracked X, class Keep>
constexpr auto Linear<P>::affine_gelu(const X& x, GeluForm form, Keep keep) const {
  static_assert(Finished<State>,
                "dspp: gelu needs a finished value, but this product is Partial over Tp: its sum is still pending. "
                "redistribute<Invariant>(x) first.");
  check_whole_over_cp<typename X::Placement, -1, X::rank>();
  using Backward =
      std::conditional_t<P::recomputes_functions, detail::RecomputingGelu<ElementOf<P>, X::rank, DeviceOf<P>>,
                         detail::GeluBackward<ElementOf<P>, X::rank, DeviceOf<P>>>;
  using Product = operations::LinearGelu<ElementOf<P>, X::rank, DeviceOf<P>, Keep, Backward>;
  return InState<X, State>(
      perform<Product>(x, weight, has_bias ? &bias : nullptr, form, is_partial_beside<X>, std::move(keep)), x);
}

template <class P>
template <Tracked Y>
constexpr auto Linear<P>::shift(const Y& y) const {
  static_assert(
      Finished<state_of<Y>>,
      "dspp: a bias needs a finished value, but this one is Partial over Tp: the bias would be added once per rank. "
      "redistribute<Invariant>(x) first, then add the bias.");
  check_equal_slices<state_of<Y>>();
  check_whole_over_cp<typename Y::Placement, -1, Y::rank>();
  if (!has_bias) return y;
  using Sum = operations::Shift<ElementOf<P>, Y::rank, DeviceOf<P>>;
  return Y(perform<Sum>(y, bias, is_partial_beside<Y>), y);
}

}  // namespace dspp
