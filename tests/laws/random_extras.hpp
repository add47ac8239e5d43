// SPDX-License-Identifier: Apache-2.0
/// What drawn attention takes beside its input.
#pragma once

#include <algorithm>
#include <cstdint>

#include <dspp/autograd/redistribute.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/grouped_attention.hpp>
#include <dspp/nn/embedding.hpp>
#include <laws/random_tasks.hpp>

namespace dspp::laws {

inline constexpr Size distances = 3;  ///< that a bias of scores tells apart

/// Of a layer whose biases are the rows of a table [distances, heads]: that of a query and a key is the row of their
/// distance. [heads, sequence, keys], the heads those of this rank of Tp.
template <class P>
auto bias_by_distance(const Embedding<P>& table, Size sequence, Size keys, Tape<DeviceOf<P>>& tape) {
  using Pairs = WholeOverCp<Tokens<P>>;
  auto ids = Tensor<std::int32_t, 2, DeviceOf<P>>::uninitialized(shape(Size{1}, sequence * keys), tape.memory(),
                                                                 Category::data, "distances");
  ids.write([&](std::int32_t* host) {
    for (Size i = 0; i < ids.count(); ++i)
      host[i] = static_cast<std::int32_t>((i / keys + distances * keys - i % keys) % distances);
  });
  const auto rows = transpose<2, 0, 1>(table(Pairs::constant(ids, tape)));
  return redistribute<Shard<0>>(reshape(rows, shape(rows[0], sequence, keys)));
}

/// The tokens of a global sample before its padding, of `all`: another number for each of four samples. Some query has
/// two keys, so that no gradient is zero.
inline Size length_of(const DrawnPart& drawn, Size sample, Size all) {
  return std::max(all - drawn.padding * (sample % 4), std::min<Size>(all, 2));
}

/// Those of `rows` samples from the global number `first_sample` on.
template <class P>
auto drawn_lengths(const DrawnPart& drawn, Size first_sample, Size rows, Size all, Tape<DeviceOf<P>>& tape) {
  auto lengths =
      Tensor<std::int32_t, 1, DeviceOf<P>>::uninitialized(shape(rows), tape.memory(), Category::data, "lengths");
  lengths.write([&](std::int32_t* host) {
    for (Size i = 0; i < rows; ++i) host[i] = static_cast<std::int32_t>(length_of(drawn, first_sample + i, all));
  });
  return Lengths{Input<P, std::int32_t, 1>::constant(lengths, tape)};
}

/// layer(x) with the drawn padding, documents and bias, where `first_sample` is the global number of x's first sample.
template <class P, class L, class Table>
Hidden<P> with_extras(const L& layer, const Table& table, const DrawnPart& drawn, Size first_sample,
                      const Hidden<P>& x) {
  using D = DeviceOf<P>;
  Tape<D>& tape = x.tape();
  const Size own = x[1] * (P::sequence_parallel ? P::tp : 1), all = own * P::cp;
  const Size first = own * tape.context().cp_rank();
  auto ids = Tensor<std::int32_t, 2, D>::uninitialized(shape(x[0], own), tape.memory(), Category::data, "documents");
  ids.write([&](std::int32_t* host) {
    for (Size i = 0; i < ids.count(); ++i)
      host[i] = static_cast<std::int32_t>(drawn.document > 0 ? (first + i % own) / drawn.document : 0);
  });
  const Documents documents{Tokens<P>::constant(ids, tape)};
  const auto keys = drawn_lengths<P>(drawn, first_sample, x[0], all, tape);
  if (!drawn.score_bias) return layer(x, documents, keys);
  return layer(x, documents, keys, ScoreBias{bias_by_distance<P>(*table, all, all, tape)});
}

/// layer(x, the memory) with the drawn padding of the memory and bias, as above.
template <class P, class Table>
Hidden<P> attended_to(const GroupedAttention<P>& layer, const Table& table, const DrawnPart& drawn, Size first_sample,
                      const Hidden<P>& x, const Hidden<P>& memory) {
  const Size queries = x[1] * (P::sequence_parallel ? P::tp : 1) * P::cp;
  const auto keys = drawn_lengths<P>(drawn, first_sample, x[0], drawn.memory, x.tape());
  if (!drawn.score_bias) return layer(x, KeysOf{memory}, keys);
  return layer(x, KeysOf{memory}, keys, ScoreBias{bias_by_distance<P>(*table, queries, drawn.memory, x.tape())});
}

}  // namespace dspp::laws
