// SPDX-License-Identifier: Apache-2.0
// Models and features of models on a GPU: BERT and the models of examples/models give PyTorch's gradients and losses at
// the cost of their plans; images, masks, documents, groups and reports under other optimizers give the Cpu's.
// labels: cuda
#include <dspp/launch/cuda_rank.hpp>

#include <dspp/optim/adagrad.hpp>
#include <dspp/optim/lion.hpp>
#include <dspp/optim/sgd.hpp>

#include <laws/difference.hpp>
#include <laws/feature_models.hpp>
#include <laws/own_goldens.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// f32 on a GPU beside f64 on the Cpu, for all numbers that the first rank saw.
void check_beside_cpu(const std::vector<double>& on_gpu, const std::vector<double>& on_cpu) {
  REQUIRE(on_gpu.size() == on_cpu.size());
  CHECK(worst_difference(on_gpu, on_cpu) < 1e-5);
}

template <class O>
std::vector<double> check_pictures(const O& optimizer) {
  const auto on_cpu = trained_on_pictures<Policy<F64, Zero<2>, Tp<2>>>(4, optimizer);
  const auto on_gpu = trained_on_pictures<Policy<F32, Zero<2>, Tp<2>, Cuda>>(4, optimizer);
  check_beside_cpu(on_gpu, on_cpu);
  const std::ptrdiff_t parameters = (std::ssize(on_gpu) - picture_numbers) / 2;
  std::ptrdiff_t moved = 0;
  for (auto i = on_gpu.begin(); i != on_gpu.begin() + parameters; ++i) moved += *i != i[parameters + picture_numbers];
  CHECK(moved == parameters - 8 * 8);  // all but the frozen weight
  return on_cpu;
}

}  // namespace

TEST_CASE("on a GPU models in f32: every gradient and ten losses equal PyTorch's of f64") {
  check_own_golden<SmallBert, Policy<F32, Zero<1>, Tp<2>, SequenceParallel, Cuda>>(2, 1e-5);
  check_own_golden<SmallVit, Policy<F32, Zero<2>, Cp<2>, Cuda>>(4, 1e-5);
  check_own_golden<SmallTowers, Policy<F32, Zero<3>, Cuda>>(2, 1e-5);
  check_own_golden<SmallParallelLlama, Policy<F32, Zero<3>, Cuda>>(2, 1e-5);
}

TEST_CASE("on a GPU pictures, masks, whole logits, reports and groups follow the Cpu under Lion and Adagrad") {
  CHECK(check_pictures(Lion{.lr = 1e-2}).back() != check_pictures(Adagrad{.lr = 1e-2}).back());
}

TEST_CASE("on a GPU blended sources of documents follow the Cpu under momentum, cut over Cp, weighed or not") {
  const auto check = [](bool weighed) {
    const MomentumSgd momentum{.lr = 1e-1};
    const auto on_cpu = trained_on_documents<Policy<F64, Zero<3>, Cp<2>>>(4, weighed, momentum);
    check_beside_cpu(trained_on_documents<Policy<F32, Zero<3>, Cp<2>, Cuda>>(4, weighed, momentum), on_cpu);
    return on_cpu;
  };
  CHECK(check(true)[0] != check(false)[0]);
}
