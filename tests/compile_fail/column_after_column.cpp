// SPDX-License-Identifier: Apache-2.0
/// A column-parallel layer after another one, or on a sum that is still pending.
// expected-error {{dspp: ColumnParallel needs an input that is whole along its features, but this one is split}}
// expected-error {{along them over Tp. Put a RowParallel between them, or redistribute<Invariant>(x) first.}}
// expected-error {{dspp: ColumnParallel needs a finished input, but this one is Partial over Tp: its sum is}}
// expected-error {{still pending. redistribute<Invariant>(x) first.}}
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/row.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

/// A column-parallel layer after another one: its input is split along the features.
namespace column_after_column {
#ifdef DSPP_TWIN
auto f(const ColumnParallel<Linear, P>& up, const RowParallel<Linear, P>& down, const Hidden<P>& x) {
  return down(up(x));
}
#else
auto f(const ColumnParallel<Linear, P>& up, const RowParallel<Linear, P>&, const Hidden<P>& x) {
  return up(up(x));
}
#endif
}  // namespace column_after_column

/// A column-parallel layer on a sum that is still pending.
namespace column_on_partial {
#ifdef DSPP_TWIN
auto f(const ColumnParallel<Linear, P>& up, const Value<P, 3, Partial>& x) {
  return up(redistribute<Invariant>(x));
}
#else
auto f(const ColumnParallel<Linear, P>& up, const Value<P, 3, Partial>& x) {
  return up(x);
}
#endif
}  // namespace column_on_partial
