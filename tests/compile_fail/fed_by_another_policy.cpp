// SPDX-License-Identifier: Apache-2.0
/// Layers fed by another policy's: another element type, degree, device, or residual stream.
// expected-error {{dspp: a layer needs values of its own policy's element type, but these come from another}}
// expected-error {{policy's layer. Give both layers one policy, or cast<Element>(x) first.}}
// expected-error {{dspp: a layer needs values cut for its own policy's Tp degree, but these come from another}}
// expected-error {{policy's layer. Give both layers one policy.}}
// expected-error {{dspp: a layer needs values on its own policy's device, but these are on another policy's}}
// expected-error {{device. Give both layers one policy.}}
// expected-error {{dspp: a layer needs a value placed over Tp as its parameter says, but this one is placed}}
// expected-error {{otherwise. redistribute<State>(x) it first.}}
// expected-error {{policy's layer.}}
// expected-error {{dspp: an operator needs values cut for one Cp degree, but these come from layers of different}}
// expected-error {{policies. Give the layers one policy.}}
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/parallel/column.hpp>

using namespace dspp;

/// A layer fed by a layer of another precision.
namespace fed_by_another_precision {
using P = Policy<Tp<2>, Bf16>;
using Q = Policy<Tp<2>, F32>;
#ifdef DSPP_TWIN
auto f(const Mlp<P>& mlp, const Hidden<Q>& x) {
  return mlp(cast<bf16>(x));
}
#else
auto f(const Mlp<P>& mlp, const Hidden<Q>& x) {
  return mlp(x);
}
#endif
}  // namespace fed_by_another_precision

/// A layer fed by a layer that was cut for another number of ranks.
namespace fed_by_another_degree {
using P = Policy<Tp<2>>;
using Q = Policy<Tp<4>>;
#ifdef DSPP_TWIN
auto f(const Mlp<P>& mlp, const Hidden<P>& x) {
  return mlp(x);
}
#else
auto f(const Mlp<P>& mlp, const Hidden<Q>& x) {
  return mlp(x);
}
#endif
}  // namespace fed_by_another_degree

/// A layer on Cpu fed by a layer on Meta.
namespace fed_by_another_device {
using P = Policy<Tp<2>>;
using Q = Policy<Tp<2>, Meta>;
#ifdef DSPP_TWIN
auto f(const Mlp<P>& mlp, const Hidden<P>& x) {
  return mlp(x);
}
#else
auto f(const Mlp<P>& mlp, const Hidden<Q>& x) {
  return mlp(x);
}
#endif
}  // namespace fed_by_another_device

/// A layer whose residual stream is whole, fed by one whose stream is split along the sequence.
namespace fed_by_sequence_parallel_layer {
using P = Policy<Tp<2>>;
using Q = Policy<Tp<2>, SequenceParallel>;
#ifdef DSPP_TWIN
auto f(const Mlp<P>& mlp, const Hidden<Q>& x) {
  return mlp(redistribute<Invariant>(x));
}
#else
auto f(const Mlp<P>& mlp, const Hidden<Q>& x) {
  return mlp(x);
}
#endif
}  // namespace fed_by_sequence_parallel_layer

/// A column-parallel layer, which takes any placement, fed by a layer of another precision.
namespace column_fed_by_another_precision {
using P = Policy<Tp<3>, Bf16>;
using Q = Policy<Tp<3>, F32>;
#ifdef DSPP_TWIN
auto f(const ColumnParallel<Linear, P>& up, const Hidden<Q>& x) {
  return up(cast<bf16>(x));
}
#else
auto f(const ColumnParallel<Linear, P>& up, const Hidden<Q>& x) {
  return up(x);
}
#endif
}  // namespace column_fed_by_another_precision

/// A column-parallel layer fed by a layer that was cut for another number of ranks.
namespace column_fed_by_another_degree {
using P = Policy<Tp<3>>;
using Q = Policy<Tp<4>>;
#ifdef DSPP_TWIN
auto f(const ColumnParallel<Linear, P>& up, const Hidden<P>& x) {
  return up(x);
}
#else
auto f(const ColumnParallel<Linear, P>& up, const Hidden<Q>& x) {
  return up(x);
}
#endif
}  // namespace column_fed_by_another_degree

/// A normalisation fed by a layer of another precision.
namespace norm_fed_by_another_precision {
using P = Policy<Bf16>;
using Q = Policy<F64>;
#ifdef DSPP_TWIN
auto f(const LayerNorm<P>& norm, const Hidden<P>& x) {
  return norm(x);
}
#else
auto f(const LayerNorm<P>& norm, const Hidden<Q>& x) {
  return norm(x);
}
#endif
}  // namespace norm_fed_by_another_precision

/// A sum of values of which Cp cuts one into two slices, and the other into four.
namespace sum_of_two_cuts_over_cp {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
using Q = P;
#else
using Q = Policy<Cp<4>>;
#endif
auto f(const Hidden<P>& x, const Hidden<Q>& y) {
  return x + y;
}
}  // namespace sum_of_two_cuts_over_cp
