// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/cuda_kernels.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

/// The sentence that the next wait throws, or nothing.
std::string sentence_of_wait(CudaMemory& on) {
  double value = 0;
  try {
    on.to_host(&value, reinterpret_cast<const std::byte*>(on.scratch()), sizeof value);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

bool says(CudaMemory& on, const char* text) {
  const std::string sentence = sentence_of_wait(on);
  INFO(sentence);
  return sentence.find(text) != std::string::npos;
}

using doctest::Contains;

}  // namespace

TEST_CASE("what a check finds on the GPU is thrown by the next wait, the first of all, and then forgotten") {
  CudaMemory on;
  const DeviceArray<std::int32_t> ids(std::vector<std::int32_t>{3, 9, ignored_target, 12});
  const DeviceArray<float> weights(std::vector<float>{1, 0, -2, std::nanf("")});
  const DeviceArray<std::int32_t> lengths(std::vector<std::int32_t>{0, 5, 6});
  Kernel<kernels::RequireIds, Cuda>::run(on, 2, ids, 10, false, "embedding");
  CHECK(sentence_of_wait(on).empty());
  Kernel<kernels::RequireIds, Cuda>::run(on, 4, ids, 10, true, "cross_entropy");
  Kernel<kernels::RequireWeights, Cuda>::run(on, 4, weights, "cross_entropy");
  CHECK(says(on, "the target at position 3 is 12."));
  CHECK(sentence_of_wait(on).empty());
  Kernel<kernels::RequireIds, Cuda>::run(on, 4, ids, 10, false, "embedding");
  CHECK(says(on, "the id at position 2 is -100."));
  Kernel<kernels::RequireWeights, Cuda>::run(on, 4, weights, "cross_entropy");
  CHECK(says(on, "one at position 2 is -2"));
  Kernel<kernels::RequireLengths, Cuda>::run(on, 3, lengths, 5, "attention");
  CHECK(says(on, "that of sample 2 is 6."));
}

TEST_CASE("counts of targets that cannot be are named, and nothing is written for them") {
  CudaMemory on;
  const auto stream = gpu::stream_of(on);
  const DeviceArray<double> two(std::vector<double>{2}), three(std::vector<double>{3}), minus(std::vector<double>{-1}),
      counts(std::vector<double>{7, 7, 7, 7});
  const DeviceArray<float> loss(std::vector<float>{1.5f});
  Kernel<kernels::RequireSameCounts, Cuda>::run(on, two, two);
  Kernel<kernels::RequireSumOfWeights, Cuda>::run(on, two, two);
  CHECK(sentence_of_wait(on).empty());
  Kernel<kernels::RequireSameCounts, Cuda>::run(on, two, three);
  CHECK(says(on, "count the same number of targets"));
  Kernel<kernels::RequireSumOfWeights, Cuda>::run(on, two, three);
  CHECK(says(on, "target_weights"));
  Kernel<kernels::CountTargets<float>, Cuda>::run(on, 4, minus, nullptr, loss, counts);
  CHECK(counts.read(stream) == std::vector<double>{7, 7, 7, 7});
  CHECK(says(on, "counts 0 targets or more"));
  Kernel<kernels::CountTargets<float>, Cuda>::run(on, 4, two, nullptr, loss, counts);
  CHECK(counts.read(stream) == std::vector<double>{4, 4, 3, 2});
  CHECK(sentence_of_wait(on).empty());
}

TEST_CASE("the weights of targets are summed as on the Cpu") {
  CudaMemory on;
  std::mt19937 random(16);
  std::vector<std::int32_t> targets(5000);
  std::vector<float> weights(targets.size());
  for (std::size_t i = 0; i < targets.size(); ++i)
    targets[i] = random() % 5 ? 1 : ignored_target, weights[i] = static_cast<float>(random() % 9);
  std::vector<double> expected(TargetCounts::count);
  Kernel<kernels::SumTargetWeights, Cpu>::run(5000, targets.data(), weights.data(), expected.data());
  const DeviceArray<std::int32_t> d_targets(targets);
  const DeviceArray<float> d_weights(weights);
  const DeviceArray<double> counts(std::vector<double>(TargetCounts::count));
  Kernel<kernels::SumTargetWeights, Cuda>::run(on, 5000, d_targets, d_weights, counts);
  CHECK(counts.read(gpu::stream_of(on)) == expected);
}

TEST_CASE("a Pool over a GPU's memory keeps its limit, and prints its map where the GPU has no more") {
  CudaMemory on;
  Pool pool(1_MiB, &on);
  auto* const block = pool.take(600'000, Category::activations, "first");
  CHECK_THROWS_WITH_AS(pool.take(600'000, Category::activations, "second"), Contains("of a limit of 1.0 MiB"), Error);
  pool.give(block);
  Pool without_limit(0, &on);
#if !DSPP_HAS_NVCC()
  software_gpu::limit_memory(1000);
  CHECK_THROWS_WITH_AS(without_limit.take(2000, Category::activations, "third"), Contains("the machine gives no more"),
                       Error);
  software_gpu::limit_memory(std::size_t{1} << 40);
#endif
}
