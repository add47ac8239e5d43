// SPDX-License-Identifier: Apache-2.0
/// Operations along the sequences that Cp cuts: a rank has a part of the positions.
// expected-error {{dspp: this operation needs a dimension whole, but it runs along the sequences that Cp}}
// expected-error {{cuts: a rank has a part of the positions. Use attend, or redistribute<Replicate,}}
// expected-error {{Axis::Cp>(x) first; what is no sequence is a WholeOverCp<X>.}}
// expected-error {{dspp: a product of each position with each needs one side whole, but Cp cuts the}}
// expected-error {{sequences of both: a rank has a part of the positions. Use attend, or}}
// expected-error {{redistribute<Replicate, Axis::Cp>(x) one side first; what is no sequence is a}}
// expected-error {{WholeOverCp<X>.}}
// expected-error {{dspp: an operator needs values whose sequences Cp cuts along one dimension, but it cuts}}
// expected-error {{another dimension of one of these, or none. transpose or redistribute<Replicate,}}
// expected-error {{Axis::Cp>(x) one of them first.}}
// expected-error {{dspp: reshape needs the new place of the sequence, which Cp cuts, but it cannot stay}}
// expected-error {{where it was. Write reshape<void, Shard<Dim>>(x, shape), where as many elements lie}}
// expected-error {{before it as now; to merge it with the batch, transpose<1, 0, 2>(x) first.}}
// expected-error {{dspp: reshape needs Shard<Dim> as the new place of the sequence, which Cp cuts, but got}}
// expected-error {{another state.}}
// expected-error {{dspp: reshape needs to keep the order of the dimensions that Cp and Tp cut, but here they}}
// expected-error {{change places or merge. transpose them into the new order first.}}
// expected-error {{dspp: a layer needs a value that Cp cuts along the dimension that its parameter says,}}
// expected-error {{but it cuts another one, or only one of the two is cut. A Hidden<P> is [batch, sequence,}}
// expected-error {{...] of this rank's positions: transpose it back, give both one policy, or write the}}
// expected-error {{layer for any Tracked x.}}
// expected-error {{dspp: a layer needs values cut for its own policy's Cp degree, but these come from}}
// expected-error {{another policy's layer.}}
// expected-error {{dspp: a layer needs values on its own policy's device, but these are on another policy's}}
// expected-error {{device.}}
// expected-error {{dspp: redistribute over Cp needs the slices of a rank of Cp whole, but Tp cuts them}}
// expected-error {{along the same dimension. redistribute<Replicate>(x) over Tp first.}}
// expected-error {{dspp: redistribute over an axis needs Replicate and Axis::Cp or Axis::Data, but got}}
// expected-error {{another state or axis.}}
// expected-error {{dspp: attend needs [batch, sequence, features], but Cp cuts another dimension of this}}
// expected-error {{value than the second. transpose it back first.}}
// expected-error {{dspp: Dropout needs the batch as the first dimension, since it draws by the place in the}}
// expected-error {{batch, but there is the sequence, which Cp cuts. Put it before the transpose, or after}}
// expected-error {{the way back.}}
// expected-error {{dspp: Dropout needs groups among the features only, but this value is split in groups}}
// expected-error {{along its batch or sequence over Tp. redistribute<Invariant>(x) first.}}
#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/matmul.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/layer.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/parallel/tiled_loss.hpp>
#include <dspp/parallel/vocab.hpp>

using namespace dspp;

/// softmax(x x^T) x: each position sees the keys of this rank's positions only, unless they are gathered.
namespace attention_by_hand {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  const auto keys = redistribute<Replicate, Axis::Cp>(x);
  return batched_matmul(softmax(batched_matmul(x, transpose<0, 2, 1>(keys))), keys);
}
#else
auto f(const Hidden<P>& x) {
  return batched_matmul(x, transpose<0, 2, 1>(x));
}
#endif
}  // namespace attention_by_hand

/// A softmax over this rank's positions.
namespace softmax_of_positions {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  return softmax(transpose<0, 2, 1>(redistribute<Replicate, Axis::Cp>(x)));
}
#else
auto f(const Hidden<P>& x) {
  return softmax(transpose<0, 2, 1>(x));
}
#endif
}  // namespace softmax_of_positions

/// A sum over this rank's positions in a product.
namespace contraction_over_positions {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x, const WholeOverCp<Value<P, 2, Invariant>>& weights) {
  return matmul(reshape(transpose<1, 0, 2>(x), shape(x[1] * x[0], x[2])), weights);
}
#else
auto f(const Hidden<P>& x) {
  const auto rows = reshape(transpose<1, 0, 2>(x), shape(x[1] * x[0], x[2]));
  return matmul(transpose<1, 0>(rows), rows);
}
#endif
}  // namespace contraction_over_positions

/// The last position of this rank is not the one before another rank's first.
namespace token_shift {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  const auto whole = redistribute<Replicate, Axis::Cp>(x);
  return concat<1>(slice<1>(whole, whole[1] - 1, 1), slice<1>(whole, 0, whole[1] - 1));
}
#else
auto f(const Hidden<P>& x) {
  return concat<1>(slice<1>(x, x[1] - 1, 1), slice<1>(x, 0, x[1] - 1));
}
#endif
}  // namespace token_shift

/// Halves of this rank's positions.
namespace halves_of_positions {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  return split<-1, 2>(x);
}
#else
auto f(const Hidden<P>& x) {
  return split<1, 2>(x);
}
#endif
}  // namespace halves_of_positions

/// Layers along what are positions after a transpose.
namespace layers_along_positions {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const LayerNorm<P>& norm, const Linear<P>& mix, const Hidden<P>& x) {
  return mix(norm(transpose<1, 0, 2>(x)));
}
#else
auto f(const LayerNorm<P>& norm, const Hidden<P>& x) {
  return norm(transpose<0, 2, 1>(x));
}
auto g(const Linear<P>& mix, const Hidden<P>& x) {
  return mix(transpose<0, 2, 1>(x));
}
#endif
}  // namespace layers_along_positions

/// This rank's positions beside all positions.
namespace sum_with_all_positions {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x, const Hidden<P>& y) {
  return x + x * y;
}
#else
auto f(const Hidden<P>& x) {
  return x + redistribute<Replicate, Axis::Cp>(x);
}
#endif
}  // namespace sum_with_all_positions

/// A merge of batch and sequence, in which the ranks' positions alternate.
namespace merge_of_batch_and_sequence {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  return reshape(transpose<1, 0, 2>(x), shape(x[1] * x[0], x[2]));
}
#else
auto f(const Hidden<P>& x) {
  return reshape(x, shape(x[0] * x[1], x[2]));
}
#endif
}  // namespace merge_of_batch_and_sequence

/// A merge in front of a sequence that is the last dimension.
namespace merge_before_the_last_dimension {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  return reshape<void, Shard<1>>(transpose<0, 2, 1>(x), shape(x[0] * x[2], x[1]));
}
#else
auto f(const Hidden<P>& x) {
  return reshape(transpose<0, 2, 1>(x), shape(x[0] * x[2], x[1]));
}
#endif
}  // namespace merge_before_the_last_dimension

/// A place of the sequence that is no place.
namespace place_that_is_no_shard {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  return reshape<void, Shard<2>>(x, shape(1, x[0], x[1], x[2]));
}
#else
auto f(const Hidden<P>& x) {
  return reshape<void, Replicate>(x, shape(1, x[0], x[1], x[2]));
}
#endif
}  // namespace place_that_is_no_shard

/// A function of the residual stream given all positions.
namespace hidden_argument_of_all_positions {
using P = Policy<Cp<2>>;
auto g(const Hidden<P>& x) {
  return x;
}
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  return g(x);
}
#else
auto f(const Hidden<P>& x) {
  return g(redistribute<Replicate, Axis::Cp>(x));
}
#endif
}  // namespace hidden_argument_of_all_positions

/// A layer of another degree of Cp.
namespace norm_of_another_degree {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const LayerNorm<P>& norm, const Hidden<P>& x) {
  return norm(x);
}
#else
auto f(const LayerNorm<Policy<Cp<4>>>& norm, const Hidden<P>& x) {
  return norm(x);
}
#endif
}  // namespace norm_of_another_degree

/// Slices of slices: the sequence must be whole over Tp first.
namespace gather_of_what_both_cut {
using P = Policy<Cp<2>, Tp<2>, SequenceParallel>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  return redistribute<Replicate, Axis::Cp>(redistribute<Replicate>(x));
}
#else
auto f(const Hidden<P>& x) {
  return redistribute<Replicate, Axis::Cp>(x);
}
#endif
}  // namespace gather_of_what_both_cut

/// There is one arrow over Cp.
namespace slice_over_cp {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  return redistribute<Replicate, Axis::Cp>(x);
}
#else
auto f(const Hidden<P>& x) {
  return redistribute<Shard<2>, Axis::Cp>(x);
}
#endif
}  // namespace slice_over_cp

/// Attention takes the sequence as the second dimension.
namespace attend_with_the_sequence_first {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) {
  return attend(x, 2, AttentionMask::full);
}
#else
auto f(const Hidden<P>& x) {
  return attend(transpose<1, 0, 2>(x), 2, AttentionMask::full);
}
#endif
}  // namespace attend_with_the_sequence_first

/// The head of a rank of Tp, with extent 1 here, merged with the positions of a rank of Cp: Cp would cut what Tp does.
namespace merge_of_heads_and_sequence {
using P = Policy<Cp<2>, Tp<2>>;
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<2>>& x) {
  const auto heads = reshape<Shard<2>>(x, shape(x[0], x[1], 1, x[2]));
  return reshape<Shard<2>>(heads, x.shape());
}
#else
auto f(const Value<P, 3, Shard<2>>& x) {
  const auto heads = transpose<0, 2, 1, 3>(reshape<Shard<2>>(x, shape(x[0], x[1], 1, x[2])));
  return reshape<Shard<1>, Shard<1>>(heads, x.shape());
}
#endif
}  // namespace merge_of_heads_and_sequence

/// Logits of all positions beside this rank's targets.
namespace loss_of_all_positions {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Value<P, 3, PaddedShard<-1>>& logits, const Tokens<P>& targets) {
  return cross_entropy<P>(logits, targets, 8);
}
#else
auto f(const Value<P, 3, PaddedShard<-1>>& logits, const Tokens<P>& targets) {
  return cross_entropy<P>(redistribute<Replicate, Axis::Cp>(logits), targets, 8);
}
#endif
}  // namespace loss_of_all_positions

/// A norm of a policy without Cp.
namespace norm_without_cp {
#ifdef DSPP_TWIN
auto f(const LayerNorm<Policy<Cp<2>>>& norm, const Hidden<Policy<Cp<2>>>& x) {
  return norm(x);
}
#else
auto f(const LayerNorm<Policy<>>& norm, const Hidden<Policy<Cp<2>>>& x) {
  return norm(x);
}
#endif
}  // namespace norm_without_cp

/// Ids on another device.
namespace ids_on_another_device {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const VocabParallel<Embedding, P>& table, const Tokens<P>& ids) {
  return table(ids);
}
#else
auto f(const VocabParallel<Embedding, P>& table, const Tokens<Policy<Cp<2>, Meta>>& ids) {
  return table(ids);
}
#endif
}  // namespace ids_on_another_device

/// Dropout draws by sample and position.
namespace dropout_with_the_sequence_first {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Dropout<P>& dropout, const Hidden<P>& x) {
  return transpose<1, 0, 2>(dropout(x));
}
#else
auto f(const Dropout<P>& dropout, const Hidden<P>& x) {
  return dropout(transpose<1, 0, 2>(x));
}
#endif
}  // namespace dropout_with_the_sequence_first

/// Dropout of features in groups, where the positions lie behind them.
namespace dropout_in_groups_of_positions {
using P = Policy<Cp<2>, Tp<2>>;
#ifdef DSPP_TWIN
auto f(const Dropout<P>& dropout, const Hidden<P>& x) {
  return dropout(redistribute<Shard<2, 2>>(x));
}
#else
auto f(const Dropout<P>& dropout, const Hidden<P>& x) {
  return dropout(redistribute<Shard<2, 2>>(transpose<0, 2, 1>(x)));
}
#endif
}  // namespace dropout_in_groups_of_positions

/// Logits whose vocabulary is the positions.
namespace loss_over_positions {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x, const Tokens<P>& targets) {
  return cross_entropy<P>(redistribute<Shard<-1>>(x), targets, 8);
}
#else
auto f(const Hidden<P>& x, const Tokens<P>& targets) {
  const auto rows = reshape(transpose<1, 0, 2>(x), shape(x[0] * x[1], x[2]));
  return cross_entropy<P>(redistribute<Shard<-1>>(transpose<1, 0>(rows)), targets, 8);
}
#endif
}  // namespace loss_over_positions

/// A table whose width is the positions.
namespace tiled_loss_over_positions {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const VocabParallel<Embedding, P>& table, const Hidden<P>& x, const Tokens<P>& targets) {
  return TiledLoss<P>(2)(table, x, targets);
}
#else
auto f(const VocabParallel<Embedding, P>& table, const Hidden<P>& x, const Tokens<P>& targets) {
  const auto rows = reshape(transpose<1, 0, 2>(x), shape(x[0] * x[1], x[2]));
  return TiledLoss<P>(2)(table, transpose<1, 0>(rows), targets);
}
#endif
}  // namespace tiled_loss_over_positions

/// A bias for each position.
namespace bias_along_positions {
using P = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Linear<P>& layer, const Hidden<P>& x) {
  return layer.shift(x);
}
#else
auto f(const Linear<P>& layer, const Hidden<P>& x) {
  return layer.shift(transpose<0, 2, 1>(x));
}
#endif
}  // namespace bias_along_positions
