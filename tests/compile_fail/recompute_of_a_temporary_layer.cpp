// SPDX-License-Identifier: Apache-2.0
/// A layer that is gone before backward, and a function that cannot be kept until then.
// expected-error {{dspp: recompute needs a layer that outlives the tape, but this one is a temporary. Make it a}}
// expected-error {{part of the model that visit() names.}}
// expected-error {{dspp: recompute needs a function that it can keep until backward, but this one cannot be copied.}}
// expected-error {{Give it by std::move.}}
#include <memory>

#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/recompute.hpp>
#include <dspp/nn/layer_norm.hpp>

using namespace dspp;
using P = Policy<>;

auto of_a_layer(const LayerNorm<P>& norm, const Hidden<P>& x) {
#ifdef DSPP_TWIN
  return recompute(norm, x);
#else
  return recompute(LayerNorm<P>(norm), x);
#endif
}

auto of_a_function(const Hidden<P>& x) {
  auto twice = [factor = std::make_unique<double>(2)](const Hidden<P>& v) { return *factor * v; };
#ifdef DSPP_TWIN
  return recompute(std::move(twice), x);
#else
  return recompute(twice, x);
#endif
}
