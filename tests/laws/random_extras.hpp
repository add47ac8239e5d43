// SPDX-License-Identifier: Apache-2.0
/// What drawn attention takes beside its input.
#pragma once

#include <algorithm>
#include <cstdint>

#include <dspp/models/attention.hpp>
#include <laws/random_tasks.hpp>

namespace dspp::laws {

/// layer(x) with the drawn padding and documents. Some query has two keys, so that no gradient is zero.
template <class P, class L>
Hidden<P> with_extras(const L& layer, const DrawnPart& drawn, const Hidden<P>& x) {
  using D = DeviceOf<P>;
  Tape<D>& tape = x.tape();
  const Size own = x[1] * (P::sequence_parallel ? P::tp : 1), all = own * P::cp;
  const Size first = own * tape.context().cp_rank();
  auto lengths = Tensor<std::int32_t, 1, D>::uninitialized(shape(x[0]), tape.memory(), Category::data, "lengths");
  lengths.fill(static_cast<std::int32_t>(std::max(all - drawn.padding, std::min<Size>(all, 2))));
  auto ids = Tensor<std::int32_t, 2, D>::uninitialized(shape(x[0], own), tape.memory(), Category::data, "documents");
  ids.write([&](std::int32_t* host) {
    for (Size i = 0; i < ids.count(); ++i)
      host[i] = static_cast<std::int32_t>(drawn.document > 0 ? (first + i % own) / drawn.document : 0);
  });
  return layer(x, Documents{Tokens<P>::constant(ids, tape)},
               Lengths{Input<P, std::int32_t, 1>::constant(lengths, tape)});
}

}  // namespace dspp::laws
