// SPDX-License-Identifier: Apache-2.0
// Two towers that meet over the global batch give PyTorch's gradients and losses. labels: golden
#include <laws/own_batches.hpp>
#include <laws/own_model_golden.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

struct Towers {
  template <class P>
  using Model = TwoTowers<P>;
  static constexpr TowerConfig config{};
  static constexpr const char* file = "two_towers_golden.safetensors";
  static constexpr Size samples = 4, sequence = 0, targets = 4;
  static void fill(auto& batch, auto& world, const io::SafetensorsReader& golden) {
    fill_field(batch.left, world, golden, "left");
    fill_field(batch.right, world, golden, "right");
    fill_field(batch.match, world, golden, "match");
  }
};

}  // namespace

TEST_CASE("two towers in f64: gradients and ten losses equal PyTorch's to 1e-9 on 1, 2 and 4 ranks") {
  check_own_golden<Towers, Policy<F64>>(1, 1e-9);
  check_own_golden<Towers, Policy<F64>>(2, 1e-9);
  check_far_golden<Towers, Zero<3>>(4, 1e-9);
}
