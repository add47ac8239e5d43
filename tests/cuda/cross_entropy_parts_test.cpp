// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/cross_entropy.hpp>
#include <kernels/cross_entropy_parts.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

/// `ranks` ranks with `columns` columns each, of which the last has `padding` that are no classes, against the Cpu's
/// kernels in f64 on whole rows.
template <class T>
void check_case(Size ranks, Size rows, Size columns, Size padding, double smoothing, bool in_place,
                std::mt19937& random) {
  const std::string what = laws::describe("ranks", ranks, "rows", rows, "columns", columns, "padding", padding);
  const Size all = ranks * columns, valid = all - padding;
  const auto logits = laws::normals<T>(rows * all, random, 3.0);
  std::vector<std::int32_t> targets(rows);
  std::vector<float> weights(rows);
  for (Size i = 0; i < rows; ++i) {
    targets[i] = random() % 4 == 0 ? ignored_target : static_cast<std::int32_t>(random() % valid);
    weights[i] = static_cast<float>(random() % 8) / 4;
  }
  const TargetProbabilities wanted{1 - smoothing, smoothing / static_cast<double>(valid)};
  const double dloss64 = 3;
  std::vector<double> parts64(3 * rows), lse64(rows), gradient64(rows * all);
  double loss64 = 0, counted64 = 0;
  const auto logits64 = laws::in_f64(logits);
  Kernel<kernels::CrossEntropyParts<double>, Cpu>::run(rows, all, logits64.data(), targets.data(), 0, valid,
                                                       parts64.data(), wanted);
  Kernel<kernels::CrossEntropyCombine<double>, Cpu>::run(1, rows, parts64.data(), targets.data(), weights.data(),
                                                         lse64.data(), &loss64, &counted64);
  Kernel<kernels::CrossEntropyVjp<double>, Cpu>::run(rows, all, gradient64.data(), logits64.data(), targets.data(),
                                                     weights.data(), lse64.data(), 0, valid, &dloss64, &counted64,
                                                     wanted);

  const laws::TestStream stream;
  const DeviceArray<std::int32_t> d_targets(targets);
  const DeviceArray<float> d_weights(weights), parts(ranks * rows * 3), lse(rows), loss(1);
  const DeviceArray<float> dloss(std::vector<float>{3});
  const DeviceArray<double> counted(1);
  std::vector<std::unique_ptr<DeviceArray<T>>> own, gradients;
  for (Size rank = 0; rank < ranks; ++rank) {
    std::vector<T> part(rows * columns);
    for (Size i = 0; i < rows; ++i)
      for (Size j = 0; j < columns; ++j) part[i * columns + j] = logits[i * all + rank * columns + j];
    own.push_back(std::make_unique<DeviceArray<T>>(part, rank));
    gradients.push_back(std::make_unique<DeviceArray<T>>(rows * columns));
  }
  const auto columns_of = [&](Size rank) {
    return gpu::OwnColumns{columns, rank * columns, rank + 1 == ranks ? columns - padding : columns};
  };
  for (Size rank = 0; rank < ranks; ++rank)
    gpu::cross_entropy_parts<T>(stream, rows, columns_of(rank), *own[rank], d_targets, wanted, parts + rank * rows * 3);
  gpu::cross_entropy_combine(stream, ranks, rows, parts, d_targets, d_weights, lse, loss, counted);
  CHECK(laws::difference(counted.read(stream)[0], counted64) <= 1e-9 * counted64);
  CHECK(laws::close(static_cast<double>(loss.read(stream)[0]), loss64, 2e-6));
  laws::check_elements(lse.read(stream), lse64, 16, what + ": log_sum_exp");
  for (Size rank = 0; rank < ranks; ++rank) {
    const DeviceArray<T>& to = in_place ? *own[rank] : *gradients[rank];
    gpu::cross_entropy_gradient<T>(stream, rows, columns_of(rank), to, *own[rank], d_targets, d_weights, lse, wanted,
                                   dloss, counted);
    std::vector<double> expected(rows * columns);
    for (Size i = 0; i < rows; ++i)
      for (Size j = 0; j < columns; ++j) expected[i * columns + j] = gradient64[i * all + rank * columns + j];
    laws::check_elements(to.read(stream), expected, 64, what + ": gradient");
  }
}

template <class T>
void check_cases() {
  std::mt19937 random(21);
  check_case<T>(1, 5, 64, 0, 0, true, random);
  check_case<T>(2, 7, 1000, 100, 0.1, true, random);
  check_case<T>(4, 9, 333, 30, 0, false, random);
  check_case<T>(3, 4, 12001, 1, 0.1, true, random);
}

}  // namespace

TEST_CASE("gpu::cross_entropy_parts, combined over ranks, agree with f64 on the Cpu") {
  check_cases<float>();
  check_cases<bf16>();
  check_cases<f16>();
}
