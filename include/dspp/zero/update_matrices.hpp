// SPDX-License-Identifier: Apache-2.0
/// Updates of buckets of matrices by an optimizer that asks for whole ones.
#pragma once

#include <dspp/ops/transpose.hpp>
#include <dspp/ops/update_matrices.hpp>
#include <dspp/optim/optimizer.hpp>
#include <dspp/zero/sharded_state.hpp>
#include <dspp/zero/unit.hpp>

namespace dspp {

namespace detail {

constexpr bool overlap(Range a, Range b) {
  return common(a, b).count() > 0;
}

/// A matrix of updates [rows, columns], of which every rank of Tp has its slice in its bucket's.
template <class S, Device D>
constexpr Tensor<S, 2, D> gathered_over_tp(const ParameterBase<D>& p, const Tensor<S, 1, D>& own,
                                           CommunicatorOf<D>& tp) {
  const SliceGeometry& g = p.geometry;
  const Shape<2> whole{{g.global_count() / p.columns, p.columns}};
  if (g.parts == 1) return own.reshape(whole);
  const auto of_ranks = Tensor<S, 3, D>::uninitialized(shape(g.parts, g.outer, g.local * g.inner), own.memory(),
                                                       Category::communication, "updates of the ranks");
  all_gather(tp, buffer(static_cast<const S*>(own.data()), own.count()), buffer(of_ranks.data(), of_ranks.count()),
             Purpose::update);
  return ops::transpose(of_ranks, {1, 0, 2}).reshape(whole);
}

/// Replaces this rank's slice of a matrix by that of `whole`.
template <class S, Device D>
constexpr void keep_slice(const ParameterBase<D>& p, const Tensor<S, 1, D>& own, const Tensor<S, 2, D>& whole,
                          int tp_rank) {
  const SliceGeometry& g = p.geometry;
  constexpr auto width = static_cast<Size>(sizeof(S));
  const auto copy = [&](const auto& from, Size begin) {
    copy_bytes<D>(own.storage(), own.offset() * width, from.storage(), (from.offset() + begin) * width,
                  own.count() * width);
  };
  if (g.parts == 1) return copy(whole, 0);
  copy(ops::transpose(whole.reshape(shape(g.outer, g.parts, g.local * g.inner)), {1, 0, 2}), tp_rank * own.count());
}

template <class G, class T, Device D, class Optimizer>
constexpr void update_typed_matrices(const Optimizer& optimizer, Bucket<T, D>& b, ShardedState<T, D>& state,
                                     const UpdateScalars& scalars, const double* step, CommunicatorOf<D>& tp) {
  using S = Compute<T>;
  auto& replicas = state.replicas();
  Memory<D>& memory = replicas.memory();
  const BucketShard<T, D> shard = state.shard_to_update(b);
  const auto updates = Tensor<S, 1, D>::zeros(shape(b.count), memory, Category::workspace, "updates of matrices");
  const auto for_each_part = [&](auto f) {
    b.for_each_part(shard.own, [&](const ParameterBase<D>& p, Size begin, Size end) {
      f(p, shard.template range<G>(begin, end, Optimizer::matrix_moment_count), updates.data_from(begin));
    });
  };
  write_matrix_directions<T, G, S, D>(
      memory, optimizer,
      [&](auto write) {
        for_each_part([&](const auto& p, const auto& range, S* to) { write(range, p.update_settings(), to); });
      },
      scalars, step);
  if (replicas.rule().optimizer_is_split() && replicas.shards().size() > 1)
    all_gather(replicas.shards(), buffer(static_cast<const S*>(updates.data_from(shard.own.begin)), shard.own.count()),
               buffer(updates.data(), b.count), Purpose::update);
  for (const ParameterBase<D>* p : b.parameters) {
    if (!overlap(shard.own, {p->offset, p->offset + p->count()})) continue;
    const auto own = Tensor<S, 1, D>::view(updates.storage(), p->offset, shape(p->count()));
    keep_slice(*p, own, optimizer.matrix_update(gathered_over_tp(*p, own, tp)), tp.rank());
  }
  update_matrix_ranges<T, S, D>(
      memory, optimizer,
      [&](auto update) {
        for_each_part([&](const auto& p, const auto& range, const S* update_of_range) {
          FlatRange<T, S, S> with_update{
              .gradient = update_of_range, .parameter = range.parameter, .master = range.master, .count = range.count};
          update(with_update, p.update_settings(), MatrixShape{p.geometry.global_count() / p.columns, p.columns});
        });
      },
      scalars, step);
}

}  // namespace detail

/// Updates a bucket of matrices by an optimizer with matrix_update(), unless `step`, the StepScalars, holds another
/// verdict. A rank multiplies the matrices of which it updates a part. Stages share their bits.
///
/// Cost     under split optimizers an all-gather of the updates over the replicas, and over Tp one of each matrix that
///          is cut, both in Compute<T> and also in a skipped step; the products, counted as backward's
/// Memory   Compute<T> per element of the whole bucket, and a matrix's products
template <class Optimizer, class T, Device D>
constexpr void update_matrices(const Optimizer& optimizer, Bucket<T, D>& b, ShardedState<T, D>& state,
                               const UpdateScalars& scalars, const double* step, CommunicatorOf<D>& tp) {
  Memory<D>& memory = state.replicas().memory();
  memory.set_backward(true);
  struct Back {
    Memory<D>& memory;
    constexpr ~Back() { memory.set_backward(false); }
  } const back{memory};
  if constexpr (!std::is_same_v<T, Compute<T>>)
    if (state.replicas().config().wide_gradients)
      return detail::update_typed_matrices<Compute<T>>(optimizer, b, state, scalars, step, tp);
  detail::update_typed_matrices<T>(optimizer, b, state, scalars, step, tp);
}

}  // namespace dspp
