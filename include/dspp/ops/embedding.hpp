// SPDX-License-Identifier: Apache-2.0
/// Rows of a table by number, and its vjp.
#pragma once

#include <dspp/ops/cpu/embedding.hpp>
#include <dspp/ops/cpu/require.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/workspace.hpp>

namespace dspp::ops {

/// Throws, with the first wrong one, unless every id is in [0, vocabulary): now, or when the host next synchronizes. On
/// paper there are no ids.
template <int Rank, class D>
constexpr void require_ids(const Tensor<std::int32_t, Rank, D>& ids, Size vocabulary, const char* who) {
  launch<kernels::RequireIds, D>(ids.memory(), ids.count(), static_cast<const std::int32_t*>(ids.data()), vocabulary,
                                 false, who);
}

/// y[b, s, :] = table[ids[b, s] - first_row, :], or zeros if the table has no such row: the table may be one rank's
/// rows of a larger one, and the ranks' results then sum to that of the whole.
///
/// Cost     copies
/// Memory   batch * sequence * n elements
template <class T, class D>
constexpr Tensor<T, 3, D> embedding(const Tensor<T, 2, D>& table, const Tensor<std::int32_t, 2, D>& ids,
                                    Size first_row = 0) {
  auto y =
      Tensor<T, 3, D>::uninitialized(shape(ids[0], ids[1], table[1]), ids.memory(), Category::activations, "embedding");
  note_moved(y, y);
  launch<kernels::Embedding<T>, D>(ids.memory(), ids.count(), table[0], table[1], y.data(), table.data(), ids.data(),
                                   first_row);
  return y;
}

/// dtable[r, :] (+)= sum of dy[b, s, :] over all (b, s) with ids[b, s] - first_row == r, in order of position, in
/// Compute<T>, rounded once: the same bits on any number of threads.
///
/// Cost     one operation an element of dy
/// Memory   workspace of ids and of rows + 1 numbers of 32 bits
/// Throws   Error(shape)
template <class G, class T, class D>
constexpr void embedding_vjp(const Tensor<G, 2, D>& dtable_into, Write write, const Tensor<std::int32_t, 2, D>& ids,
                             const Tensor<T, 3, D>& dy, Size first_row = 0) {
  require_same_shape(dy.shape(), shape(ids[0], ids[1], dtable_into[1]), "embedding_vjp");
  auto& memory = dy.memory();
  using Numbers = Tensor<std::int32_t, 1, D>;
  auto starts = Numbers::uninitialized(shape(dtable_into[0] + 1), memory, Category::workspace, "embedding_vjp");
  auto order = Numbers::uninitialized(shape(ids.count()), memory, Category::workspace, "embedding_vjp");
  memory.count_flops(static_cast<double>(dy.count()));
  note_moved(dy, dtable_into);
  detail::launch_with_workspace<kernels::EmbeddingVjp<T, G>, D>(
      memory, {ids.count(), dtable_into[1], "embedding_vjp"}, ids.count(), dtable_into[0], dtable_into[1],
      dtable_into.data(), write, dy.data(), ids.data(), first_row, starts.data(), order.data());
}

}  // namespace dspp::ops
