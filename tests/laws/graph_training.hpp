// SPDX-License-Identifier: Apache-2.0
/// Trainings of a small model with dropout on a GPU, with graphs of steps and without, for tests of graphs.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <dspp/launch/cuda_rank.hpp>

#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

namespace dspp::laws::of_graphs {

/// What a training saw, bit for bit.
struct Seen {
  std::vector<double> numbers;  ///< of each step: loss, norm, loss scale, whether it was skipped
  std::vector<std::uint64_t> prints;
  bool operator==(const Seen&) const = default;
};

struct Task {
  int steps = 12;
  Size accumulate = 1;
  LossScaleConfig loss_scale{};
};

inline constexpr Size sequence = 6, vocabulary = 13, rows = 2;

/// The micro-batches of a step.
template <class World>
auto batches_of_step(World& world, Size step, Size accumulate) {
  std::vector<Batch<Cuda>> batches;
  for (Size n = 0; n < accumulate; ++n)
    batches.push_back(batch_of<Cuda>(world.memory(), 0, (step * accumulate + n) * rows, rows, sequence, vocabulary));
  return batches;
}

/// The same, each made when it is asked for.
struct LazyBatches {
  World<Policy<F32, Cuda>>& world;
  Size step, accumulate;
  struct Iterator {
    const LazyBatches& of;
    Size n;
    Batch<Cuda> operator*() const {
      return batch_of<Cuda>(of.world.memory(), 0, (of.step * of.accumulate + n) * rows, rows, sequence, vocabulary);
    }
    Iterator& operator++() { return ++n, *this; }
    bool operator!=(const Iterator& other) const { return n != other.n; }
  };
  Iterator begin() const { return {*this, 0}; }
  Iterator end() const { return {*this, accumulate}; }
};

/// program(world, engine of a TinyModel with dropout).
template <class P, class O, class Program>
void with_engine(const Task& task, bool graphs, const O& optimizer, Program program) {
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine(world, TinyModel<P>(TinyConfig{}), optimizer,
                  BatchSizes{.micro_batch = rows, .sequence = sequence, .accumulate = task.accumulate},
                  EngineConfig{.clip_norm = 0.5, .bucket_bytes = 256, .loss_scale = task.loss_scale, .graphs = graphs});
    program(world, engine);
  });
}

}  // namespace dspp::laws::of_graphs
