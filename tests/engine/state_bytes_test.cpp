// SPDX-License-Identifier: Apache-2.0
// A rank's bytes per parameter between backward and step: the table of design section 3, up to padding. Stage 1 has
// those of the table before the last backward of a step, which reduces its gradients: then those of stage 2.
// labels: engine
#include <laws/poison.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Bytes of one padded element: `whole` on every rank, `split` over the replicas.
struct PerElement {
  Size whole = 0, split = 0;
};

/// Parameters, gradients and optimizer state of every rank are exactly whole E + split E / N bytes for its E padded
/// elements, under stage 1 those of `before_last` before the last backward; and the padding is below 64 bytes per
/// parameter and N x 64 bytes per bucket.
template <class P>
void check_state(int ranks, Size accumulate, PerElement expected, PerElement before_last) {
  CAPTURE(P::zero_stage);
  CAPTURE(ranks);
  CAPTURE(accumulate);
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    static const double none = 0;
    using Model = PoisonedModel<P, true>;
    Engine<Model, AdamW> engine(world, Model(PoisonConfig{.width = 40, .injected = &none}), AdamW{},
                                {.accumulate = accumulate}, {.bucket_bytes = 1000});
    RankRecord layout;
    laws::detail::record_layout(engine, layout);
    const Size alignment = 64 / static_cast<Size>(sizeof(typename P::Element)), N = world.data_size();
    const Size padded = layout.psi / static_cast<Size>(sizeof(typename P::Element));
    const CategoryBytes& live = world.memory().live_by_category();
    const auto check_live = [&](const PerElement& bytes) {
      CHECK(live[Category::parameters] + live[Category::gradients] + live[Category::optimizer] ==
            bytes.whole * padded + bytes.split * padded / N);
    };
    for (Size a = 0; a < accumulate; ++a) {
      if (a > 0 && P::zero_stage == 1) check_live(before_last);
      auto batch = batch_of(world.memory(), 0, a * world.data_size() + world.data_rank(), 1, 4, 61);
      auto loss = engine.forward(batch);
      engine.backward(loss);
    }
    engine.replicas().complete_all();
    check_live(expected);
    CHECK(padded % (alignment * N) == 0);
    CHECK(padded >= layout.elements);
    CHECK(padded - layout.elements < layout.parameters * alignment + layout.buckets * N * alignment);
    engine.step();
    CHECK(world.memory().live_by_category()[Category::gradients] == 0);
  });
}

template <class P>
void on_all_ranks(Size accumulate, PerElement expected, PerElement before_last = {}) {
  for (int ranks : {1, 2, 3, 4})
    if (ranks % P::tp == 0) check_state<P>(ranks, accumulate, expected, before_last);
}

}  // namespace

TEST_CASE("bf16: 16, 4 + 12/N, 2 + 14/N and 16/N bytes a parameter under stages 0 to 3") {
  on_all_ranks<Policy<Bf16, Zero<0>>>(1, {16, 0});
  on_all_ranks<Policy<Bf16, Zero<1>>>(1, {2, 14});
  on_all_ranks<Policy<Bf16, Zero<2>>>(1, {2, 14});
  on_all_ranks<Policy<Bf16, Zero<3>>>(1, {0, 16});
}

TEST_CASE("bf16 with f32 gradients: 18, 6 + 12/N, 2 + 16/N and 18/N bytes a parameter; the default with accumulation") {
  on_all_ranks<Policy<Bf16, Zero<0>>>(2, {18, 0});
  on_all_ranks<Policy<Bf16, Zero<1>>>(2, {2, 16}, {6, 12});
  on_all_ranks<Policy<Bf16, Zero<2>>>(2, {2, 16});
  on_all_ranks<Policy<Bf16, Zero<3>>>(2, {0, 18});
  on_all_ranks<Policy<Bf16, Zero<2>, Gradients<F32>>>(1, {2, 16});
  on_all_ranks<Policy<Bf16, Zero<2>, Gradients<Bf16>>>(2, {2, 14});
}

TEST_CASE("f16 costs what bf16 costs, gradients by use or as named") {
  on_all_ranks<Policy<F16, Zero<2>>>(1, {2, 14});
  on_all_ranks<Policy<F16, Zero<2>>>(2, {2, 16});
  on_all_ranks<Policy<F16, Zero<2>, Gradients<F32>>>(1, {2, 16});
  on_all_ranks<Policy<F16, Zero<2>, Gradients<F16>>>(2, {2, 14});
}

TEST_CASE("f32: 16, 8 + 8/N, 4 + 12/N and 16/N bytes a parameter; over Tp, of the parameters that a rank has") {
  on_all_ranks<Policy<F32, Zero<0>>>(1, {16, 0});
  on_all_ranks<Policy<F32, Zero<1>>>(2, {4, 12}, {8, 8});
  on_all_ranks<Policy<F32, Zero<2>>>(1, {4, 12});
  on_all_ranks<Policy<F32, Zero<3>>>(2, {0, 16});
  on_all_ranks<Policy<F32, Zero<3>, Tp<2>, SequenceParallel>>(1, {0, 16});
}
