// SPDX-License-Identifier: Apache-2.0
/// A training program for DSPP_POLICIES policies that differ in stage, element type and degree. Compiled, not run.
/// DSPP_PARTS: 1 makes the engine alone, 2 calls forward, too, 3 backward, 4 (otherwise) step.
#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

#ifndef DSPP_PARTS
#define DSPP_PARTS 4
#endif

using namespace dspp;

template <class P>
int train() {
  return run<P>(RunOptions{.ranks = P::tp}, [](World<P>& world) {
    Engine engine{world, Gpt<P>(GptConfig{}), AdamW{}};
    const auto extents = shape(4, 64);
    const Batch<Cpu> batch{Tensor<std::int32_t, 2>::uninitialized(extents, world.memory(), Category::data, "tokens"),
                           Tensor<std::int32_t, 2>::uninitialized(extents, world.memory(), Category::data, "targets")};
#if DSPP_PARTS > 1
    auto loss = engine.forward(batch);
#endif
#if DSPP_PARTS > 2
    engine.backward(loss);
#endif
#if DSPP_PARTS > 3
    engine.step();
#endif
  });
}

int main() {
  int status = train<Policy<Zero<2>, F32>>();
#if DSPP_POLICIES > 1
  status += train<Policy<Zero<3>, F32>>();
#endif
#if DSPP_POLICIES > 2
  status += train<Policy<Zero<3>, F32, Tp<2>>>();
#endif
#if DSPP_POLICIES > 3
  status += train<Policy<Zero<3>, Bf16, Tp<2>>>();
#endif
  return status;
}
