// SPDX-License-Identifier: Apache-2.0
/// Constant configurations whose heads cannot be split evenly.
// expected-error {{dspp: SelfAttention needs heads that the Tp degree divides, but it does not. Change heads}}
// expected-error {{or Tp<n>.}}
// expected-error {{dspp: SelfAttention needs heads that Tp times Cp divides, but it does not. Change heads,}}
// expected-error {{Tp<n> or Cp<n>.}}
#include <dspp/models/attention.hpp>

using namespace dspp;

/// Tensor ranks, which own heads.
namespace heads_over_tensor_ranks {
using P = Policy<Tp<2>>;
#ifdef DSPP_TWIN
constexpr Size heads = SelfAttention<P>({.width = 24, .heads = 4}).heads;
#else
constexpr Size heads = SelfAttention<P>({.width = 24, .heads = 3}).heads;
#endif
}  // namespace heads_over_tensor_ranks

/// Context ranks, which exchange sequences for heads.
namespace heads_over_context_ranks {
using P = Policy<Tp<2>, Cp<2>>;
#ifdef DSPP_TWIN
constexpr Size heads = SelfAttention<P>({.width = 24, .heads = 4}).heads;
#else
constexpr Size heads = SelfAttention<P>({.width = 24, .heads = 6}).heads;
#endif
}  // namespace heads_over_context_ranks
