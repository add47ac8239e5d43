// SPDX-License-Identifier: Apache-2.0
// What the timelines of NVTX show of a training: passes by unit, the step, and collectives of ranks that share a GPU.
// labels: cuda
#include <kernels/cuda_memory.cuh>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <dspp/launch/cuda_rank.hpp>

#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

#if !DSPP_HAS_NVCC()
namespace {

constexpr GptConfig tiny{.layers = 2, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4};
using Texts = std::vector<std::string>;

/// What rank 0 notes of one step, without ranges that are left out; `buckets` becomes the number of its buckets.
template <class P>
Texts step_of(int ranks, const std::function<bool(const std::string&)>& is_left_out, Size* buckets = nullptr) {
  Texts noted;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine(world, Gpt<P>(tiny), AdamW{}, BatchSizes{}, EngineConfig{});
    const auto batch = batch_of<Cuda>(world.memory(), 0, 0, 1, 4, 13);
    software_gpu::note_ranges();
    auto loss = engine.forward(batch);
    engine.backward(loss);
    engine.step();
    auto own = software_gpu::noted_ranges();
    CHECK(software_gpu::open_ranges() == 0);
    if (world.rank() != 0) return;
    for (auto* unit : engine.units())
      if (buckets) *buckets += static_cast<Size>(unit->buckets().size());
    std::vector<bool> shown;
    for (std::string& text : own) {
      if (!text.empty()) shown.push_back(!is_left_out(text));
      REQUIRE(!shown.empty());
      const bool shows = shown.back();
      if (text.empty()) shown.pop_back();
      if (shows) noted.push_back(std::move(text));
    }
  });
  return noted;
}

}  // namespace

TEST_CASE("a timeline names the passes of each unit inside of those of the model, and the step") {
  const auto is_collective = [](const std::string& text) { return text.find("_") != std::string::npos; };
  const Texts expected{"forward",  "forward blocks.0",  "", "forward blocks.1",  "", "",  //
                       "backward", "backward blocks.1", "", "backward blocks.0", "", "", "step", ""};
  CHECK(step_of<Policy<F32, Cuda>>(1, is_collective) == expected);
  CHECK(step_of<Policy<F32, Zero<3>, Cuda>>(2, is_collective) == expected);
}

TEST_CASE("collectives of ranks that share a GPU are named where they are issued") {
  const Texts noted = step_of<Policy<F32, Zero<2>, Cuda>>(2, [](const std::string&) { return false; });
  const auto has = [&](const std::string& text) { return std::find(noted.begin(), noted.end(), text) != noted.end(); };
  Size buckets = 0;
  const Texts of_stage0 = step_of<Policy<F32, Cuda>>(
      2, [](const std::string&) { return false; }, &buckets);
  CHECK(std::count(of_stage0.begin(), of_stage0.end(), "all_reduce gradient") == buckets);
  CHECK(buckets > 1);
  CHECK(has("reduce_scatter gradient"));
  CHECK(has("all_gather parameter"));
  CHECK(!has("all_reduce gradient"));
}

TEST_CASE("a pass that an exception ended in the middle of a unit ends before the unit's next") {
  using P = Policy<F32, Cuda>;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine(world, Gpt<P>(tiny), AdamW{}, BatchSizes{}, EngineConfig{});
    Context<Cuda> context{&world.memory()};
    Tape<Cuda> tape(context);
    auto *model = engine.units()[0], *block = engine.units()[1];
    software_gpu::note_ranges();
    model->enter(tape), block->enter(tape);
    model->enter(tape), block->enter(tape), block->leave(tape), model->leave(tape);
    CHECK(software_gpu::open_ranges() == 0);
    CHECK(software_gpu::noted_ranges() ==
          Texts{"forward", "forward blocks.0", "", "", "forward", "forward blocks.0", "", ""});
  });
}

TEST_CASE("a range that an exception left open ends with those around it, and not twice") {
  CudaMemory memory;
  software_gpu::note_ranges();
  const auto outer = memory.begin_range("step"), inner = memory.begin_range("forward", "blocks.0");
  CHECK(inner != outer);
  CHECK(software_gpu::open_ranges() == 2);
  memory.end_range(outer);
  CHECK(software_gpu::open_ranges() == 0);
  const auto next = memory.begin_range("backward");
  memory.end_range(inner);
  memory.end_range(0);
  CHECK(software_gpu::open_ranges() == 1);
  memory.end_range(next);
  CHECK(software_gpu::noted_ranges() == Texts{"step", "forward blocks.0", "", "", "backward", ""});
}
#endif
