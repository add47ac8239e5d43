// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/broadcast.hpp>
#include <dspp/ops/cpu/pointwise.hpp>
#include <dspp/ops/cpu/reduce.hpp>
#include <dspp/ops/pointwise/arithmetic.hpp>
#include <dspp/ops/pointwise/custom.hpp>
#include <kernels/broadcast.cuh>
#include <kernels/cuda_kernels.cuh>
#include <kernels/squared_norm.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;
using laws::odd_extent;

namespace {

struct ProductVjp {
  template <class C>
  DSPP_HOST_DEVICE void operator()(C a, C b, C dy, C& da, C& db) const {
    da = b * dy;
    db = a * dy;
  }
};

template <class T>
void check_cases() {
  std::mt19937 random(12);
  const laws::TestStream stream;
  for (int i = 0; i < 10; ++i) {
    kernels::Repeats at;
    Size count = 1, in_x = 1, in_y = 1;
    for (at.dimensions = 0; at.dimensions < 1 + i % 4; ++at.dimensions) {
      const Size extent = at.extents[at.dimensions] = odd_extent(7, random);
      const bool x_repeats = random() % 3 == 0, y_repeats = random() % 3 == 0;
      at.x_strides[at.dimensions] = x_repeats ? 0 : in_x, at.y_strides[at.dimensions] = y_repeats ? 0 : in_y;
      count *= extent, in_x *= x_repeats ? 1 : extent, in_y *= y_repeats ? 1 : extent;
    }
    const auto x = laws::normals<T>(in_x, random), y = laws::normals<T>(in_y, random);
    std::vector<T> z(count);
    const DeviceArray<T> d_x(x), d_y(y), d_z(count);
    gpu::pointwise_broadcast<pointwise::Subtract, T>(stream, {}, at, d_z, d_x, d_y);
    Kernel<kernels::PointwiseBroadcast<pointwise::Subtract, T>, Cpu>::run({}, at, z.data(), x.data(), y.data());
    CHECK(d_z.read(stream) == z);

    const auto a = laws::normals<T>(count, random), b = laws::normals<T>(count, random),
               dy = laws::normals<T>(count, random);
    std::vector<T> da(count), db(count);
    const DeviceArray<T> d_a(a), d_b(b), d_dy(dy), d_db(count);
    gpu::pointwise_vjp_of_two<ProductVjp, T>(stream, {}, count, d_dy, d_db, d_a, d_b, d_dy);
    Kernel<kernels::PointwiseVjpOfTwo<ProductVjp, T>, Cpu>::run({}, count, da.data(), db.data(), a.data(), b.data(),
                                                                dy.data());
    CHECK(d_dy.read(stream) == da);
    CHECK(d_db.read(stream) == db);

    const float by = 0.37f;
    const DeviceArray<float> d_by(std::vector<float>{by}), total(1);
    gpu::scale_by<T>(stream, count, d_a, d_a, d_by, 3.0);
    Kernel<kernels::ScaleBy<T>, Cpu>::run(count, da.data(), a.data(), &by, 3.0);
    CHECK(d_a.read(stream) == da);
    gpu::broadcast<T>(stream, count, d_by, 7.0, d_a);
    Kernel<kernels::Broadcast<T>, Cpu>::run(count, &by, 7.0, da.data());
    CHECK(d_a.read(stream) == da);
    gpu::fill<T>(stream, count, d_b, static_cast<T>(2.5f));
    CHECK(d_b.read(stream) == std::vector<T>(count, static_cast<T>(2.5f)));

    const DeviceArray<double> scratch(gpu::squared_norm_scratch(count));
    double expected = 0;
    for (const double value : laws::in_f64(db)) expected += value;
    gpu::sum<T>(stream, count, d_db, scratch, 5.0, total);
    CHECK(std::abs(static_cast<double>(total.read(stream)[0]) - expected / 5) <= 1e-6 * static_cast<double>(count));
  }
}

}  // namespace

TEST_CASE("gpu::pointwise_broadcast, vjp_of_two, scale_by, broadcast and fill are the Cpu's, and sum agrees with f64") {
  check_cases<float>();
  check_cases<bf16>();
  check_cases<f16>();
}

namespace {
template <class U, class T>
void check_cast(const std::vector<T>& x) {
  CudaMemory on;
  std::vector<U> y(x.size());
  const DeviceArray<T> d_x(x);
  const DeviceArray<U> d_y(d_x.size());
  Kernel<kernels::Pointwise<pointwise::Identity, U, T>, Cpu>::run({}, d_x.size(), y.data(), x.data());
  Kernel<kernels::Pointwise<pointwise::Identity, U, T>, Cuda>::run(on, {}, d_x.size(), d_y.data(), d_x.data());
  CHECK(d_y.read(gpu::stream_of(on)) == y);
}
}  // namespace

TEST_CASE("casts of integers and of f64 on the GPU are the Cpu's") {
  check_cast<float, std::int32_t>({1, -2, 3, 4, 5, 6, 7, 1 << 30, 9});
  check_cast<bf16, std::int32_t>({1, -2, 3, 4, 5, 6, 7, 257, 9});
  check_cast<double, float>({1.5f, -2, 3});
  check_cast<float, double>({1.5, -2, 0.1});
}
