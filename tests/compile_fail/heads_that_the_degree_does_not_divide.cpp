// SPDX-License-Identifier: Apache-2.0
/// A constant configuration whose heads cannot be dealt out evenly.
// expected-error {{dspp: SelfAttention needs heads that the Tp degree divides, but it does not. Change heads}}
// expected-error {{or Tp<n>.}}
#include <dspp/models/attention.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
constexpr Size heads = SelfAttention<P>({.width = 24, .heads = 4}).heads;
#else
constexpr Size heads = SelfAttention<P>({.width = 24, .heads = 3}).heads;
#endif
