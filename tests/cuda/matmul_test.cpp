// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/gemm/gemm.hpp>
#include <kernels/blas.cuh>
#include <kernels/matmul.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;
using laws::in_f64;
using laws::odd_extent;

namespace {

/// As check_elements, of a product that is rounded, and again when it was multiplied by gelu's derivative.
template <class R>
void check_gelu_vjp_of(const std::vector<R>& is, const std::vector<double>& expected) {
  const double largest = std::max(laws::largest_of(expected), 8.0);
  CHECK(laws::worst_difference(is, expected, [&](double e) {
          return 2.02 * laws::rounding_of<R> * std::abs(e) + 0x1p-17 * largest + 0x1p-24;
        }) <= 1);
}

template <class T, class R>
void check_products() {
  std::mt19937 random(9);
  const laws::TestStream stream;
  gpu::Blas blas;
  for (int i = 0; i < 16; ++i) {
    kernels::Product p{.m = odd_extent(20, random), .n = odd_extent(20, random), .k = odd_extent(30, random)};
    p.ta = i % 2 ? Transpose::yes : Transpose::no, p.tb = i % 4 > 1 ? Transpose::yes : Transpose::no;
    p.lda = (i % 2 ? p.m : p.k) + static_cast<Size>(random() % 3);
    p.ldb = (i % 4 > 1 ? p.k : p.n) + static_cast<Size>(random() % 3);
    p.ldc = p.n + static_cast<Size>(random() % 3);
    const auto a = laws::normals<T>((i % 2 ? p.k : p.m) * p.lda, random),
               b = laws::normals<T>((i % 4 > 1 ? p.n : p.k) * p.ldb, random);
    const auto bias = laws::normals<R>(p.n, random), before = laws::normals<R>(p.m * p.ldc, random);
    const bool accumulates = i % 5 == 1, has_bias = !accumulates && i % 3 == 0, activates = has_bias && i % 2 == 0;
    const DeviceArray<T> d_a(a), d_b(b);
    const DeviceArray<R> d_bias(bias), c(before), activated(before);
    kernels::Finish<R> finish{.c = c};
    kernels::Finish<double> in_double;
    auto c64 = in_f64(before), activated64 = c64;
    const auto bias64 = in_f64(bias);
    in_double.c = c64.data();
    if (accumulates) finish.write = in_double.write = Write::accumulate;
    if (has_bias) finish.bias = d_bias, in_double.bias = bias64.data();
    if (activates) finish.activated = activated, in_double.activated = activated64.data();
    const DeviceArray<R> argument(before);
    const auto argument64 = in_f64(before);
    if (!accumulates && !has_bias && i % 2) finish.before = argument, in_double.before = argument64.data();
    finish.form = in_double.form = i % 4 ? GeluForm::tanh : GeluForm::exact;
    gpu::plain_matmul<T, R>(stream, 1, p, d_a, d_b, finish);
    Kernel<kernels::Matmul<double, double>, Cpu>::run(p, in_f64(a).data(), in_f64(b).data(), in_double);
    if (finish.before != nullptr) {  // blas_matmul_gelu_vjp: below
      check_gelu_vjp_of(c.read(stream), c64);
      continue;
    }
    laws::check_elements(c.read(stream), c64, 64, "matmul", 8);
    laws::check_elements(activated.read(stream), activated64, sizeof(R) == 4 ? 64 : 0x1p17, "gelu of it", 8);

    const DeviceArray<R> by_blas(before, i % 3);
    const Size bytes = i % 2 ? gpu::product_workspace(p.m, p.n) : 0;
    const DeviceArray<std::uint8_t> workspace(bytes, laws::to_256);
    gpu::blas_matmul<T, R>(blas, stream, 1, p, d_a, d_b, by_blas, finish.write, finish.bias,
                           {bytes == 0 ? nullptr : workspace.data(), bytes});
    laws::check_elements(by_blas.read(stream), c64, 64,
                         "blas_matmul of " + std::to_string(sizeof(T)) + " bytes to " + std::to_string(sizeof(R)) +
                             ", " +
                             laws::describe("m", p.m, "n", p.n, "k", p.k, "ta", i % 2, "tb", i % 4 > 1, "adds",
                                            accumulates, "bias", has_bias, "offset", i % 3),
                         8);
  }
}

template <class T>
void check_gelu() {
  std::mt19937 random(11);
  const laws::TestStream stream;
  gpu::Blas blas;
  const Size bytes = gpu::product_workspace(64, 64);
  const DeviceArray<std::uint8_t> workspace(bytes, laws::to_256);
  const auto computes = [&](const kernels::Product& p, Size offset) {
    const auto a = laws::normals<T>(p.m * p.k, random), b = laws::normals<T>(p.k * p.n, random),
               bias = laws::normals<T>(p.n, random);
    const DeviceArray<T> d_a(a), d_b(b), d_bias(bias),
        before(std::vector<T>(static_cast<std::size_t>(p.m * p.n)), offset), c(p.m * p.n);
    if (!gpu::blas_matmul_gelu<T>(blas, stream, p, d_a, d_b, before, c, d_bias, {workspace.data(), bytes}))
      return false;
    std::vector<double> before64(static_cast<std::size_t>(p.m * p.n)), c64(before64.size());
    const auto bias64 = in_f64(bias);
    kernels::Finish<double> finish{.c = before64.data(), .bias = bias64.data(), .activated = c64.data()};
    finish.form = GeluForm::tanh;
    Kernel<kernels::Matmul<double, double>, Cpu>::run(p, in_f64(a).data(), in_f64(b).data(), finish);
    laws::check_elements(before.read(stream), before64, 64, "before gelu", 8);
    laws::check_elements(c.read(stream), c64, 0x1p24 * laws::rounding_of<T>, "gelu of it", 1);
    return true;
  };
  for (const Size n : {8, 24, 64})
    for (const Size m : {1, 5, 64}) CHECK(computes({.m = m, .n = n, .k = 32, .lda = 32, .ldb = n, .ldc = n}, 0));
  CHECK(!computes({.m = 5, .n = 12, .k = 8, .lda = 8, .ldb = 12, .ldc = 12}, 0));
  CHECK(!computes({.m = 5, .n = 8, .k = 8, .lda = 8, .ldb = 8, .ldc = 8}, 1));
}

template <class T>
void check_gelu_vjp() {
  std::mt19937 random(12);
  const laws::TestStream stream;
  gpu::Blas blas;
  const Size bytes = gpu::product_workspace(64, 64);
  const DeviceArray<std::uint8_t> workspace(bytes, laws::to_256);
  const auto computes = [&](const kernels::Product& p, Size offset) {
    const auto a = laws::normals<T>(p.m * p.k, random), b = laws::normals<T>(p.k * p.n, random),
               before = laws::normals<T>(p.m * p.n, random);
    const DeviceArray<T> d_a(a), d_b(b), d_before(before, offset), c(p.m * p.n);
    if (!gpu::blas_matmul_gelu_vjp<T>(blas, stream, p, d_a, d_b, d_before, c, {workspace.data(), bytes})) return false;
    std::vector<double> c64(static_cast<std::size_t>(p.m * p.n));
    const auto before64 = in_f64(before);
    kernels::Finish<double> finish{.c = c64.data(), .before = before64.data(), .form = GeluForm::tanh};
    Kernel<kernels::Matmul<double, double>, Cpu>::run(p, in_f64(a).data(), in_f64(b).data(), finish);
    check_gelu_vjp_of(c.read(stream), c64);
    CHECK(in_f64(d_before.read(stream)) == before64);
    return true;
  };
  for (const Size n : {8, 24, 64})
    for (const Size m : {1, 5, 64}) CHECK(computes({.m = m, .n = n, .k = 32, .lda = 32, .ldb = n, .ldc = n}, 0));
  CHECK(!computes({.m = 5, .n = 12, .k = 8, .lda = 8, .ldb = 12, .ldc = 12}, 0));
  CHECK(!computes({.m = 5, .n = 8, .k = 8, .lda = 8, .ldb = 8, .ldc = 8}, 1));
}

}  // namespace

TEST_CASE("gpu::blas_matmul_gelu_vjp is a product times gelu's derivative, where rows are multiples of 16 bytes") {
  check_gelu_vjp<bf16>();
  check_gelu_vjp<f16>();
}

TEST_CASE("gpu::blas_matmul_gelu is a product with a bias and its gelu, where rows are multiples of 16 bytes") {
  check_gelu<bf16>();
  check_gelu<f16>();
}

TEST_CASE("gpu::plain_matmul and blas_matmul of any layout, with bias, gelu and sums, agree with f64 on the Cpu") {
  check_products<float, float>();
  check_products<bf16, bf16>();
  check_products<bf16, float>();
  check_products<f16, f16>();
}

TEST_CASE("gpu::plain_matmul and blas_matmul of a batch are those of each") {
  std::mt19937 random(10);
  const laws::TestStream stream;
  const Size batch = 3;
  const kernels::Product p{.m = 5, .n = 7, .k = 4, .tb = Transpose::yes, .lda = 4, .ldb = 4, .ldc = 7};
  const auto a = laws::normals<float>(batch * 20, random), b = laws::normals<float>(batch * 28, random);
  const DeviceArray<float> d_a(a), d_b(b), together(batch * 35), single(batch * 35);
  gpu::plain_matmul<float, float>(stream, batch, p, d_a, d_b, {.c = together});
  for (Size i = 0; i < batch; ++i)
    gpu::plain_matmul<float, float>(stream, 1, p, d_a.data() + 20 * i, d_b.data() + 28 * i,
                                    {.c = single.data() + 35 * i});
  CHECK(together.read(stream) == single.read(stream));
  gpu::Blas blas;
  const float* const no_bias = nullptr;
  gpu::blas_matmul<float, float>(blas, stream, batch, p, d_a, d_b, together, Write::overwrite, no_bias);
  laws::check_elements(together.read(stream), laws::in_f64(single.read(stream)), 16, "blas_matmul", 4);
}
