// SPDX-License-Identifier: Apache-2.0
/// A source of patches whose numbers say their place, and what batches of it hold, by a loop over samples.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>

#include <dspp/tensor/shape.hpp>
#include <laws/own_batches.hpp>

namespace dspp::laws {

/// pixels[patch, i] = 1000 sample + 10 patch + i, labels[patch] = sample + patch, weight = sample.
struct PatchSource {
  template <class P>
  using Batch = PatchBatch<P>;
  Size samples = 17, patches = 4, pixels = 3;
  std::uint64_t print = 0;

  Size size() const { return samples; }
  auto shapes() const { return std::tuple(shape(patches, pixels), shape(patches), shape()); }
  std::uint64_t fingerprint() const { return print; }
  static float pixel(Size sample, Size patch, Size i) { return static_cast<float>(1000 * sample + 10 * patch + i); }
  void fill(Size sample, std::span<float> values, std::span<std::int32_t> labels, std::span<float> weight) const {
    for (Size patch = 0; patch < patches; ++patch) {
      for (Size i = 0; i < pixels; ++i) values[static_cast<std::size_t>(patch * pixels + i)] = pixel(sample, patch, i);
      labels[static_cast<std::size_t>(patch)] = static_cast<std::int32_t>(sample + patch);
    }
    weight[0] = static_cast<float>(sample);
  }
};

}  // namespace dspp::laws
