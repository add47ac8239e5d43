// SPDX-License-Identifier: Apache-2.0
/// How one thread of a BlockFile transfers a block: in pieces, several at a time, while what is past is checksummed.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <dspp/base/types.hpp>
#include <dspp/io/block_calls.hpp>

namespace dspp::io::detail {

/// The bytes of a piece that is as long as its block.
inline constexpr Size whole_block = Size{1} << 40;

/// Bytes of memory and of the file, both aligned to block_unit.
struct BlockSpan {
  bool writes = false;
  std::byte* at = nullptr;
  Size offset = 0, bytes = 0;
};

/// The first part of a block that could not be transferred.
struct BlockFailure {
  Size offset = 0, bytes = 0;  ///< 0: none
  int error = 0;               ///< 0: a transfer without bytes
};

/// What threads of a file share.
struct BlockPlace {
  BlockCalls* calls = nullptr;
  int descriptor = -1;
  std::atomic<bool> direct{true};
};

/// The pieces of one block at a time.
class BlockLane {
 public:
  BlockLane(BlockPlace& place, std::unique_ptr<BlockRing> ring, int depth, Size piece_bytes)
      : place_(&place), ring_(std::move(ring)), piece_bytes_(piece_bytes), slots_(static_cast<std::size_t>(depth)) {}

  /// Returns when no piece is under way. `settled(bytes)`, which does not throw: the first bytes of what is read are
  /// there, or the first of what is written may be read. The first piece is started last in a write, after
  /// settled(span.bytes), so that it can have a checksum of all.
  template <class Settled>
  BlockFailure carry(const BlockSpan& span, const Settled& settled) {
    failure_ = {};
    const Size pieces = (span.bytes + piece_bytes_ - 1) / piece_bytes_;
    Size next = span.writes ? 1 : 0;
    for (const Size last = next + pieces;;) {
      while (failure_.bytes == 0 && next < last) {
        Slot* const slot = free_slot();
        if (slot == nullptr) break;
        const Size begin = next++ % pieces * piece_bytes_;
        if (span.writes && begin == 0) settled(span.bytes);
        start(*slot, span, begin);
        if (span.writes && begin > 0) settled(begin);
      }
      if (!span.writes) settled(settled_of(span, std::min(next * piece_bytes_, span.bytes)));
      if (under_way_ == 0) return failure_;
      Slot& slot = static_cast<Slot&>(ring_->wait());
      if (slot.error == ECANCELED) transfer(place_->descriptor, slot);  // the kernel had no thread for it
      place_->calls->after(slot);
      go_on(slot, true);
    }
  }

 private:
  struct Slot : BlockPiece {
    Size end = 0;  ///< of the piece in the file
    int idle = 0;  ///< transfers of less than a unit, one after the other
    bool is_used = false, was_direct = false;
  };

  Slot* free_slot() {
    for (Slot& slot : slots_)
      if (!slot.is_used) return &slot;
    return nullptr;
  }
  /// The bytes of a read before the first that is under way.
  Size settled_of(const BlockSpan& span, Size started) const {
    for (const Slot& slot : slots_)
      if (slot.is_used) started = std::min(started, slot.offset - span.offset);
    return started;
  }
  void start(Slot& slot, const BlockSpan& span, Size begin) {
    slot = {};
    slot.writes = span.writes, slot.at = span.at + begin, slot.offset = span.offset + begin;
    slot.end = span.offset + std::min(begin + piece_bytes_, span.bytes);
    slot.is_used = true;
    ++under_way_;
    go_on(slot, false);
  }
  /// Transfers what is left of a piece, until it is under way or nothing is left of it.
  void go_on(Slot& slot, bool has_ended) {
    for (;; has_ended = true) {
      if (has_ended && !has_rest(slot)) {
        slot.is_used = false;
        --under_way_;
        return;
      }
      slot.bytes = slot.end - slot.offset, slot.done = 0, slot.error = 0, slot.was_direct = place_->direct;
      place_->calls->before(slot);
      if (slot.error == 0 && slot.bytes > 0) return ring_->start(slot);
    }
  }
  /// Whether a piece goes on after a transfer; not if it failed, or another one did.
  bool has_rest(Slot& slot) {
    if (!is_tried_again(slot)) {
      const Size left = slot.end - slot.offset;
      // Direct transfers begin at units.
      const Size whole = slot.error != 0 ? 0 : slot.done == left ? left : slot.done / block_unit * block_unit;
      slot.idle = whole > 0 ? 0 : slot.idle + 1;
      slot.at += whole, slot.offset += whole;
      const bool fails = slot.error != 0 || slot.done <= 0 || slot.idle > 3;
      if (fails && failure_.bytes == 0) failure_ = {slot.offset, slot.end - slot.offset, slot.error};
    }
    return slot.offset < slot.end && failure_.bytes == 0;
  }
  bool is_tried_again(Slot& slot) {
    if (slot.error == EINTR) return true;
    if (slot.error == EAGAIN && !slot.may_block) return slot.may_block = true;
    if (slot.error != EINVAL || !slot.was_direct) return false;
    // The file system opens for direct transfers and refuses them.
    ::fcntl(place_->descriptor, F_SETFL, ::fcntl(place_->descriptor, F_GETFL) & ~O_DIRECT);
    place_->direct = false;  // after it: other threads then transfer otherwise
    return true;
  }

  BlockPlace* place_;
  std::unique_ptr<BlockRing> ring_;
  Size piece_bytes_;
  std::vector<Slot> slots_;
  int under_way_ = 0;
  BlockFailure failure_{};
};

}  // namespace dspp::io::detail

#endif  // DSPP_HAS_DEFINITIONS()
