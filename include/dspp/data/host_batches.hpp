// SPDX-License-Identifier: Apache-2.0
/// The batches of a rank in host memory, prepared on access or ahead on a thread.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>

namespace dspp::data {

/// A field of a batch: its rows are [outer, extent, inner bytes], and this rank has part `part` of `parts` of
/// the extent.
struct HostField {
  std::string name;
  Size outer = 1, extent = 1, inner_bytes = 1;
  Size part = 0, parts = 1;

  Size whole_bytes() const { return outer * extent * inner_bytes; }
  Size row_bytes() const { return whole_bytes() / parts; }
  /// Copies this rank's part of a whole row.
  void cut(const std::byte* whole, std::byte* out) const;
};

/// The bytes of each field of one batch.
using HostBatch = std::vector<std::vector<std::byte>>;

/// The batches 0 to count - 1. With `ahead` > 0 a thread prepares that many after the last one that was read; it is the
/// same batches, since a batch is a function of its number. The thread runs from the first read to the destructor,
/// which waits for the fill in progress; fill is never called by two threads at a time. An exception of fill is thrown
/// by the read of the batch that it was called for.
///
/// Memory   1 + ahead batches in the host's memory, outside of the Pool, after the first read
class HostBatches {
 public:
  /// Writes batch `number`, whose bytes are zero.
  using Fill = std::function<void(Size number, HostBatch& batch)>;

  /// Throws   Error(usage) for a negative `ahead`; Error(placement) if the parts of a field do not divide its extent
  HostBatches(const std::vector<HostField>& fields, Size rows, Size count, Size ahead, Fill fill);
  ~HostBatches();
  HostBatches(const HostBatches&) = delete;
  HostBatches& operator=(const HostBatches&) = delete;

  Size size() const { return count_; }

  /// Calls use(batch) with batch `number`. Any order is allowed; the next number is the one that was prepared.
  ///
  /// Throws   Error(usage) for a number outside, and what fill throws
  template <class Use>
  void read(Size number, Use use) {
    const std::lock_guard one_reader(reader_);
    take(number);
    use(static_cast<const HostBatch&>(taken_));
  }

 private:
  struct Prepared {
    HostBatch batch;
    std::exception_ptr error;
  };

  void take(Size number);
  void prepare(Size number, Prepared& prepared);
  void prepare_ahead();

  std::vector<Size> bytes_;  // of each field
  Size count_, ahead_;
  Fill fill_;
  std::mutex reader_;
  HostBatch taken_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<Prepared> ready_;  // batches first_, first_ + 1, ...
  std::vector<HostBatch> spare_;
  Size first_ = 0;
  Size restarts_ = 0;  // a batch begun before the last one is dropped
  bool ended_ = false;
  std::thread thread_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void HostField::cut(const std::byte* whole, std::byte* out) const {
  const Size own = extent / parts * inner_bytes;
  for (Size i = 0; i < outer; ++i) std::copy_n(whole + i * extent * inner_bytes + part * own, own, out + i * own);
}

DSPP_INLINE HostBatches::HostBatches(const std::vector<HostField>& fields, Size rows, Size count, Size ahead, Fill fill)
    : count_(count), ahead_(ahead), fill_(std::move(fill)) {
  require(ahead >= 0, "dspp: batches need a prefetch of at least 0, but it is less. Raise prefetch.");
  for (const HostField& field : fields) {
    if (field.extent % field.parts != 0)
      fail(ErrorCode::placement, "dspp: a batch needs a sequence that the Cp degree divides, but '" + field.name +
                                     "' has " + std::to_string(field.extent) + " positions and Cp is " +
                                     std::to_string(field.parts) + ". Change the sequence or Cp<n>.");
    bytes_.push_back(rows * field.row_bytes());
  }
}

DSPP_INLINE HostBatches::~HostBatches() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

DSPP_INLINE void HostBatches::prepare(Size number, Prepared& prepared) {
  try {
    prepared.batch.resize(bytes_.size());
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      prepared.batch[i].assign(static_cast<std::size_t>(bytes_[i]), std::byte{0});
    fill_(number, prepared.batch);
  } catch (...) {
    prepared.error = std::current_exception();
  }
}

DSPP_INLINE void HostBatches::take(Size number) {
  if (number < 0 || number >= count_)
    fail(ErrorCode::usage, "dspp: batches need a number in [0, " + std::to_string(count_) + "), but got " +
                               std::to_string(number) + ". Count the micro-batches of all steps from 0.");
  Prepared next;
  if (ahead_ == 0) {
    next.batch = std::move(taken_);
    prepare(number, next);
  } else {
    std::unique_lock lock(mutex_);
    if (!thread_.joinable() || number != first_) {  // another one than the next
      ready_.clear();
      first_ = number, ++restarts_;
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { prepare_ahead(); });
    changed_.notify_all();
    changed_.wait(lock, [this] { return !ready_.empty(); });
    next = std::move(ready_.front());
    ready_.pop_front();
    ++first_;
    spare_.push_back(std::move(taken_));
    changed_.notify_all();
  }
  taken_ = std::move(next.batch);
  if (next.error) std::rethrow_exception(next.error);
}

DSPP_INLINE void HostBatches::prepare_ahead() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] {
      const bool failed = !ready_.empty() && ready_.back().error;
      const auto ready = static_cast<Size>(ready_.size());
      return ended_ || (!failed && ready < ahead_ && first_ + ready < count_);
    });
    if (ended_) return;
    const Size number = first_ + static_cast<Size>(ready_.size()), restart = restarts_;
    Prepared next;
    if (!spare_.empty()) next.batch = std::move(spare_.back()), spare_.pop_back();
    lock.unlock();
    prepare(number, next);
    lock.lock();
    if (restart != restarts_) continue;  // the reader went elsewhere
    ready_.push_back(std::move(next));
    changed_.notify_all();
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
