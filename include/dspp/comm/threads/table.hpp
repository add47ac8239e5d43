// SPDX-License-Identifier: Apache-2.0
/// What the ranks of a thread group publish: the operations they posted, and their progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <dspp/comm/posted.hpp>
#include <dspp/comm/sum_order.hpp>
#include <dspp/comm/threads/failure_state.hpp>

namespace dspp::detail {

/// A rank's progress, in operations; written by it, read by all.
struct alignas(cache_line_bytes) RankProgress {
  std::atomic<std::uint64_t> posted{0};
  std::atomic<std::uint64_t> done{0};  // operations for which it accesses no other rank's memory any more
};

/// True while a rank accesses other ranks' memory: after a failure no rank leaves before all of these are false.
struct alignas(cache_line_bytes) Busy {
  std::atomic<bool> now{false};
};

struct ThreadTable {
  ThreadTable(std::shared_ptr<ThreadFailureState> failures_, std::string name_, std::vector<int> members_,
              SumOrder sum_order_ = SumOrder::rank)
      : failures(std::move(failures_)),
        name(std::move(name_)),
        members(std::move(members_)),
        sum_order(sum_order_),
        name_words(words_of_name(name)),
        progress_of_ranks(std::make_unique<RankProgress[]>(members.size())),
        busy(std::make_unique<Busy[]>(members.size())),
        slots(members.size() * operations_in_flight),
        shown(members.size()) {}

  int size() const { return static_cast<int>(members.size()); }
  RankProgress& progress(int rank) const { return progress_of_ranks[static_cast<std::size_t>(rank)]; }
  Posted& slot(int rank, std::uint64_t operation);
  int world_rank(int rank) const { return members[static_cast<std::size_t>(rank)]; }

  /// Wakes the other ranks that sleep. What they wait for has been stored before (seq_cst).
  void wake_others(int rank) const;

  /// The channel on which rank `from` of the group sends to rank `to`. Either rank may call it.
  std::shared_ptr<ThreadTable> channel(int from, int to);

  /// The same ranks' table for memory of a device, the n-th of them. Any rank may call it.
  std::shared_ptr<ThreadTable> of_device(std::size_t n);

  std::shared_ptr<ThreadFailureState> failures;
  std::string name;          // "axis Data", "the world"
  std::vector<int> members;  // world ranks
  SumOrder sum_order;
  NameWords name_words;
  std::unique_ptr<RankProgress[]> progress_of_ranks;
  std::unique_ptr<Busy[]> busy;
  std::vector<Posted> slots;                 // a ring buffer per rank; written by it before it raises `posted`
  std::vector<std::shared_ptr<void>> shown;  // what a rank's share shows to the others'; set before it posts
  std::mutex tables_mutex;
  std::map<std::pair<int, int>, std::shared_ptr<ThreadTable>> channels;
  std::vector<std::shared_ptr<ThreadTable>> device_tables;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Posted& ThreadTable::slot(int rank, std::uint64_t operation) {
  return slots[static_cast<std::size_t>(rank) * operations_in_flight + operation % operations_in_flight];
}

DSPP_INLINE void ThreadTable::wake_others(int rank) const {
  for (int r = 0; r < size(); ++r) {
    if (r != rank) failures->wake(world_rank(r));
  }
}

DSPP_INLINE std::shared_ptr<ThreadTable> ThreadTable::channel(int from, int to) {
  const std::lock_guard lock(tables_mutex);
  std::shared_ptr<ThreadTable>& channel = channels[{from, to}];
  if (!channel)
    channel = std::make_shared<ThreadTable>(failures, channel_name(world_rank(from), world_rank(to)),
                                            std::vector<int>{world_rank(from), world_rank(to)});
  return channel;
}

DSPP_INLINE std::shared_ptr<ThreadTable> ThreadTable::of_device(std::size_t n) {
  const std::lock_guard lock(tables_mutex);
  while (device_tables.size() <= n)
    device_tables.push_back(std::make_shared<ThreadTable>(failures, name, members, sum_order));
  return device_tables[n];
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
