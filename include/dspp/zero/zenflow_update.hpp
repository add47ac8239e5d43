// SPDX-License-Identifier: Apache-2.0
/// Updates of important rows in each step, and of the others in rounds: of a policy with ZenFlow.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include <dspp/base/at_run_time.hpp>
#include <dspp/base/list.hpp>
#include <dspp/base/otherwise.hpp>
#include <dspp/ops/gradient_norm.hpp>
#include <dspp/optim/gradient_sum.hpp>
#include <dspp/placement/zenflow.hpp>
#include <dspp/tensor/lane.hpp>
#include <dspp/zero/lane_update.hpp>
#include <dspp/zero/replicas.hpp>

namespace dspp {

/// Which rows are important, what waits for the others' update, and the update that is under way.
///
/// A step's place in the schedule follows from its number, that of the update: a step that is skipped has the number of
/// the one that is done in its place, changes nothing, and is repeated as it was.
template <class T, Device D>
class ZenFlowUpdate {
 public:
  using State = Compute<T>;
  using BucketType = Bucket<T, D>;

  constexpr explicit ZenFlowUpdate(Replicas<T, D>& replicas) : replicas_(&replicas) {}
  ZenFlowUpdate(const ZenFlowUpdate&) = delete;
  ZenFlowUpdate& operator=(const ZenFlowUpdate&) = delete;
  constexpr ~ZenFlowUpdate() { lane_.end(); }  // before its blocks are given back

  /// Of a bucket that is trained, in order of their numbers. Its state rests in `memory`.
  ///
  /// Memory   per owned element: a sum of gradients, and to overlap another, and the value where it is its own master
  constexpr void add(BucketType& b, Memory<D>& memory) {
    parts_.push_back({&b, {}, {}, {}});
    place(parts_.back(), memory);
    for (const ParameterBase<D>* p : b.parameters) {
      if (!p->is_matrix()) continue;
      while (matrix_of_.size() <= static_cast<std::size_t>(p->number)) matrix_of_.push_back(0);
      matrix_of_[static_cast<std::size_t>(p->number)] = matrices_.size();
      const std::size_t first_piece = pieces_.size();
      const Size slice = b.count / replicas_->shards().size(), end = p->offset + p->count();
      for (Size r = p->offset / slice; r * slice < end; ++r) {
        const Size from = std::max(r * slice, p->offset), to = std::min((r + 1) * slice, end);
        pieces_.push_back({p, &b, static_cast<int>(r), from - p->offset, to - p->offset, sums_});
        sums_ += pieces_.back().rows();
      }
      matrices_.push_back({p, rows_, first_piece, pieces_.size()});
      rows_ += p->count() / p->row;
    }
  }
  /// After the last one, in a world of `tp` ranks along Tp.
  ///
  /// Memory   of the device: a byte a row of this rank's matrices, and 8 bytes for each rank along Tp and each part of
  ///          a row that a slice has
  constexpr void finish_adding(int tp) {
    Memory<D>& memory = replicas_->memory();
    steps_ = Tensor<double, 2, D>::zeros(shape(2, StepScalars::count), memory, Category::optimizer, "a round's steps");
    if (matrices_.empty()) return;
    marks_ = Tensor<std::uint8_t, 1, D>::zeros(shape(rows_), memory, Category::optimizer, "important rows");
    importances_ =
        Tensor<double, 2, D>::zeros(shape(tp, sums_), memory, Category::optimizer, "squares of rows' gradients");
  }
  /// Whether values or state may lack gradients of steps so far.
  constexpr bool waits() const { return first_ != 0; }
  /// Calls f(bucket) for each that is trained.
  template <class F>
  constexpr void for_each_bucket(F f) {
    for (Part& part : parts_) f(*part.bucket);
  }

  /// One step's update. shard(b) is the BucketShard of a bucket; `step`: the StepScalars, of D.
  template <class Optimizer, class ShardOf>
  constexpr void step(const Optimizer& optimizer, ShardOf shard, const UpdateScalars& scalars, const double* step,
                      CommunicatorOf<D>& tp) {
    const ZenFlowConfig& config = replicas_->config().zenflow;
    if (first_ == 0) first_ = std::max(scalars.step, config.full_warm_up_steps);
    const Size since = scalars.step - first_;
    keep_scalars(last, step);
    if (since <= 0) {
      update(Rows::all, optimizer, shard, scalars, step);
      if (since == 0) select(shard, tp);
      return;
    }
    const Size place = (since - 1) % config.update_interval;
    const bool ends = place + 1 == config.update_interval;
    if (ends) wait();  // first: what the lane threw leaves this step undone, and row(mean) is the lane's until then
    round_ = (since - 1) / config.update_interval, done_ = place;
    update(Rows::important, optimizer, shard, scalars, step);
    sum_up(place == 0 ? GradientSum::How::begin : GradientSum::How::add, shard, step);
    if (!__builtin_is_constant_evaluated())
      flush_.get_or_make() = [this, optimizer, shard, scalars](bool was_done) {
        const Size of = (done_ + (was_done ? 1 : 0)) % replicas_->config().zenflow.update_interval;
        if (of == 0) return;
        UpdateScalars of_last = scalars;
        if (!was_done) --of_last.step;
        set_scalar(mean, StepScalars::gradient_scale, 1 / static_cast<double>(of));
        set_scalar(mean, StepScalars::verdict, static_cast<double>(StepVerdict::update));
        update_others(optimizer, shard, of_last);
      };
    if (!ends) return;
    keep_scalars(mean, step);
    set_scalar(mean, StepScalars::gradient_scale, 1);
    finish(shard, row(mean));
    set_scalar(mean, StepScalars::gradient_scale, 1 / static_cast<double>(config.update_interval));
    const bool selects = since % config.select_interval == 0;
    if (config.overlap_step && !selects)
      start(optimizer, shard, scalars);
    else
      update_others(optimizer, shard, scalars);
    if (selects) select(shard, tp);
  }

  /// Masters and moments are those after the update that is under way from now on.
  constexpr void wait() {
    if (is_under_way_) lane_.wait();
  }
  /// Updates the other rows by all gradients so far; the next step updates all rows, and selects. Call it on every
  /// rank, between steps.
  template <class ShardOf>
  constexpr void end(ShardOf shard) {
    finish(shard, nullptr);
    is_under_way_ = false;
    if (flush_) (*flush_)(was_done());
    flush_ = {};
    first_ = 0;
  }

  /// After end(): what is kept for a bucket is in `memory` from now on.
  constexpr void move(const BucketType& b, Memory<D>& memory) {
    for (Part& part : parts_)
      if (part.bucket == &b && &part.even.memory() != &memory) place(part, memory);
  }

 private:
  enum class Rows : std::uint8_t { others, important, all };
  static constexpr Size last = 0, mean = 1;  ///< rows of steps_

  struct Part {
    BucketType* bucket = nullptr;
    Tensor<State, 1, D> even, odd;  ///< sums of the owned elements' gradients, of every other round
    Tensor<State, 1, D> ahead;      ///< values of other rows that are their own masters, by the update under way
  };
  struct Matrix {
    const ParameterBase<D>* parameter;
    Size first_row;  ///< among those of all matrices
    std::size_t first_piece, end_piece;
  };
  /// Elements [begin, end) of a matrix, which a slice has of it.
  struct Piece {
    const ParameterBase<D>* parameter;
    BucketType* bucket;
    int slice;
    Size begin, end;
    Size first_sum;  ///< place of its first row's sum
    constexpr Size first_row() const { return begin / parameter->row; }
    constexpr Size rows() const { return (end - 1) / parameter->row + 1 - first_row(); }
  };

  static constexpr bool is_own_master = std::is_same_v<T, State>;

  constexpr void place(Part& part, Memory<D>& memory) const {
    const Shape<1> owned{{replicas_->owned(*part.bucket).count()}};
    const bool overlaps = replicas_->config().zenflow.overlap_step;
    const auto make = [&](bool is_kept, const char* label) {
      if (!is_kept) return Tensor<State, 1, D>();
      return Tensor<State, 1, D>::uninitialized(owned, memory, Category::gradients, label);
    };
    auto even = make(true, "sums of gradients"), odd = make(overlaps, "sums of gradients"),
         ahead = make(overlaps && is_own_master, "values of an update");
    part.even = std::move(even), part.odd = std::move(odd), part.ahead = std::move(ahead);
  }
  constexpr double* row(Size of) const { return steps_.data_from(of * StepScalars::count); }
  constexpr void set_scalar(Size of, Size scalar, double value) const {
    Tensor<double, 1, D>::view(steps_.storage(), of * StepScalars::count + scalar, shape(1)).fill(value);
  }
  constexpr void keep_scalars(Size to, const double* step) const {
    const auto as_bytes = [](const double* numbers) { return reinterpret_cast<const std::byte*>(numbers); };
    D::copy(replicas_->memory(), detail::byte_of<D>(steps_.storage(), to * StepScalars::count * 8),
            step ? as_bytes(step) : nullptr, StepScalars::count * 8);
  }
  /// Of the last step: that it was not skipped. The host waits for it. False on paper.
  constexpr bool was_done() const {
    bool result = false;
    steps_.read([&](const auto* host) { result = updates(host + last * StepScalars::count); });
    return result;
  }
  constexpr RowChoice choice(const ParameterBase<D>& p, Size begin, Rows rows) const {
    if (rows == Rows::all || !p.is_matrix()) return {};
    const Matrix& matrix = matrices_[matrix_of_[static_cast<std::size_t>(p.number)]];
    return {marks_.data_from(matrix.first_row), p.row, begin, static_cast<std::uint8_t>(rows)};
  }
  /// Calls f(range, settings) for what a part has of these rows; the range has its place, and gradients of G that begin
  /// at `gradient`.
  template <class G, class Shard, class F>
  void for_each_range(const Shard& own, Rows rows, int moments, const G* gradient, F f) const {
    own.bucket.for_each_part(own.own, [&](const ParameterBase<D>& p, Size begin, Size end) {
      if (rows == Rows::others && !p.is_matrix()) return;
      auto range = own.template range<G>(begin, end, moments, gradient + (begin - own.own.begin));
      range.rows = choice(p, begin - p.offset, rows);
      f(range, p.update_settings(), begin - own.own.begin);
    });
  }
  /// Calls f(G()) with the type of the reduced gradients.
  template <class F>
  constexpr void in_gradient_type(F f) const {
    if constexpr (!is_own_master)
      if (replicas_->config().wide_gradients) return f(State());
    f(T());
  }

  template <class Optimizer, class ShardOf>
  constexpr void update(Rows rows, const Optimizer& optimizer, ShardOf& shard, const UpdateScalars& scalars,
                        const double* step) {
    in_gradient_type([&]<class G>(G) {
      const auto ranges = [&](auto f) {
        for (Part& part : parts_) {
          const auto own = shard(*part.bucket);
          for_each_range<G>(own, rows, Optimizer::moment_count, own.template gradient<G>(0),
                            [&](const auto& range, const auto& settings, Size) { f(range, settings); });
        }
      };
      update_ranges<T, G, State, D>(replicas_->memory(), optimizer, ranges, scalars, step);
    });
  }
  template <class ShardOf>
  constexpr void sum_up(GradientSum::How how, ShardOf& shard, const double* step) {
    in_gradient_type([&]<class G>(G) {
      const auto ranges = [&](auto f) {
        for (Part& part : parts_) {
          const auto own = shard(*part.bucket);
          for_each_range<G>(own, Rows::others, 0, own.template gradient<G>(0),
                            [&](auto range, const auto& settings, Size at) {
                              range.parameter = nullptr, range.master = sums_of(part).data_from(at);
                              f(range, settings);
                            });
        }
      };
      update_ranges<T, G, State, D>(replicas_->memory(), GradientSum{how}, ranges, {}, step);
    });
  }
  constexpr const Tensor<State, 1, D>& sums_of(const Part& part) const {
    return part.odd && round_ % 2 == 1 ? part.odd : part.even;
  }
  /// The other rows, within the step.
  template <class Optimizer, class ShardOf>
  constexpr void update_others(const Optimizer& optimizer, ShardOf& shard, const UpdateScalars& scalars) {
    const auto ranges = [&](auto f) {
      for (Part& part : parts_)
        for_each_range<State>(shard(*part.bucket), Rows::others, Optimizer::moment_count, sums_of(part).data(),
                              [&](const auto& range, const auto& settings, Size) { f(range, settings); });
    };
    update_ranges<T, State, State, D>(replicas_->memory(), optimizer, ranges, scalars, row(mean));
  }
  /// The same beside the steps that follow: masters change, and values in finish().
  template <class Optimizer, class ShardOf>
  constexpr void start(const Optimizer& optimizer, ShardOf& shard, const UpdateScalars& scalars) {
    detail::Otherwise not_started([&] { lane_.end(); });
    lane_.start(replicas_->memory(), [&]() -> std::function<void(Memory<D>&)> {
      detail::LaneUpdate<T, State, D> update;
      for (Part& part : parts_)
        for_each_range<State>(shard(*part.bucket), Rows::others, Optimizer::moment_count, sums_of(part).data(),
                              [&](auto range, const auto& settings, Size at) {
                                range.parameter = nullptr;
                                if constexpr (is_own_master) range.master = part.ahead.data_from(at);
                                update.update(range, settings);
                              });
      return std::move(update).work(optimizer, scalars, row(mean));
    });
    not_started.cancel();
    is_under_way_ = true;
  }
  /// Ends what start() began last, of which the values are taken over; in a step that is skipped they are not, and the
  /// one in its place does it.
  template <class ShardOf>
  constexpr void finish(ShardOf& shard, const double* step) {
    if (!is_under_way_) return;
    wait();
    const auto ranges = [&](auto f) {
      for (Part& part : parts_)
        for_each_range<State>(shard(*part.bucket), Rows::others, 0, (is_own_master ? part.ahead : part.even).data(),
                              [&](const auto& range, const auto& settings, Size) { f(range, settings); });
    };
    const GradientSum taken{is_own_master ? GradientSum::How::begin : GradientSum::How::keep};
    update_ranges<T, State, State, D>(replicas_->memory(), taken, ranges, {}, step);
  }

  /// From the gradients of this step, unless it is skipped.
  template <class ShardOf>
  constexpr void select(ShardOf& shard, CommunicatorOf<D>& tp) {
    if (matrices_.empty()) return;
    const bool split = replicas_->rule().optimizer_is_split() && replicas_->shards().size() > 1;
    double* const own_sums = importances_.data_from(tp.rank() * sums_);
    importances_.fill(0);
    in_gradient_type([&]<class G>(G) {
      ops::add_row_squares<G, D>(replicas_->memory(), [&](auto add) {
        for (const Piece& piece : pieces_) {
          if (split && (piece.slice != replicas_->shards().rank() || replicas_->copy() != 0)) continue;
          const Size at = piece.parameter->offset + piece.begin - replicas_->owned(*piece.bucket).begin;
          add(piece.end - piece.begin, piece.parameter->row, piece.begin,
              piece.bucket->reduced.template element<const G>(at), own_sums + piece.first_sum);
        }
      });
    });
    if (split) all_reduce(replicas_->group(), buffer(own_sums, sums_), Purpose::check);
    if (tp.size() > 1)
      all_gather(tp, buffer(static_cast<const double*>(own_sums), sums_),
                 buffer(importances_.data(), importances_.count()), Purpose::check);
    if (!was_done()) return;
    importances_.read([&](const auto* sums) {
      marks_.write([&](std::uint8_t* marks) {
        for (const Matrix& matrix : matrices_) mark(matrix, tp, sums, marks + matrix.first_row);
      });
    });
    for (Part& part : parts_) keep_values(part, shard);
  }
  /// Marks the rows of this rank's part of a matrix that are among the most important of the matrix, or, of a tile, of
  /// the tile. `sums`: of all ranks of Tp.
  void mark(const Matrix& matrix, const CommunicatorOf<D>& tp, const double* sums, std::uint8_t* marks) const {
    const ParameterBase<D>& p = *matrix.parameter;
    const Size columns = p.global_columns(), rows = p.count() / p.row;
    constexpr double absent = -1;
    std::vector<double> importance(static_cast<std::size_t>(p.geometry.global_count() / columns), absent);
    const auto for_each_row = [&](int rank, Size first, Size count, auto f) {  // f(local, global)
      for (Size i = first; i < first + count; ++i)
        p.geometry.for_each_run(p.geometry.parts > 1 ? rank : 0, i * p.row, (i + 1) * p.row,
                                [&](Size, Size global, Size) { f(i, static_cast<std::size_t>(global / columns)); });
    };
    for (int rank = 0; rank < (p.geometry.parts > 1 ? tp.size() : 1); ++rank)
      for (std::size_t k = matrix.first_piece; k < matrix.end_piece; ++k) {
        const Piece& piece = pieces_[k];
        for_each_row(rank, piece.first_row(), piece.rows(), [&](Size local, std::size_t global) {
          const double squares = sums[rank * sums_ + piece.first_sum + local - piece.first_row()];
          importance[global] = std::max(importance[global], 0.0) + squares;
        });
      }
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < importance.size(); ++i)
      if (importance[i] != absent) order.push_back(i);
    const double ratio = replicas_->config().zenflow.topk_ratio;
    const auto wanted = static_cast<std::size_t>(std::llround(ratio * static_cast<double>(order.size())));
    const std::size_t chosen = std::min(order.size(), ratio > 0 ? std::max<std::size_t>(wanted, 1) : 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return importance[a] > importance[b]; });
    for (std::size_t i = 0; i < order.size(); ++i) importance[order[i]] = i < chosen ? 1 : 0;
    std::fill_n(marks, rows, std::uint8_t{0});
    for_each_row(tp.rank(), 0, rows,
                 [&](Size local, std::size_t global) { marks[local] = importance[global] == 1 ? 1 : 0; });
  }
  template <class ShardOf>
  void keep_values(Part& part, ShardOf& shard) {
    if constexpr (is_own_master)
      if (part.ahead) {
        const auto own = shard(*part.bucket);
        copy_bytes<D>(part.ahead.storage(), 0, own.values.storage(), own.values.offset() * static_cast<Size>(sizeof(T)),
                      part.ahead.bytes());
      }
  }

  Replicas<T, D>* replicas_;
  List<Part> parts_;
  List<Matrix> matrices_;
  List<std::size_t> matrix_of_;  ///< place among these, by the number of a parameter
  List<Piece> pieces_;
  Size rows_ = 0, sums_ = 0;                    ///< of all matrices, and of their pieces
  Tensor<std::uint8_t, 1, D> marks_;            ///< of each row of this rank's matrices
  Tensor<double, 2, D> importances_;            ///< of the ranks of Tp
  Tensor<double, 2, D> steps_;                  ///< StepScalars: of the last step; of the last round
  Size first_ = 0;                              ///< number of the step that selected first; 0: none since end()
  Size round_ = 0, done_ = 0;                   ///< of the last step: its round, and how many of it were before
  bool is_under_way_ = false;                   ///< start() was called since end()
  AtRunTime<std::function<void(bool)>> flush_;  ///< end() of the last step, by whether it was done
  Lane<D> lane_;                                ///< last: its work uses the others
};

}  // namespace dspp
