// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/mma.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

namespace wmma = nvcuda::wmma;
template <class T, class Layout>
using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, T, Layout>;
template <class T, class Layout>
using Right = wmma::fragment<wmma::matrix_b, 16, 16, 16, T, Layout>;

/// d [16, 16] = a b + c, with a and b in either layout. Rows of d are 20 apart.
template <class T, class Of, class With>
__global__ void product(const T* a, const T* b, const float* c, float* d) {
  Left<T, Of> left;
  Right<T, With> right;
  gpu::Sums sums;
  wmma::load_matrix_sync(left, a, 24);
  wmma::load_matrix_sync(right, b, 16);
  wmma::load_matrix_sync(sums, c, 16, wmma::mem_col_major);
  wmma::mma_sync(sums, left, right, sums);
  wmma::store_matrix_sync(d, sums, 20, wmma::mem_row_major);
}

template <class T, class Of, class With>
void check_product(std::mt19937& random) {
  const auto a = laws::normals<T>(16 * 24, random), b = laws::normals<T>(16 * 16, random);
  const auto c = laws::normals<float>(16 * 16, random);
  const DeviceArray<T> d_a(a), d_b(b);
  const DeviceArray<float> d_c(c), d(16 * 20);
  const laws::TestStream stream;
  gpu::launch({"product"}, product<T, Of, With>, Size{1}, {32}, stream, d_a, d_b, d_c, d);
  const auto got = d.read(stream);
  laws::Worst worst;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      double sum = c[j * 16 + i];
      for (int k = 0; k < 16; ++k)
        sum += static_cast<double>(a[std::is_same_v<Of, wmma::row_major> ? i * 24 + k : k * 24 + i]) *
               static_cast<double>(b[std::is_same_v<With, wmma::row_major> ? k * 16 + j : j * 16 + k]);
      worst.add(laws::difference(got[i * 20 + j], sum));
    }
  CHECK(worst.value() < 1e-5);
}

/// The row of each sum times 16 plus its column, as `gpu::SumPlaces` finds it, or as one GPU happens to have it.
template <bool IsFound>
__global__ void numbers(float* y) {
  alignas(32) __shared__ float scratch[256];
  const gpu::SumPlaces places(scratch);
  for (int i = static_cast<int>(threadIdx.x); i < 256; i += 32) scratch[i] = 0;
  gpu::Sums sums[1][1];
  gpu::zero_sums(sums);
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = 0; i < gpu::lane_sums; ++i) {
    const int row = IsFound ? places.row(i) : lane / 4 + i / 2 % 2 * 8,
              column = IsFound ? places.column(i) : lane % 4 * 2 + i % 2 + i / 4 * 8;
    sums[0][0].x[i] = static_cast<float>(16 * row + column);
  }
  gpu::store_sums(y, sums[0][0], 16);
}

/// What goes wrong, and in which sentence.
enum class Mistake { none, address, stride, lanes, skipped, half, unfilled, no_barrier };
template <Mistake M>
__global__ void mistaken(float* y) {
  alignas(32) __shared__ bf16 tile[2 * 16 * 24];
  const int lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 2 * 16 * 24; i += 32) tile[i] = bf16(std::numeric_limits<float>::quiet_NaN());
  __syncwarp();
  for (int i = lane; i < 2 * 16 * 24; i += 32) tile[i] = bf16(1.0f);
  if (M != Mistake::no_barrier) __syncwarp();
  gpu::LeftRows<bf16> left;
  gpu::RightRows<bf16> right;
  gpu::Sums sums;
  if (M != Mistake::unfilled) wmma::fill_fragment(sums, 0.0f);
  wmma::load_matrix_sync(left, tile + (M == Mistake::address ? 8 : 0), M == Mistake::stride ? 20 : 24);
  if (M != Mistake::skipped || lane != 5)
    wmma::load_matrix_sync(right, tile + (M == Mistake::lanes && lane > 7 ? 16 * 24 : 0), 24);
  if (M != Mistake::half || lane < 16) wmma::mma_sync(sums, left, right, sums);
  gpu::store_sums(y, sums, 16);
}

template <Mistake M>
std::string outcome_of() {
  const DeviceArray<float> y(256);
  try {
    gpu::launch({"mistaken"}, mistaken<M>, Size{1}, {32}, nullptr, y);
    for (const float value : y.read(nullptr))
      if (value != 16) return "wrong";
  } catch (const Error& error) {
    return error.what();
  }
  return "right";
}

__global__ void any_of(const int* holds, int* y) {
  y[threadIdx.x] = __any_sync(0xffffffffu, holds[threadIdx.x]);
}

}  // namespace

TEST_CASE("A product of fragments of the GPU in software is that of matrices in every layout") {
  std::mt19937 random(1);
  check_product<bf16, wmma::row_major, wmma::row_major>(random);
  check_product<bf16, wmma::row_major, wmma::col_major>(random);
  check_product<f16, wmma::col_major, wmma::row_major>(random);
  check_product<f16, wmma::col_major, wmma::col_major>(random);
}

TEST_CASE("The places of sums in a fragment are what SumPlaces finds, and not those of one GPU") {
  for (int i = 0; i < 3; ++i) {
    const DeviceArray<float> found(256), assumed(256);
    gpu::launch({"numbers"}, numbers<true>, Size{1}, {32}, nullptr, found);
    gpu::launch({"numbers"}, numbers<false>, Size{1}, {32}, nullptr, assumed);
    const auto right = found.read(nullptr), wrong = assumed.read(nullptr);
    for (int place = 0; place < 256; ++place) CHECK(right[place] == static_cast<float>(place));
    CHECK(wrong != right);
  }
}

TEST_CASE("The GPU in software names what wmma leaves undefined, and needs barriers where it does") {
  const auto has = [](const std::string& sentence, const char* part) {
    INFO(sentence);
    CHECK(sentence.find(part) != std::string::npos);
  };
  CHECK(outcome_of<Mistake::none>() == "right");
  has(outcome_of<Mistake::address>(), "dspp: a fragment needs an address that is a multiple of 32 bytes");
  has(outcome_of<Mistake::stride>(), "dspp: a fragment needs rows of at least 16 elements, a multiple of 16 bytes");
  has(outcome_of<Mistake::lanes>(), "lanes of a warp come to a load, store or product of fragments with different");
  has(outcome_of<Mistake::skipped>(), "lanes of a warp come to a load, store or product of fragments with different");
  has(outcome_of<Mistake::half>(), "lanes of a warp come to a load, store or product of fragments with different");
  CHECK(outcome_of<Mistake::unfilled>() == "wrong");
  CHECK(outcome_of<Mistake::no_barrier>() == "wrong");
}

TEST_CASE("A vote of the GPU in software is the same on all lanes") {
  for (const int lane : {-1, 0, 13, 31}) {
    std::vector<std::int32_t> holds(32, 0);
    if (lane >= 0) holds[static_cast<std::size_t>(lane)] = 1;
    const DeviceArray<std::int32_t> d_holds(holds), y(32);
    gpu::launch({"any_of"}, any_of, Size{1}, {32}, nullptr, d_holds, y);
    for (const std::int32_t value : y.read(nullptr)) CHECK((value != 0) == (lane >= 0));
  }
}
