// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/optim/sgd.hpp>
#include <kernels/sgd.cuh>

#include <laws/device_update.hpp>

using namespace dspp;

namespace {

template <class T, class G>
void check_cases() {
  std::mt19937 random(10);
  constexpr Sgd plain{.lr = 0.05, .weight_decay = 0.1};
  for (const Size count : {Size{1}, Size{4100}})
    for (const bool segments : {false, true}) {
      laws::check_update<T, G>(plain, count, count == 1, segments, random,
                               [&](cudaStream_t stream, const gpu::Shard<T, G>& shard, Size, const double* step) {
                                 gpu::sgd<T, G>(stream, shard, plain.lr, step);
                               });
      for (const bool nesterov : {false, true}) {
        const MomentumSgd heavy{.lr = 0.05, .momentum = 0.9, .nesterov = nesterov, .weight_decay = 0.1};
        laws::check_update<T, G>(heavy, count, count == 1, segments, random,
                                 [&](cudaStream_t stream, const gpu::Shard<T, G>& shard, Size, const double* step) {
                                   gpu::momentum_sgd<T, G>(stream, shard, heavy.lr, heavy.momentum, nesterov, step);
                                 });
      }
    }
}

}  // namespace

TEST_CASE("gpu::sgd and gpu::momentum_sgd agree with the Cpu's in f64") {
  check_cases<float, float>();
  check_cases<bf16, bf16>();
  check_cases<f16, float>();
}
