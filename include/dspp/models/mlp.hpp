// SPDX-License-Identifier: Apache-2.0
/// The feed-forward sub-layer: up, GELU, down.
#pragma once

#include <dspp/autograd/activations.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/row.hpp>

namespace dspp {

struct MlpConfig {
  Size width = 0, ffn_width = 0;
  bool bias = true;
  GeluForm gelu = GeluForm::tanh;
  Initial initial = Initial::normal(0.02);
  Initial output_initial = Initial::normal(0.02);
};

/// y = down(gelu(up(x)))       x [batch, sequence, width]   up [..., ffn_width / tp] per rank   y like x
///
/// Cost        as ColumnParallel plus RowParallel
/// Memory      keeps x, up(x) and gelu(up(x))
template <class P>
struct Mlp : Layer<P> {
  ColumnParallel<Linear, P> up;
  RowParallel<Linear, P> down;
  GeluForm form;

  constexpr explicit Mlp(const MlpConfig& c)
      : up(LinearConfig{.in = c.width, .out = c.ffn_width, .bias = c.bias, .initial = c.initial}),
        down(LinearConfig{.in = c.ffn_width, .out = c.width, .bias = c.bias, .initial = c.output_initial}),
        form(c.gelu) {}

  constexpr void visit(auto&& f) {
    f("up", up);
    f("down", down);
  }

  /// Values that no shape shows.
  constexpr void describe(auto&& f) const {
    if (form != GeluForm::tanh) f("gelu", static_cast<int>(form));
  }

  constexpr auto operator()(const Hidden<P>& x) const { return down(up.gelu(x, form)); }
};

}  // namespace dspp
