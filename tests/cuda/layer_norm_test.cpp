// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/layer_norm.hpp>
#include <kernels/layer_norm.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

using Forward = Kernel<kernels::LayerNorm<double>, Cpu>;
using Backward = Kernel<kernels::LayerNormVjp<double, double>, Cpu>;

struct Case {
  Size rows, n, offset;  // elements between a multiple of 16 bytes and the first
  bool residual;
};

/// What both passes have in common: inputs in T, and in f64.
template <class T>
struct Inputs {
  Size rows, n;
  std::vector<T> x, gamma, dy, earlier;
  std::vector<double> mean, rstd;
};

/// The backward pass in T against the Cpu's kernel in f64: dx in place of dy or of the gradient that x has, into
/// gradients that are written or added to.
template <class T>
void check_backward(const Case& at, const Inputs<T>& of, const laws::Earlier& earlier, const float* mean,
                    const float* rstd, std::mt19937& random, const std::string& beginning) {
  const std::string what =
      beginning + laws::describe(", earlier", earlier.given, "in place", earlier.in_place, "offset", earlier.offset);
  const Size rows = of.rows, n = of.n, count = rows * n;
  const laws::TestStream stream;
  const DeviceArray<T> d_x(of.x, at.offset), d_dy(of.dy, at.offset), d_earlier(of.earlier, earlier.offset);
  const DeviceArray<T> d_gamma(of.gamma, at.offset);
  const std::vector<float> before = laws::normals<float>(n, random);
  const DeviceArray<float> d_dgamma(n), d_dbeta(before), scratch(gpu::layer_norm_scratch(rows, n));
  const DeviceArray<T>&to = earlier.in_place ? d_earlier : d_dy, &kept = earlier.in_place ? d_dy : d_earlier;
  gpu::layer_norm_backward<T, float>(stream, rows, n, to, d_dy, d_x, earlier.given ? d_earlier.data() : nullptr,
                                     d_gamma, mean, rstd, scratch, d_dgamma, Write::overwrite, d_dbeta,
                                     Write::accumulate);

  const auto x64 = laws::in_f64(of.x), gamma64 = laws::in_f64(of.gamma), dy64 = laws::in_f64(of.dy);
  std::vector<double> dx64 = laws::in_f64(of.earlier), dgamma64(n), dbeta64 = laws::in_f64(before);
  std::vector<double> scratch64(Backward::scratch_count(rows, n));
  Backward::run(rows, n, dx64.data(), dy64.data(), x64.data(), earlier.given ? dx64.data() : nullptr, gamma64.data(),
                of.mean.data(), of.rstd.data(), scratch64.data(), dgamma64.data(), Write::overwrite, dbeta64.data(),
                Write::accumulate);
  const double terms = laws::largest_of(of.rstd) * laws::largest_of(of.dy) * laws::largest_of(of.gamma);
  laws::check_elements(to.read(stream), dx64, 64, what + ": dx", n == 1 ? terms : 0);  // 0 but for roundings
  laws::check_elements(d_dgamma.read(stream), dgamma64, 64, what + ": dgamma");
  laws::check_elements(d_dbeta.read(stream), dbeta64, 64, what + ": dbeta");
  if (count > 0) CHECK(laws::worst_difference(kept.read(stream), earlier.in_place ? of.dy : of.earlier) == 0);
}

/// Both passes in T against the Cpu's kernels in f64 of the same inputs.
template <class T>
void check_case(const Case& at, std::mt19937& random) {
  const std::string what = laws::describe("rows", at.rows, "n", at.n, "offset", at.offset, "residual", at.residual);
  const Size rows = at.rows, n = at.n, count = rows * n;
  const laws::TestStream stream;
  const auto x = laws::normals<T>(count, random, 2.0, 0.5), residual = laws::normals<T>(count, random);
  const auto gamma = laws::normals<T>(n, random), beta = laws::normals<T>(n, random),
             dy = laws::normals<T>(count, random);
  std::vector<T> sum = x;
  if (at.residual)
    for (Size i = 0; i < count; ++i)
      sum[i] = static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(residual[i]));

  const DeviceArray<T> dx_in(x, at.offset), d_residual(residual, at.offset), d_gamma(gamma, at.offset);
  const DeviceArray<T> d_beta(beta, at.offset), d_sum(count, at.offset), d_y(count, at.offset);
  const DeviceArray<float> d_mean(rows), d_rstd(rows);
  gpu::layer_norm<T>(stream, rows, n, dx_in, at.residual ? d_residual.data() : nullptr, d_gamma, d_beta, 1e-5,
                     at.residual ? d_sum.data() : nullptr, d_y, d_mean, d_rstd);

  const auto x64 = laws::in_f64(sum), gamma64 = laws::in_f64(gamma), beta64 = laws::in_f64(beta);
  std::vector<double> y64(count), mean64(rows), rstd64(rows);
  Forward::run(rows, n, x64.data(), nullptr, gamma64.data(), beta64.data(), 1e-5, nullptr, y64.data(), mean64.data(),
               rstd64.data());
  if (at.residual) CHECK(laws::worst_difference(d_sum.read(stream), sum) == 0);
  laws::check_elements(d_y.read(stream), y64, 16, what + ": y");
  laws::check_elements(d_mean.read(stream), mean64, 16, what + ": mean");
  laws::check_elements(d_rstd.read(stream), rstd64, 16, what + ": rstd");

  const Inputs<T> inputs{rows, n, sum, gamma, dy, laws::normals<T>(count, random), mean64, rstd64};
  for (const laws::Earlier& earlier : laws::earlier_gradients(at.offset))
    check_backward<T>(at, inputs, earlier, d_mean, d_rstd, random, what);
}

template <class T>
void check_cases() {
  std::mt19937 random(7);
  const Size all = gpu::longest_row<T>;
  for (const Case& at : {Case{1, 1, 0, false},
                         {3, 7, 0, true},
                         {9, 104, 0, true},
                         {70, 40, 1, false},
                         {5, 768, 0, true},
                         {2, 1027, 0, true},
                         {3, 2056, 0, false},
                         {2, all, 0, true},
                         {2, all + 3, 0, true},
                         {3, all + 8, 0, true},
                         {2200, 8, 0, true},
                         {0, 16, 0, false}})
    check_case<T>(at, random);
  for (int i = 0; i < 8; ++i)
    check_case<T>({laws::odd_extent(40, random), laws::odd_extent(3000, random), i % 2, i % 3 == 0}, random);
}

}  // namespace

TEST_CASE("gpu::layer_norm and its backward pass agree with f64 on the Cpu, f32") {
  check_cases<float>();
}
TEST_CASE("gpu::layer_norm and its backward pass agree with f64 on the Cpu, bf16") {
  check_cases<bf16>();
}
TEST_CASE("gpu::layer_norm and its backward pass agree with f64 on the Cpu, f16") {
  check_cases<f16>();
}

TEST_CASE("gpu::layer_norm keeps NaN and infinity in their rows") {
  std::mt19937 random(3);
  const Size rows = 4, n = 50;
  auto x = laws::normals<float>(rows * n, random);
  x[1 * n + 3] = std::numeric_limits<float>::quiet_NaN();
  x[2 * n + 49] = std::numeric_limits<float>::infinity();
  const std::vector<float> gamma(n, 1.0f), beta(n, 0.0f);
  const laws::TestStream stream;
  const DeviceArray<float> d_x(x), d_gamma(gamma), d_beta(beta), y(rows * n), mean(rows), rstd(rows);
  const float* none = nullptr;
  gpu::layer_norm<float>(stream, rows, n, d_x, none, d_gamma, d_beta, 1e-5, nullptr, y, mean, rstd);
  const auto got = y.read(stream);
  std::vector<float> expected(rows * n), m(rows), r(rows);
  Kernel<kernels::LayerNorm<float>, Cpu>::run(rows, n, x.data(), nullptr, gamma.data(), beta.data(), 1e-5, nullptr,
                                              expected.data(), m.data(), r.data());
  for (Size i = 0; i < rows * n; ++i) CHECK(std::isnan(got[i]) == std::isnan(expected[i]));
}

TEST_CASE("gpu::layer_norm_backward gives the same bits every time") {
  std::mt19937 random(5);
  const Size rows = 500, n = 72;
  const auto x = laws::normals<bf16>(rows * n, random), dy = laws::normals<bf16>(rows * n, random);
  const laws::TestStream stream;
  const DeviceArray<bf16> d_x(x), d_dy(dy), d_gamma(laws::normals<bf16>(n, random)), dx(rows * n);
  const DeviceArray<float> mean(laws::normals<float>(rows, random)), rstd(laws::normals<float>(rows, random));
  const DeviceArray<float> scratch(gpu::layer_norm_scratch(rows, n)), dgamma(n), dbeta(n);
  std::vector<float> first;
  for (int run = 0; run < 3; ++run) {
    gpu::layer_norm_backward<bf16, float>(stream, rows, n, dx, d_dy, d_x, nullptr, d_gamma, mean, rstd, scratch, dgamma,
                                          Write::overwrite, dbeta, Write::overwrite);
    const auto got = dgamma.read(stream);
    if (run == 0) first = got;
    CHECK(got == first);
  }
}
