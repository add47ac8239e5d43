// SPDX-License-Identifier: Apache-2.0
/// Groups and chunks of which there is none.
// expected-error {{dspp: TiledMlp needs at least one chunk, but got less. Raise Chunks.}}
// expected-error {{dspp: InGroups<n> needs at least one group, but has fewer. Raise n.}}
// expected-error {{dspp: Shard<Dim, Groups> needs at least one group, but has fewer. Raise Groups.}}
#include <dspp/models/mlp.hpp>
#include <dspp/models/tiled_mlp.hpp>
#include <dspp/parallel/column.hpp>

using namespace dspp;
using P = Policy<Tp<2>>;

#ifdef DSPP_TWIN
constexpr int number = 2;
#else
constexpr int number = 0;
#endif

auto tiles(const MlpConfig& sizes) {
  return TiledMlp<Mlp<P>, number>(sizes);
}
constexpr InGroups<number> groups{};
constexpr Shard<-1, number> slices{};
