// SPDX-License-Identifier: Apache-2.0
/// Element code of a program's own on a GPU, which dspp::cuda does not hold: a custom_op, and an optimizer.
// expected-error {{dspp: Cuda needs nvcc for element code of your own (custom_op, functors, optimizers), but}}
// expected-error {{compiles no kernels, and dspp::cuda holds none for this one. Compile it by nvcc, and include}}
#include <dspp/autograd.hpp>
#include <dspp/cuda.hpp>
#include <dspp/nn/layer.hpp>
#include <dspp/ops/update.hpp>
#include <dspp/optim/adamw.hpp>

using namespace dspp;
using P = Policy<Cuda>;

#ifdef DSPP_TWIN
using Mine = AdamW;
auto cube(const Value<P, 3, Invariant>& x) {
  return silu(x);
}
#else
struct Mine : AdamW {};
auto cube(const Value<P, 3, Invariant>& x) {
  return custom_op([](auto a) { return a * a * a; }, [](auto a, auto, auto dy) { return 3 * a * a * dy; })(x);
}
#endif

void update(Pool& pool, const Mine& optimizer, const FlatRange<float, float, float>& range) {
  const auto ranges = [&](auto f) { f(range, RangeSettings{}); };
  update_ranges<float, float, float, Cuda>(pool, optimizer, ranges, UpdateScalars{}, nullptr);
}
