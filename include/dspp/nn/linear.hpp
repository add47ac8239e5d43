// SPDX-License-Identifier: Apache-2.0
/// The linear layer: y = x W^T + b.
#pragma once

#include <dspp/nn/layer.hpp>
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
/// Memory      keeps x
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

  /// y + b.
  template <Tracked Y>
  constexpr auto shift(const Y& y) const;

 protected:  // for parallel wrappers, which choose State
  /// x W^T: a contraction over a split dimension is Partial.
  template <class State, Tracked X>
  constexpr auto times(const X& x) const;

  /// x W^T + b in one pass. `keep(tape)` returns the value of x in backward.
  template <class State, Tracked X, class Keep>
  constexpr auto affine(const X& x, Keep keep) const;
  template <class State, Tracked X>
  constexpr auto affine(const X& x) const {
    return affine<State>(x, Kept<Tensor<ElementOf<P>, X::rank, DeviceOf<P>>>{x.value()});
  }

 private:
  /// The default `keep`: x was saved.
  template <class Value>
  struct Kept {
    Value value;
    constexpr const Value& operator()(Tape<DeviceOf<P>>&) const { return value; }
  };
  constexpr Tensor<ElementOf<P>, 2, DeviceOf<P>> matrix() const {
    return weight.value().reshape(dspp::shape(rows(), weight.shape()[2]));
  }
  constexpr Size rows() const { return weight.shape()[0] * weight.shape()[1]; }
  constexpr auto product(const Tracked auto& x) const {
    return ops::matmul(detail::as_rows(x.value()), Transpose::no, matrix(), Transpose::yes);
  }
  template <class X>
  constexpr void check_input(const X& x) const;
  template <class State, class X, class Tensor2, class Keep>
  constexpr auto record_product(const X& x, Tensor2 y, bool with_bias, Keep keep) const;
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

template <class P>
template <class X>
constexpr void Linear<P>::check_input(const X& x) const {
  check_whole_over_cp<typename X::Placement, -1, X::rank>();
  if (x[-1] != weight.shape()[2])
    fail(ErrorCode::shape, "dspp: Linear needs " + std::to_string(weight.shape()[2]) + " features, but its input is " +
                               to_string(x.shape()) + ". Check the width of the layer before it.");
}

template <class P>
template <class State, class X, class Tensor2, class Keep>
constexpr auto Linear<P>::record_product(const X& x, Tensor2 product, bool with_bias, Keep keep) const {
  using T = ElementOf<P>;
  using D = DeviceOf<P>;
  using Y = InState<X, State>;
  Y y(product.reshape(x.shape().with(-1, rows())), x);
  if (!x.tape().recording()) return y;
  weight.register_use(x);
  if (with_bias) bias.register_use(x);
  y.on_backward([self = this, slot = x.slot(), shape = x.shape(), kept = std::move(keep), with_bias](
                    Tape<D>& tape, Tensor<T, X::rank, D> dy) {
    const auto dy_rows = detail::as_rows(dy);
    self->weight.accumulate([&](auto dw, Write how) {
      const auto x_rows = detail::as_rows(kept(tape));
      ops::matmul_into(dw.reshape(dspp::shape(self->rows(), self->weight.shape()[2])), how, dy_rows, Transpose::yes,
                       x_rows, Transpose::no);
    });
    if (with_bias)
      self->bias.accumulate(
          [&](auto db, Write how) { ops::sum_rows_into(db.reshape(dspp::shape(self->rows())), how, dy_rows); });
    if (slot.takes_gradient())
      tape.give(slot, ops::matmul(dy_rows, Transpose::no, self->matrix(), Transpose::no).reshape(shape));
  });
  return y;
}

template <class P>
template <class State, Tracked X>
constexpr auto Linear<P>::times(const X& x) const {
  check_input(x);
  return record_product<State>(x, product(x), false, Kept<Tensor<ElementOf<P>, X::rank, DeviceOf<P>>>{x.value()});
}

template <class P>
template <class State, Tracked X, class Keep>
constexpr auto Linear<P>::affine(const X& x, Keep keep) const {
  check_input(x);
  if (!has_bias) return record_product<State>(x, product(x), false, std::move(keep));
  auto y = ops::matmul_bias(detail::as_rows(x.value()), Transpose::no, matrix(), Transpose::yes,
                            bias.value().reshape(dspp::shape(rows())));
  return record_product<State>(x, std::move(y), true, std::move(keep));
}

template <class P>
template <Tracked Y>
constexpr auto Linear<P>::shift(const Y& y) const {
  using T = ElementOf<P>;
  using D = DeviceOf<P>;
  static_assert(
      Finished<state_of<Y>>,
      "dspp: a bias needs a finished value, but this one is Partial over Tp: the bias would be added once per rank. "
      "redistribute<Invariant>(x) first, then add the bias.");
  check_equal_slices<state_of<Y>>();
  check_whole_over_cp<typename Y::Placement, -1, Y::rank>();
  if (!has_bias) return y;
  Y z(ops::add_bias(y.value(), bias.value().reshape(dspp::shape(rows()))), y);
  if (!y.tape().recording()) return z;
  bias.register_use(y);
  z.on_backward([self = this, slot = y.slot()](Tape<D>& tape, Tensor<T, Y::rank, D> dz) {
    self->bias.accumulate([&](auto db, Write how) {
      ops::sum_rows_into(db.reshape(dspp::shape(self->rows())), how, detail::as_rows(dz));
    });
    tape.give(slot, std::move(dz));
  });
  return z;
}

}  // namespace dspp
