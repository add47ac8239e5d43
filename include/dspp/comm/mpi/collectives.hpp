// SPDX-License-Identifier: Apache-2.0
/// One rank's share of an operation done by MPI's own collectives: SumOrder::transport.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <dspp/comm/mpi/failure_state.hpp>
#include <dspp/comm/mpi/share.hpp>
#include <dspp/comm/posted.hpp>
#include <dspp/comm/rank_sum.hpp>

namespace dspp::detail {

/// Each tile is packed into a buffer of its own that only MPI accesses. MPI cannot cancel a collective after a failure;
/// the buffer is then never freed.
///
///   reduce_scatter  MPI_Ireduce_scatter_block; of bf16 and f16 MPI_Ialltoall and a sum in rank order
///   all_gather      MPI_Iallgather
///   all_reduce      the first, then the second, so that every rank gets the bits of the rank that summed
///
/// MpiShare runs small all-reduces and all-gathers and the other operations. The bytes that MPI moves are not known:
/// finish() returns those of the formula, a lower bound.
class MpiCollectives {
 public:
  /// `rank` of the `size` ranks that `line` connects.
  MpiCollectives(MpiFailureState& failures, const MpiLine& line, int rank)
      : failures_(failures), line_(line), rank_(rank), size_(static_cast<int>(line.ranks.size())) {}
  MpiCollectives(const MpiCollectives&) = delete;
  MpiCollectives& operator=(const MpiCollectives&) = delete;
  ~MpiCollectives() { withdraw(); }

  /// True if run() runs `mine`; the same on all ranks that agree on it.
  bool takes(const Posted& mine) const {
    if (size_ == 1) return false;
    if (mine.collective == Collective::all_reduce) return contributed_bytes(mine) >= smallest_bytes;
    if (mine.collective == Collective::all_gather) return contributed_bytes(mine) * size_ >= smallest_bytes;
    return mine.collective == Collective::reduce_scatter;  // of any size: a list has the bits of its pairs one by one
  }

  /// Advances `mine`, the oldest operation, on which all ranks agree. True when it is complete.
  bool run(const Posted& mine) {
    for (;;) {
      if (is_under_way()) {
        int done = 0;
        if (!failures_.good(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "continue a collective") || done == 0)
          return false;
        ++failures_.steps;
        finish_step(mine);
      } else if (!begin_tile(mine)) {
        return true;
      }
      if (failures_.failed()) return false;
    }
  }

  /// Returns the bytes that this rank must have received for the operation, and resets the count.
  Size finish() {
    pair_ = 0;
    begin_ = 0;
    return std::exchange(bytes_, 0);
  }

  /// After a failure: abandons the collective under way. MPI keeps its buffers; the user's memory is not in use.
  void withdraw() {
    if (is_under_way()) give_up();
  }

 private:
  enum class Step { summing, gathering };

  static constexpr Size smallest_bytes = 64 * 1024;
  static constexpr Size tile_bytes = 4 * 1024 * 1024;  // of all ranks

  static std::byte* at(void* data, Size bytes) { return static_cast<std::byte*>(data) + bytes; }
  static const std::byte* at(const void* data, Size bytes) { return static_cast<const std::byte*>(data) + bytes; }
  static void copy(std::byte* to, const std::byte* from, Size bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  /// Null where MPI has no such element type.
  static MPI_Datatype mpi_type(ElementType type) {
    switch (type) {
      case ElementType::f64: return MPI_DOUBLE;
      case ElementType::f32: return MPI_FLOAT;
      case ElementType::i32: return MPI_INT32_T;
      case ElementType::i64: return MPI_INT64_T;
      default: return MPI_DATATYPE_NULL;
    }
  }

  /// The bytes that one rank contributes.
  static Size contributed_bytes(const Posted& mine) {
    Size bytes = 0;
    for (const PostedPair& p : mine.pairs) bytes += p.count * bytes_of(p.type);
    return bytes;
  }

  bool is_under_way() const { return request_ != MPI_REQUEST_NULL; }

  /// Leaks the buffers: MPI may still write to them.
  void give_up() {
    static_cast<void>(whole_.release());
    static_cast<void>(part_.release());
    request_ = MPI_REQUEST_NULL;
  }

  const PostedPair& pair(const Posted& mine) const { return mine.pairs[pair_]; }

  /// Begins the next tile of an all-reduce's elements, or of each slice; false when all are done.
  bool begin_tile(const Posted& mine) {
    while (pair_ < mine.pairs.size() && begin_ >= pair(mine).count) {
      bytes_ += bytes_of_pair(mine, pair(mine));
      ++pair_;
      begin_ = 0;
    }
    if (pair_ == mine.pairs.size()) return false;
    if (!whole_) whole_ = std::make_unique<std::byte[]>(static_cast<std::size_t>(tile_bytes) + slack());
    if (!part_) part_ = std::make_unique<std::byte[]>(static_cast<std::size_t>(tile_bytes) + slack());
    const PostedPair& p = pair(mine);
    element_ = bytes_of(p.type);
    const Size most = std::max<Size>(1, tile_bytes / element_ / size_), rest = p.count - begin_;
    const bool all_reduce = mine.collective == Collective::all_reduce;
    each_ = std::min(most, all_reduce ? (rest + size_ - 1) / size_ : rest);
    if (mine.collective == Collective::all_gather) {
      copy(part_.get(), at(p.in, begin_ * element_), each_ * element_);
      gather();
    } else {
      pack(p, all_reduce);
      reduce(p.type);
    }
    return true;
  }

  /// Room for a tile of one element of each rank.
  std::size_t slack() const { return 16 * static_cast<std::size_t>(size_); }

  /// The elements that the tile has; the rest of an all-reduce's last tile is zeros.
  Size elements_of_tile(const PostedPair& p) const { return std::min(each_ * size_, p.count - begin_); }

  void pack(const PostedPair& p, bool all_reduce) {
    if (all_reduce) {
      const Size bytes = elements_of_tile(p) * element_;
      copy(whole_.get(), at(p.in, begin_ * element_), bytes);
      std::memset(whole_.get() + bytes, 0, static_cast<std::size_t>(each_ * size_ * element_ - bytes));
      return;
    }
    for (int r = 0; r < size_; ++r)
      copy(whole_.get() + r * each_ * element_, at(p.in, (p.count * r + begin_) * element_), each_ * element_);
  }

  void reduce(ElementType type) {
    step_ = Step::summing;
    const int count = static_cast<int>(each_), bytes = static_cast<int>(each_ * element_);
    if (mpi_type(type) != MPI_DATATYPE_NULL)
      failures_.good(
          MPI_Ireduce_scatter_block(whole_.get(), part_.get(), count, mpi_type(type), MPI_SUM, line_.comm, &request_),
          "reduce and scatter");
    else
      failures_.good(MPI_Ialltoall(whole_.get(), bytes, MPI_BYTE, part_.get(), bytes, MPI_BYTE, line_.comm, &request_),
                     "exchange");
  }

  void gather() {
    step_ = Step::gathering;
    const int bytes = static_cast<int>(each_ * element_);
    failures_.good(MPI_Iallgather(part_.get(), bytes, MPI_BYTE, whole_.get(), bytes, MPI_BYTE, line_.comm, &request_),
                   "gather");
  }

  /// Completes a step of a tile and starts the next.
  void finish_step(const Posted& mine) {
    const PostedPair& p = pair(mine);
    if (step_ == Step::summing && mpi_type(p.type) == MPI_DATATYPE_NULL) sum_parts(p.type);
    if (mine.collective == Collective::all_reduce) {
      if (step_ == Step::summing) return gather();
      copy(at(p.out, begin_ * element_), whole_.get(), elements_of_tile(p) * element_);
      begin_ += each_ * size_;
      return;
    }
    if (mine.collective == Collective::reduce_scatter)
      copy(at(p.out, begin_ * element_), part_.get(), each_ * element_);
    else
      for (int r = 0; r < size_; ++r)
        copy(at(p.out, (p.count * r + begin_) * element_), whole_.get() + r * each_ * element_, each_ * element_);
    begin_ += each_;
  }

  /// Sums the ranks' parts into the first.
  void sum_parts(ElementType type) {
    sources_.clear();
    for (int r = 0; r < size_; ++r) sources_.push_back(part_.get() + r * each_ * element_);
    sum_over_ranks(type, sources_.data(), size_, 0, each_, part_.get());
  }

  Size bytes_of_pair(const Posted& mine, const PostedPair& p) const {
    const Size element = bytes_of(p.type);
    if (mine.collective != Collective::all_reduce) return p.count * (size_ - 1) * element;
    const Size own = p.count * (rank_ + 1) / size_ - p.count * rank_ / size_;
    return (own * (size_ - 1) + p.count - own) * element;
  }

  MpiFailureState& failures_;
  const MpiLine& line_;
  int rank_;
  int size_;
  MPI_Request request_ = MPI_REQUEST_NULL;
  Step step_ = Step::summing;
  std::size_t pair_ = 0;
  Size begin_ = 0;                             // the first element of the tile in the pair, or in each slice
  Size each_ = 0;                              // elements of the tile that one rank sums or contributes
  Size element_ = 1;                           // bytes
  Size bytes_ = 0;                             // of the complete pairs
  std::unique_ptr<std::byte[]> whole_, part_;  // a tile of all ranks, and one rank's part
  std::vector<const void*> sources_;
};

}  // namespace dspp::detail

#endif  // DSPP_HAS_MPI()
