// SPDX-License-Identifier: Apache-2.0
/// Constant configurations that cannot be split evenly.
// expected-error {{dspp: SelfAttention needs a width that its heads divide, but they do not. Change width or}}
// expected-error {{heads.}}
// expected-error {{dspp: ColumnParallel needs outputs that the Tp degree divides, but it does not. Change out}}
// expected-error {{or Tp<n>, or take a Linear.}}
// expected-error {{dspp: RowParallel needs inputs that the Tp degree divides, but it does not. Change in or}}
// expected-error {{Tp<n>.}}
// expected-error {{dspp: Dropout needs a probability from 0 to below 1, but got another. Change it.}}
#include <dspp/models/attention.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/row.hpp>

using namespace dspp;

/// A constant configuration whose heads would have a fractional width.
namespace heads_that_do_not_divide_the_width {
using P = Policy<>;
#ifdef DSPP_TWIN
constexpr Size heads = SelfAttention<P>({.width = 24, .heads = 4}).heads;
#else
constexpr Size heads = SelfAttention<P>({.width = 26, .heads = 4}).heads;
#endif
}  // namespace heads_that_do_not_divide_the_width

/// A column-parallel layer whose outputs cannot be split evenly.
namespace outputs_that_the_degree_does_not_divide {
using P = Policy<Tp<2>>;
#ifdef DSPP_TWIN
constexpr bool biased = ColumnParallel<Linear, P>(8, 6).has_bias;
#else
constexpr bool biased = ColumnParallel<Linear, P>(8, 7).has_bias;
#endif
}  // namespace outputs_that_the_degree_does_not_divide

/// A row-parallel layer whose inputs cannot be split evenly.
namespace inputs_that_the_degree_does_not_divide {
using P = Policy<Tp<2>>;
#ifdef DSPP_TWIN
constexpr bool biased = RowParallel<Linear, P>(6, 8).has_bias;
#else
constexpr bool biased = RowParallel<Linear, P>(7, 8).has_bias;
#endif
}  // namespace inputs_that_the_degree_does_not_divide

/// A dropout probability of 1.
namespace dropout_of_everything {
using P = Policy<Tp<2>>;
#ifdef DSPP_TWIN
constexpr double probability = Dropout<P>(0.5).probability;
#else
constexpr double probability = Dropout<P>(1.0).probability;
#endif
}  // namespace dropout_of_everything
