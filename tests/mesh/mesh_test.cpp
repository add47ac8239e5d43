// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <dspp/mesh.hpp>

using namespace dspp;

namespace {

constexpr Mesh mesh(Degrees{.pp = 2, .data = 3, .cp = 2, .tp = 4});

constexpr bool every_rank_comes_back() {
  for (int r = 0; r < mesh.world_size(); ++r) {
    if (mesh.rank(mesh.coordinates(r)) != r) return false;
  }
  return true;
}

constexpr bool groups_are_consistent() {
  for (Axis axis : all_axes) {
    for (int r = 0; r < mesh.world_size(); ++r) {
      const AxisGroup group = mesh.members(axis, r);
      if (group.size != mesh.degrees()[axis]) return false;
      if (group.position(r) != mesh.coordinates(r)[axis]) return false;
      for (int i = 0; i < group.size; ++i) {
        if (!(mesh.members(axis, group[i]) == group)) return false;
        for (Axis other : all_axes) {
          const int expected = other == axis ? i : mesh.coordinates(r)[other];
          if (mesh.coordinates(group[i])[other] != expected) return false;
        }
      }
    }
  }
  return true;
}

constexpr bool replicas_are_data_times_cp() {
  for (int r = 0; r < mesh.world_size(); ++r) {
    const AxisGroup group = mesh.replicas(r);
    if (group.size != mesh.degrees().data * mesh.degrees().cp) return false;
    for (int i = 0; i < group.size; ++i) {
      Coordinates expected = mesh.coordinates(r);
      expected.data = i / mesh.degrees().cp, expected.cp = i % mesh.degrees().cp;
      if (!(mesh.coordinates(group[i]) == expected)) return false;
    }
  }
  return true;
}

}  // namespace

static_assert(mesh.world_size() == 48);
static_assert(every_rank_comes_back());
static_assert(groups_are_consistent());
static_assert(replicas_are_data_times_cp());

TEST_CASE("neighbouring ranks differ in Tp, distant ones in Pp") {
  CHECK(mesh.coordinates(1) == Coordinates{0, 0, 0, 1});
  CHECK(mesh.coordinates(4) == Coordinates{0, 0, 1, 0});
  CHECK(mesh.coordinates(8) == Coordinates{0, 1, 0, 0});
  CHECK(mesh.coordinates(24) == Coordinates{1, 0, 0, 0});
  CHECK(mesh.stride(Axis::Tp) == 1);
  CHECK(mesh.stride(Axis::Pp) == 24);
}

TEST_CASE("a rank that is no member of a group has no position in it") {
  const AxisGroup group = mesh.members(Axis::Data, 1);  // 1, 9, 17
  CHECK(group[2] == 17);
  CHECK(group.position(9) == 1);
  CHECK(group.position(2) == -1);
  CHECK(group.position(25) == -1);
  CHECK(group.position(0) == -1);
}

TEST_CASE("a mesh names the axis whose degree is wrong and the rank outside it") {
  CHECK_THROWS_WITH_AS(
      Mesh(Degrees{.data = 0}),
      "dspp: a mesh needs at least 1 rank along each axis, but Data has degree 0. Give it 1 to leave it out.", Error);
  CHECK_THROWS_WITH_AS(mesh.coordinates(48),
                       "dspp: a mesh of 48 ranks needs a rank from 0 to 47, but got 48. Check the world's size against "
                       "the degrees.",
                       Error);
}

TEST_CASE("each axis has a member of its own, by name and by index") {
  Coordinates at;
  int value = 0;
  for (Axis axis : all_axes) at[axis] = ++value;
  CHECK(value == axis_count);
  CHECK(at == Coordinates{.pp = 1, .data = 2, .cp = 3, .tp = 4});
  CHECK(sizeof(Coordinates) == axis_count * sizeof(int));
  CHECK(Mesh(Degrees{}).world_size() == 1);
  CHECK_FALSE(at == Coordinates{.pp = 1, .data = 2, .cp = 3});
}

TEST_CASE("axes have the names of their enumerators") {
  CHECK(std::string(name_of(Axis::Pp)) == "Pp");
  CHECK(std::string(name_of(Axis::Data)) == "Data");
  CHECK(std::string(name_of(Axis::Cp)) == "Cp");
  CHECK(std::string(name_of(Axis::Tp)) == "Tp");
}
