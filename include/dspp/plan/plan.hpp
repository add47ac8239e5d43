// SPDX-License-Identifier: Apache-2.0
/// A training step on paper: the memory, operations and traffic of a strategy, at run time or in a constant expression.
#pragma once

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <dspp/data/batch_sizes.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/engine/weight_average.hpp>
#include <dspp/optim/adamw.hpp>

namespace dspp {

/// The run-time part of a strategy, besides the batch sizes.
struct PlanOptions {
  int data = 1;            ///< the data degree
  int ranks_per_node = 0;  ///< consecutive ones, as in RunOptions; 0: all
  Size bucket_bytes = 32_MiB;
  Size prefetch_bytes = next_unit;      ///< as in EngineConfig
  Size live_bytes = 0;                  ///< as in EngineConfig
  OffloadConfig offload{};              ///< as in EngineConfig: its parts
  ZenFlowConfig zenflow{};              ///< as in EngineConfig
  Size check_ranks = 100;               ///< as in EngineConfig
  bool target_weights = false;          ///< true if every batch has them
  SumOrder sum_order = SumOrder::rank;  ///< as in RunOptions
  ParameterGroups groups{};             ///< as in EngineConfig
  bool average = false;                 ///< true if a WeightAverage is kept
  Rates rates{};                        ///< of the device and its links, for Plan::seconds
  bool graphs = false;                  ///< as in EngineConfig: a batch more, which repeated steps read
  Coordinates rank{};  ///< the rank to plan: ranks differ by the rounding of uneven all-reduces, under Muon by matrices
};

/// What a plan was made for, in numbers: what estimates take (plan/estimates.hpp).
struct PlanFacts {
  int ranks = 1;     ///< along all axes
  int replicas = 1;  ///< along Data and Cp
  int shards = 1;    ///< over which ZeRO shards: the replicas, or those of a node
  int zero_stage = 0;
  ElementType values = ElementType::f32;
  Tier optimizer_tier = Tier::device;
  Tier parameter_tier = Tier::device;
  Size rank_parameters = 0;    ///< elements of one rank's part of the model, with the padding of Tp
  Size largest_parameter = 0;  ///< elements of the largest of its parameters, of tiled ones those of a tile
};

/// One rank's costs. Bytes are exact: those of the Cpu's Pool, block for block.
struct Plan {
  Size peak = 0;                     ///< the largest number of live bytes
  Size resident = 0;                 ///< live between steps: parameters, masters, moments, an average
  Size host = 0;                     ///< the largest number of bytes that Offload keeps in the host's memory
  Size host_resident = 0;            ///< of them live between steps
  Size disk = 0;                     ///< bytes of the files of Offload
  CategoryBytes at_peak{};           ///< the peak by category
  CategoryBytes by_category{};       ///< the largest live bytes of each category, at any time
  CategoryBytes state{};             ///< the resident bytes by category
  Traffic replica_traffic{};         ///< of one step, without a check, over the ranks along Data and Cp
  Traffic node_traffic{};            ///< the same over those of them on a node, where there are several nodes
  Traffic across_traffic{};          ///< the same over those with one place on every node
  PerAxis<Traffic> traffic_along{};  ///< the same along one axis; Data's is replica_traffic, unless Cp is in it
  Traffic world_traffic{};           ///< the same over all ranks
  LinkBytes links{};        ///< all of it by link: inside of a node and between nodes, as World::links() has it
  Traffic start_traffic{};  ///< once, when engine and average are constructed: they compare the ranks' facts
  Traffic check_traffic{};  ///< of one check of the ranks, every `check_ranks` steps from the first on
  double forward_flops = 0, backward_flops = 0;  ///< of one step, the second with Muon's; multiply and add count two
  StepSeconds seconds{};                         ///< at PlanOptions::rates, if they are given
  Size parameters = 0;                           ///< global elements
  PlanFacts facts{};

  constexpr Traffic traffic() const {
    Traffic sum = replica_traffic + node_traffic + across_traffic + world_traffic;
    for (Axis axis : all_axes) sum = sum + traffic_along[axis];
    return sum;
  }
  /// Upper bound of the bytes that the Pool of a run takes from the system for that peak, with its free blocks.
  constexpr Size reserved_at_most() const { return Pool::reserved_at_most(peak); }
  /// Bytes between steps, and gradients at their largest: what estimates of states count.
  constexpr Size states_and_gradients() const { return resident + by_category[Category::gradients]; }
  constexpr bool fits(Size bytes) const { return peak <= bytes; }
  constexpr double flops() const { return forward_flops + backward_flops; }
};

/// Trains `Model` for one step on the paper device: the first, so that the peak includes a check of the ranks. Model is
/// the one that runs on the Cpu: Gpt<Mine>. sizes.sequence must be set.
///
///   constexpr auto paper = plan<Gpt<Mine>>(GptConfig{.layers = 4}, sizes, {.data = 64});
///
/// Cost   some 20,000 constant-expression steps a layer of GPT-2 XL under Bf16, Zero<3>, Tp<2>, SequenceParallel, and
///        25,000 under F32, which has more buckets: clang's default limit of 2^20 plans 51 layers, 41, and
///        -fconstexpr-steps=N more; the limits of g++ and nvcc are higher
template <class Model, class Optimizer = AdamW, class Config>
constexpr Plan plan(const Config& config, const BatchSizes& sizes, const PlanOptions& options = {},
                    Optimizer optimizer = {});

/// Half the micro-batch, half the sequence and recompute_segments (models/stack.hpp), with the bytes that each would
/// save according to plan(). For a Pool.
template <class Model, class Optimizer = AdamW, class Config>
std::vector<Remedy> plan_remedies(const Config& config, const BatchSizes& sizes, const PlanOptions& options = {});

/// True, or a compile error with the table of the plan's bytes. The plan is a named constant at namespace scope:
///
///   constexpr auto paper = plan<Gpt<Mine>>(...);
///   static_assert(must_fit<paper, 2_GiB>());
template <const Plan& paper, Size limit>
consteval bool must_fit();

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
// The rows of the table are types, since a compiler prints the types that it instantiates.
namespace row {
template <Size bytes>
struct peak_of_all;
template <Size bytes>
struct limit_is;
template <Size bytes>
struct parameters;
template <Size bytes>
struct gradients;
template <Size bytes>
struct optimizer;
template <Size bytes>
struct activations;
template <Size bytes>
struct communication;
template <Size bytes>
struct workspace;
template <Size bytes>
struct data;
}  // namespace row

template <class Peak, class Limit, class... AtPeak>
struct PlanTable;
template <Size peak, Size limit, class... AtPeak>
struct PlanTable<row::peak_of_all<peak>, row::limit_is<limit>, AtPeak...> {
  static_assert(
      peak <= limit,
      "dspp: a plan needs to fit the memory it is given, but its peak is larger; the types beside this sentence are "
      "its table of bytes. Raise the ZeRO stage or Tp<n>, lower micro_batch or sequence, or use Recompute.");
  static constexpr bool fits = peak <= limit;
};
}  // namespace detail

template <const Plan& paper, Size limit>
consteval bool must_fit() {
  constexpr const CategoryBytes& at = paper.at_peak;
  return detail::PlanTable<
      detail::row::peak_of_all<paper.peak>, detail::row::limit_is<limit>,
      detail::row::parameters<at[Category::parameters]>, detail::row::gradients<at[Category::gradients]>,
      detail::row::optimizer<at[Category::optimizer]>, detail::row::activations<at[Category::activations]>,
      detail::row::communication<at[Category::communication]>, detail::row::workspace<at[Category::workspace]>,
      detail::row::data<at[Category::data]>>::fits;
}

namespace detail {
struct PaperRecording;
template <class Model, class Optimizer, class Config>
constexpr Plan plan_with(const Config& config, const BatchSizes& sizes, const PlanOptions& options, Optimizer optimizer,
                         const ReplicaConfig& zero, PaperRecording* recording = nullptr);

template <class P>
constexpr ReplicaConfig planned_replica_config(const BatchSizes& sizes, const PlanOptions& options) {
  return replica_config<P>(sizes, {.bucket_bytes = options.bucket_bytes,
                                   .prefetch_bytes = options.prefetch_bytes,
                                   .live_bytes = options.live_bytes,
                                   .offload = options.offload,
                                   .zenflow = options.zenflow});
}

/// A micro-batch of these sizes: the model's new_batch, or the batch's own, or tokens and targets.
template <class Model, class Memory>
constexpr BatchOf<Model> planned_batch(const Model& model, const BatchSizes& sizes, const PlanOptions& options,
                                       Memory& memory) {
  using B = BatchOf<Model>;
  if constexpr (is_token_batch<B>) {
    using D = DeviceOf<typename Model::policy>;
    const auto extents = shape(sizes.micro_batch, sizes.sequence / Model::policy::cp);
    B batch{Tensor<std::int32_t, 2, D>::uninitialized(extents, memory, Category::data, "tokens"),
            Tensor<std::int32_t, 2, D>::uninitialized(extents, memory, Category::data, "targets")};
    if (options.target_weights)
      batch.target_weights = Tensor<float, 2, D>::uninitialized(extents, memory, Category::data, "target weights");
    return batch;
  } else {
    constexpr bool says = requires {
      static_cast<B>(model.new_batch(sizes, memory));
    };
    constexpr bool batch_says = requires {
      static_cast<B>(B::new_batch(sizes, memory));
    };
    static_assert(
        says || batch_says,
        "dspp: plan needs the extents of a batch of the model's own type, but the model does not say them. Add a const "
        "member new_batch(sizes, memory) that returns one whose fields have uninitialized tensors.");
    if constexpr (says)
      return model.new_batch(sizes, memory);
    else if constexpr (batch_says)
      return B::new_batch(sizes, memory);
    else
      return {};
  }
}

template <class Engine>
constexpr void take_step_on_paper(Engine& engine, const PlanOptions& options) {
  for (Size i = 0; i < engine.sizes().accumulate; ++i) {
    const auto batch = planned_batch(engine.model(), engine.sizes(), options, engine.world().memory());
    auto loss = engine.forward(batch);
    engine.backward(loss);
    engine.step();  // updates after the last one; batch and loss are still alive, as in a training loop
  }
}

/// Notes the blocks of the step behind `steps_before` others, at run time: plan/timeline.hpp.
struct PaperRecording {
  Size steps_before = 0;
  MemoryRecorder recorder{std::numeric_limits<std::size_t>::max()};
  MemoryTimeline timeline{};

  template <class Engine>
  void begin(Engine& engine, const PlanOptions& options) {
    for (Size i = 0; i < steps_before; ++i) take_step_on_paper(engine, options);
    recorder.begin(engine.world().memory().live());
  }
  void end(Ledger& ledger) {
    ledger.set_recorder(nullptr);
    timeline = std::move(recorder).timeline();
  }
};

template <class Engine>
constexpr void take_planned_step(Engine& engine, const PlanOptions& options, PaperRecording* recording) {
  recording ? recording->begin(engine, options) : void();
  take_step_on_paper(engine, options);
  recording ? recording->end(engine.world().memory()) : void();
}

/// The place of a rank among nodes of consecutive ranks, and its groups by node, as a world has them.
template <Device D>
constexpr NodePlace connect_nodes(const Mesh& mesh, int rank, const PlanOptions& options, Groups<D>& groups) {
  const int ranks = mesh.world_size(), size = options.ranks_per_node == 0 ? ranks : options.ranks_per_node;
  // clang-format off
  require(size >= 1 && size <= ranks, "dspp: plan needs ranks_per_node from 1 to the number of ranks, or 0 for one node, but got another. Change it, or data.",
          ErrorCode::usage, {{"ranks_per_node", size}, {"ranks", ranks}});
  // clang-format on
  const auto node_of = [&](int r) { return r / size; };
  const int node = node_of(rank), nodes = node_of(ranks - 1) + 1;
  const int on_node = nodes == 1 ? 0 : replicas_on_node(mesh, node_of);
  if (on_node > 0) {
    const AxisGroup replicas = mesh.replicas(rank);
    const int position = replicas.position(rank);
    groups.node_replicas = Recorder<>(position % on_node, on_node, options.sum_order);
    groups.across_nodes = Recorder<>(position / on_node, replicas.size / on_node, options.sum_order);
  }
  return {node, nodes, rank - node * size, std::min(size, ranks - node * size),
          nodes > 1 && ranks % size == 0 ? size : 0};
}

/// Of a step behind the first: what a step leaves in flight is waited for in the next.
template <class Engine>
constexpr StepSeconds seconds_on_paper(Engine& engine, const PlanOptions& options) {
  const StepSeconds first = engine.replicas().seconds();
  if (!engine.replicas().refreshes_beside()) return first;
  take_step_on_paper(engine, options);
  return engine.replicas().seconds() - first;
}

/// One step, from the construction of engine and average on.
template <class Engine>
constexpr void train_on_paper(Engine& engine, const PlanOptions& options, PaperRecording* recording, Plan& result) {
  auto& world = engine.world();
  auto& ledger = world.memory();
  result.start_traffic = world.traffic();
  result.state = ledger.live_by_category();
  result.resident = ledger.live();
  if (options.rates.are_given()) engine.replicas().set_rates(options.rates);
  if (const auto* const host = engine.replicas().host_memory()) result.host_resident = host->live();
  if (options.graphs) {
    const auto inputs = planned_batch(engine.model(), engine.sizes(), options, ledger);
    take_planned_step(engine, options, recording);
  } else {
    take_planned_step(engine, options, recording);
  }
  result.peak = ledger.peak(), result.at_peak = ledger.at_peak(), result.by_category = ledger.peak_by_category();
  result.forward_flops = ledger.flops_forward(), result.backward_flops = ledger.flops_backward();
  result.parameters = engine.parameter_count();
  result.facts.shards = engine.replicas().shards().size();
  for (const auto* unit : engine.units()) {
    for (const auto* parameter : unit->parameters()) {
      const Size count = parameter->count();
      result.facts.rank_parameters += count;
      if (count > result.facts.largest_parameter) result.facts.largest_parameter = count;
    }
  }
  result.host = engine.replicas().host_bytes();
  result.disk = engine.state().disk_bytes();
  result.replica_traffic = world.replicas().traffic().without(Purpose::check);
  if (world.nodes() > 1) result.node_traffic = world.node_replicas().traffic().without(Purpose::check);
  result.across_traffic = world.across_nodes().traffic().without(Purpose::check);
  for (Axis axis : all_axes) result.traffic_along[axis] = world.along(axis).traffic().without(Purpose::check);
  result.world_traffic = world.all().traffic().without(Purpose::check);
  result.links = world.links();
  result.check_traffic = (world.traffic() - result.start_traffic).only(Purpose::check);
  if (options.rates.are_given()) result.seconds = seconds_on_paper(engine, options);
}
}  // namespace detail

/// plan() with what the policy says of states and their traffic as values.
template <class Model, class Optimizer, class Config>
constexpr Plan detail::plan_with(const Config& config, const BatchSizes& sizes, const PlanOptions& options,
                                 Optimizer optimizer, const ReplicaConfig& zero, PaperRecording* recording) {
  using D = PaperOf<DeviceOf<typename Model::policy>>;
  using PaperModel = rebind<Model, D>;
  using P = typename PaperModel::policy;
  // clang-format off
  constexpr bool tokens = detail::is_token_batch<BatchOf<PaperModel>>;
  require((sizes.sequence > 0 || !tokens) && sizes.micro_batch > 0 && options.data > 0, "dspp: plan needs micro_batch, sequence and data of at least 1, but got less. Name them.", ErrorCode::usage,
          {{"micro_batch", sizes.micro_batch}, {"sequence", sizes.sequence}, {"data", options.data}});
  const Rates& rates = options.rates;
  require(rates.are_given() || (rates.flops_per_second == 0 && rates.bytes_per_second == 0), "dspp: plan needs both rates above 0, or neither, but got others. Name both.");
  require(sizes.sequence % P::cp == 0, "dspp: plan needs a sequence that the Cp degree divides, but it does not. Change sequence or Cp<n>.", ErrorCode::placement,
          {{"sequence", sizes.sequence}, {"Cp", P::cp}});
  // clang-format on
  Degrees degrees = P::degrees;
  degrees.data = options.data;
  const Mesh mesh(degrees);
  const int rank = mesh.rank(options.rank);
  const AxisGroup replicas = mesh.replicas(rank);
  Plan result;
  result.facts = {.ranks = mesh.world_size(),
                  .replicas = replicas.size,
                  .shards = replicas.size,
                  .zero_stage = Model::policy::zero_stage,
                  .values = element_type<typename P::Element>,
                  .optimizer_tier = Model::policy::optimizer_tier,
                  .parameter_tier = Model::policy::parameter_tier};
  Ledger ledger;
  ledger.set_recorder(recording ? &recording->recorder : nullptr);
  {
    Groups<D> groups{Recorder<>(rank, mesh.world_size(), options.sum_order),
                     Recorder<>(replicas.position(rank), replicas.size, options.sum_order)};
    for (Axis axis : all_axes) groups.along[axis] = Recorder<>(options.rank[axis], degrees[axis], options.sum_order);
    const NodePlace on = detail::connect_nodes(mesh, rank, options, groups);
    World<P> world(mesh, rank, std::move(groups), ledger, 0, on);
    const EngineConfig engine_config{.bucket_bytes = options.bucket_bytes,
                                     .prefetch_bytes = options.prefetch_bytes,
                                     .live_bytes = options.live_bytes,
                                     .groups = options.groups,
                                     .check_ranks = options.check_ranks,
                                     .offload = options.offload,
                                     .zenflow = options.zenflow};
    Engine<PaperModel, Optimizer> engine(world, PaperModel(config), optimizer, sizes, engine_config, zero);
    if (options.average) {
      const WeightAverage average(engine, 0);
      detail::train_on_paper(engine, options, recording, result);
    } else {
      detail::train_on_paper(engine, options, recording, result);
    }
  }
  return result;
}

template <class Model, class Optimizer, class Config>
constexpr Plan plan(const Config& config, const BatchSizes& sizes, const PlanOptions& options, Optimizer optimizer) {
  static_assert(detail::check_delayed<typename Model::policy, Optimizer>());
  return detail::plan_with<Model>(config, sizes, options, optimizer,
                                  detail::planned_replica_config<typename Model::policy>(sizes, options));
}

template <class Model, class Optimizer, class Config>
std::vector<Remedy> plan_remedies(const Config& config, const BatchSizes& sizes, const PlanOptions& options) {
  const Size now = plan<Model, Optimizer>(config, sizes, options).peak;
  std::vector<Remedy> remedies;
  const auto offer = [&](std::string what, const BatchSizes& batch, const Config& with) {
    const Size then = plan<Model, Optimizer>(with, batch, options).peak;
    if (then < now) remedies.push_back({std::move(what), now - then});
  };
  BatchSizes half = sizes;
  half.micro_batch = sizes.micro_batch / 2;
  if (half.micro_batch > 0) offer("half the micro-batch", half, config);
  half = sizes;
  half.sequence = sizes.sequence / 2;
  if (half.sequence > 0 && half.sequence % (Model::policy::cp * Model::policy::tp) == 0)
    offer("half the sequence", half, config);
  if constexpr (requires { config.recompute_segments + config.layers; }) {
    Config changed = config;
    const auto layers = static_cast<int>(config.layers);
    changed.recompute_segments = 2;
    while ((changed.recompute_segments + 1) * changed.recompute_segments <= layers) ++changed.recompute_segments;
    if (changed.recompute_segments <= layers && config.recompute_segments == 1)
      offer("recompute_segments = " + std::to_string(changed.recompute_segments), sizes, changed);
  }
  return remedies;
}

}  // namespace dspp
