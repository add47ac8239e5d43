// SPDX-License-Identifier: Apache-2.0
/// The time cost of tiling: a training step of two wide linear layers, whole and in tiles, and of a GPT whose loss or
/// feed-forward layers are in chunks, alternating. Figures are ratios to the untiled step; `planned_peak` is the ratio
/// of memory peaks.
#include <benchmark/benchmark.h>

#include <dspp/autograd/activations.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/tiled.hpp>
#include <dspp/models/tiled_mlp.hpp>
#include <dspp/plan/plan.hpp>

#include "../ops/alternate.hpp"

namespace {

using namespace dspp;

constexpr int ranks = 2, rounds = 11;
constexpr Size micro_batch = 8, sequence = 128;
using P = Policy<Zero<3>>;

/// x + down(gelu(up(x))).       up [4 width, width], down [width, 4 width]
template <class Q, class Up, class Down>
struct Wide : Layer<Q> {
  template <class R>
  using on = Wide<R, rebind_layer<Up, R>, rebind_layer<Down, R>>;
  Up up;
  Down down;
  constexpr explicit Wide(const GptConfig& c) : up(c.width, 4 * c.width), down(4 * c.width, c.width) {}
  constexpr void visit(auto&& f) {
    f("up", up);
    f("down", down);
  }
  constexpr auto operator()(const Hidden<Q>& x) const { return x + down(gelu(up(x))); }
};
template <int Tiles>
using InTiles = Gpt<P, Wide<P, Tiled<ColumnParallel<Linear, P>, 1, Tiles>, Tiled<RowParallel<Linear, P>, Tiles>>>;
using Whole = Gpt<P, Wide<P, ColumnParallel<Linear, P>, RowParallel<Linear, P>>>;

Batch<Cpu> batch_of(World<P>& world) {
  const auto extents = shape(micro_batch, sequence);
  Batch<Cpu> batch{Tensor<std::int32_t, 2>::zeros(extents, world.memory(), Category::data, "tokens"),
                   Tensor<std::int32_t, 2>::zeros(extents, world.memory(), Category::data, "targets")};
  for (Size i = 0; i < extents.count(); ++i)
    batch.targets.data()[i] = batch.tokens.data()[i] = static_cast<std::int32_t>(i % 200);
  return batch;
}

template <class Model>
void step(Engine<Model, AdamW>& engine, const Batch<Cpu>& batch) {
  engine.backward(engine.forward(batch));
  engine.step();
}

/// Times steps of an untiled model and of two tiled ones.
template <class A, class B, class C>
void compare(benchmark::State& state, const GptConfig& a, const GptConfig& b, const GptConfig& c) {
  std::array<double, 3> seconds{};
  for (auto _ : state)
    run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1}, [&](World<P>& world) {
      Engine<A, AdamW> first(world, A(a), AdamW{});
      Engine<B, AdamW> second(world, B(b), AdamW{});
      Engine<C, AdamW> third(world, C(c), AdamW{});
      const auto batch = batch_of(world);
      const auto medians = bench::alternate(
          rounds, [&] { step(first, batch); }, [&] { step(second, batch); }, [&] { step(third, batch); });
      if (world.is_first()) seconds = medians;
    });
  const BatchSizes sizes{.micro_batch = micro_batch, .sequence = sequence};
  const auto whole = static_cast<double>(plan<A>(a, sizes, {.data = ranks}).peak);
  state.counters["milliseconds"] = 1e3 * seconds[0];
  state.counters["time_1"] = seconds[1] / seconds[0];
  state.counters["planned_peak_1"] = static_cast<double>(plan<B>(b, sizes, {.data = ranks}).peak) / whole;
  state.counters["time_2"] = seconds[2] / seconds[0];
  state.counters["planned_peak_2"] = static_cast<double>(plan<C>(c, sizes, {.data = ranks}).peak) / whole;
}

constexpr GptConfig wide{.layers = 2, .width = 512, .vocabulary = 256, .sequence = sequence};
constexpr GptConfig gpt{.layers = 2, .width = 128, .vocabulary = 8192, .sequence = sequence};

GptConfig by_rows(Size rows) {
  GptConfig c = gpt;
  c.loss_chunk_tokens = rows;
  return c;
}

void linear_in_4_and_16_tiles(benchmark::State& state) {
  compare<Whole, InTiles<4>, InTiles<16>>(state, wide, wide, wide);
}
void loss_by_64_and_16_rows(benchmark::State& state) {
  compare<Gpt<P>, Gpt<P>, Gpt<P>>(state, gpt, by_rows(64), by_rows(16));
}
void mlp_in_2_and_8_chunks(benchmark::State& state) {
  compare<Gpt<P>, Gpt<P, GptBlock<P, TiledMlp<Mlp<P>, 2>>>, Gpt<P, GptBlock<P, TiledMlp<Mlp<P>, 8>>>>(state, gpt, gpt,
                                                                                                      gpt);
}

}  // namespace

BENCHMARK(linear_in_4_and_16_tiles)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(loss_by_64_and_16_rows)->Iterations(1)->Unit(benchmark::kMillisecond);
BENCHMARK(mlp_in_2_and_8_chunks)->Iterations(1)->Unit(benchmark::kMillisecond);
