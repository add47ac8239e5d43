// SPDX-License-Identifier: Apache-2.0
/// More tiles than a rank has inputs, in a constant expression.
// expected-error {{dspp: Tiled needs an input and an output for every tile, but has more tiles than}}
// expected-error {{a rank has inputs or outputs. Lower In or Out.}}
#include <dspp/models/tiled.hpp>

using namespace dspp;
using P = Policy<Tp<2>, Meta>;

constexpr Size tiles_of(Size in) {
  return static_cast<Size>(Tiled<RowParallel<Linear, P>, 4>(in, 8).tiles.size());
}

#ifdef DSPP_TWIN
static_assert(tiles_of(8) == 4);
#else
static_assert(tiles_of(6) == 4);  // three inputs a rank
#endif
