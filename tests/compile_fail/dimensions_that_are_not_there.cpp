// SPDX-License-Identifier: Apache-2.0
/// Parts and unions along a dimension that a value does not have.
// expected-error {{dspp: slice and split need a dimension of the tensor, but it has fewer. Give 0 <= Dim < rank, or}}
// expected-error {{a negative one that counts from the end.}}
// expected-error {{dspp: join needs a dimension of the tensors, but they have fewer. Give 0 <= Dim < rank, or a}}
// expected-error {{negative one that counts from the end.}}
// expected-error {{dspp: concat needs a dimension of the tensors, but they have fewer. Give 0 <= Dim < rank, or a}}
// expected-error {{negative one that counts from the end.}}
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// The fourth dimension of three.
namespace slice_beyond_the_last {
#ifdef DSPP_TWIN
auto f(const Value<P, 3, Invariant>& x) { return slice<2>(x, 0, 4); }
#else
auto f(const Value<P, 3, Invariant>& x) { return slice<3>(x, 0, 4); }
#endif
}  // namespace slice_beyond_the_last

/// Counted from the end, beyond the first.
namespace join_before_the_first {
using Part = Value<P, 3, Shard<-1>>;
#ifdef DSPP_TWIN
auto f(const Part& x, const Part& y) { return join<-1>(x, y); }
#else
auto f(const Part& x, const Part& y) { return join<-4>(x, y); }
#endif
}  // namespace join_before_the_first

/// torch.stack, which has a new dimension: reshape to one of extent 1 first.
namespace concat_along_a_new_dimension {
using Vectors = Value<P, 2, Invariant>;
#ifdef DSPP_TWIN
auto f(const Vectors& x, const Vectors& y) {
  const auto apart = shape(x[0], x[1], Size{1});
  return concat<2>(reshape(x, apart), reshape(y, apart));
}
#else
auto f(const Vectors& x, const Vectors& y) { return concat<2>(x, y); }
#endif
}  // namespace concat_along_a_new_dimension
