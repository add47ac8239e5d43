// SPDX-License-Identifier: Apache-2.0
/// The blocks of a step, planned and measured, as JSON.
#pragma once

#include <string>
#include <vector>

#include <dspp/base/json_writer.hpp>
#include <dspp/tensor/memory_timeline.hpp>

namespace dspp {

/// Its members: `peak_bytes`, `before_bytes`, `region_bytes`, `is_whole`, `live_bytes` (a number for each event), and
/// `blocks`, a line each with `label`, `category`, `bytes`, `begin`, `end` and `offset`, as TimedBlock has them; the
/// offset of a block that lies elsewhere is null.
JsonObject json_of(const MemoryTimeline& timeline);

/// The content of a file of one rank's step: `rank`, `step`, counted from 1, and the timelines `planned` and
/// `measured`.
std::string memory_map(const MemoryTimeline& planned, const MemoryTimeline& measured, int rank, Size step);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE JsonObject json_of(const MemoryTimeline& timeline) {
  std::vector<std::string> blocks;
  for (const TimedBlock& block : timeline.blocks) {
    JsonObject object;
    object.add("label", block.label).add("category", name_of(block.category)).add("bytes", block.bytes);
    object.add("begin", block.begin).add("end", block.end);
    block.offset < 0 ? object.add_json("offset", "null") : object.add("offset", block.offset);
    blocks.push_back(object.text());
  }
  return JsonObject()
      .add("peak_bytes", timeline.peak())
      .add("before_bytes", timeline.before)
      .add("region_bytes", timeline.region)
      .add("is_whole", timeline.is_whole)
      .add_json("live_bytes", json_list(timeline.live))
      .add_json("blocks", json_list_lines(blocks));
}

DSPP_INLINE std::string memory_map(const MemoryTimeline& planned, const MemoryTimeline& measured, int rank, Size step) {
  return JsonObject()
             .add("rank", rank)
             .add("step", step)
             .new_line()
             .add("planned", json_of(planned))
             .new_line()
             .add("measured", json_of(measured))
             .text() +
         "\n";
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
