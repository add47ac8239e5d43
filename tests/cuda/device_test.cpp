// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/arithmetic.cuh>
#include <kernels/each.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T>
__global__ void write_index(Size count, T* y) {
  const Size i = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) y[i] = static_cast<T>(i);
}

std::string sentence_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("gpu::launch names the operation and its extents if CUDA refuses") {
  const std::string sentence = sentence_of([] {
    gpu::launch({"write_index", 3, 5}, write_index<float>, Size{1}, {2048}, nullptr, Size{0}, nullptr);
  });
  CHECK(sentence.find("dspp: write_index [rows 3, columns 5] needs a GPU that runs it, but CUDA gives '") == 0);
  const std::string large = sentence_of(
      [] { gpu::launch({"write_index"}, write_index<float>, Size{1} << 31, {256}, nullptr, Size{0}, nullptr); });
  CHECK(large.find("'invalid argument'") != std::string::npos);
}

TEST_CASE("gpu::launch of no blocks does nothing, and of many writes all") {
  const laws::TestStream stream;
  const Size count = 70001;
  const DeviceArray<float> y(count);
  gpu::launch({"write_index"}, write_index<float>, Size{0}, {256}, stream, count, y);
  CHECK(std::isnan(y.read(stream)[0]));
  gpu::launch({"write_index"}, write_index<float>, gpu::blocks_for(count, 256), {256}, stream, count, y);
  const auto got = y.read(stream);
  for (Size i = 0; i < count; i += 777) CHECK(got[i] == static_cast<float>(i));
}

#if !DSPP_HAS_NVCC()
namespace {

__global__ void diverging_kernel(int at) {
  if (static_cast<int>(threadIdx.x) == at) __syncthreads();
}

}  // namespace

TEST_CASE("where launches are waited for, an error of a kernel is thrown by its launch") {
  const laws::TestStream stream;
  CHECK_FALSE(gpu::waits_for_launches());
  gpu::waits_for_launches() = true;
  CHECK_THROWS_AS(gpu::launch({"diverging"}, diverging_kernel, 1, {64}, stream, 0), Error);
  CHECK_NOTHROW(gpu::launch({"not diverging"}, diverging_kernel, 1, {64}, stream, -1));
  gpu::waits_for_launches() = false;
}
#endif
