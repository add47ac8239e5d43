// SPDX-License-Identifier: Apache-2.0
/// The blocks of a step whose launches a device repeats.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <dspp/tensor/block.hpp>

namespace dspp {

class Pool;

/// What a Pool gave out while it traced, and what was used beside. The blocks stay those of the Pool: a repetition may
/// run while those that it took are kept, and those that it used beside are in use as they were: see Pool::may_repeat.
struct BlockTrace {
  std::vector<MemoryBlock<Pool>*> taken{};
  std::vector<std::pair<MemoryBlock<Pool>*, std::uint64_t>> used{};  ///< live from before, with their numbers of use
  Size peak = 0;                                                     ///< above what was live before
  CategoryBytes peaks{}, at_peak{};                                  ///< the same by category
  std::uint64_t returned = 0;  ///< traced blocks that the Pool had returned to the system
  bool is_whole = false;       ///< false: it cannot be repeated
};

/// A block of a trace that a repetition takes again, and how it was given out.
struct TracedBlock {
  MemoryBlock<Pool>* block = nullptr;
  Size bytes = 0;
  Category category = Category::activations;
  const char* label = "";
};

}  // namespace dspp
