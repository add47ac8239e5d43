// SPDX-License-Identifier: Apache-2.0
/// Activations as layers, for Sequential. They have no parameters and fit every policy.
#pragma once

#include <dspp/autograd/activations.hpp>

namespace dspp {

/// gelu(x), tanh form.
struct Gelu {
  constexpr void visit(auto&&) {}
  constexpr auto operator()(const Tracked auto& x) const { return gelu(x); }
};

/// max(x, 0).
struct Relu {
  constexpr void visit(auto&&) {}
  constexpr auto operator()(const Tracked auto& x) const { return relu(x); }
};

/// x sigmoid(x).
struct Silu {
  constexpr void visit(auto&&) {}
  constexpr auto operator()(const Tracked auto& x) const { return silu(x); }
};

}  // namespace dspp
