// SPDX-License-Identifier: Apache-2.0
// labels: golden
// Operators and PatchEmbedding against PyTorch's values and gradients in f64; README.md says what the file holds.
#include <doctest/doctest.h>

#include <dspp/autograd.hpp>
#include <dspp/io/safetensors.hpp>
#include <dspp/nn/patch_embedding.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// f64 against f64: both make some tens of roundings.
constexpr double bound = 1e-13;

struct Golden {
  TestRank here{};
  io::SafetensorsReader file{DSPP_TESTS_DIRECTORY "/golden/operators_expected.safetensors"};
  std::string name;

  explicit Golden(std::string operation) : name(std::move(operation)) {}
  template <class T = double, int Rank>
  Tensor<T, Rank> read(const char* part, const Shape<Rank>& shape) {
    const io::TensorEntry& entry = file.tensor((name + part).c_str());
    auto values = Tensor<T, Rank>::uninitialized(shape, here.pool);
    REQUIRE(static_cast<Size>(entry.count()) == shape.count());
    file.read(entry, 0, values.count(), values.data());
    return values;
  }
  template <int Rank>
  Dense<double, Rank> input(const char* part, const Shape<Rank>& shape) {
    return {read(part, shape), here.tape};
  }
  template <class M>
  auto constant(const char* part, const Shape<2>& shape) {
    return Dense<M, 2>::constant(read<M>(part, shape), here.tape);
  }
  template <class Y>
  void check(const Y& y) {
    CAPTURE(name);
    check_close(y.value(), read(".y", y.shape()), bound);
    here.tape.backward(y.slot(), read(".dy", y.shape()));
  }
  template <int Rank>
  void check_gradient(const char* part, const Dense<double, Rank>& x) {
    CAPTURE(name);
    check_close(here.tape.take<double, Rank>(x.slot(), x.shape()), read(part, x.shape()), bound);
  }
};

template <class F>
void check_one(const char* name, F f, const Shape<3>& shape = dspp::shape(2, 3, 4)) {
  Golden golden(name);
  const auto x = golden.input(".x", shape);
  golden.check(f(x));
  golden.check_gradient(".dx", x);
}
template <int Rank, class F>
void check_two(const char* name, const Shape<Rank>& shape, F f) {
  Golden golden(name);
  const auto x = golden.input(".x", dspp::shape(2, 3, 4));
  const auto v = golden.input(".v", shape);
  golden.check(f(x, v));
  golden.check_gradient(".dx", x);
  golden.check_gradient(".dv", v);
}

}  // namespace

TEST_CASE("pointwise functions, arithmetic and reductions have PyTorch's values and gradients") {
  check_one("tanh", [](const auto& x) { return tanh(x); });
  check_one("sigmoid", [](const auto& x) { return sigmoid(x); });
  check_one("exp", [](const auto& x) { return exp(x); });
  check_one("square", [](const auto& x) { return square(x); });
  check_one("log", [](const auto& x) { return log(x); });
  check_one("sqrt", [](const auto& x) { return sqrt(x); });
  check_one("numbers", [](const auto& x) { return 3.0 / x - (1.0 - x) / 7.0; });
  check_one("mean", [](const auto& x) { return mean<1>(x); });
  check_one(
      "max", [](const auto& x) { return max<1>(x); }, shape(2, 6, 4));
  check_two("quotient", shape(3, 1), [](const auto& x, const auto& v) { return x / v; });
  check_two("difference", shape(4), [](const auto& x, const auto& v) { return v - x; });
}

TEST_CASE("gather and where have PyTorch's values and gradients") {
  Golden golden("gather");
  const auto x = golden.input(".x", shape(2, 3, 4));
  golden.check(gather(x, golden.constant<std::int32_t>(".ids", shape(2, 5))));
  golden.check_gradient(".dx", x);
  Golden choice("where");
  const auto a = choice.input(".x", shape(2, 3, 4)), b = choice.input(".v", shape(2, 3, 4));
  choice.check(where(choice.constant<std::uint8_t>(".mask", shape(2, 3)), a, b));
  choice.check_gradient(".dx", a);
  choice.check_gradient(".dv", b);
}

TEST_CASE("PatchEmbedding has the values and gradients of PyTorch's Conv2d") {
  Golden golden("conv2d");
  PatchEmbedding<Policy<F64>> layer({.channels = 3, .patch = 2, .width = 5});
  Home<double> home(layer, golden.here);
  const auto weight = golden.read(".weight", shape(60)), bias = golden.read(".bias", shape(5));
  std::copy_n(weight.data(), 60, home.value(0).data());
  std::copy_n(bias.data(), 5, home.value(1).data());
  const auto x = golden.input(".x", shape(2, 3, 4, 6));
  golden.check(layer(x));
  golden.check_gradient(".dx", x);
  check_close(home.gradient(0), golden.read(".dweight", shape(60)), bound);
  check_close(home.gradient(1), golden.read(".dbias", shape(5)), bound);
}
