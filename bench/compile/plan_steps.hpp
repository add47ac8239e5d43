// SPDX-License-Identifier: Apache-2.0
/// A training step of a GPT with DSPP_LAYERS layers in a constant expression, and the number of nodes on its tape.
#pragma once

#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

namespace plan_steps {

using namespace dspp::literals;
using Mine = dspp::Policy<dspp::Zero<2>, dspp::Bf16, dspp::Tp<2>>;
using Model = dspp::Gpt<Mine>;

constexpr dspp::GptConfig config{.layers = DSPP_LAYERS, .width = 1600, .heads = 50};
constexpr dspp::BatchSizes sizes{.micro_batch = 8, .sequence = 1024};
constexpr dspp::PlanOptions options{.data = 4};

/// The number of nodes on the tape after a forward on Meta.
constexpr dspp::Size node_count() {
  using namespace dspp;
  using Paper = rebind<Model, Meta>;
  using P = typename Paper::policy;
  const Mesh mesh(Degrees{.data = options.data, .tp = P::tp});
  Ledger ledger;
  World<P> world(
      mesh, 0,
      Groups<Meta>{Recorder<>(0, mesh.world_size()), Recorder<>(0, options.data), {.tp = Recorder<>(0, P::tp)}},
      ledger);
  Engine<Paper, AdamW> engine(world, Paper(config), AdamW{}, sizes, EngineConfig{},
                              detail::replica_config<Mine>(sizes, EngineConfig{}));
  const auto extents = shape(sizes.micro_batch, sizes.sequence);
  auto loss = engine.forward(
      Batch<Meta>{Tensor<std::int32_t, 2, Meta>::uninitialized(extents, ledger, Category::data, "tokens"),
                  Tensor<std::int32_t, 2, Meta>::uninitialized(extents, ledger, Category::data, "targets")});
  const Size nodes = loss.tape().node_count();
  engine.backward(loss);
  engine.step();
  return nodes;
}

}  // namespace plan_steps
