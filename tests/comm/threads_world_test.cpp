// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <dspp/comm.hpp>

#include <laws/without_sites.hpp>

using namespace dspp;

TEST_CASE("every axis of a thread world sums over its own ranks") {
  const Mesh mesh(Degrees{.data = 2, .tp = 2});
  const ThreadWorld world(mesh, {.timeout_seconds = 30});
  run_ranks(world.group(), [&](int rank) {
    RankGroups groups = world.groups(rank);
    CHECK(groups.world.size() == 4);
    CHECK(groups.world.rank() == rank);
    for (Axis axis : all_axes) {
      CHECK(groups[axis].size() == mesh.degrees()[axis]);
      CHECK(groups[axis].rank() == mesh.coordinates(rank)[axis]);
      float sum = static_cast<float>(rank);
      all_reduce(groups[axis], buffer(&sum, 1), Purpose::scalar);
      const AxisGroup members = mesh.members(axis, rank);
      float expected = 0;
      for (int i = 0; i < members.size; ++i) expected += static_cast<float>(members[i]);
      CHECK(sum == expected);
    }
    float all = 1;
    all_reduce(groups.world, buffer(&all, 1), Purpose::scalar);
    CHECK(all == 4);
  });
}

TEST_CASE("the groups of a thread world have the node of their rank and the order of their sums") {
  const ThreadWorld world(Mesh(Degrees{.data = 3}), {.timeout_seconds = 30, .sum_order = SumOrder::transport}, 2);
  CHECK(world.nodes().count() == 2);
  for (int rank : {0, 1, 2}) {
    CHECK(world.groups(rank).node == world.nodes().of(rank));
    CHECK(world.groups(rank)[Axis::Data].sum_order() == SumOrder::transport);
    CHECK(world.groups(rank).replicas.sum_order() == SumOrder::transport);
    CHECK(world.groups(rank)[Axis::Tp].sum_order() == SumOrder::exact);
  }
}

TEST_CASE("the replicas of a thread world have groups by node where every node has as many, one after the other") {
  const auto sums_of = [](Degrees degrees, int ranks_per_node, int on_node, int across) {
    const Mesh mesh(degrees);
    const ThreadWorld world(mesh, {.timeout_seconds = 30}, ranks_per_node);
    run_ranks(world.group(), [&](int rank) {
      RankGroups groups = world.groups(rank);
      CHECK(groups.node_replicas.size() == on_node);
      CHECK(groups.across_nodes.size() == across);
      if (across == 1) return;
      const int node = rank / ranks_per_node, tp = mesh.coordinates(rank).tp;
      float there = static_cast<float>(rank), everywhere = there;
      all_reduce(groups.node_replicas, buffer(&there, 1), Purpose::scalar);
      all_reduce(groups.across_nodes, buffer(&everywhere, 1), Purpose::scalar);
      float of_node = 0, of_place = 0;
      for (int r = 0; r < mesh.world_size(); ++r) {
        if (mesh.coordinates(r).tp != tp) continue;
        if (r / ranks_per_node == node) of_node += static_cast<float>(r);
        if (r % ranks_per_node == rank % ranks_per_node) of_place += static_cast<float>(r);
      }
      CHECK(there == of_node);
      CHECK(everywhere == of_place);
    });
  };
  sums_of({.data = 4}, 2, 2, 2);
  sums_of({.data = 6}, 2, 2, 3);
  sums_of({.data = 3}, 1, 1, 3);
  sums_of({.data = 2, .cp = 2, .tp = 2}, 4, 2, 2);
  sums_of({.data = 4}, 0, 1, 1);           // one node
  sums_of({.data = 3}, 2, 1, 1);           // two ranks and one
  sums_of({.data = 3, .tp = 2}, 3, 1, 1);  // nodes that cut Tp
}

TEST_CASE("a rank knows how many ranks each node has, in a row") {
  const auto on_each = [](std::vector<int> keys) { return Nodes(keys).of(0).ranks_per_node; };
  CHECK(on_each({7, 7, 3, 3}) == 2);
  CHECK(on_each({7, 3, 2}) == 1);
  CHECK(on_each({7, 7, 7, 7}) == 0);  // one node
  CHECK(on_each({7, 3, 7, 3}) == 0);  // in turns
  CHECK(on_each({7, 7, 3, 3, 3, 1}) == 0);
  CHECK(on_each({7, 7, 7, 3}) == 0);
}

TEST_CASE("the nodes of a rank's replicas are counted where they are blocks of as many") {
  const auto on_node = [](std::vector<int> keys, Degrees degrees) {
    return Nodes(keys).replicas_on_node(Mesh(degrees));
  };
  CHECK(on_node({7, 7, 3, 3}, {.data = 4}) == 2);
  CHECK(on_node({7, 3, 7, 3}, {.data = 4}) == 0);        // in turns
  CHECK(on_node({7, 7, 3, 3, 7, 7}, {.data = 6}) == 0);  // a node comes again
  CHECK(on_node({7, 7, 7, 3}, {.data = 4}) == 0);
  CHECK(on_node({7, 3, 3, 3}, {.data = 4}) == 0);
  CHECK(on_node({7, 3, 2, 1}, {.data = 4}) == 1);
  CHECK(on_node({7, 7, 7, 7}, {.data = 4}) == 0);
  CHECK(on_node({7, 7, 3, 3}, {.data = 2, .tp = 2}) == 1);
  CHECK(on_node({7, 7, 7, 7, 3, 3, 3, 3}, {.data = 4, .tp = 2}) == 2);
  CHECK(on_node({7, 7, 7, 7, 7, 3, 3, 3}, {.data = 4, .tp = 2}) == 0);
}

TEST_CASE("the replicas of a thread world are the ranks along Data and Cp") {
  const ThreadWorld world(Mesh(Degrees{.data = 2, .cp = 2}), {.timeout_seconds = 30});
  run_ranks(world.group(), [&](int rank) {
    RankGroups groups = world.groups(rank);
    CHECK(groups.replicas.size() == 4);
    float sum = static_cast<float>(1 << rank);
    all_reduce(groups.replicas, buffer(&sum, 1), Purpose::scalar);
    CHECK(sum == 15);
  });
}

TEST_CASE("a disagreement on one axis stops the ranks of all others, and names world ranks") {
  const ThreadWorld world(Mesh(Degrees{.data = 2, .tp = 2}), {.timeout_seconds = 30});
  std::string sentences[4];
  const auto step = [&](int rank) {
    RankGroups groups = world.groups(rank);
    std::vector<float> x(20);
    all_reduce(groups[Axis::Tp], buffer(x.data(), 20), Purpose::activation);
    all_reduce(groups[Axis::Data], buffer(x.data(), rank == 3 ? 11 : 10), Purpose::gradient);
    for (;;) groups.world.barrier();
  };
  CHECK_THROWS_AS(run_ranks(world.group(),
                            [&](int rank) {
                              try {
                                step(rank);
                              } catch (const Error& e) {
                                sentences[rank] = laws::without_sites(e.what());
                                throw;
                              }
                            }),
                  Error);
  for (const std::string& sentence : sentences) {
    CHECK(sentence ==
          "dspp: the ranks of axis Data call different collectives, the 1st of this group: rank 1 calls "
          "all_reduce(f32 x 10), but rank 3 calls all_reduce(f32 x 11). Make every rank call the same "
          "operations in the same order.");
  }
}

TEST_CASE("long delays are not taken for a deadlock") {
  const ThreadWorld world(Mesh(Degrees{.data = 2, .tp = 2}), {.timeout_seconds = 30});
  run_ranks(world.group(), [&](int rank) {
    std::mt19937 dawdle(static_cast<unsigned>(rank));
    RankGroups groups = world.groups(rank);
    for (int step = 0; step < 12; ++step) {
      std::this_thread::sleep_for(std::chrono::milliseconds(dawdle() % 3 == 0 ? 60 + dawdle() % 30 : 0));
      float x = 1, y = 1;
      Pending<> a = groups[Axis::Data].start_all_reduce(buffer(&x, 1), Purpose::scalar);
      Pending<> b = groups[Axis::Tp].start_all_reduce(buffer(&y, 1), Purpose::scalar);
      (rank % 3 == 0 ? a : b).wait();
      (rank % 3 == 0 ? b : a).wait();
      CHECK(x + y == 4);
    }
  });
}
