// SPDX-License-Identifier: Apache-2.0
// A norm's of_sum is + and the norm: in their bits, forward and backward, whatever holds the branch.
#include <doctest/doctest.h>

#include <dspp/autograd/recompute.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/rms_norm.hpp>
#include <dspp/nn/sum_and_norm.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// The values and gradients of one pass through a norm of a sum.
template <class T>
struct Pass {
  Tensor<T, 3> sum, norm, dx, dbranch;
  std::vector<Tensor<T, 1>> parameters;
};

/// Passes on one rank, by numbers that depend on the extents alone.
template <class T, class L>
struct Passes {
  using X = Dense<T, 3>;

  L norm;
  TestRank here;
  Home<T> home;
  Shape<3> of_x, of_branch;

  Passes(const L& like, const Shape<3>& of_x_, const Shape<3>& of_branch_)
      : norm(like), home(norm, here), of_x(of_x_), of_branch(of_branch_) {}

  /// `both(norm, x, branch)` gives a SumAndNorm; the branch is moved in if nothing else is to have it.
  template <class F>
  Pass<T> pass(F both, bool kept) {
    here.tape.clear();
    home.forget_gradients();
    const X x(random<T>(of_x, here.pool, 1), here.tape);
    X branch(random<T>(of_branch, here.pool, 2), here.tape);
    const Slot slot = branch.slot();
    const X keeper = kept ? branch : X();
    const auto before = copy<T>(branch.value());
    auto [sum, normed] = both(norm, x, std::move(branch));
    const auto y = sum * normed + sum;
    here.tape.backward(y.slot(), random<T>(y.shape(), here.pool, 3));
    if (kept) CHECK(same_bits(keeper.value(), before));
    Pass<T> result{copy<T>(sum.value()),
                   copy<T>(normed.value()),
                   here.tape.template take<T, 3>(x.slot(), of_x),
                   here.tape.template take<T, 3>(slot, of_branch),
                   {}};
    for (std::size_t i = 0; i < home.entries().size(); ++i) result.parameters.push_back(copy<T>(home.gradient(i)));
    return result;
  }
};

template <class T>
void check_same(const Pass<T>& at, const Pass<T>& expected) {
  CHECK(same_bits(at.sum, expected.sum));
  CHECK(same_bits(at.norm, expected.norm));
  CHECK(same_bits(at.dx, expected.dx));
  CHECK(same_bits(at.dbranch, expected.dbranch));
  REQUIRE(at.parameters.size() == expected.parameters.size());
  for (std::size_t i = 0; i < at.parameters.size(); ++i) CHECK(same_bits(at.parameters[i], expected.parameters[i]));
}

constexpr auto one_pass = [](const auto& norm, const auto& x, auto branch) {
  return norm.of_sum(x, std::move(branch));
};
constexpr auto two_operations = [](const auto& norm, const auto& x, auto branch) {
  auto sum = x + branch;
  auto normed = norm(sum);
  return SumAndNorm<decltype(sum)>{std::move(sum), std::move(normed)};
};

/// Calls f(norm) with both norms of Policy<Of>.
template <class Of, class F>
void for_each_norm(Size width, F f) {
  f(LayerNorm<Policy<Of>>(width));
  f(RmsNorm<Policy<Of>>(width));
}

template <class Of, class T>
void check_shapes(const Shape<3>& of_x, const Shape<3>& of_branch) {
  CAPTURE(to_string(of_x));
  CAPTURE(to_string(of_branch));
  for_each_norm<Of>(of_x[2], [&]<class L>(const L& norm) {
    Passes<T, L> passes(norm, of_x, of_branch);
    const Pass<T> expected = passes.pass(two_operations, false);
    check_same(passes.pass(one_pass, false), expected);
    check_same(passes.pass(one_pass, true), expected);
  });
}

template <class Of, class T>
void check_element() {
  for (const Size width : {1, 5, 32, 70, 256}) check_shapes<Of, T>(shape(3, 7, width), shape(3, 7, width));
  check_shapes<Of, T>(shape(2, 0, 5), shape(2, 0, 5));
  check_shapes<Of, T>(shape(2, 3, 40), shape(1, 3, 40));  // the branch is repeated
  check_shapes<Of, T>(shape(1, 3, 40), shape(2, 3, 40));  // x is
}

}  // namespace

TEST_CASE("of_sum gives the bits of + and the norm, forward and backward, and writes no branch that others have") {
  check_element<F64, double>();
  check_element<F32, float>();
  check_element<Bf16, bf16>();
  check_element<F16, f16>();
}

TEST_CASE("of_sum's gradients are finite differences") {
  for_each_norm<F64>(5, []<class L>(const L& like) {
    L norm(like);
    TestRank here;
    Home<double> home(norm, here);
    using X = Dense<double, 3>;
    const auto branch = [](const X& x) { return 0.5 * (x * x); };
    const auto function = [&](const X& x) {
      auto [sum, normed] = norm.of_sum(x, branch(x));
      return sum + normed * normed;
    };
    check_variable_gradient<X>(here, function, random<double>(shape(2, 3, 5), here.pool, 8), &home);
  });
}

TEST_CASE("the sum lies where a branch did that nothing else has") {
  for_each_norm<F32>(40, []<class L>(const L& like) {
    Passes<float, L> passes(like, shape(2, 3, 40), shape(2, 3, 40));
    using X = Dense<float, 3>;
    const X x(random<float>(passes.of_x, passes.here.pool, 1), passes.here.tape);
    X branch(random<float>(passes.of_x, passes.here.pool, 2), passes.here.tape);
    const float* const block = branch.value().data();
    const X other = branch;
    CHECK(passes.norm.of_sum(x, branch).sum.value().data() != block);
    CHECK(passes.norm.of_sum(x, std::move(branch)).sum.value().data() != block);  // `other` has it
    X alone(random<float>(passes.of_x, passes.here.pool, 2), passes.here.tape);
    const float* const its_block = alone.value().data();
    CHECK(passes.norm.of_sum(x, std::move(alone)).sum.value().data() == its_block);
  });
}

TEST_CASE("of_sum inside recompute gives the bits of it outside") {
  for_each_norm<Bf16>(40, []<class L>(const L& like) {
    Passes<bf16, L> passes(like, shape(2, 3, 40), shape(2, 3, 40));
    using X = Dense<bf16, 3>;
    const auto gradient = [&](auto function) {
      passes.here.tape.clear();
      passes.home.forget_gradients();
      const X x(random<bf16>(passes.of_x, passes.here.pool, 1), passes.here.tape);
      const X y = function(x);
      passes.here.tape.backward(y.slot(), random<bf16>(y.shape(), passes.here.pool, 3));
      return passes.here.tape.template take<bf16, 3>(x.slot(), passes.of_x);
    };
    const auto block = [&](const X& x) {
      auto [sum, normed] = passes.norm.of_sum(x, 0.5 * x);
      return sum + normed;
    };
    CHECK(same_bits(gradient([&](const X& x) { return recompute(block, x); }), gradient(block)));
  });
}

TEST_CASE("a residual sum that overflows is found by itself, before the norm's parameters are read") {
  for_each_norm<F16>(40, []<class L>(const L& like) {
    Passes<f16, L> passes(like, shape(2, 3, 40), shape(2, 3, 40));
    using X = Dense<f16, 3>;
    const auto large = [&] {
      auto value = Tensor<f16, 3>::uninitialized(passes.of_x, passes.here.pool);
      value.fill(static_cast<f16>(60000.0f));
      return X(std::move(value), passes.here.tape);
    };
    const X x = large();
    X branch = large();
    FiniteProbe probe;
    passes.here.context.probe = passes.home.probe = &probe;
    const auto both = passes.norm.of_sum(x, std::move(branch));
    passes.here.context.probe = passes.home.probe = nullptr;
    CHECK(probe.found());
    CHECK(probe.values() == 1);
    CHECK(probe.parameter() == nullptr);
  });
}
