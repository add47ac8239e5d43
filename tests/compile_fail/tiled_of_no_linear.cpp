// SPDX-License-Identifier: Apache-2.0
/// Tiles of a layer that has no weight to tile, and no tiles at all.
// expected-error {{dspp: Tiled needs Linear, ColumnParallel<Linear> or RowParallel<Linear>, but this layer is}}
// expected-error {{another. Tile the linear layers inside it.}}
// expected-error {{dspp: Tiled needs at least one tile each way, but In or Out is less. Raise it.}}
#include <dspp/models/mlp.hpp>
#include <dspp/models/tiled.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

namespace of_no_linear {
#ifdef DSPP_TWIN
auto f(const Tiled<RowParallel<Linear, P>, 2, 2>& layer, const Value<P, 3, Shard<-1>>& x) {
  return layer(x);
}
#else
auto f(const Tiled<Mlp<P>, 2, 2>& layer, const Hidden<P>& x) {
  return layer(x);
}
#endif
}  // namespace of_no_linear

namespace no_tiles {
#ifdef DSPP_TWIN
auto f(const Tiled<Linear<P>, 1, 2>& layer, const Hidden<P>& x) {
  return layer(x);
}
#else
auto f(const Tiled<Linear<P>, 0, 2>& layer, const Hidden<P>& x) {
  return layer(x);
}
#endif
}  // namespace no_tiles
