// SPDX-License-Identifier: Apache-2.0
/// Extras of attention that are none, of other types, cut otherwise than the heads or the sequence, or given twice.
// expected-error {{dspp: attend needs Lengths, Documents and ScoreBias after its rule, but got another argument.}}
// expected-error {{value: attend(qkv, heads, rule, Lengths{x}).}}
// expected-error {{dspp: attend needs each of Lengths, Documents and ScoreBias at most once, but got one twice. Add}}
// expected-error {{dspp: attend needs Lengths of std::int32_t [batch] and Documents of std::int32_t [batch, sequence]}}
// expected-error {{dspp: attend needs Lengths and Documents that every rank of Tp has whole, but these are split over}}
// expected-error {{dspp: attend needs Lengths that every rank of Cp has whole, but Cp cuts these. Declare them}}
// expected-error {{dspp: attend needs Documents that Cp cuts along the sequence as its queries, or that are}}
// expected-error {{dspp: attend needs a ScoreBias [heads, sequence, keys] of the element type and on the}}
// expected-error {{dspp: attend needs the ScoreBias of this rank's heads, Shard<0> beside heads that}}
// expected-error {{dspp: attend needs a ScoreBias that every rank of Cp has whole, but Cp cuts this one.}}
#include <dspp/autograd/operators.hpp>
#include <dspp/models/attention.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;
using Heads = Value<P, 3, Shard<-1, 3>>;
template <class Q>
using Numbers = Input<Q, std::int32_t, 1>;

namespace bare_value {
#ifdef DSPP_TWIN
auto f(const Heads& qkv, const Numbers<P>& lengths) { return attend(qkv, 2, {.window = 3}, Lengths{lengths}); }
#else
auto f(const Heads& qkv, const Numbers<P>& lengths) { return attend(qkv, 2, {.window = 3}, lengths); }
#endif
}  // namespace bare_value

namespace given_twice {
#ifdef DSPP_TWIN
auto f(const Heads& qkv, const Value<P, 3, Shard<0>>& a, const Value<P, 3, Shard<0>>& b) {
  return attend(qkv, 2, AttentionMask::full, ScoreBias{a + b});
}
#else
auto f(const Heads& qkv, const Value<P, 3, Shard<0>>& a, const Value<P, 3, Shard<0>>& b) {
  return attend(qkv, 2, AttentionMask::full, ScoreBias{a}, ScoreBias{b});
}
#endif
}  // namespace given_twice

namespace mask_of_positions {
#ifdef DSPP_TWIN
auto f(const Heads& qkv, const Tokens<P>& ids) { return attend(qkv, 2, AttentionMask::full, Documents{ids}); }
#else
auto f(const Heads& qkv, const Tokens<P>& ids) { return attend(qkv, 2, AttentionMask::full, Lengths{ids}); }
#endif
}  // namespace mask_of_positions

namespace ids_over_tp {
#ifdef DSPP_TWIN
auto f(const Heads& qkv, const Tokens<P>& ids) { return attend(qkv, 2, AttentionMask::full, Documents{ids}); }
#else
auto f(const Heads& qkv, const InState<Tokens<P>, Shard<1>>& ids) {
  return attend(qkv, 2, AttentionMask::full, Documents{ids});
}
#endif
}  // namespace ids_over_tp

/// Samples over Cp would have another length on each rank.
namespace lengths_over_cp {
using C = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<C>& qkv, const Numbers<C>& x) { return attend(qkv, 2, AttentionMask::full, Lengths{x}); }
#else
auto f(const Hidden<C>& qkv, const Input<C, std::int32_t, 1, 0>& x) {
  return attend(qkv, 2, AttentionMask::full, Lengths{x});
}
#endif
}  // namespace lengths_over_cp

namespace samples_over_cp {
using C = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<C>& qkv, const Tokens<C>& x) { return attend(qkv, 2, AttentionMask::full, Documents{x}); }
#else
auto f(const Hidden<C>& qkv, const Input<C, std::int32_t, 2, 0>& x) {
  return attend(qkv, 2, AttentionMask::full, Documents{x});
}
#endif
}  // namespace samples_over_cp

namespace bias_of_a_sample {
#ifdef DSPP_TWIN
auto f(const Heads& qkv, const Value<P, 3, Shard<0>>& x) { return attend(qkv, 2, AttentionMask::full, ScoreBias{x}); }
#else
auto f(const Heads& qkv, const Value<P, 4, Shard<1>>& x) { return attend(qkv, 2, AttentionMask::full, ScoreBias{x}); }
#endif
}  // namespace bias_of_a_sample

namespace bias_of_all_heads {
#ifdef DSPP_TWIN
auto f(const Heads& qkv, const Value<P, 3, Replicate>& x) {
  return attend(qkv, 2, AttentionMask::full, ScoreBias{redistribute<Shard<0>>(x)});
}
#else
auto f(const Heads& qkv, const Value<P, 3, Replicate>& x) {
  return attend(qkv, 2, AttentionMask::full, ScoreBias{x});
}
#endif
}  // namespace bias_of_all_heads

namespace bias_over_cp {
using C = Policy<Cp<2>>;
#ifdef DSPP_TWIN
auto f(const Hidden<C>& qkv, const Hidden<C>& x) {
  return attend(qkv, 2, AttentionMask::full, ScoreBias{redistribute<Replicate, Axis::Cp>(x)});
}
#else
auto f(const Hidden<C>& qkv, const Hidden<C>& x) { return attend(qkv, 2, AttentionMask::full, ScoreBias{x}); }
#endif
}  // namespace bias_over_cp
