// SPDX-License-Identifier: Apache-2.0
/// Values of another number of dimensions than attention, broadcast_to, dropout, item and a tile take.
// expected-error {{dspp: attend needs [batch, sequence, 3 width], but its input has another rank. reshape it first.}}
// expected-error {{dspp: attend needs [batch, sequence, features], but an input has another rank. reshape it first.}}
// expected-error {{dspp: broadcast_to needs a shape of at least as many dimensions as the value, but it has fewer.}}
// expected-error {{sum<Dim>(x) is what leaves one out.}}
// expected-error {{dspp: dropout needs a tensor of at least two dimensions, the batch first. Reshape it.}}
// expected-error {{dspp: item needs a tensor of rank 0, which has one element, but this one has more.}}
// expected-error {{read(f) has all.}}
// expected-error {{dspp: a tile needs a parameter with rows and columns, but this one is a vector. Tile a matrix.}}
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/grouped_attention.hpp>
#include <dspp/ops/dropout.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A fused projection whose batch and sequence are one dimension.
namespace attention_of_rows {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1, 3>>& qkv) { return attend(qkv, 2, AttentionMask::causal); }
#else
auto f(const Value<P, 2, Shard<-1, 3>>& qkv) { return attend(qkv, 2, AttentionMask::causal); }
#endif
}  // namespace attention_of_rows

/// Queries with a dimension for their heads.
namespace attention_of_parted_heads {
using Pairs = Value<P, 3, Shard<-1, 2>>;
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Shard<-1>>& q, const Pairs& kv) { return attend(q, kv, GroupedHeads{2, 1}, {}); }
#else
auto f(const Value<P, 4, Shard<-1>>& q, const Pairs& kv) { return attend(q, kv, GroupedHeads{2, 1}, {}); }
#endif
}  // namespace attention_of_parted_heads

namespace fewer_dimensions {
#ifdef DSPP_TWIN
auto f(const Hidden<P>& x) { return sum<1>(x); }
#else
auto f(const Hidden<P>& x) { return broadcast_to(x, shape(x[0], x[2])); }
#endif
}  // namespace fewer_dimensions

/// An operation of one's own on a vector, whose only dimension would be the batch.
namespace dropout_of_a_vector {
#ifdef DSPP_TWIN
auto f(const Tensor<float, 1>& x, const ops::DropoutSite& site) {
  return ops::dropout(x.reshape(shape(Size{1}, x[0])), 0.1, site);
}
#else
auto f(const Tensor<float, 1>& x, const ops::DropoutSite& site) { return ops::dropout(x, 0.1, site); }
#endif
}  // namespace dropout_of_a_vector

namespace item_of_a_vector {
#ifdef DSPP_TWIN
float f(const Tensor<float, 0>& x) { return x.item(); }
#else
float f(const Tensor<float, 1>& x) { return x.item(); }
#endif
}  // namespace item_of_a_vector

namespace tile_of_a_vector {
#ifdef DSPP_TWIN
auto f(const Parameter<float, 2, Cpu>& weight) { return weight.tile_of(0, 0, 2, 0, 4); }
#else
auto f(const Parameter<float, 1, Cpu>& bias) { return bias.tile_of(0, 0, 2, 0, 4); }
#endif
}  // namespace tile_of_a_vector
