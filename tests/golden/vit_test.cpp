// SPDX-License-Identifier: Apache-2.0
// The vision transformer of examples/models gives PyTorch's gradients and losses. labels: golden
#include <laws/own_model_golden.hpp>

#include "../../examples/models/vit.hpp"

using namespace dspp;
using namespace dspp::laws;

namespace {

struct Vit {
  template <class P>
  using Model = dspp::vit::Vit<P>;
  static constexpr dspp::vit::Config config{.width = 16, .image = 4, .patch = 2};
  static constexpr const char* file = "vit_golden.safetensors";
  static constexpr Size samples = 4, sequence = 0, targets = 4;
  static void fill(auto& batch, auto& world, const io::SafetensorsReader& golden) {
    fill_field(batch.images, world, golden, "images");
    fill_field(batch.labels, world, golden, "labels");
  }
};

}  // namespace

TEST_CASE("f64: gradients and ten losses equal PyTorch's to 1e-9 under every strategy") {
  check_own_golden<Vit, Policy<F64>>(1, 1e-9);
  check_own_golden<Vit, Policy<F64, Zero<3>>>(2, 1e-9);
  check_own_golden<Vit, Policy<F64, Zero<1>, Tp<2>, SequenceParallel>>(2, 1e-9);
  check_far_golden<Vit, Zero<2>, Cp<2>>(4, 1e-9);
}

TEST_CASE("bf16 is within 5e-2") {
  check_own_golden<Vit, Policy<Bf16, Zero<3>, Tp<2>>>(2, 5e-2);
}
