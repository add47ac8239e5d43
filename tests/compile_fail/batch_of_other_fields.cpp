// SPDX-License-Identifier: Apache-2.0
/// Batches of a model's own that no tape can take, and targets that no row of logits has.
// expected-error {{dspp: loss(batch) needs a batch of inputs, which a tape takes, but this field is another}}
// expected-error {{Declare it Input<P, T, Rank>.}}
// expected-error {{dspp: a batch needs fields with a row for every sample, but this one has rank 0. Give it an}}
// expected-error {{dspp: a batch needs fields that every rank of Tp has whole, but this one is cut over Tp or}}
// expected-error {{dspp: plan needs the extents of a batch of the model's own type, but the model does not say them.}}
// expected-error {{dspp: Engine needs a model with loss(tokens, targets) const or loss(const Mine<P>& batch)}}
// expected-error {{this one's has other parameters, a generic batch, or is not const. See}}
// expected-error {{dspp: loss(batch) needs a batch whose visit may change its fields, but this one is const.}}
// expected-error {{dspp: cross_entropy needs a target of type std::int32_t for each row of logits, so one dimension}}
// expected-error {{dspp: redistribute over Data needs all samples of a data rank, but Tp or Cp cuts dimension 0.}}
// expected-error {{dspp: report needs one number that every rank of Tp has, but this value has dimensions, or is a}}
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/report.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/parallel/vocab.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;

/// A batch of one field, and a model that trains on it.
template <class Field>
struct OneField {
  Field field;
  constexpr void visit(auto&& f) { f("field", field); }
};
template <class P, class Field>
struct Model : Layer<P> {
  Linear<P> linear{4, 4};
  constexpr void visit(auto&& f) { f("linear", linear); }
  constexpr Loss<P> loss(const OneField<Field>& batch) const { return mean(linear(batch.field)); }
};

/// A Tensor where an input is needed.
namespace field_that_is_a_tensor {
using P = Policy<F64>;
#ifdef DSPP_TWIN
using Field = Input<P, double, 2>;
#else
using Field = Tensor<double, 2>;
#endif
auto f(const OneField<Field>& batch, Tape<Cpu>& tape) {
  return on_tape(batch, tape);
}
}  // namespace field_that_is_a_tensor

/// One number for all samples.
namespace field_of_rank_0 {
using P = Policy<F64>;
#ifdef DSPP_TWIN
using Field = Input<P, double, 1>;
#else
using Field = Input<P, double, 0>;
#endif
void f(const OneField<Field>& batch) {
  check_batch(batch);
}
}  // namespace field_of_rank_0

/// A part of the features.
namespace field_cut_over_tp {
using P = Policy<F64, Tp<2>>;
#ifdef DSPP_TWIN
using Field = Input<P, double, 2>;
#else
using Field = Value<P, 2, Shard<1>>;
#endif
void f(const OneField<Field>& batch) {
  check_batch(batch);
}
}  // namespace field_cut_over_tp

/// A loss that changes its model.
namespace loss_that_is_not_const {
using P = Policy<F64>;
struct Mean : Layer<P> {
  Linear<P> linear{4, 4};
  constexpr void visit(auto&& f) { f("linear", linear); }
#ifdef DSPP_TWIN
  Loss<P> loss(const OneField<Input<P, double, 2>>& batch) const;
#else
  Loss<P> loss(const OneField<Input<P, double, 2>>& batch);
#endif
};
using E = Engine<Mean, AdamW>;
constexpr auto bytes = sizeof(E);
}  // namespace loss_that_is_not_const

/// A loss of any batch: Engine cannot know which.
namespace loss_of_a_generic_batch {
using P = Policy<F64>;
struct Mean : Layer<P> {
  Linear<P> linear{4, 4};
  constexpr void visit(auto&& f) { f("linear", linear); }
#ifdef DSPP_TWIN
  Loss<P> loss(const OneField<Input<P, double, 2>>& batch) const { return mean(linear(batch.field)); }
#else
  Loss<P> loss(const auto& batch) const { return mean(linear(batch.field)); }
#endif
};
using E = Engine<Mean, AdamW>;
constexpr auto bytes = sizeof(E);
}  // namespace loss_of_a_generic_batch

/// A visit that cannot put its fields on a tape.
namespace visit_that_is_const {
using P = Policy<F64>;
struct Rows {
  Input<P, double, 2> field;
#ifdef DSPP_TWIN
  constexpr void visit(auto&& f) { f("field", field); }
#else
  constexpr void visit(auto&& f) const { f("field", field); }
#endif
};
auto f(const Rows& batch, Tape<Cpu>& tape) {
  return on_tape(batch, tape);
}
}  // namespace visit_that_is_const

/// A plan of batches whose extents nobody says.
namespace plan_without_extents {
template <class P>
struct Mean : Model<P, Input<P, ElementOf<P>, 2>> {
  constexpr explicit Mean(int) {}
  constexpr Loss<P> loss(const OneField<Input<P, ElementOf<P>, 2>>& batch) const {
    return mean(this->linear(batch.field));
  }
#ifdef DSPP_TWIN
  constexpr auto new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    OneField<Input<P, ElementOf<P>, 2>> batch;
    batch.field = Tensor<ElementOf<P>, 2, DeviceOf<P>>::uninitialized(shape(sizes.micro_batch, Size{4}), memory);
    return batch;
  }
#endif
};
Plan f() {
  return plan<Mean<Policy<F64>>>(1, {.micro_batch = 2});
}
}  // namespace plan_without_extents

/// Classes in two dimensions for logits in two.
namespace targets_of_another_rank {
using P = Policy<F64>;
#ifdef DSPP_TWIN
using Targets = Input<P, std::int32_t, 1>;
#else
using Targets = Tokens<P>;
#endif
auto f(const Value<P, 2, Shard<1>>& logits, const Targets& targets) {
  return cross_entropy<P>(logits, targets, 8);
}
}  // namespace targets_of_another_rank

/// The samples of all data ranks, of which Tp has a part.
namespace gathered_where_tp_cuts {
using P = Policy<F64, Tp<2>>;
#ifdef DSPP_TWIN
using X = Value<P, 2, Invariant>;
#else
using X = Value<P, 2, Shard<0>>;
#endif
auto f(const X& x) {
  return redistribute<Replicate, Axis::Data>(x);
}
}  // namespace gathered_where_tp_cuts

/// A vector as a report.
namespace report_of_many_numbers {
using P = Policy<F64>;
void f(const Value<P, 2, Invariant>& x) {
#ifdef DSPP_TWIN
  report("mean", mean(x));
#else
  report("mean", x);
#endif
}
}  // namespace report_of_many_numbers
