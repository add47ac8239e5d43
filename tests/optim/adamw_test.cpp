// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/optim/adamw.hpp>

#include <laws/difference.hpp>
#include <laws/update.hpp>
#include <laws/vjp.hpp>

using namespace dspp;

namespace {

/// Parameters, gradients and state of one shard.
template <class T, class G>
struct Shard {
  using S = Compute<T>;
  std::vector<T> parameter;
  std::vector<G> gradient;
  std::vector<S> master, first, second;

  explicit Shard(Size count) {
    const PhiloxStream numbers{{5}};
    for (Size i = 0; i < count; ++i) {
      master.push_back(static_cast<S>(philox_normal(numbers, i)));
      parameter.push_back(static_cast<T>(master.back()));
      gradient.push_back(static_cast<G>(philox_normal(numbers, count + i)));
      first.push_back(static_cast<S>(0.1f * philox_normal(numbers, 2 * count + i)));
      second.push_back(static_cast<S>(0.1f * philox_uniform(numbers, 3 * count + i)));
    }
  }
  FlatRange<T, G, S> range(Size begin, Size end) {
    FlatRange<T, G, S> r{gradient.data() + begin,
                         parameter.data() + begin,
                         nullptr,
                         {first.data() + begin, second.data() + begin},
                         end - begin};
    if constexpr (!std::is_same_v<T, S>) r.master = master.data() + begin;
    return r;
  }
  bool operator==(const Shard& other) const {
    return std::memcmp(parameter.data(), other.parameter.data(), parameter.size() * sizeof(T)) == 0 &&
           master == other.master && first == other.first && second == other.second;
  }
};

constexpr AdamW rule{.beta1 = 0.8, .beta2 = 0.95, .epsilon = 1e-6, .weight_decay = 0.1};
constexpr UpdateScalars scalars{.step = 3, .lr = 0.01, .gradient_scale = 0.5, .decay = true};

template <class T, class G>
void check_cuts() {
  const Size count = 40007;
  Shard<T, G> whole(count);
  laws::update(rule, whole.range(0, count), scalars);
  for (const Size piece : {1, 7, 31, 32, 33, 1000, 16385}) {
    Shard<T, G> cut(piece < 7 ? 300 : count), expected = piece < 7 ? Shard<T, G>(300) : whole;
    if (piece < 7) laws::update(rule, expected.range(0, 300), scalars);
    const auto length = static_cast<Size>(cut.parameter.size());
    for (Size begin = 0; begin < length; begin += piece)
      laws::update(rule, cut.range(begin, std::min(length, begin + piece)), scalars);
    CHECK(cut == expected);
  }
}

}  // namespace

TEST_CASE("the first step without decay moves every parameter by lr against its gradient's sign") {
  double parameter[2] = {1, -2}, gradient[2] = {0.3, -40}, first[2] = {}, second[2] = {};
  laws::update(AdamW{.epsilon = 0}, FlatRange<double, double, double>{gradient, parameter, nullptr, {first, second}, 2},
               {.step = 1, .lr = 0.1, .decay = false});
  CHECK(parameter[0] == doctest::Approx(0.9).epsilon(1e-14));
  CHECK(parameter[1] == doctest::Approx(-1.9).epsilon(1e-14));
  CHECK(first[0] == doctest::Approx(0.03).epsilon(1e-14));
  CHECK(second[1] == doctest::Approx(1.6).epsilon(1e-14));
}

TEST_CASE("AdamW is its formula, written with bias-corrected moments") {
  Shard<double, double> shard(100), before(100);
  laws::update(rule, shard.range(0, 100), scalars);
  for (std::size_t i = 0; i < 100; ++i) {
    const double g = 0.5 * before.gradient[i];
    const double m = 0.8 * before.first[i] + 0.2 * g, v = 0.95 * before.second[i] + 0.05 * g * g;
    const double m_hat = m / (1 - std::pow(0.8, 3)), v_hat = v / (1 - std::pow(0.95, 3));
    const double decayed = before.parameter[i] - 0.01 * 0.1 * before.parameter[i];
    CHECK(shard.first[i] == doctest::Approx(m).epsilon(1e-13));
    CHECK(shard.second[i] == doctest::Approx(v).epsilon(1e-13));
    CHECK(shard.parameter[i] == doctest::Approx(decayed - 0.01 * m_hat / (std::sqrt(v_hat) + 1e-6)).epsilon(1e-13));
  }
}

TEST_CASE("three steps give the numbers worked out with pencil and paper") {
  // beta1 = beta2 = 1/2, epsilon = 0, lr = 1/4, decay = 0; gradients 1, 1, -1:
  // m = 1/2, 3/4, -1/8; v = 1/2, 3/4, 7/8; corrections 1/2, 3/4, 7/8: steps 1, 1, (-1/7) / 1.
  double parameter = 2, first = 0, second = 0;
  const double gradients[3] = {1, 1, -1}, expected[3] = {1.75, 1.5, 1.5 + 0.25 / 7};
  const AdamW halves{.beta1 = 0.5, .beta2 = 0.5, .epsilon = 0, .weight_decay = 0};
  for (int t = 0; t < 3; ++t) {
    laws::update(halves, FlatRange<double, double, double>{gradients + t, &parameter, nullptr, {&first, &second}, 1},
                 {.step = t + 1, .lr = 0.25});
    CHECK(parameter == doctest::Approx(expected[t]).epsilon(1e-15));
  }
}

TEST_CASE("bf16 parameters are their f32 masters rounded, whatever the gradients' type") {
  Shard<bf16, float> wide(1000);
  Shard<bf16, bf16> narrow(1000);
  Shard<float, float> reference(1000);
  for (std::size_t i = 0; i < 1000; ++i) wide.gradient[i] = reference.gradient[i] = narrow.gradient[i];
  laws::update(rule, wide.range(0, 1000), scalars);
  laws::update(rule, narrow.range(0, 1000), scalars);
  laws::update(rule, reference.range(0, 1000), scalars);
  for (std::size_t i = 0; i < 1000; ++i) {
    CHECK(wide.master[i] == reference.parameter[i]);
    CHECK(narrow.master[i] == reference.parameter[i]);
    CHECK(wide.parameter[i].bits == bf16(wide.master[i]).bits);
    CHECK(narrow.parameter[i].bits == wide.parameter[i].bits);
  }
}

TEST_CASE("f32 follows f64 within 8 roundings of the parameter and the step") {
  Shard<float, float> single(1000);
  Shard<double, double> precise(1000);
  for (std::size_t i = 0; i < 1000; ++i) {  // the same numbers, which are f32 in both
    precise.gradient[i] = static_cast<double>(single.gradient[i]);
    precise.first[i] = static_cast<double>(single.first[i]);
    precise.second[i] = static_cast<double>(single.second[i]);
    precise.parameter[i] = static_cast<double>(single.parameter[i]);
  }
  laws::update(rule, single.range(0, 1000), scalars);
  laws::update(rule, precise.range(0, 1000), scalars);
  for (std::size_t i = 0; i < 1000; ++i)
    CHECK(laws::close(static_cast<double>(single.parameter[i]), precise.parameter[i], 8 * laws::rounding<float>));
}

TEST_CASE("the split of a shard into ranges changes no bit") {
  check_cuts<float, float>();
  check_cuts<bf16, float>();
  check_cuts<bf16, bf16>();
  check_cuts<double, double>();
}

TEST_CASE("the number of threads changes no bit of an update") {
  Pool pool;
  laws::check_threads([&] {
    Shard<float, float> shard(100001);
    laws::update(rule, shard.range(0, 100001), scalars);
    auto result = Tensor<float, 1, Cpu>::uninitialized(shape(100001), pool);
    std::copy(shard.parameter.begin(), shard.parameter.end(), result.data());
    return result;
  });
}

TEST_CASE("a range without decay is not decayed, and gradients of 0 do not change it") {
  float parameter = 3, gradient = 0, first = 0, second = 0;
  const FlatRange<float, float, float> range{&gradient, &parameter, nullptr, {&first, &second}, 1};
  laws::update(AdamW{}, range, {.step = 1, .lr = 0.1, .decay = false});
  CHECK(parameter == 3.0f);
  laws::update(AdamW{}, range, {.step = 2, .lr = 0.1, .decay = true});
  CHECK(parameter == doctest::Approx(3 * (1 - 0.1 * 0.01)));
}
