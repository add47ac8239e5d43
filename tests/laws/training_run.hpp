// SPDX-License-Identifier: Apache-2.0
/// A whole model trained under any policy, and the results of its ranks, for the laws of strategies.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/engine/weight_average.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/ops/rope_scaling.hpp>
#include <dspp/plan/plan.hpp>
#include <dspp/zero/full_tensors.hpp>

#include <support/sanitizer.hpp>

namespace dspp::laws {

/// A GPT whose heads and inner width 1, 2, 3 and 4 ranks divide, and whose vocabulary 2, 3 and 4 do not.
constexpr GptConfig small_gpt(double dropout = 0) {
  return {.layers = 2, .width = 24, .heads = 12, .vocabulary = 61, .sequence = 16, .dropout = dropout};
}

/// The small configuration of a model, by the type of its `config`; of a model without one, small_gpt.
template <class Config>
constexpr Config small_config(double dropout);
template <>
constexpr GptConfig small_config<GptConfig>(double dropout) {
  return small_gpt(dropout);
}
template <class Model>
constexpr auto small_config_of(double dropout = 0) {
  if constexpr (requires(const Model& model) { model.config; })
    return small_config<decltype(Model::config)>(dropout);
  else
    return small_gpt(dropout);
}

template <class P>
using RecomputedGpt = Gpt<P, Recompute<GptBlock<P>>>;

/// One training run: its settings outside the policy.
struct Cell {
  int ranks = 1;
  Size accumulate = 1;
  int steps = sanitizer == Sanitizer::none ? 20 : 5;  ///< sanitizers run few of each
  double dropout = 0;
  double clip_norm = 0.2;  ///< below the norm of every gradient of the small models: clipping is active in every step
  Size samples = 12;       ///< of the global batch
  Size sequence = 12;
  Size bucket_elements = 2000;  ///< several buckets per block; the largest weights have a bucket of their own
  std::uint64_t seed = 5;
  LossScaleConfig loss_scale{};  ///< under F16
  Size loss_chunk_tokens = 0;    ///< tokens of the loss at a time; 0: all
  int layers = 0;                ///< 0: those of its small configuration
  Size width = 0;                ///< 0: that of its small configuration
  int segments = 1;              ///< recompute_segments
  Size heads = 0;                ///< 0: those of its small configuration
  Size kv_heads = 0;             ///< of a Llama; 0: those of its small configuration
  bool llama_options = false;    ///< of a Llama: a window after one full layer, biases, qk_norm, scaled angles
  SumOrder sum_order = SumOrder::rank;
  AsyncProgress async_progress = AsyncProgress::automatic;
  ParameterGroups groups{};
  OffloadConfig offload{};
  int ranks_per_node = 0;
  Size prefetch_bytes = next_unit, live_bytes = 0;
  Size delay_after = 0;  ///< of a policy with Delayed<1>
  ErrorFeedback error_feedback{};
  ZenFlowConfig zenflow{};
  double largest_norm = 0;  ///< a step of a larger one is skipped
  Size check_ranks = 2;     ///< of course_of
};

/// The small configuration of a model with the cell's settings.
template <class Model>
constexpr auto config_of(const Cell& cell) {
  auto config = small_config_of<Model>(cell.dropout);
  config.loss_chunk_tokens = cell.loss_chunk_tokens;
  if (cell.layers > 0) config.layers = cell.layers;
  if (cell.width > 0) config.width = cell.width;
  if constexpr (requires { config.recompute_segments; }) config.recompute_segments = cell.segments;
  if constexpr (requires { config.heads; })
    if (cell.heads > 0) config.heads = cell.heads;
  if constexpr (requires { config.kv_heads; })
    if (cell.kv_heads > 0) config.kv_heads = cell.kv_heads;
  if constexpr (requires { config.full_layers; })
    if (cell.llama_options) {
      config.window = 5, config.full_layers = 1, config.qkv_bias = config.qk_norm = true;
      config.rope_scaling = {.kind = RopeKind::llama3, .factor = 4, .original_sequence = 8};
    }
  return config;
}

/// A policy's numbers for the formulas, as values, so that the checks are compiled once.
struct Facts {
  Size tp = 1, cp = 1;
  int stage = 0;
  bool sequence_parallel = false, regather_inputs = false;
  Size element = 4, compute = 4, gradient = 4;  ///< bytes of one element: of values, of sums, of parameter gradients
};

/// The results of one rank.
struct RankRecord {
  CategoryBytes state{};        ///< after construction
  Size resident = 0, peak = 0;  ///< peak: of the first step, construction included
  CategoryBytes at_peak{}, by_category{};
  Size later_peak = 0;                                        ///< of the steps after the first
  Size host = 0, disk = 0;                                    ///< bytes of what is offloaded
  Size left = 0;                                              ///< live when the engine is gone
  Traffic replicas{}, node{}, across{}, cp{}, tp{}, world{};  ///< of the first step, without its check of the ranks
  LinkBytes links{};                                          ///< of the first step
  Traffic start{}, check{};                                   ///< of the engine's construction, and of that check
  bool same_traffic = true;                                   ///< in every later step
  std::uint64_t values_print = 0;                             ///< of the resident values' bits
  bool values_follow_masters = true;                          ///< every owned value is its master, rounded
  std::vector<double> losses;                                 ///< local means, summed over the micro-steps
  std::vector<double> norms;
  Size skipped = 0;
  double loss_scale = 1;  ///< after the last step
  Size psi = 0;           ///< bytes of this rank's parameters with padding, in the element type
  Size elements = 0;      ///< without padding
  Size buckets = 0, parameters = 0;
};

/// Parameters by name.
using ParameterValues = std::map<std::string, std::vector<double>>;

struct Trained {
  Cell cell{};
  Facts facts{};
  std::vector<double> losses{};  ///< means over the global batch
  std::vector<double> norms{};
  ParameterValues parameters{};  ///< whole ones, after the last step
  ParameterValues averages{};    ///< their averages, if they are kept
  std::vector<RankRecord> ranks{};
};

/// Token j of a global sample: a fixed stream of 24 sentences that can be learnt, of which every rank can compute its
/// part.
constexpr std::int32_t token(Size sample, Size j, Size vocabulary) {
  const Size s = sample % 24;
  return static_cast<std::int32_t>((s * s * 31 + s * 17 + j * j * (s % 5 + 1) + 7 * j) % vocabulary);
}

/// Samples [first, first + micro_batch) of the stream, counted over all steps: of each the `sequence` tokens from
/// `start`.
template <Device D = Cpu>
Batch<D> batch_of(Pool& pool, Size before, Size first, Size micro_batch, Size sequence, Size vocabulary,
                  Size start = 0) {
  using Ids = Tensor<std::int32_t, 2, D>;
  const auto extents = shape(micro_batch, sequence);
  Batch<D> batch{Ids::uninitialized(extents, pool, Category::data, "tokens"),
                 Ids::uninitialized(extents, pool, Category::data, "targets"), first};
  const auto write = [&](const Ids& ids, Size shift) {
    ids.write([&](std::int32_t* host) {
      for (Size i = 0; i < micro_batch; ++i)
        for (Size j = 0; j < sequence; ++j)
          host[i * sequence + j] = token(before + first + i, start + j + shift, vocabulary);
    });
  };
  write(batch.tokens, 0);
  write(batch.targets, 1);
  return batch;
}

template <class P>
Facts facts_of(Size accumulate);

/// A fingerprint of this rank's values, masters and moments.
template <class Engine>
std::uint64_t print_of_state(Engine& engine);

/// The model that strategies share which differ only in the ZeRO stage, the gradients' type and what is offloaded.
template <class Model, class D = DeviceOf<typename Model::policy>>
using WithoutStage = rebind<rebind<Model, PaperOf<D>>, D>;

/// Trains `Model` with the cell's settings; every rank computes its part of the same global batches. The engine is
/// given the ZeRO stage and the gradients' type as values, so that it is compiled once for all.
template <class Model>
Trained train(const Cell& cell);

/// The same on another device.
template <class D, class Model, class Optimizer = AdamW>
Trained train_on(const Cell& cell);

/// In place of optimizer O: O, and a WeightAverage that is kept.
template <class O>
struct Averaged {
  static constexpr double decay = 0.75;
};

/// The plan of rank `r` of a cell.
template <class Model, class Optimizer = AdamW>
Plan plan_of(const Cell& cell, int r);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

struct NoAverage {
  explicit NoAverage(auto&) {}
  void update() {}
  void within(auto) {}
};
template <class O>
struct OptimizerOf {
  using type = O;
  static constexpr bool averages = false;
  template <class>
  using Average = NoAverage;
};
template <class O>
struct OptimizerOf<Averaged<O>> {
  using type = O;
  static constexpr bool averages = true;
  template <class Engine>
  struct Average : WeightAverage<Engine> {
    explicit Average(Engine& engine) : WeightAverage<Engine>(engine, Averaged<O>::decay) {}
  };
};

/// FNV-1a.
inline std::uint64_t print_of(const std::byte* data, Size bytes, std::uint64_t hash) {
  for (Size i = 0; i < bytes; ++i) hash = (hash ^ static_cast<std::uint64_t>(data[i])) * 1099511628211u;
  return hash;
}

template <class Engine>
void record_values(Engine& engine, RankRecord& record) {
  using T = typename Engine::T;
  record.values_print = 14695981039346656037u;
  for (auto* unit : engine.units())
    for (auto& b : unit->buckets()) {
      const Range own = engine.replicas().owned(b);
      const Size values_begin = engine.replicas().rule().values_are_split() ? own.begin : 0;
      const auto held = engine.replicas().held_values(b);
      held.read([&](const T* values) {
        record.values_print = print_of(reinterpret_cast<const std::byte*>(values), held.bytes(), record.values_print);
        const auto& master = engine.state().of(b).master;
        if (!master) return;
        master.read([&](const auto* masters) {
          for (Size i = 0; i < own.count(); ++i)
            if (!(values[own.begin - values_begin + i] == static_cast<T>(masters[i])))
              record.values_follow_masters = false;
        });
      });
    }
}

template <class Engine>
void record_layout(Engine& engine, RankRecord& record) {
  for (auto* unit : engine.units())
    for (auto& b : unit->buckets()) {
      record.psi += b.count * static_cast<Size>(sizeof(typename Engine::T));
      record.buckets += 1;
      record.parameters += static_cast<Size>(b.parameters.size());
      for (const auto* p : b.parameters) record.elements += p->count();
    }
}

/// One optimizer step; the loss is summed over the micro-steps.
template <class Model, class World, class Engine>
StepReport train_step(World& world, Engine& engine, const Cell& cell, Size step, double& loss_sum) {
  const Size micro_batch = cell.samples / cell.accumulate / world.data_size();
  const Size own = cell.sequence / world.cp().size();
  StepReport report;
  for (Size a = 0; a < cell.accumulate; ++a) {
    const Size first = (a * world.data_size() + world.data_rank()) * micro_batch;
    auto batch = batch_of<typename Engine::D>(world.memory(), step * cell.samples, first, micro_batch, own,
                                              small_config_of<Model>().vocabulary, own * world.cp().rank());
    auto loss = engine.forward(batch);
    loss_sum += Engine::value_of(loss);
    engine.backward(loss);
    report = engine.step();
  }
  return report;
}

template <class World, class Engine>
void gather_all(World& world, Engine& engine, ParameterValues& all) {
  for (const auto& named : engine.inventory().parameters) {
    const auto whole = engine.gather_parameter(named.name->text);
    if (world.rank() == 0)
      whole.read([&](const auto* host) { all[named.name->text].assign(host, host + whole.count()); });
  }
}

/// The ZeRO stage and the gradients' type, as values.
using ReplicasOf = ReplicaConfig (*)(const BatchSizes&, const EngineConfig&);

template <class P, class Model, class Optimizer>
void train_rank(World<P>& world, const Cell& cell, ReplicasOf replicas_of, RankRecord& record, Trained& trained) {
  Pool& pool = world.memory();
  {
    const BatchSizes sizes{.accumulate = cell.accumulate};
    const EngineConfig config{.clip_norm = cell.clip_norm,
                              .bucket_bytes = cell.bucket_elements * static_cast<Size>(sizeof(typename P::Element)),
                              .prefetch_bytes = cell.prefetch_bytes,
                              .live_bytes = cell.live_bytes,
                              .loss_scale = cell.loss_scale,
                              .groups = cell.groups,
                              .offload = cell.offload,
                              .delay_after = cell.delay_after,
                              .zenflow = cell.zenflow,
                              .error_feedback = cell.error_feedback};
    using O = typename OptimizerOf<Optimizer>::type;
    Engine<Model, O> engine(world, Model(config_of<Model>(cell)), O{.lr = 1e-2}, sizes, config,
                            replicas_of(sizes, config));
    typename OptimizerOf<Optimizer>::template Average<decltype(engine)> average(engine);
    record.state = pool.live_by_category();
    record.resident = pool.live();
    record_layout(engine, record);
    record.start = world.traffic();
    const auto without_checks = [](const auto& group) { return group.traffic().without(Purpose::check); };
    /// Of each group, in the order of the record's members.
    const auto traffic_now = [&] {
      const Traffic none{};
      return std::array{
          without_checks(world.replicas()),     world.nodes() > 1 ? without_checks(world.node_replicas()) : none,
          without_checks(world.across_nodes()), without_checks(world.cp()),
          without_checks(world.tp()),           without_checks(world.all())};
    };
    std::array<Traffic, 6> before{};
    for (int step = 0; step < cell.steps; ++step) {
      double sum = 0;
      const StepReport report = train_step<Model>(world, engine, cell, step, sum);
      average.update();
      record.losses.push_back(sum);
      record.norms.push_back(report.gradient_norm);
      // With progress threads what a step gathers goes on beside the next, and is counted when it is waited for.
      const bool is_counted = cell.async_progress != AsyncProgress::on || step == 0;
      if (is_counted) engine.replicas().complete_all();
      const auto now = traffic_now();
      if (step == 0) {
        record.peak = pool.peak();
        record.at_peak = pool.at_peak();
        record.by_category = pool.peak_by_category();
        std::tie(record.replicas, record.node, record.across, record.cp, record.tp, record.world) = std::tuple_cat(now);
        record.links = world.links();
        record.check = (world.traffic() - record.start).only(Purpose::check);
        pool.reset_peak();
      }
      const std::array first{record.replicas, record.node, record.across, record.cp, record.tp, record.world};
      for (std::size_t i = 0; i < now.size(); ++i)
        record.same_traffic = record.same_traffic && (!is_counted || now[i] - before[i] == first[i]);
      before = now;
    }
    record.later_peak = pool.peak();
    record.host = engine.replicas().host_bytes(), record.disk = engine.state().disk_bytes();
    record.skipped = engine.skipped_steps();
    record.loss_scale = engine.loss_scale();
    average.within([&] { gather_all(world, engine, trained.averages); });
    engine.end_update();
    record_values(engine, record);
    gather_all(world, engine, trained.parameters);
  }
  record.left = pool.live();
}

}  // namespace detail

template <class Engine>
std::uint64_t print_of_state(Engine& engine) {
  std::uint64_t print = 14695981039346656037u;
  const auto add = [&](const auto& tensor) {
    if (!tensor) return;
    tensor.read([&](const auto* host) {
      print = detail::print_of(reinterpret_cast<const std::byte*>(host), tensor.bytes(), print);
    });
  };
  for (auto* unit : engine.units())
    for (auto& b : unit->buckets()) {
      auto& state = engine.state().of(b);
      add(engine.replicas().held_values(b)), add(state.master), add(state.moments[0]), add(state.moments[1]);
    }
  return print;
}

namespace detail {
/// The losses and norms of the run, from its ranks'.
inline void gather_curves(Trained& trained, int tp) {
  const Cell& cell = trained.cell;
  trained.norms = trained.ranks[0].norms;
  const int replicas = cell.ranks / tp;
  for (int step = 0; step < cell.steps; ++step) {
    double sum = 0;
    for (int r = 0; r < replicas; ++r)
      sum += trained.ranks[static_cast<std::size_t>(r * tp)].losses[static_cast<std::size_t>(step)];
    trained.losses.push_back(sum / static_cast<double>(replicas * cell.accumulate));
  }
}

template <class Model, class Optimizer>
Trained train_with(const Cell& cell, const Facts& facts, ReplicasOf replicas_of) {
  using P = typename Model::policy;
  Trained trained{.cell = cell, .facts = facts};
  trained.ranks.resize(static_cast<std::size_t>(cell.ranks));
  run_ranks_of<P>(RunOptions{.ranks = cell.ranks,
                             .threads_per_rank = 1,
                             .seed = cell.seed,
                             .timeout_seconds = 120,
                             .ranks_per_node = cell.ranks_per_node,
                             .sum_order = cell.sum_order,
                             .async_progress = cell.async_progress},
                  [&](World<P>& world) {
                    train_rank<P, Model, Optimizer>(world, cell, replicas_of,
                                                    trained.ranks[static_cast<std::size_t>(world.rank())], trained);
                  });
  gather_curves(trained, P::tp);
  return trained;
}

/// Q: the policy with the ZeRO stage and the gradients' type, which the model's may omit.
template <class Q, class Model, class Optimizer = AdamW>
Trained train_as(const Cell& cell) {
  return train_with<Model, Optimizer>(cell, facts_of<Q>(cell.accumulate), &dspp::detail::replica_config<Q>);
}
}  // namespace detail

template <class Model>
Trained train(const Cell& cell) {
  return detail::train_as<typename Model::policy, WithoutStage<Model>>(cell);
}

template <class D, class Model, class Optimizer>
Trained train_on(const Cell& cell) {
  return detail::train_as<typename Model::policy, rebind<WithoutStage<Model>, D>, Optimizer>(cell);
}

template <class Model, class Optimizer>
Plan plan_of(const Cell& cell, int r) {
  using P = typename Model::policy;
  const Mesh mesh = mesh_of<P>(cell.ranks);
  const Size data = mesh.degrees().data;
  return plan<Model, typename detail::OptimizerOf<Optimizer>::type>(
      config_of<Model>(cell),
      {.micro_batch = cell.samples / cell.accumulate / data, .sequence = cell.sequence, .accumulate = cell.accumulate},
      {.data = static_cast<int>(data),
       .ranks_per_node = cell.ranks_per_node,
       .bucket_bytes = cell.bucket_elements * static_cast<Size>(sizeof(typename P::Element)),
       .prefetch_bytes = cell.prefetch_bytes,
       .live_bytes = cell.live_bytes,
       .offload = cell.offload,
       .zenflow = cell.zenflow,
       .sum_order = cell.sum_order,
       .groups = cell.groups,
       .average = detail::OptimizerOf<Optimizer>::averages,
       .rank = mesh.coordinates(r)});
}

template <class P>
Facts facts_of(Size accumulate) {
  using T = typename P::Element;
  using Choice = typename P::GradientChoice;
  const Size element = sizeof(T), compute = sizeof(Compute<T>);
  const bool wide =
      std::is_same_v<Choice, Gradients<F32>> || (std::is_same_v<Choice, Gradients<ByUse>> && accumulate > 1);
  return {.tp = P::tp,
          .cp = P::cp,
          .stage = P::zero_stage,
          .sequence_parallel = P::sequence_parallel,
          .regather_inputs = P::regather_inputs,
          .element = element,
          .compute = compute,
          .gradient = wide ? compute : element};
}

}  // namespace dspp::laws
