// SPDX-License-Identifier: Apache-2.0
/// attend of fused and of grouped heads on any device, forward and backward.
#pragma once

#include <vector>

#include <dspp/models/grouped_attention.hpp>

namespace dspp::laws {

/// What one attention gave: y and the gradients, each in a list.
using Attended = std::vector<std::vector<double>>;

/// Two samples under a causal mask: four heads of fused q, k and v, then four of q and two of kv. The operands are
/// exact in every T.
template <class T, class D>
Attended attended(Context<D>& context, Size sequence, Size head_dim) {
  using Where = Placed<On<Tp<1>, Invariant>>;
  Tape<D> tape(context);
  const auto values = [&](Size width, int modulus) {
    auto x = Tensor<T, 3, D>::uninitialized(shape(2, sequence, width), tape.memory());
    x.write([&](T* host) {
      for (Size i = 0; i < x.count(); ++i)
        host[i] = static_cast<T>(static_cast<float>((i * i * 7 + i * 5) % modulus - modulus / 2) / 4);
    });
    return x;
  };
  Attended results;
  const auto add = [&](const Tensor<T, 3, D>& x) {
    auto& numbers = results.emplace_back();
    x.read([&](const T* host) {
      for (Size i = 0; i < x.count(); ++i) numbers.push_back(static_cast<double>(host[i]));
    });
  };
  const auto pass = [&](const auto& y) {
    add(y.value());
    tape.backward(y.slot(), values(4 * head_dim, 7));
  };
  const Variable<T, 3, D, Where> qkv(values(12 * head_dim, 11), tape);
  pass(attend(qkv, 4, AttentionMask::causal));
  add(tape.template take<T, 3>(qkv.slot(), qkv.shape()));
  tape.clear();
  const Variable<T, 3, D, Where> q(values(4 * head_dim, 11), tape), kv(values(4 * head_dim, 13), tape);
  pass(attend(q, kv, {4, 2}, {.rope_theta = 0}));
  add(tape.template take<T, 3>(q.slot(), q.shape()));
  add(tape.template take<T, 3>(kv.slot(), kv.shape()));
  return results;
}

}  // namespace dspp::laws
