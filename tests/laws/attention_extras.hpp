// SPDX-License-Identifier: Apache-2.0
/// attend with every extra on any device.
#pragma once

#include <cstdint>
#include <vector>

#include <dspp/models/grouped_attention.hpp>

namespace dspp::laws {

/// Grouped heads attend by a window and a soft cap, with lengths, documents and a bias: y and the gradients, of T.
template <class T, class D>
std::vector<float> attend_with_extras(Context<D>& context) {
  using Where = Placed<On<Tp<1>, Invariant>>;
  Tape<D> tape(context);
  const auto values = [&]<class E, int Rank>(E, const Shape<Rank>& extents, int modulus) {
    auto x = Tensor<E, Rank, D>::uninitialized(extents, tape.memory());
    x.write([&](E* host) {
      for (Size i = 0; i < x.count(); ++i) host[i] = static_cast<E>(static_cast<float>(i * 7 % modulus));
    });
    return x;
  };
  const Variable<T, 3, D, Where> q(values(T(), shape(2, 70, 8), 5), tape);
  const Variable<T, 3, D, Where> kv(values(T(), shape(2, 70, 8), 3), tape);
  const Variable<T, 3, D, Where> bias(values(T(), shape(2, 70, 70), 4), tape);
  const auto lengths = Variable<std::int32_t, 1, D, Where>::constant(values(std::int32_t(), shape(2), 9), tape);
  const auto ids = Variable<std::int32_t, 2, D, Where>::constant(values(std::int32_t(), shape(2, 70), 2), tape);
  std::vector<float> results;
  const auto add = [&](const Tensor<T, 3, D>& x) {
    x.read([&](const T* host) {
      for (Size i = 0; i < x.count(); ++i) results.push_back(static_cast<float>(host[i]));
    });
  };
  {
    const auto y =
        attend(q, kv, {2, 1, {AttentionMask::full, 9, 1.5}}, {}, Lengths{lengths}, Documents{ids}, ScoreBias{bias});
    add(y.value());
    tape.backward(y.slot(), values(T(), y.shape(), 6));
  }
  add(tape.template take<T, 3>(q.slot(), q.shape()));
  add(tape.template take<T, 3>(kv.slot(), kv.shape()));
  add(tape.template take<T, 3>(bias.slot(), bias.shape()));
  return results;
}

}  // namespace dspp::laws
