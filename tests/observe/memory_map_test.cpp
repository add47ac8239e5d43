// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/observe/memory_map.hpp>

#include <laws/json_tree.hpp>

using namespace dspp;

TEST_CASE("the map of a step has both timelines, and of a block what it is, when it is in use and where it lies") {
  const MemoryTimeline planned{
      .blocks = {{"a \"name\"", Category::gradients, 64, -1, 2}}, .live = {64, 0}, .before = 64};
  const MemoryTimeline measured{
      .blocks = {{"b", Category::data, 256, 0, 1, 512}}, .live = {256, 0}, .region = 1024, .is_whole = false};
  const laws::JsonTree tree = laws::json_tree(memory_map(planned, measured, 3, 7), "a map");
  CHECK(tree.find("rank")->integer == 3);
  CHECK(tree.find("step")->integer == 7);
  const laws::JsonTree &of_plan = *tree.find("planned"), &of_run = *tree.find("measured");
  CHECK(of_plan.find("peak_bytes")->integer == 64);
  CHECK(of_plan.find("before_bytes")->integer == 64);
  CHECK(of_plan.find("is_whole")->boolean);
  REQUIRE(of_plan.find("blocks")->items.size() == 1);
  const laws::JsonTree &a = of_plan.find("blocks")->items[0], &b = of_run.find("blocks")->items[0];
  CHECK(a.find("label")->string == "a \"name\"");
  CHECK(a.find("category")->string == "gradients");
  CHECK(a.find("bytes")->integer == 64);
  CHECK(a.find("begin")->integer == -1);
  CHECK(a.find("end")->integer == 2);
  CHECK(a.find("offset")->is(laws::JsonTree::Kind::null));
  CHECK(b.find("offset")->integer == 512);
  CHECK(!of_run.find("is_whole")->boolean);
  CHECK(of_run.find("region_bytes")->integer == 1024);
  REQUIRE(of_run.find("live_bytes")->items.size() == 2);
  CHECK(of_run.find("live_bytes")->items[0].integer == 256);
  CHECK(json_of(MemoryTimeline{}).text() ==
        R"({"peak_bytes":0,"before_bytes":0,"region_bytes":0,"is_whole":true,"live_bytes":[],"blocks":[]})");
}
