// SPDX-License-Identifier: Apache-2.0
/// The gated feed-forward sub-layer: gate and up in one product, SwiGLU, down.
#pragma once

#include <dspp/autograd/activations.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/row.hpp>

namespace dspp {

struct GatedMlpConfig {
  Size width = 0, ffn_width = 0;
  Initial initial = Initial::normal(0.02);
  Initial output_initial = Initial::normal(0.02);
};

/// y = down(silu(gate(x)) * up(x)), without biases.
///
///   x [batch, sequence, width]   gate, up [ffn_width, width], one parameter in two groups   y like x
///
/// Cost        as ColumnParallel plus RowParallel
/// Memory      keeps x, gate(x), up(x) and their product
/// Source      Shazeer 2020, arXiv:2002.05202
template <class P>
struct GatedMlp : Layer<P> {
  ColumnParallel<Linear, P, InGroups<2>> gate_up;
  RowParallel<Linear, P> down;

  constexpr explicit GatedMlp(const GatedMlpConfig& c)
      : gate_up(LinearConfig{.in = c.width, .out = 2 * c.ffn_width, .bias = false, .initial = c.initial}),
        down(LinearConfig{.in = c.ffn_width, .out = c.width, .bias = false, .initial = c.output_initial}) {}

  constexpr void visit(auto&& f) {
    f("gate_up", gate_up);
    f("down", down);
  }

  constexpr auto operator()(const Hidden<P>& x) const { return down(swiglu(gate_up(x))); }
};

}  // namespace dspp
