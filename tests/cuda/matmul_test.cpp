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
    finish.form = in_double.form = i % 4 ? GeluForm::tanh : GeluForm::exact;
    gpu::plain_matmul<T, R>(stream, 1, p, d_a, d_b, finish);
    Kernel<kernels::Matmul<double, double>, Cpu>::run(p, in_f64(a).data(), in_f64(b).data(), in_double);
    laws::check_elements(c.read(stream), c64, 64, "matmul", 8);
    laws::check_elements(activated.read(stream), activated64, sizeof(R) == 4 ? 64 : 0x1p17, "gelu of it", 8);

    const DeviceArray<R> by_blas(before, i % 3);
    gpu::blas_matmul<T, R>(blas, stream, 1, p, d_a, d_b, by_blas, finish.write, finish.bias);
    laws::check_elements(by_blas.read(stream), c64, 64, "blas_matmul", 8);
  }
}

}  // namespace

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
