// SPDX-License-Identifier: Apache-2.0
// The two towers of examples/models, which meet over the global batch, give PyTorch's gradients and losses.
// labels: golden
#include <laws/own_model_golden.hpp>

#include "../../examples/models/two_towers.hpp"

using namespace dspp;
using namespace dspp::laws;

namespace {

struct TwoTowers {
  template <class P>
  using Model = dspp::two_towers::TwoTowers<P>;
  static constexpr dspp::two_towers::Config config{
      .width = 8, .features = 6, .image = 4, .patch = 2, .channels = 2, .vocabulary = 11, .tokens = 4};
  static constexpr const char* file = "two_towers_golden.safetensors";
  static constexpr Size samples = 4, sequence = 0, targets = 4;
  static void fill(auto& batch, auto& world, const io::SafetensorsReader& golden) {
    fill_field(batch.images, world, golden, "images");
    fill_field(batch.tokens, world, golden, "tokens");
    fill_field(batch.match, world, golden, "match");
  }
};

}  // namespace

TEST_CASE("two towers in f64: gradients and ten losses equal PyTorch's to 1e-9 on 1, 2 and 4 ranks, under Tp and Cp") {
  check_own_golden<TwoTowers, Policy<F64>>(1, 1e-9);
  check_own_golden<TwoTowers, Policy<F64>>(2, 1e-9);
  check_far_golden<TwoTowers, Zero<3>>(4, 1e-9);
  check_own_golden<TwoTowers, Policy<F64, Zero<1>, Tp<2>, SequenceParallel>>(4, 1e-9);
  check_own_golden<TwoTowers, Policy<F64, Zero<2>, Cp<2>>>(4, 1e-9);
}
