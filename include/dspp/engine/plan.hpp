// SPDX-License-Identifier: Apache-2.0
/// A training step on paper: what a strategy costs in memory, operations and traffic, at run time or in a constant
/// expression.
#pragma once

#include <dspp/engine/engine.hpp>
#include <dspp/optim/adamw.hpp>

namespace dspp {

/// The run-time half of a strategy.
struct PlanOptions {
  Size micro_batch = 1;
  Size sequence = 0;  ///< required
  int data = 1;       ///< the data degree
  Size accumulate = 1;
  Size bucket_bytes = 32_MiB;
  int data_rank = 0, tp_rank = 0;  ///< whose plan: all ranks' are alike up to the rounding of uneven all-reduces
};

/// One rank's costs. Bytes are exact: those of the Cpu's Pool, block for block.
struct Plan {
  Size peak = 0;                ///< the largest number of live bytes
  Size resident = 0;            ///< live between steps: parameters, masters, moments
  CategoryBytes at_peak{};      ///< how the peak is made up
  CategoryBytes by_category{};  ///< the largest live bytes of each category, at whatever moment
  CategoryBytes state{};        ///< how the resident bytes are made up
  Traffic data_traffic{}, tp_traffic{}, world_traffic{};  ///< of one step
  double forward_flops = 0, backward_flops = 0;           ///< of one step; multiply and add count two
  Size parameters = 0;                                    ///< global elements

  constexpr bool fits(Size bytes) const { return peak <= bytes; }
  constexpr double flops() const { return forward_flops + backward_flops; }
};

/// Trains `Model` for one step on the paper device. Model is what runs on the Cpu: Gpt<Mine>.
///
///   constexpr auto paper = plan<Gpt<Mine>>(GptConfig{.layers = 4}, {.micro_batch = 8, .sequence = 256, .data = 64});
///
/// Cost   some hundred constant-expression steps per tape node; clang's -fconstexpr-steps raises its limit
template <class Model, class Optimizer = AdamW, class Config>
constexpr Plan plan(const Config& config, const PlanOptions& options, Optimizer optimizer = {});

/// Stops the compiler with a sentence unless the plan fits.
consteval void must_fit(const Plan& plan, Size bytes) {
  // clang-format off
  require(plan.fits(bytes), "dspp: a plan needs to fit the memory it is given, but its peak is larger. Raise the ZeRO stage or Tp<n>, lower micro_batch or sequence, or use Recompute; plan.at_peak says what the bytes are for.");
  // clang-format on
}

// ---------------------------------------------------------------------------------------------------------------------

template <class Model, class Optimizer, class Config>
constexpr Plan plan(const Config& config, const PlanOptions& options, Optimizer optimizer) {
  using PaperModel = rebind<Model, Meta>;
  using P = typename PaperModel::policy;
  // clang-format off
  require(options.sequence > 0 && options.micro_batch > 0 && options.data > 0, "dspp: plan needs micro_batch, sequence and data of at least 1, but got less. Name them.");
  // clang-format on
  const Mesh mesh(Degrees{.data = options.data, .tp = P::tp});
  const int rank = mesh.rank({.data = options.data_rank, .tp = options.tp_rank});
  Plan result;
  Ledger ledger;
  {
    World<P> world(mesh, rank,
                   Groups<Meta>{Recorder<>(rank, mesh.world_size()), Recorder<>(options.data_rank, options.data),
                                Recorder<>(options.tp_rank, P::tp)},
                   ledger);
    Engine<PaperModel, Optimizer> engine(
        world, PaperModel(config), optimizer,
        EngineConfig{.accumulate = options.accumulate, .bucket_bytes = options.bucket_bytes});
    result.state = ledger.live_by_category();
    result.resident = ledger.live();
    for (Size i = 0; i < options.accumulate; ++i) {
      const auto shape_of_batch = shape(options.micro_batch, options.sequence);
      const Batch<Meta> batch{
          Tensor<std::int32_t, 2, Meta>::uninitialized(shape_of_batch, ledger, Category::data, "tokens"),
          Tensor<std::int32_t, 2, Meta>::uninitialized(shape_of_batch, ledger, Category::data, "targets")};
      auto loss = engine.forward(batch);
      engine.backward(loss);
      engine.step();  // acts after the last one; batch and loss are still held, as in a training loop
    }
    result.parameters = engine.parameter_count();
    result.data_traffic = world.data().traffic();
    result.tp_traffic = world.tp().traffic();
    result.world_traffic = world.all().traffic();
  }
  result.peak = ledger.peak();
  result.at_peak = ledger.at_peak();
  result.by_category = ledger.peak_by_category();
  result.forward_flops = ledger.flops_forward();
  result.backward_flops = ledger.flops_backward();
  return result;
}

}  // namespace dspp
