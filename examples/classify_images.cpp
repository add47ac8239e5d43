// SPDX-License-Identifier: Apache-2.0
/// Trains a vision transformer to tell stripes of four directions in noise apart, and says how many it gets right.
///
///   ./classify_images [--ranks N]
#include <algorithm>
#include <cmath>

#include <dspp/app/output.hpp>

#include "models/vit.hpp"

using namespace dspp;

using P = Policy<Zero<2>>;
constexpr vit::Config config;
constexpr BatchSizes sizes{.micro_batch = 16};
constexpr Size steps = 60;

/// Fills the batch with images `first`, `first` + 1, ... of an endless stream: those of every number of ranks.
void draw(vit::Images<P>& batch, Size first) {
  const Size side = config.image;
  batch.images.value().write([&](float* out) {
    for (Size i = 0; i < batch.images.value().count(); ++i) {
      const Size x = i % side, y = i / side % side, sample = first + i / (config.channels * side * side);
      const double angle = static_cast<double>(sample % config.classes) * 3.14159265 / 4;
      const double along = std::cos(angle) * static_cast<double>(x) + std::sin(angle) * static_cast<double>(y);
      const double noise = 0.7 * std::sin(static_cast<double>((sample * 131 + x * 7919 + y * 104729) % 10007));
      out[i] = static_cast<float>(std::sin(1.5 * along + static_cast<double>(sample / config.classes)) + noise);
    }
  });
  batch.labels.value().write([&](std::int32_t* out) {
    for (Size i = 0; i < batch.labels.value().count(); ++i)
      out[i] = static_cast<std::int32_t>((first + i) % config.classes);
  });
}

/// The share of this rank's images whose largest logit is that of their class.
double share_right(const Tensor<ElementOf<P>, 2, DeviceOf<P>>& logits, Size first) {
  Size right = 0;
  logits.read([&](const ElementOf<P>* row) {
    for (Size i = 0; i < logits[0]; ++i, row += logits[1])
      right += std::max_element(row, row + logits[1]) - row == (first + i) % config.classes;
  });
  return static_cast<double>(right) / static_cast<double>(logits[0]);
}

int main(int count, char** argv) {
  hold_standard_streams();
  const int status = run<P>(count, argv, [](World<P>& world) {
    Engine engine{world, vit::Vit<P>(config), AdamW{.lr = 2e-3}, sizes};
    const Size all = sizes.micro_batch * world.data_size();
    for (Size step = 0; step < steps; ++step) {
      auto batch = engine.model().new_batch(sizes, world.memory());
      draw(batch, step * all + world.data_rank() * sizes.micro_batch);
      const StepReport report = engine.train_batch(batch);
      if (world.is_first() && step % 10 == 9) std::printf("step %2ld  loss %.4f\n", long(step + 1), report.loss);
    }
    auto held_out = engine.model().new_batch(sizes, world.memory());
    const Size first = (steps + 1) * all + world.data_rank() * sizes.micro_batch;
    draw(held_out, first);
    const double right = engine.all_reduce_mean(engine.no_grad([&](const auto& model, auto& tape) {
      return share_right(model.logits(on_tape(held_out, tape)).value(), first);
    }));
    if (world.is_first()) std::printf("%.1f %% of %ld new images are right\n", 100 * right, long(all));
  });
  return status != 0 ? status : output_status("classify_images");
}
