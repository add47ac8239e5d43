// SPDX-License-Identifier: Apache-2.0
/// An update for a lane: what it copies first, and the ranges that it updates then.
#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include <dspp/ops/update.hpp>
#include <dspp/zero/bucket.hpp>

namespace dspp::detail {

/// It knows addresses alone: handles of blocks belong to the rank's thread. G: the gradients' type.
template <class T, class G, Device D>
class LaneUpdate {
 public:
  /// First, `to` becomes what `from` holds.
  template <class V>
  void copy(const Tensor<V, 1, D>& to, const Tensor<V, 1, D>& from) {
    const Size bytes = to.count() * static_cast<Size>(sizeof(V));
    copies_.push_back(
        {reinterpret_cast<std::byte*>(to.data()), reinterpret_cast<const std::byte*>(from.data()), bytes});
  }
  /// Then a range is updated.
  void update(const FlatRange<T, G, Compute<T>>& range, const RangeSettings& settings) {
    ranges_.emplace_back(range, settings);
  }
  /// The same of all parameters of a BucketShard with so many moments; or of those whose reduced gradients are
  /// complete before the step.
  template <class Shard>
  void update(const Shard& shard, int moments, bool before_step = false) {
    shard.bucket.for_each_part(shard.own, [&](const ParameterBase<D>& p, Size begin, Size end) {
      if (!before_step || !p.partial_over_tp())
        ranges_.emplace_back(shard.template range<G>(begin, end, moments), p.update_settings());
    });
  }
  /// All of it, by the optimizer's rule. `step`: StepScalars that live until it is done.
  template <class Optimizer>
  std::function<void(Memory<D>&)> work(const Optimizer& optimizer, const UpdateScalars& scalars,
                                       const double* step) && {
    return [optimizer, scalars, step, copies = std::move(copies_), ranges = std::move(ranges_)](Memory<D>& on) {
      for (const Copy& copy : copies) D::copy(on, copy.to, copy.from, copy.bytes);
      const auto each = [&](auto update) {
        for (const auto& [range, settings] : ranges) update(range, settings);
      };
      update_ranges<T, G, Compute<T>, D>(on, optimizer, each, scalars, step);
    };
  }

 private:
  struct Copy {
    std::byte* to;
    const std::byte* from;
    Size bytes;
  };
  std::vector<Copy> copies_;
  std::vector<std::pair<FlatRange<T, G, Compute<T>>, RangeSettings>> ranges_;
};

}  // namespace dspp::detail
