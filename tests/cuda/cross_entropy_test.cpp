// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/cross_entropy.hpp>
#include <kernels/cross_entropy.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

struct Case {
  Size rows, columns, valid, offset;
  double smoothing;
  bool weights;
};

struct Expected {
  std::vector<double> gradient;
  double loss = 0, counted = 0;
};

/// The Cpu's kernels in f64.
Expected on_cpu(const Case& at, const std::vector<double>& logits, const std::vector<std::int32_t>& targets,
                const float* weights, const TargetProbabilities& wanted, double dloss) {
  std::vector<double> parts(3 * at.rows), lse(at.rows);
  Expected e;
  e.gradient.resize(logits.size());
  Kernel<kernels::CrossEntropyParts<double>, Cpu>::run(at.rows, at.columns, logits.data(), targets.data(), 0, at.valid,
                                                       parts.data(), wanted);
  Kernel<kernels::CrossEntropyCombine<double>, Cpu>::run(1, at.rows, parts.data(), targets.data(), weights, lse.data(),
                                                         &e.loss, &e.counted);
  Kernel<kernels::CrossEntropyVjp<double>, Cpu>::run(at.rows, at.columns, e.gradient.data(), logits.data(),
                                                     targets.data(), weights, lse.data(), 0, at.valid, &dloss,
                                                     &e.counted, wanted);
  return e;
}

template <class T>
void check_case(const Case& at, std::mt19937& random) {
  const std::string what = laws::describe("rows", at.rows, "columns", at.columns, "valid", at.valid, "offset",
                                          at.offset, "smoothing", at.smoothing);
  const auto logits = laws::normals<T>(at.rows * at.columns, random, 4.0);
  std::vector<std::int32_t> targets(at.rows);
  std::vector<float> weights(at.rows);
  for (Size i = 0; i < at.rows; ++i) {
    targets[i] = random() % 4 == 0 ? ignored_target : static_cast<std::int32_t>(random() % at.valid);
    weights[i] = static_cast<float>(random() % 8) / 4;
  }
  const TargetProbabilities wanted{1 - at.smoothing, at.smoothing / static_cast<double>(at.valid)};
  const float dloss = 128;
  const Expected e = on_cpu(at, laws::in_f64(logits), targets, at.weights ? weights.data() : nullptr, wanted,
                            static_cast<double>(dloss));

  const laws::TestStream stream;
  const DeviceArray<T> d_logits(logits, at.offset);
  const DeviceArray<std::int32_t> d_targets(targets);
  const DeviceArray<float> d_weights(weights), d_dloss(std::vector<float>{dloss}), row_losses(at.rows), loss(1);
  const DeviceArray<double> counted(1);
  gpu::cross_entropy<T>(stream, at.rows, at.columns, d_logits,
                        {d_targets, at.weights ? d_weights.data() : nullptr, at.valid, wanted}, d_dloss, row_losses,
                        loss, counted);
  CHECK(laws::difference(counted.read(stream)[0], e.counted) <= 1e-9 * e.counted);
  CHECK(laws::close(static_cast<double>(loss.read(stream)[0]), e.loss, 2e-6));
  laws::check_elements(d_logits.read(stream), e.gradient, 32, what);
}

template <class T>
void check_cases() {
  std::mt19937 random(12);
  for (const Case& at : {Case{0, 10, 10, 0, 0, false},
                         {1, 1, 1, 0, 0, false},
                         {5, 8, 8, 0, 0, false},
                         {6, 50257, 50257, 0, 0, false},
                         {3, 50304, 50257, 0, 0.1, true},
                         {4, 70001, 66000, 1, 0, true}})
    check_case<T>(at, random);
  for (int i = 0; i < 8; ++i) {
    const Size columns = laws::odd_extent(5000, random),
               valid = columns - static_cast<Size>(random() % (columns / 2 + 1));
    check_case<T>({laws::odd_extent(12, random), columns, valid, i % 3, i % 2 ? 0.2 : 0, i % 4 == 0}, random);
  }
}

}  // namespace

TEST_CASE("gpu::cross_entropy and its gradient in place agree with f64 on the Cpu, f32") {
  check_cases<float>();
}
TEST_CASE("gpu::cross_entropy and its gradient in place agree with f64 on the Cpu, bf16") {
  check_cases<bf16>();
}
TEST_CASE("gpu::cross_entropy and its gradient in place agree with f64 on the Cpu, f16") {
  check_cases<f16>();
}

TEST_CASE("gpu::cross_entropy takes minus infinity for a class that cannot be, and keeps NaN") {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const Size columns = 40;
  std::vector<float> logits(3 * columns, 1.0f);
  for (Size j = 0; j < 32; ++j) logits[j] = -infinity;  // the first packs of a thread are nothing but that
  logits[2 * columns + 5] = nan;
  const laws::TestStream stream;
  const DeviceArray<float> d_logits(logits), dloss(std::vector<float>{1}), row_losses(3), loss(1);
  const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>{35, 0, 1});
  const DeviceArray<double> counted(1);
  gpu::cross_entropy<float>(stream, 3, columns, d_logits, {targets, nullptr, columns}, dloss, row_losses, loss,
                            counted);
  const auto losses = row_losses.read(stream), gradient = d_logits.read(stream);
  CHECK(laws::close(losses[0], std::log(8.0), 1e-6));
  CHECK(laws::close(losses[1], std::log(40.0), 1e-6));
  CHECK(std::isnan(losses[2]));
  CHECK(std::isnan(loss.read(stream)[0]));
  for (Size j = 0; j < columns; ++j) {
    CHECK(laws::close(gradient[j], (j < 32 ? 0 : 0.125 - (j == 35)) / 3.0, 1e-6));
    CHECK(std::isnan(gradient[2 * columns + j]));
  }
}

TEST_CASE("gpu::cross_entropy of a target that is no class is NaN in that row, and reads nothing beside it") {
  std::mt19937 random(13);
  const Size columns = 1001, valid = 999;
  const laws::TestStream stream;
  for (const std::int32_t wrong : {static_cast<std::int32_t>(valid), static_cast<std::int32_t>(columns), 1 << 30, -1}) {
    const DeviceArray<bf16> logits(laws::normals<bf16>(3 * columns, random));
    const DeviceArray<float> dloss(std::vector<float>{1}), row_losses(3), loss(1);
    const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>{0, wrong, 1});
    const DeviceArray<double> counted(1);
    gpu::cross_entropy<bf16>(stream, 3, columns, logits, {targets, nullptr, valid}, dloss, row_losses, loss, counted);
    const auto losses = row_losses.read(stream);
    const auto gradient = laws::in_f64(logits.read(stream));
    CHECK(std::isnan(loss.read(stream)[0]));
    for (Size i = 0; i < 3; ++i) {
      CHECK(std::isnan(losses[i]) == (i == 1));
      for (Size j = 0; j < columns; ++j) CHECK(std::isnan(gradient[i * columns + j]) == (i == 1 && j < valid));
    }
  }
}
