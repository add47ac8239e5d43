// SPDX-License-Identifier: Apache-2.0
// Of both norms: the backward adds dx to the gradient that x has, as tape.give does, in one pass.
#include <doctest/doctest.h>

#include <string>

#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/recompute.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/rms_norm.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Shape<2> extents = shape(6, 40);

template <class T>
Tensor<T, 2> numbers(TestRank& here, std::uint32_t stream) {
  return random<T>(extents, here.pool, stream);
}

/// Calls f(norm) with both norms of Policy<Of>.
template <class Of, class F>
void for_each_norm(F f) {
  f(LayerNorm<Policy<Of>>(extents[1]));
  f(RmsNorm<Policy<Of>>(extents[1]));
}

/// dx + earlier by the vjp itself.
template <class P, class T>
Tensor<T, 2> sum_of(const LayerNorm<P>& norm, const Tensor<T, 2>& x, Tensor<T, 2> dy, const Tensor<T, 2>& earlier) {
  const auto forward = ops::layer_norm(x, norm.weight.value(), norm.bias.value(), norm.epsilon);
  const auto unused = Tensor<T, 1>::zeros(shape(x[1]), x.memory());
  return ops::layer_norm_vjp(x, norm.weight.value(), forward.mean, forward.rstd, std::move(dy), unused,
                             Write::overwrite, unused, Write::overwrite, earlier);
}
template <class P, class T>
Tensor<T, 2> sum_of(const RmsNorm<P>& norm, const Tensor<T, 2>& x, Tensor<T, 2> dy, const Tensor<T, 2>& earlier) {
  const auto forward = ops::rms_norm(x, norm.weight.value(), norm.epsilon);
  const auto unused = Tensor<T, 1>::zeros(shape(x[1]), x.memory());
  return ops::rms_norm_vjp(x, norm.weight.value(), forward.inverse_root, std::move(dy), unused, Write::overwrite,
                           earlier);
}

/// A norm with its parameters, and an x on the tape.
template <class T, class L>
struct Run {
  TestRank here;
  L norm;
  Home<T> home;
  Dense<T, 2> x;

  explicit Run(L norm_) : norm(std::move(norm_)), home(norm, here), x(numbers<T>(here, 1), here.tape) {}

  Tensor<T, 2> dx() { return here.tape.template take<T, 2>(x.slot(), extents); }
  /// Runs back from norm(x) alone.
  void backward(Tensor<T, 2> dy) {
    const auto y = norm(x);
    here.tape.backward(y.slot(), std::move(dy));
  }
};

/// Calls f(run) for both norms.
template <class T, class Of, class F>
void for_each_run(F f) {
  for_each_norm<Of>([&]<class L>(L norm) {
    Run<T, L> run(std::move(norm));
    f(run);
  });
}

}  // namespace

TEST_CASE("a norm beside its own input, twice, and of a shared gradient has finite differences as gradient") {
  using X = Dense<double, 2>;
  const auto check = []<class L>(const L& like, auto function) {
    TestRank here;
    L norm(like);
    Home<double> home(norm, here);
    check_variable_gradient<X>(
        here, [&](const X& x) { return function(norm, x); }, random<double>(shape(3, 5), here.pool, 8), &home);
  };
  const auto check_all = [&](const auto& norm) {
    check(norm, [](const auto& n, const X& x) { return x + n(x); });           // the sum's gradient is x's, too
    check(norm, [](const auto& n, const X& x) { return n(x) + 2.0 * x; });     // x has a gradient of its own
    check(norm, [](const auto& n, const X& x) { return n(x) * (n(x) + x); });  // two norms add to it
    check(norm, [](const auto& n, const X& x) { return x + recompute([&n](const X& v) { return n(v) + v; }, x); });
  };
  check_all(LayerNorm<Policy<F64>>(5));
  check_all(RmsNorm<Policy<F64>>(5));
}

TEST_CASE("dx is added before it is rounded, in the block of the gradient that x has") {
  for_each_run<bf16, Bf16>([](auto& run) {
    const auto earlier = numbers<bf16>(run.here, 2), dy = numbers<bf16>(run.here, 3);
    const auto expected = sum_of(run.norm, run.x.value(), dy, earlier);
    auto given = copy<bf16>(earlier);
    const bf16* const block = given.data();
    run.here.tape.give(run.x.slot(), std::move(given));
    run.backward(copy<bf16>(dy));
    const auto dx = run.dx();
    CHECK(dx.data() == block);
    CHECK(dx.unique());
    CHECK(same_bits(dx, expected));
  });
}

TEST_CASE("a gradient that has another handle is added to, never written") {
  for_each_run<float, F32>([](auto& run) {
    const auto earlier = numbers<float>(run.here, 2), dy = numbers<float>(run.here, 3);
    const auto kept_earlier = copy<float>(earlier), kept_dy = copy<float>(dy);
    const auto expected = sum_of(run.norm, run.x.value(), dy, earlier);
    for (const bool dy_alone : {true, false}) {
      run.here.tape.give(run.x.slot(), earlier);
      auto alone = copy<float>(dy);
      const float* const block = alone.data();
      run.backward(dy_alone ? std::move(alone) : dy);
      const auto dx = run.dx();
      CHECK((dx.data() == block) == dy_alone);
      CHECK(same_bits(dx, expected));
      CHECK(same_bits(earlier, kept_earlier));
      CHECK(same_bits(dy, kept_dy));
      run.home.forget_gradients();
    }
    // Both are one block, which nothing else has.
    auto both = copy<float>(dy);
    run.here.tape.give(run.x.slot(), both);
    run.backward(std::move(both));
    CHECK(same_bits(run.dx(), sum_of(run.norm, run.x.value(), dy, dy)));
  });
}

TEST_CASE("the sum takes no memory where x's gradient has one handle, also beside a gradient with two") {
  for_each_run<float, F32>([](auto& run) {
    const auto shared = numbers<float>(run.here, 3);
    run.here.tape.give(run.x.slot(), numbers<float>(run.here, 2));
    const auto y = run.norm(run.x);
    const Size before = run.here.pool.live_by_category()[Category::activations];
    run.here.pool.reset_peak();
    run.here.tape.backward(y.slot(), shared);
    CHECK(run.here.pool.peak_by_category()[Category::activations] == before);
  });
}

TEST_CASE("recompute gives the bits of a norm's gradient without it, in bf16") {
  for_each_run<bf16, Bf16>([](auto& run) {
    using X = Dense<bf16, 2>;
    const auto dy = numbers<bf16>(run.here, 3);
    const auto branch = [&](const X& x) { return X(run.norm(x)); };
    const auto whole = [&](const X& x) { return x + run.norm(x); };
    const auto gradient = [&](auto function) {
      const X y = function(run.x);
      run.here.tape.backward(y.slot(), dy);
      auto dx = run.dx();
      run.here.tape.clear();
      run.home.forget_gradients();
      run.x = X(numbers<bf16>(run.here, 1), run.here.tape);
      return dx;
    };
    const auto plain = gradient(whole);
    CHECK(same_bits(gradient([&](const X& x) { return recompute(whole, x); }), plain));
    CHECK(same_bits(gradient([&](const X& x) { return x + recompute(branch, x); }), plain));
  });
}

TEST_CASE("a norm of a constant gives its parameters' gradients, and nothing else") {
  for_each_run<double, F64>([](auto& run) {
    const auto x = Dense<double, 2>::constant(numbers<double>(run.here, 1), run.here.tape);
    const auto y = run.norm(x);
    const Size live = run.here.pool.live();
    run.here.tape.backward(y.slot(), numbers<double>(run.here, 3));
    CHECK(run.home.finished_reports() == static_cast<int>(run.home.entries().size()));
    CHECK(largest_of(elements(run.home.gradient(0))) > 0);
    CHECK(run.here.pool.live() < live);
    CHECK_FALSE(run.here.tape.has_gradient(run.x.slot()));
  });
}

TEST_CASE("an x whose backward has run, of another pass or tape, or of inside a recompute is an error sentence") {
  for_each_run<double, F64>([](auto& run) {
    using X = Dense<double, 2>;
    Tape<Cpu> other(run.here.context);
    const auto words_of = [&](const X& stranger) {
      try {
        const auto y = run.x + run.norm(X::with_slot(stranger.value(), run.here.tape, stranger.slot(), 0));
        run.here.tape.backward(y.slot(), numbers<double>(run.here, 3));
      } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::state);
        return std::string(error.what());
      }
      return std::string();
    };
    const auto starts_anew = [&] {
      run.here.tape.clear();
      run.x = X(numbers<double>(run.here, 1), run.here.tape);
    };
    const X of_another(numbers<double>(run.here, 4), other), carried = run.x;
    CHECK(words_of(of_another).find("is of another tape") != std::string::npos);
    starts_anew();
    CHECK(words_of(carried).find("an earlier pass of the tape") != std::string::npos);
    starts_anew();
    const X used = 2.0 * run.x;
    run.here.tape.backward(used.slot(), numbers<double>(run.here, 3));
    CHECK(words_of(used).find("that has run") != std::string::npos);
    starts_anew();
    X inside;
    const auto leak = [&](const X& x) { return inside = 2.0 * x; };
    recompute(leak, run.x);
    CHECK(words_of(inside).find("needs to stay inside") != std::string::npos);
  });
}
