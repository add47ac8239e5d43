// SPDX-License-Identifier: Apache-2.0
/// What happens to reduced gradients before the step: sums over Tp that are still due, and the global norm.
#pragma once

#include <cmath>

#include <dspp/base/list.hpp>
#include <dspp/ops/reduce.hpp>
#include <dspp/zero/unit.hpp>

namespace dspp {

/// The reduced gradient of a bucket's owned range.
template <class T, Device D>
constexpr Storage<Memory<D>>& owned_gradient(Bucket<T, D>& b) {
  return b.reduced ? b.reduced : b.gradient;
}

/// Sums over Tp the gradients that are Partial there: parameters used as Replicate beside a Shard (norms and biases
/// under SequenceParallel). One coalesced all-reduce, never one tiny one per use.
///
/// Cost     one all-reduce over Tp of their owned elements, a ledger row of its own
template <class T, Device D>
constexpr void sum_replicated_gradients(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas,
                                        CommunicatorOf<D>& tp) {
  if (tp.size() == 1) return;
  const Size width = replicas.gradient_bytes(1);
  const auto for_each = [&](auto f) {  // f(address of the owned gradient's part, elements)
    for (Unit<T, D>* unit : units)
      for (Bucket<T, D>& b : unit->buckets()) {
        const Range own = replicas.owned(b);
        b.for_each_part(own, [&](const ParameterBase<D>& p, Size begin, Size end) {
          if (p.partial_over_tp()) f(owned_gradient(b), (begin - own.begin) * width, end - begin);
        });
      }
  };
  Size total = 0;
  for_each([&](auto&, Size, Size elements) { total += elements; });
  if (total == 0) return;
  Storage<Memory<D>> packed(replicas.memory(), total * width, Category::communication, "replicated gradients");
  Size at = 0;
  for_each([&](auto& storage, Size offset, Size elements) {
    copy_bytes<D>(packed, at, storage, offset, elements * width);
    at += elements * width;
  });
  all_reduce(tp, replicas.gradient_buffer(packed, total), Purpose::replicated_gradient);
  at = 0;
  for_each([&](auto& storage, Size offset, Size elements) {
    copy_bytes<D>(storage, offset, packed, at, elements * width);
    at += elements * width;
  });
}

/// The 2-norm of the whole gradient, the same bits on every rank and under every stage: f64 sums per (bucket, slice,
/// cut or replicated over Tp), added in that order. Parameters that are whole on every Tp rank count once.
///
/// Cost     under split optimizers an all-reduce over the replicas of 16 bytes per slice; an all-gather of 16 bytes
///          over Tp
template <class T, Device D>
constexpr double gradient_norm(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas, CommunicatorOf<D>& tp);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// Adds the squares of one slice's parts to sums[0] (cut over Tp) and sums[1] (whole on every rank of it).
template <class T, Device D>
void add_squares(Memory<D>& memory, const Bucket<T, D>& b, Range slice, const std::byte* gradient, Size gradient_begin,
                 bool wide, double* sums) {
  b.for_each_part(slice, [&](const ParameterBase<D>& p, Size begin, Size end) {
    double& sum = sums[p.cut.dimension >= 0 ? 0 : 1];
    const Size at = begin - gradient_begin, count = end - begin;
    if (wide)
      sum += ops::squared_norm<Compute<T>, D>(memory, count, reinterpret_cast<const Compute<T>*>(gradient) + at);
    else
      sum += ops::squared_norm<T, D>(memory, count, reinterpret_cast<const T*>(gradient) + at);
  });
}
}  // namespace detail

template <class T, Device D>
constexpr double gradient_norm(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas, CommunicatorOf<D>& tp) {
  const int slices = replicas.group().size();
  const bool split = replicas.rule().optimizer_is_split() && slices > 1;
  Size buckets = 0;
  for (Unit<T, D>* unit : units) buckets += static_cast<Size>(unit->buckets().size());
  auto sums = Tensor<double, 1, D>::zeros(shape(2 * buckets * slices), replicas.memory(), Category::communication,
                                          "gradient norm");
  if constexpr (D::real) {
    double* sum = sums.data();
    for (Unit<T, D>* unit : units)
      for (Bucket<T, D>& b : unit->buckets())
        for (int r = 0; r < slices; ++r, sum += 2)
          if (!split || r == replicas.group().rank())
            detail::add_squares<T, D>(replicas.memory(), b, b.slice(r, slices), owned_gradient(b).data(),
                                      replicas.owned(b).begin, replicas.config().wide_gradients, sum);
  }
  if (split) all_reduce(replicas.group(), buffer(sums.data(), sums.count()), Purpose::scalar);
  auto totals =
      Tensor<double, 2, D>::zeros(shape(tp.size(), 2), replicas.memory(), Category::communication, "gradient norm");
  double* own = D::real ? totals.data() + 2 * tp.rank() : nullptr;
  if constexpr (D::real)
    for (Size i = 0; i < sums.count(); ++i) own[i % 2] += sums.data()[i];
  if (tp.size() > 1)
    all_gather(tp, buffer(static_cast<const double*>(own), 2), buffer(totals.data(), totals.count()), Purpose::scalar);
  if constexpr (D::real) {
    double square = totals.data()[1];  // the replicated ones are the same on every rank
    for (int r = 0; r < tp.size(); ++r) {
      square += totals.data()[2 * r];
      if (!std::isfinite(totals.data()[2 * r + 1])) square = totals.data()[2 * r + 1];  // on whichever rank it is
    }
    return std::sqrt(square);
  } else {
    return 0;
  }
}

}  // namespace dspp
