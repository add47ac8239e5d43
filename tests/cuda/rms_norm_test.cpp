// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/rms_norm.hpp>
#include <kernels/rms_norm.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

using Forward = Kernel<kernels::RmsNorm<double>, Cpu>;
using Backward = Kernel<kernels::RmsNormVjp<double, double>, Cpu>;

template <class T>
struct Inputs {
  Size rows, n, offset;
  std::vector<T> x, gamma, dy, earlier;
  std::vector<double> inverse_root;
};

/// The backward pass in T against the Cpu's kernel in f64: dx in place of dy or of the gradient that x has, dgamma in G
/// added to.
template <class T, class G>
void check_backward(const Inputs<T>& of, const laws::Earlier& earlier, const float* inverse_root, std::mt19937& random,
                    const std::string& beginning) {
  const std::string what =
      beginning + laws::describe(", earlier", earlier.given, "in place", earlier.in_place, "offset", earlier.offset);
  const Size rows = of.rows, n = of.n, count = rows * n;
  const laws::TestStream stream;
  const DeviceArray<T> d_x(of.x, of.offset), d_dy(of.dy, of.offset), d_earlier(of.earlier, earlier.offset);
  const DeviceArray<T> d_gamma(of.gamma, of.offset);
  const auto before = laws::normals<G>(n, random);
  const DeviceArray<G> d_dgamma(before);
  const DeviceArray<float> scratch(gpu::rms_norm_scratch(rows, n));
  const DeviceArray<T>&to = earlier.in_place ? d_earlier : d_dy, &kept = earlier.in_place ? d_dy : d_earlier;
  gpu::rms_norm_backward<T, G>(stream, rows, n, to, d_dy, d_x, earlier.given ? d_earlier.data() : nullptr, d_gamma,
                               inverse_root, scratch, d_dgamma, Write::accumulate);

  const auto x64 = laws::in_f64(of.x), gamma64 = laws::in_f64(of.gamma), dy64 = laws::in_f64(of.dy);
  std::vector<double> dx64 = laws::in_f64(of.earlier), dgamma64 = laws::in_f64(before);
  std::vector<double> scratch64(Backward::scratch_count(rows, n));
  Backward::run(rows, n, dx64.data(), dy64.data(), x64.data(), earlier.given ? dx64.data() : nullptr, gamma64.data(),
                of.inverse_root.data(), scratch64.data(), dgamma64.data(), Write::accumulate);
  const double terms = laws::largest_of(of.inverse_root) * laws::largest_of(of.dy) * laws::largest_of(of.gamma);
  laws::check_elements(to.read(stream), dx64, 64, what + ": dx", n == 1 ? terms : 0);  // 0 but for roundings
  laws::check_elements(d_dgamma.read(stream), dgamma64, 64, what + ": dgamma");
  if (count > 0) CHECK(laws::worst_difference(kept.read(stream), earlier.in_place ? of.dy : of.earlier) == 0);
}

/// Both passes in T against the Cpu's kernels in f64 of the same inputs; gradients of gamma in G.
template <class T, class G>
void check_case(Size rows, Size n, Size offset, bool with_residual, std::mt19937& random) {
  const std::string what = laws::describe("rows", rows, "n", n, "offset", offset, "residual", with_residual);
  const Size count = rows * n;
  const laws::TestStream stream;
  const auto x = laws::normals<T>(count, random, 2.0, 0.5), residual = laws::normals<T>(count, random);
  const auto gamma = laws::normals<T>(n, random), dy = laws::normals<T>(count, random);
  std::vector<T> sum = x;
  if (with_residual)
    for (Size i = 0; i < count; ++i)
      sum[i] = static_cast<T>(static_cast<float>(x[i]) + static_cast<float>(residual[i]));

  // The sum in place of x, and y in place of the residual.
  const DeviceArray<T> d_x(x, offset), d_residual(residual, offset), d_gamma(gamma, offset), d_y(count, offset);
  const DeviceArray<float> d_inverse(rows);
  if (with_residual)
    gpu::rms_norm<T>(stream, rows, n, d_x, d_residual, d_gamma, 1e-6, d_x, d_residual, d_inverse);
  else
    gpu::rms_norm<T>(stream, rows, n, d_x, nullptr, d_gamma, 1e-6, nullptr, d_y, d_inverse);

  const auto x64 = laws::in_f64(sum), gamma64 = laws::in_f64(gamma);
  std::vector<double> y64(count), inverse64(rows);
  Forward::run(rows, n, x64.data(), nullptr, gamma64.data(), 1e-6, nullptr, y64.data(), inverse64.data());
  CHECK((count == 0 || laws::worst_difference(d_x.read(stream), sum) == 0));
  laws::check_elements((with_residual ? d_residual : d_y).read(stream), y64, 16, what + ": y");
  laws::check_elements(d_inverse.read(stream), inverse64, 16, what + ": inverse_root");

  const Inputs<T> inputs{rows, n, offset, sum, gamma, dy, laws::normals<T>(count, random), inverse64};
  for (const laws::Earlier& earlier : laws::earlier_gradients(offset))
    check_backward<T, G>(inputs, earlier, d_inverse, random, what);
}

template <class T, class G>
void check_cases() {
  std::mt19937 random(11);
  const Size all = gpu::longest_row<T>;
  for (const Size n : {Size{1}, Size{9}, Size{256}, Size{1000}, Size{1029}, Size{4104}, Size{6144}, Size{12288},
                       Size{12296}, all, all + 5, all + 8})
    for (const Size rows : {Size{1}, Size{6}}) check_case<T, G>(rows, n, n == 9, rows == 6, random);
  check_case<T, G>(1300, 24, 0, false, random);
  check_case<T, G>(0, 24, 0, false, random);
  for (int i = 0; i < 6; ++i)
    check_case<T, G>(laws::odd_extent(40, random), laws::odd_extent(3000, random), i % 2, i % 3 == 0, random);
}

}  // namespace

TEST_CASE("gpu::rms_norm and its backward pass agree with f64 on the Cpu, f32") {
  check_cases<float, float>();
}
TEST_CASE("gpu::rms_norm and its backward pass agree with f64 on the Cpu, bf16") {
  check_cases<bf16, bf16>();
}
TEST_CASE("gpu::rms_norm and its backward pass agree with f64 on the Cpu, f16") {
  check_cases<f16, float>();
}
