// SPDX-License-Identifier: Apache-2.0
/// Work on gradients before the step: what is left of their reduction, pending sums over Tp, and the global norm.
#pragma once

#include <dspp/base/list.hpp>
#include <dspp/ops/gradient_norm.hpp>
#include <dspp/zero/unit.hpp>

namespace dspp {

/// Starts to reduce what is not reduced, of the last units first: in one order on all ranks.
template <class T, Device D>
constexpr void start_reductions(const List<Unit<T, D>*>& units) {
  for (std::size_t i = units.size(); i-- > 0;) units[i]->reduce_for_step();
}

/// Reduces what is not reduced yet, notes the reduced gradients that changed since, so that the norm is NaN on every
/// rank, and sums those of shards within nodes across nodes.
///
/// Cost     of such shards, one all-reduce per bucket across nodes
template <class T, Device D>
constexpr void finish_reductions(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas);

/// Sums over Tp the gradients that are Partial there: parameters used as Replicate beside a Shard (norms and biases
/// under SequenceParallel). One coalesced all-reduce, not a small one per use.
///
/// Cost     one all-reduce over Tp of their owned elements, with its own row in the traffic. Without rank order an
///          all-gather and local sums, so that replicas and stages, whose counts differ, get the same bits
template <class T, Device D>
constexpr void sum_replicated_gradients(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas,
                                        CommunicatorOf<D>& tp);

/// The 2-norm of the whole gradient, the same bits on every rank and under every stage: f64 sums per (bucket, slice,
/// cut or replicated over Tp), added in that order. Parameters that are whole on every Tp rank count once. NaN on every
/// rank if a reduced gradient was found changed on one.
///
/// Cost     under split optimizers an all-reduce over all replicas of 16 bytes per slice, also where nodes share the
///          slices; an all-gather of 16 bytes over Tp
template <class T, Device D>
constexpr Scalar<double, D> gradient_norm(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas,
                                          CommunicatorOf<D>& tp);

// ---------------------------------------------------------------------------------------------------------------------

template <class T, Device D>
constexpr void finish_reductions(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas) {
  start_reductions(units);
  replicas.complete_all();
  const auto for_each = [&](auto f) {
    for (Unit<T, D>* unit : units)
      for (Bucket<T, D>& b : unit->trained_buckets()) f(b);
  };
  if (replicas.checks_reductions())
    for_each([&](auto& b) { replicas.prints().check_resting(b.number, b.reduced, replicas.slice_bytes(b)); });
  for_each([&](auto& b) { replicas.start_sum_over_copies(b); });
  replicas.complete_all();
}

namespace detail {
/// Sums `packed` over Tp in place.
template <class T, Device D>
constexpr void sum_packed(Replicas<T, D>& replicas, CommunicatorOf<D>& tp, const Storage<Memory<D>>& packed,
                          Size total) {
  const Buffer own = replicas.gradient_buffer(packed, total);
  if (tp.sum_order() >= SumOrder::rank) return all_reduce(tp, own, Purpose::replicated_gradient);
  const auto gather_and_sum = [&]<class G>(G) {
    auto of_ranks = Tensor<G, 2, D>::uninitialized(shape(tp.size(), total), replicas.memory(), Category::communication,
                                                   "replicated gradients of the ranks");
    all_gather(tp, own, buffer(of_ranks.data(), of_ranks.count()), Purpose::replicated_gradient);
    ops::sum_rows_into(Tensor<G, 1, D>::view(packed, 0, shape(total)), Write::overwrite, of_ranks);
  };
  if (replicas.config().wide_gradients)
    gather_and_sum(Compute<T>());
  else
    gather_and_sum(T());
}
}  // namespace detail

template <class T, Device D>
constexpr void sum_replicated_gradients(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas,
                                        CommunicatorOf<D>& tp) {
  if (tp.size() == 1) return;
  const Size width = replicas.gradient_bytes(1);
  const auto for_each = [&](auto f) {  // f(address of the owned gradient's part, elements)
    for (Unit<T, D>* unit : units)
      for (Bucket<T, D>& b : unit->trained_buckets()) {
        const Range own = replicas.owned(b);
        b.for_each_part(own, [&](const ParameterBase<D>& p, Size begin, Size end) {
          if (p.partial_over_tp()) f(b.reduced, (begin - own.begin) * width, end - begin);
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
  detail::sum_packed<T, D>(replicas, tp, packed, total);
  at = 0;
  for_each([&](auto& storage, Size offset, Size elements) {
    copy_bytes<D>(storage, offset, packed, at, elements * width);
    at += elements * width;
  });
}

template <class T, Device D>
constexpr Scalar<double, D> gradient_norm(const List<Unit<T, D>*>& units, Replicas<T, D>& replicas,
                                          CommunicatorOf<D>& tp) {
  Memory<D>& memory = replicas.memory();
  const int slices = replicas.shards().size();
  const bool split = replicas.rule().optimizer_is_split() && slices > 1;
  Size buckets = 0;
  for (Unit<T, D>* unit : units) buckets += unit->trained_buckets().count;
  // A pair of sums per slice of each bucket: parameters cut over Tp, and parameters whole on every rank of Tp.
  const auto sums =
      Tensor<double, 1, D>::zeros(shape(2 * buckets * slices), memory, Category::communication, "gradient norm");
  const auto add_squares = [&](auto gradient) {
    using G = decltype(gradient);
    ops::add_squares<G, D>(memory, [&](auto add) {
      Size pair = 0;
      for (Unit<T, D>* unit : units)
        for (Bucket<T, D>& b : unit->trained_buckets())
          for (int r = 0; r < slices; ++r, pair += 2) {
            if (split && (r != replicas.shards().rank() || replicas.copy() != 0)) continue;
            b.for_each_part(b.slice(r, slices), [&](const ParameterBase<D>& p, Size begin, Size end) {
              add(end - begin, b.reduced.template element<const G>(begin - replicas.owned(b).begin),
                  sums.data_from(pair + (p.cut.dimension >= 0 ? 0 : 1)));
            });
          }
    });
  };
  if (replicas.config().wide_gradients)
    add_squares(Compute<T>());
  else
    add_squares(T());
  if (replicas.checks_reductions()) replicas.prints().spoil_if_changed(sums);
  if (split) all_reduce(replicas.group(), buffer(sums.data(), sums.count()), Purpose::scalar);
  const auto totals =
      Tensor<double, 2, D>::zeros(shape(tp.size(), 2), memory, Category::communication, "gradient norm");
  double* const own = totals.data_from(2 * tp.rank());
  ops::sum_pairs<D>(memory, buckets * slices, sums.data(), own);
  if (tp.size() > 1)
    all_gather(tp, buffer(static_cast<const double*>(own), 2), buffer(totals.data(), totals.count()), Purpose::scalar);
  ops::norm_of_pairs<D>(memory, tp.size(), totals.data());
  return Scalar<double, D>::view(totals.storage(), 0, {});
}

}  // namespace dspp
