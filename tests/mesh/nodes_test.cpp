// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <dspp/mesh/nodes.hpp>

using namespace dspp;

namespace {

std::vector<NodePlace> places(const Nodes& nodes) {
  std::vector<NodePlace> all;
  for (int r = 0; r < nodes.ranks(); ++r) all.push_back(nodes.of(r));
  return all;
}

}  // namespace

TEST_CASE("nodes of consecutive ranks: one, two, one each, and a last one that is not full") {
  using Places = std::vector<NodePlace>;
  CHECK(places(Nodes::of_blocks(1, 0)) == Places{{0, 1, 0, 1}});
  CHECK(places(Nodes::of_blocks(1, 1)) == Places{{0, 1, 0, 1}});
  CHECK(places(Nodes::of_blocks(2, 0)) == Places{{0, 1, 0, 2}, {0, 1, 1, 2}});
  CHECK(places(Nodes::of_blocks(3, 2)) == Places{{0, 2, 0, 2}, {0, 2, 1, 2}, {1, 2, 0, 1}});
  CHECK(places(Nodes::of_blocks(4, 2)) == Places{{0, 2, 0, 2, 2}, {0, 2, 1, 2, 2}, {1, 2, 0, 2, 2}, {1, 2, 1, 2, 2}});
  CHECK(places(Nodes::of_blocks(4, 3)) == Places{{0, 2, 0, 3}, {0, 2, 1, 3}, {0, 2, 2, 3}, {1, 2, 0, 1}});
  CHECK(places(Nodes::of_blocks(4, 4)) == places(Nodes::of_blocks(4, 0)));
  CHECK(Nodes::of_blocks(4, 1).count() == 4);
}

TEST_CASE("nodes with interleaved ranks are numbered in the order of their lowest ranks") {
  const Nodes nodes({7, 3, 7, 3, 7});
  CHECK(nodes.count() == 2);
  CHECK(places(nodes) == std::vector<NodePlace>{{0, 2, 0, 3}, {1, 2, 0, 2}, {0, 2, 1, 3}, {1, 2, 1, 2}, {0, 2, 2, 3}});
}

TEST_CASE("wrong numbers of ranks per node give one sentence") {
  for (const int wrong : {-1, 4})
    CHECK_THROWS_WITH_AS(Nodes::of_blocks(3, wrong),
                         ("dspp: virtual nodes need ranks_per_node from 1 to the number of ranks, 3, or 0 for one "
                          "node, but got " +
                          std::to_string(wrong) + ". Leave it out, or start more ranks.")
                             .c_str(),
                         Error);
}
