// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/update.hpp>
#include <dspp/optim/adamw.hpp>
#include <kernels/adamw.cuh>

#include <laws/device_update.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

constexpr AdamW optimizer{.lr = 3e-3, .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1};

template <class T, class G>
void check_case(Size count, Size offset, bool segments, std::mt19937& random) {
  laws::check_update<T, G>(optimizer, count, offset, segments, random,
                           [](cudaStream_t stream, const gpu::Shard<T, G>& shard, Size t, const double* step) {
                             gpu::adamw<T, G>(stream, shard, t, optimizer.lr, optimizer.beta1, optimizer.beta2,
                                              optimizer.epsilon, step);
                           });
}

template <class T, class G>
void check_cases() {
  std::mt19937 random(9);
  for (const Size count : {Size{0}, Size{1}, Size{9}, Size{4096}, Size{5001}})
    for (const bool segments : {false, true}) check_case<T, G>(count, count == 9, segments, random);
}

}  // namespace

TEST_CASE("gpu::adamw agrees with the Cpu's AdamW in f64") {
  check_cases<float, float>();
  check_cases<bf16, bf16>();
  check_cases<bf16, float>();
  check_cases<f16, f16>();
}

TEST_CASE("gpu::adamw changes nothing under another verdict than update") {
  const laws::TestStream stream;
  const DeviceArray<float> p(std::vector<float>(50, 1.0f)), g(std::vector<float>(50, 1.0f));
  const DeviceArray<float> m(std::vector<float>(50, 0.5f)), v(std::vector<float>(50, 0.25f));
  std::vector<double> scalars(StepScalars::count, 1.0);
  scalars[StepScalars::verdict] = static_cast<double>(StepVerdict::nonfinite);
  const DeviceArray<double> step(scalars);
  gpu::Shard<float, float> shard{.count = 50, .gradient = g, .parameter = p};
  shard.moments[0] = m;
  shard.moments[1] = v;
  gpu::adamw<float, float>(stream, shard, 1, 1e-3, 0.9, 0.99, 1e-8, step);
  CHECK(p.read(stream) == std::vector<float>(50, 1.0f));
  CHECK(m.read(stream) == std::vector<float>(50, 0.5f));
  CHECK(v.read(stream) == std::vector<float>(50, 0.25f));
}
