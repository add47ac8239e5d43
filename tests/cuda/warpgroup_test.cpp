// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/attention_choice.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

/// What a kernel leaves out, and on which threads.
enum class Mistake { none, fence, begin, operand, wait, early, unnamed, overwritten, warp, end };

/// y [64, N] = a b^T, and z [64, D] = y b, of a [64, D] and b [N, D].
template <class T, int D, int N, Mistake M>
__device__ void multiply(const T* a, const T* b, float* y, float* z) {
  auto* const memory = gpu::swizzled_part<T, D, 64>(0).begin;
  const gpu::SwizzledTile<T, D, 64> left{memory};
  const gpu::SwizzledTile<T, D, N> right{memory + 64 * D};
  const int thread = static_cast<int>(threadIdx.x);
  const auto copy = [&](const auto& tile, const T* from, int rows) {
    for (int i = thread; i < rows * D / 8; i += gpu::group_threads)
      gpu::copy_pack_async(reinterpret_cast<gpu::Pack<T, 8>*>(tile.pack(i / (D / 8), i % (D / 8) * 8)), from + 8 * i);
  };
  copy(left, a, 64);
  copy(right, b, N);
  __pipeline_commit();
  __pipeline_wait_prior(0);
  if (M != Mistake::fence || thread != 77) gpu::fence_shared();
  __syncthreads();
  gpu::GroupSums<N> s;
  gpu::GroupSums<D> sums;
  if (M != Mistake::begin || thread != 77) gpu::begin_products(s);
  if (M != Mistake::warp || thread / 32 != 2) gpu::multiply_rows<gpu::Sum::anew>(s, left, 0, right);
  gpu::end_products();
  if (M == Mistake::early)
    gpu::wait_for_products<1>(s);
  else if (M == Mistake::unnamed)
    gpu::wait_for_products<0>();
  else if (M != Mistake::wait)
    gpu::wait_for_products<0>(s);
  for (int i = 0; i < N / 2; ++i)
    y[(gpu::row_of_thread() + 8 * gpu::half_of_sum(i)) * N + gpu::column_of_sum(i)] = s.x[i];
  if (M == Mistake::wait) gpu::wait_for_products<0>(s);
  auto operand = gpu::operand_of<T>(s);
  for (float& x : sums.x) x = 1;
  if (M == Mistake::operand)
    gpu::begin_products(sums);
  else
    gpu::begin_products(sums, operand);
  gpu::multiply_operand<gpu::Sum::on>(sums, operand, right);
  gpu::end_products();
  if (M == Mistake::overwritten) operand.words[0][0] = 0;
  if (M != Mistake::end) gpu::wait_for_products<0>(sums, operand);
  for (int i = 0; i < D / 2; ++i)
    z[(gpu::row_of_thread() + 8 * gpu::half_of_sum(i)) * D + gpu::column_of_sum(i)] = sums.x[i];
}

template <class T, int D, int N, Mistake M>
__global__ void products(const T* a, const T* b, float* y, float* z) {
  if constexpr (gpu::has_warpgroups) multiply<T, D, N, M>(a, b, y, z);
}

/// The largest difference from f64.
template <class T, int D, int N, Mistake M = Mistake::none>
double worst_of(int threads = gpu::group_threads) {
  std::mt19937 random(3);
  const auto a = laws::normals<T>(64 * D, random), b = laws::normals<T>(N * D, random);
  const DeviceArray<T> d_a(a), d_b(b);
  const DeviceArray<float> d_y(64 * N), d_z(64 * D);
  const laws::TestStream stream;
  gpu::launch({"products"}, products<T, D, N, M>, Size{1}, {threads, 1, (64 + N) * D * 2 + gpu::swizzled_slack}, stream,
              d_a, d_b, d_y, d_z);
  const auto y = d_y.read(stream), z = d_z.read(stream);
  laws::Worst worst;
  for (int i = 0; i < 64; ++i) {
    for (int j = 0; j < N; ++j) {
      double sum = 0;
      for (int k = 0; k < D; ++k) sum += static_cast<double>(a[i * D + k]) * static_cast<double>(b[j * D + k]);
      worst.add(laws::difference(y[i * N + j], sum));
    }
    for (int k = 0; k < D; ++k) {
      double sum = 1;
      for (int j = 0; j < N; ++j)
        sum += static_cast<double>(static_cast<T>(y[i * N + j])) * static_cast<double>(b[j * D + k]);
      worst.add(laws::difference(z[i * D + k], sum));
    }
  }
  return worst.value();
}

#if !DSPP_HAS_NVCC()
template <Mistake M>
std::string outcome_of(int threads = gpu::group_threads) {
  try {
    return worst_of<bf16, 64, 64, M>(threads) < 1e-3 ? "right" : "wrong";
  } catch (const Error& error) {
    return error.what();
  }
}

#endif

}  // namespace

TEST_CASE("products of a warpgroup are those of matrices, by rows and of an operand in registers") {
  if (!gpu::device_has_warpgroups()) {
    MESSAGE("skipped: the GPU, or the code that was compiled for it, has no warpgroups");
    return;
  }
  CHECK(worst_of<bf16, 64, 64>() < 1e-3);
  CHECK(worst_of<f16, 64, 128>() < 1e-3);
  CHECK(worst_of<bf16, 96, 64>() < 1e-3);
  CHECK(worst_of<f16, 96, 128>() < 1e-3);
  CHECK(worst_of<bf16, 128, 64>() < 1e-3);
  CHECK(worst_of<f16, 128, 128>() < 1e-3);
}

#if !DSPP_HAS_NVCC()
TEST_CASE("the GPU in software names what wgmma leaves undefined") {
  const auto has = [](const std::string& sentence, const char* part) {
    INFO(sentence);
    CHECK(sentence.find(part) != std::string::npos);
  };
  CHECK(outcome_of<Mistake::none>() == "right");
  has(outcome_of<Mistake::fence>(), "dspp: a product of a warpgroup needs what threads copied to shared memory");
  has(outcome_of<Mistake::begin>(), "dspp: a product of a warpgroup needs begin_products()");
  has(outcome_of<Mistake::operand>(), "dspp: a product of a warpgroup needs begin_products()");
  has(outcome_of<Mistake::overwritten>(), "dspp: a product of a warpgroup needs its operand until it has ended");
  has(outcome_of<Mistake::early>(), "dspp: a wait for products needs to name registers whose products have ended");
  CHECK(outcome_of<Mistake::unnamed>() == "wrong");
  CHECK(outcome_of<Mistake::wait>() == "wrong");
  has(outcome_of<Mistake::warp>(), "the warps of a warpgroup come to different products");
  has(outcome_of<Mistake::end>(), "dspp: a thread of the GPU in software needs to wait for its products");
  has(outcome_of<Mistake::none>(64), "dspp: a product of a warpgroup needs blocks of whole warpgroups");
}
#endif
