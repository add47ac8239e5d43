// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/gelu.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

/// Both passes in T against the same functor in f64.
template <class T, class F>
void check_case(GeluForm form, Size count, Size offset, std::mt19937& random) {
  const std::string what = laws::describe("count", count, "offset", offset);
  const laws::TestStream stream;
  const auto x = laws::normals<T>(count, random, 3.0), dy = laws::normals<T>(count, random);
  const DeviceArray<T> d_x(x, offset), d_dy(dy, offset), y(count, offset), dx(count, offset);
  gpu::gelu<T>(stream, form, count, y, d_x);
  gpu::gelu_backward<T>(stream, form, count, dx, d_x, d_dy);
  std::vector<double> y64(count), dx64(count);
  for (Size i = 0; i < count; ++i) {
    const auto a = static_cast<double>(x[i]);
    y64[i] = F{}(a);
    dx64[i] = F{}.derivative(a) * static_cast<double>(dy[i]);
  }
  laws::check_elements(y.read(stream), y64, 8, what + ": y");
  laws::check_elements(dx.read(stream), dx64, 32, what + ": dx");
  gpu::gelu<T>(stream, form, count, d_x, d_x);  // in place
  laws::check_elements(d_x.read(stream), y64, 8, what + ": y in place of x");
}

template <class T>
void check_cases() {
  std::mt19937 random(1);
  for (const Size count : {Size{0}, Size{1}, Size{7}, Size{8}, Size{4096}, Size{4099}, Size{9001}})
    for (const Size offset : {Size{0}, Size{1}}) {
      check_case<T, pointwise::GeluExact>(GeluForm::exact, count, offset, random);
      check_case<T, pointwise::GeluTanh>(GeluForm::tanh, count, offset, random);
    }
}

}  // namespace

TEST_CASE("gpu::gelu and its backward pass agree with f64, f32") {
  check_cases<float>();
}
TEST_CASE("gpu::gelu and its backward pass agree with f64, bf16") {
  check_cases<bf16>();
}
TEST_CASE("gpu::gelu and its backward pass agree with f64, f16") {
  check_cases<f16>();
}

TEST_CASE("gpu::gelu keeps NaN, and infinity as the Cpu does") {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> x{std::numeric_limits<float>::quiet_NaN(), infinity, -infinity, 100, -100, 0, 1e-30f};
  const laws::TestStream stream;
  const DeviceArray<float> d_x(x), y(static_cast<Size>(x.size()));
  for (const GeluForm form : {GeluForm::exact, GeluForm::tanh}) {
    gpu::gelu<float>(stream, form, y.size(), y, d_x);
    const auto got = y.read(stream);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const float expected = form == GeluForm::exact ? pointwise::GeluExact{}(x[i]) : pointwise::GeluTanh{}(x[i]);
      CHECK((laws::same_or_both_nan(got[i], expected) || laws::close(got[i], expected, 1e-6, 1e-30)));
    }
  }
}
