// SPDX-License-Identifier: Apache-2.0
/// Images, and the sequences made of them, that ranks cut too early.
// expected-error {{dspp: PatchEmbedding needs images of four dimensions, finished and whole over Tp and Cp, but these}}
// expected-error {{are not. Give it an Images<P>, and cut its result.}}
// expected-error {{dspp: own_positions needs [batch, sequence, ...] with the sequence whole, but Cp or Tp cuts this}}
// expected-error {{value. redistribute<Shard<1>>(x) after it, not before.}}
#include <dspp/nn/own_positions.hpp>
#include <dspp/nn/patch_embedding.hpp>

using namespace dspp;
using P = Policy<Cp<2>>;

/// Pixels whose channels Cp cuts, as it cuts the sequence of a Hidden<P>.
namespace channels_over_cp {
#ifdef DSPP_TWIN
auto f(const PatchEmbedding<P>& patches, const Images<P>& pixels) { return own_positions<P>(patches(pixels)); }
#else
auto f(const PatchEmbedding<P>& patches, const Value<P, 4, Invariant>& pixels) { return patches(pixels); }
#endif
}  // namespace channels_over_cp

/// This rank's positions, taken twice.
namespace own_positions_twice {
#ifdef DSPP_TWIN
auto f(const WholeOverCp<Hidden<P>>& x) { return own_positions<P>(x); }
#else
auto f(const WholeOverCp<Hidden<P>>& x) { return own_positions<P>(own_positions<P>(x)); }
#endif
}  // namespace own_positions_twice
