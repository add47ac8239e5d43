// SPDX-License-Identifier: Apache-2.0
/// Trains two towers, of images and of texts, to find the text of each image, and says how many it finds among new
/// ones. An image is a light or dark spot of some colour at some place in noise; four words describe it.
///
///   ./match_pairs [--ranks N]
#include <algorithm>
#include <cmath>
#include <type_traits>

#include <dspp/app/output.hpp>

#include "models/two_towers.hpp"

using namespace dspp;

using P = Policy<Zero<2>>;
constexpr two_towers::Config config;
constexpr BatchSizes sizes{.micro_batch = 16};
constexpr Size steps = 300;
constexpr Size side = config.image, spots = 2 * config.channels * side * side, new_spots = 64;

/// A spot in noise.
struct Spot {
  Size number, sample;

  bool is_light() const { return number % 2 == 0; }
  Size colour() const { return number / 2 % config.channels; }
  Size x() const { return number / (2 * config.channels) % side; }
  Size y() const { return number / (2 * config.channels) / side; }

  float pixel(Size i) const {
    const bool inside = i == (colour() * side + y()) * side + x();
    const double noise = 0.3 * std::sin(static_cast<double>((sample * 131 + i * 7919) % 10007));
    return static_cast<float>((inside ? (is_light() ? 6 : -6) : 0) + noise);
  }
  Size word(Size i) const {
    const Size first_place = 2 + config.channels;
    const Size words[] = {is_light() ? 0 : 1, 2 + colour(), first_place + x(), first_place + side + y()};
    return words[i];
  }
};

/// Sample i of an endless stream, which is that of every number of ranks: each spot to train with once, then all again.
Spot training_spot(Size i) {
  return {i * 97 % (spots - new_spots) * 227 % spots, i};
}
/// Those that are not among them.
Spot new_spot(Size i) {
  return {(spots - new_spots + i % new_spots) * 227 % spots, -i};
}

/// Fills a rank's batch with its part of samples `first`, `first` + 1, ... of all ranks.
void draw(two_towers::Pairs<P>& batch, const World<P>& world, Size first, Spot (*spot)(Size)) {
  const Size own = world.data_rank() * sizes.micro_batch;
  const auto fill = [&](auto& field, Size count, auto value) {
    field.value().write([&](auto* out) {
      using T = std::remove_pointer_t<decltype(out)>;
      for (Size i = 0; i < field.value().count(); ++i) out[i] = static_cast<T>(value(own + i / count, i % count));
    });
  };
  fill(batch.images, config.channels * side * side, [&](Size s, Size i) { return spot(first + s).pixel(i); });
  fill(batch.tokens, config.tokens, [&](Size s, Size i) { return spot(first + s).word(i); });
  fill(batch.match, 1, [](Size s, Size) { return s; });
}

/// The share of this rank's images of which their own text is nearest.
double share_right(const Tensor<ElementOf<P>, 2, DeviceOf<P>>& logits, Size own) {
  Size right = 0;
  logits.read([&](const ElementOf<P>* row) {
    for (Size i = 0; i < logits[0]; ++i, row += logits[1])
      right += std::max_element(row, row + logits[1]) - row == own + i;
  });
  return static_cast<double>(right) / static_cast<double>(logits[0]);
}

int main(int count, char** argv) {
  hold_standard_streams();
  const int status = run<P>(count, argv, [](World<P>& world) {
    Engine engine{world, two_towers::TwoTowers<P>(config), AdamW{.lr = 3e-3}, sizes};
    const Size all = sizes.micro_batch * world.data_size();
    require(all <= new_spots, "dspp: match_pairs needs a new pair for each sample, but has 64. Start at most 4 ranks.");
    for (Size step = 0; step < steps; ++step) {
      auto batch = engine.model().new_batch(sizes, world.memory());
      draw(batch, world, step * all, training_spot);
      const StepReport report = engine.train_batch(batch);
      if (world.is_first() && step % 100 == 99) std::printf("step %3ld  loss %.4f\n", long(step + 1), report.loss);
    }
    auto held_out = engine.model().new_batch(sizes, world.memory());
    draw(held_out, world, 0, new_spot);
    const double right = engine.all_reduce_mean(engine.no_grad([&](const auto& model, auto& tape) {
      const auto [images, texts] = model.logits(on_tape(held_out, tape));
      return share_right(images.value(), world.data_rank() * sizes.micro_batch);
    }));
    if (world.is_first()) std::printf("%.1f %% of %ld new images find their text\n", 100 * right, long(all));
  });
  return status != 0 ? status : output_status("match_pairs");
}
