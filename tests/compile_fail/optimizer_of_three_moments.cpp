// SPDX-License-Identifier: Apache-2.0
/// An optimizer with more moments than a bucket can hold.
// expected-error {{dspp: Engine needs an optimizer of at most two moments a parameter, but this one has another}}
// expected-error {{moment_count. Keep at most two, or none.}}
#include <dspp/engine/engine.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

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
