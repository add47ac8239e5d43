// SPDX-License-Identifier: Apache-2.0
/// The batches of a rank in host memory, prepared on access or ahead on a thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/base/list.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#endif

namespace dspp::data {

/// A field of a batch: its rows are [outer, extent, inner bytes], and this rank has part `part` of `parts` of
/// the extent.
struct HostField {
  std::string name;
  Size outer = 1, extent = 1, inner_bytes = 1;
  Size part = 0, parts = 1;
  std::vector<std::byte> padding{};  // an element of what samples do not write; empty: zeros

  Size whole_bytes() const { return outer * extent * inner_bytes; }
  Size row_bytes() const { return whole_bytes() / parts; }
  /// Copies this rank's part of a whole row.
  void cut(const std::byte* whole, std::byte* out) const;
};

/// Throws   Error(placement) if the parts of a field do not divide its extent
void check_cut(const std::vector<HostField>& fields);

/// One batch: the bytes of each field; the extents of all, 0 for those of a field that is not set; and the number of
/// its first row in the global batch.
struct HostBatch {
  std::vector<std::vector<std::byte>> fields{};
  List<Size> extents{};
  Size first_sample = 0;
};

/// The batches 0 to count - 1. With `ahead` > 0 a thread prepares that many after the last one that was read; it is the
/// same batches, since a batch is a function of its number. The thread runs from the first read to the destructor,
/// which waits for the fill in progress; fill is never called by two threads at a time. An exception of fill is thrown
/// by the read of the batch that it was called for.
///
/// Memory   1 + ahead batches in the host's memory, outside of the Pool, after the first read
class HostBatches {
 public:
  /// Writes batch `number` over an empty one or another one.
  using Fill = std::function<void(Size number, HostBatch& batch)>;

  /// Throws   Error(usage) for a negative `ahead`
  HostBatches(Size count, Size ahead, Fill fill);
  ~HostBatches();
  HostBatches(const HostBatches&) = delete;
  HostBatches& operator=(const HostBatches&) = delete;

  Size size() const { return count_; }

  /// Calls use(batch) with batch `number`. Any order is allowed; the next number is the one that was prepared.
  ///
  /// Throws   Error(usage) for a number outside, and what fill throws
  void read(Size number, FunctionRef<void(const HostBatch& batch)> use);

 private:
  struct Thread;

  Size count_;
  std::unique_ptr<Thread> thread_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void HostField::cut(const std::byte* whole, std::byte* out) const {
  const Size own = extent / parts * inner_bytes;
  for (Size i = 0; i < outer; ++i) std::copy_n(whole + i * extent * inner_bytes + part * own, own, out + i * own);
}

/// The thread, what it shares with the reader, and what both are told. (Its headers are not for every includer.)
struct HostBatches::Thread {
  struct Prepared {
    HostBatch batch;
    std::exception_ptr error;
  };

  ~Thread();
  void take(Size number);
  void prepare(Size number, Prepared& prepared);
  void prepare_ahead();

  Size count = 0, ahead = 0;
  Fill fill;
  std::mutex reader;
  HostBatch taken;

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::deque<Prepared> ready;  // batches first, first + 1, ...
  std::vector<HostBatch> spare;
  Size first = 0;
  Size restarts = 0;  // a batch begun before the last one is dropped
  bool ended = false;
  std::thread thread;
};

DSPP_INLINE void check_cut(const std::vector<HostField>& fields) {
  for (const HostField& field : fields)
    if (field.extent % field.parts != 0)
      fail(ErrorCode::placement, "dspp: a batch needs a sequence that the Cp degree divides, but '" + field.name +
                                     "' has " + std::to_string(field.extent) + " positions and Cp is " +
                                     std::to_string(field.parts) + ". Change the sequence or Cp<n>.");
}

DSPP_INLINE HostBatches::HostBatches(Size count, Size ahead, Fill fill)
    : count_(count), thread_(std::make_unique<Thread>()) {
  thread_->count = count, thread_->ahead = ahead, thread_->fill = std::move(fill);
  require(ahead >= 0, "dspp: batches need a prefetch of at least 0, but it is less. Raise prefetch.");
}

DSPP_INLINE HostBatches::~HostBatches() = default;

DSPP_INLINE void HostBatches::read(Size number, FunctionRef<void(const HostBatch& batch)> use) {
  const std::lock_guard one_reader(thread_->reader);
  thread_->take(number);
  use(thread_->taken);
}

DSPP_INLINE HostBatches::Thread::~Thread() {
  {
    const std::lock_guard lock(mutex);
    ended = true;
  }
  changed.notify_all();
  if (thread.joinable()) thread.join();
}

DSPP_INLINE void HostBatches::Thread::prepare(Size number, Prepared& prepared) {
  try {
    fill(number, prepared.batch);
  } catch (...) {
    prepared.error = std::current_exception();
  }
}

DSPP_INLINE void HostBatches::Thread::take(Size number) {
  if (number < 0 || number >= count)
    fail(ErrorCode::usage, "dspp: batches need a number in [0, " + std::to_string(count) + "), but got " +
                               std::to_string(number) + ". Count the micro-batches of all steps from 0.");
  Prepared next;
  if (ahead == 0) {
    next.batch = std::move(taken);
    prepare(number, next);
  } else {
    std::unique_lock lock(mutex);
    if (!thread.joinable() || number != first) {  // another one than the next
      ready.clear();
      first = number, ++restarts;
    }
    if (!thread.joinable()) thread = std::thread([this] { prepare_ahead(); });
    changed.notify_all();
    changed.wait(lock, [this] { return !ready.empty(); });
    next = std::move(ready.front());
    ready.pop_front();
    ++first;
    spare.push_back(std::move(taken));
    changed.notify_all();
  }
  taken = std::move(next.batch);
  if (next.error) std::rethrow_exception(next.error);
}

DSPP_INLINE void HostBatches::Thread::prepare_ahead() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] {
      const bool failed = !ready.empty() && ready.back().error;
      const auto size = static_cast<Size>(ready.size());
      return ended || (!failed && size < ahead && first + size < count);
    });
    if (ended) return;
    const Size number = first + static_cast<Size>(ready.size()), restart = restarts;
    Prepared next;
    if (!spare.empty()) next.batch = std::move(spare.back()), spare.pop_back();
    lock.unlock();
    prepare(number, next);
    lock.lock();
    if (restart != restarts) continue;  // the reader went elsewhere
    ready.push_back(std::move(next));
    changed.notify_all();
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
