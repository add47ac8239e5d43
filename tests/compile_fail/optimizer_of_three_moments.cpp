// SPDX-License-Identifier: Apache-2.0
/// Optimizers with more moments than a bucket can hold.
// expected-error {{dspp: Engine needs an optimizer of at most two moments a parameter, but this one has another}}
// expected-error {{moment_count. Keep at most two, or none.}}
// expected-error {{dspp: Engine needs an optimizer of at most two moments a matrix, but this one has another}}
// expected-error {{matrix_moment_count. Keep at most two, or none.}}
#include <dspp/engine/engine.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/optim/muon.hpp>

using namespace dspp;
using P = Policy<>;

struct Mine : AdamW {
#ifndef DSPP_TWIN
  static constexpr int moment_count = 3;
#endif
};

auto f(World<P>& world) {
  Engine<Gpt<P>, Mine> engine(world, Gpt<P>(GptConfig{}), Mine{});
  return engine.steps();
}

struct OfMatrices : Muon {
#ifndef DSPP_TWIN
  static constexpr int matrix_moment_count = 3;
#endif
};
static_assert(detail::check_optimizer_type<OfMatrices, float>());
