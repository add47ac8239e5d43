// SPDX-License-Identifier: Apache-2.0
/// A bucket: the parameters that are gathered and reduced together, and this rank's state for them.
#pragma once

#include <algorithm>

#include <dspp/base/list.hpp>
#include <dspp/comm/call_site.hpp>
#include <dspp/nn/parameter.hpp>

namespace dspp {

/// Flat range of a bucket: elements [begin, end).
struct Range {
  Size begin = 0, end = 0;
  constexpr Size count() const { return end - begin; }
};

/// The intersection; its count may be below 0 if it is empty.
constexpr Range common(Range a, Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

/// The parameters lie one after the other at offsets of 64 bytes, then padding, so that the replicas own equal slices
/// that are aligned themselves: replica r owns [r count / N, (r + 1) count / N).
///
/// T is the element type of the values; gradients have T or Compute<T>.
template <class T, Device D>
struct Bucket {
  List<ParameterBase<D>*> parameters;  ///< in order of their offsets
  int number = 0;                      ///< in the model, from 1
  bool frozen = false;                 ///< of frozen parameters: values alone
  bool matrices = false;               ///< of matrices that are updated as a whole
  bool is_last = false;                ///< of its unit
  Size count = 0;                      ///< elements, with padding

  Memory<D>* resting = nullptr;  ///< where slices of values rest that are not on a disk, and of the reduced gradient
  Tensor<T, 1, D> values;        ///< resident: the whole bucket, or this rank's slice where values are split
  Storage<Memory<D>> secondary;  ///< this rank's slice of every node, while SecondaryShards keeps it
  Storage<Memory<D>> gradient;   ///< unreduced, whole
  Storage<Memory<D>> reduced;    ///< the owned range of the sum over the replicas
  SumDigest sum;                 ///< of the last reduction, by the communicator

  constexpr Range slice(int replica, int replicas) const {
    return {count / replicas * replica, count / replicas * (replica + 1)};
  }

  /// Calls f(parameter, begin, end) with the part of each parameter inside `range`, in elements of the bucket.
  template <class F>
  constexpr void for_each_part(Range range, F f) const {
    for (ParameterBase<D>* p : parameters) {
      const Size begin = std::max(range.begin, p->offset), end = std::min(range.end, p->offset + p->count());
      if (begin < end) f(*p, begin, end);
    }
  }
};

/// What hears of reductions of a backward as they are complete.
template <class T, Device D>
class OnReduced {
 public:
  /// A bucket's reduced gradient is complete.
  virtual void reduced(Bucket<T, D>& b) noexcept = 0;
  /// It is about to change: its parameters have had more gradients.
  virtual void changes(Bucket<T, D>& b) noexcept = 0;

 protected:
  constexpr ~OnReduced() = default;
};

/// The first buckets of a unit.
template <class T, Device D>
struct BucketSpan {
  Bucket<T, D>* first;
  Size count;
  constexpr Bucket<T, D>* begin() const { return first; }
  constexpr Bucket<T, D>* end() const { return first + count; }
};

}  // namespace dspp
