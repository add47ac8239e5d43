// SPDX-License-Identifier: Apache-2.0
/// Initial position embeddings close to trained ones: a short job has no time to learn them from noise.
#pragma once

#include <cmath>
#include <vector>

#include <dspp/base/types.hpp>

namespace train_gpt {

/// table[s, 2 i] = a sin(s / 1000^(2 i / width)), table[s, 2 i + 1] = a cos(the same).     [positions, width]
///
/// Source   Vaswani et al. 2017, Attention Is All You Need, section 3.5
inline std::vector<double> waves(dspp::Size positions, dspp::Size width, double amplitude) {
  std::vector<double> table;
  for (dspp::Size s = 0; s < positions; ++s)
    for (dspp::Size i = 0; i < width; ++i) {
      const double period = std::pow(1000.0, static_cast<double>(i / 2 * 2) / static_cast<double>(width));
      const double angle = static_cast<double>(s) / period;
      table.push_back(amplitude * (i % 2 == 0 ? std::sin(angle) : std::cos(angle)));
    }
  return table;
}

}  // namespace train_gpt
