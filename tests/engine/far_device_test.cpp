// SPDX-License-Identifier: Apache-2.0
// A step on a device whose host knows values only when it waits for them: how often it waits, and steps that the device
// skips.
// labels: thread
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>
#include <support/far_device.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class P>
std::vector<double> values_of(Engine<TinyModel<P>, AdamW>& engine) {
  std::vector<double> values;
  const auto add = [&](const auto& tensor) {
    if (tensor) tensor.read([&](const auto* host) { values.insert(values.end(), host, host + tensor.count()); });
  };
  for (auto* unit : engine.units())
    for (auto& b : unit->buckets()) {
      auto& state = engine.state().of(b);
      add(b.values), add(state.master), add(state.moments[0]), add(state.moments[1]);
    }
  return values;
}

template <class P>
StepReport one_step(World<P>& world, Engine<TinyModel<P>, AdamW>& engine, Size step) {
  using Ids = Tensor<std::int32_t, 2, Far>;
  Batch<Far> batch{Ids::uninitialized(shape(2, 4), world.memory(), Category::data),
                   Ids::uninitialized(shape(2, 4), world.memory(), Category::data), 2 * world.data_rank()};
  batch.tokens.write([&](std::int32_t* host) {
    for (int i = 0; i < 8; ++i) host[i] = static_cast<std::int32_t>((3 * i + step + world.data_rank()) % 13);
  });
  batch.targets.write([&](std::int32_t* host) {
    for (int i = 0; i < 8; ++i) host[i] = static_cast<std::int32_t>((3 * i + 3 + step) % 13);
  });
  auto loss = engine.forward(batch);
  engine.backward(loss);
  return engine.step();
}

template <class P>
Engine<TinyModel<P>, AdamW> engine_in(World<P>& world, double largest_norm) {
  return {world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 1e-2},
          EngineConfig{.bucket_bytes = 256, .skip_nonfinite = 1, .largest_norm = largest_norm, .check_ranks = 0}};
}

/// The bytes that the replicas exchange in a step, and whether it was skipped.
template <class P>
std::pair<Size, bool> bytes_of_step(World<P>& world, Engine<TinyModel<P>, AdamW>& engine) {
  const auto& traffic = world.replicas().traffic();
  const auto sent = [&] {
    return traffic.bytes(Collective::all_reduce) + traffic.bytes(Collective::reduce_scatter) +
           traffic.bytes(Collective::all_gather);
  };
  const Size before = sent();
  const bool skipped = one_step(world, engine, 1).skipped;
  return {sent() - before, skipped};
}

template <class P>
void skip_a_step(int ranks) {
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    auto updating = engine_in(world, 1e9), skipping = engine_in(world, 1e-9);
    const auto initial = values_of(updating);
    CHECK(values_of(skipping) == initial);
    const auto [bytes, none] = bytes_of_step(world, updating);
    const auto [bytes_of_skipped, skipped] = bytes_of_step(world, skipping);
    CHECK(!none);
    CHECK(skipped);
    CHECK(bytes_of_skipped == bytes);
    CHECK(values_of(updating) != initial);
    CHECK(values_of(skipping) == initial);
  });
}

}  // namespace

TEST_CASE("a step that the device skips changes no bit, and sends what any step sends") {
  skip_a_step<Policy<F64, Far>>(2);
  skip_a_step<Policy<F64, Zero<1>, Far>>(2);
  skip_a_step<Policy<F64, Zero<2>, Far>>(3);
  skip_a_step<Policy<F64, Zero<3>, Far>>(2);
}

TEST_CASE("on one rank the host waits four times in a step") {
  using P = Policy<F64, Far>;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine<TinyModel<P>, AdamW> engine(world, TinyModel<P>(TinyConfig{}), AdamW{});
    one_step(world, engine, 0);
    const Size before = far_device::of(world.memory()).waits();
    one_step(world, engine, 1);
    CHECK(far_device::of(world.memory()).waits() - before == 4);
  });
}
