// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/optim/sgd.hpp>

#include <laws/update.hpp>

using namespace dspp;

/// The example of the concept IsOptimizer.
struct SignSgd {
  static constexpr int moment_count = 0;
  double lr = 1e-3;
  template <class S>
  auto rule(const UpdateScalars& scalars) const {
    return [rate = static_cast<S>(scalars.lr)](auto& block) {
      for (int k = 0; k < block.length; ++k)
        block.new_value[k] = block.value[k] - (block.gradient[k] > 0 ? rate : -rate);
    };
  }
};
static_assert(IsOptimizer<SignSgd>);

TEST_CASE("a user's rule updates values, and rounds parameters from masters") {
  double parameter[3] = {1, -2, 5}, gradient[3] = {4, -8, 0.5};
  laws::update(SignSgd{}, FlatRange<double, double, double>{gradient, parameter, nullptr, {}, 3}, {.lr = 0.25});
  CHECK(parameter[0] == 0.75);
  CHECK(parameter[1] == -1.75);
  CHECK(parameter[2] == 4.75);
  float master[2] = {1, -2}, slope[2] = {4, -8};
  bf16 rounded[2] = {bf16(1.0f), bf16(-2.0f)};
  laws::update(SignSgd{}, FlatRange<bf16, float, float>{slope, rounded, master, {}, 2}, {.lr = 1.0 / 1024});
  CHECK(master[0] == 1 - 1.0f / 1024);
  CHECK(rounded[0].bits == bf16(master[0]).bits);
  CHECK(rounded[1].bits == bf16(master[1]).bits);
}

/// Does not write elements without a gradient.
struct Sparse {
  static constexpr int moment_count = 1;
  double lr = 1;
  template <class S>
  auto rule(const UpdateScalars&) const {
    return [](auto& block) {
      for (int k = 0; k < block.length; ++k) {
        if (!(block.gradient[k] > 0 || block.gradient[k] < 0)) continue;
        block.new_value[k] = block.value[k] - block.gradient[k];
        block.new_moments[0][k] = block.moments[0][k] + 1;
      }
    };
  }
};
static_assert(IsOptimizer<Sparse>);

TEST_CASE("values that a rule does not write are unchanged") {
  constexpr std::size_t count = 100;
  std::vector<double> parameter(count), gradient(count), moment(count);
  for (std::size_t i = 0; i < count; ++i)
    parameter[i] = moment[i] = static_cast<double>(i), gradient[i] = i % 7 == 1 ? 1 : 0;
  laws::update(Sparse{},
               FlatRange<double, double, double>{gradient.data(), parameter.data(), nullptr, {moment.data()}, count},
               {});
  for (std::size_t i = 0; i < count; ++i) {
    CHECK(parameter[i] == static_cast<double>(i) - gradient[i]);
    CHECK(moment[i] == static_cast<double>(i) + gradient[i]);
  }
}

TEST_CASE("Sgd goes against the scaled gradient and the decayed parameter") {
  double parameter[2] = {1, -2}, gradient[2] = {4, 8};
  laws::update(Sgd{.weight_decay = 0.5}, FlatRange<double, double, double>{gradient, parameter, nullptr, {}, 2},
               {.lr = 0.25, .gradient_scale = 0.5});
  CHECK(parameter[0] == 1 - 0.25 * (2 + 0.5));
  CHECK(parameter[1] == -2 - 0.25 * (4 - 1));
  laws::update(Sgd{.weight_decay = 0.5}, FlatRange<double, double, double>{gradient, parameter, nullptr, {}, 1},
               {.lr = 0.25, .decay = false});
  CHECK(parameter[0] == 0.375 - 0.25 * 4);
}

TEST_CASE("MomentumSgd adds up gradients as torch.optim.SGD does") {
  double parameter = 1, moment = 0;
  const double gradient = 2;
  const MomentumSgd rule{.momentum = 0.5};
  const FlatRange<double, double, double> range{&gradient, &parameter, nullptr, {&moment, nullptr}, 1};
  laws::update(rule, range, {.step = 1, .lr = 0.125});
  CHECK(parameter == 0.75);  // m = 2
  laws::update(rule, range, {.step = 2, .lr = 0.125});
  CHECK(parameter == 0.375);  // m = 3
  laws::update(MomentumSgd{.momentum = 0.5, .nesterov = true}, range, {.step = 3, .lr = 0.125});
  CHECK(moment == 3.5);
  CHECK(parameter == 0.375 - 0.125 * (2 + 0.5 * 3.5));
}

TEST_CASE("the split of a shard into ranges changes no bit of SGD") {
  constexpr Size count = 1003;
  std::vector<bf16> whole(count), cut(count), gradient(count);
  std::vector<float> master(count), cut_master(count), moment(count), cut_moment(count);
  for (std::size_t i = 0; i < count; ++i) {
    master[i] = cut_master[i] = static_cast<float>(i) / 7;
    gradient[i] = bf16(static_cast<float>(i % 13) / 3);
    moment[i] = cut_moment[i] = static_cast<float>(i % 11) / 9;
  }
  const MomentumSgd rule{.weight_decay = 0.1};
  const UpdateScalars scalars{.step = 1, .lr = 0.3, .gradient_scale = 0.7};
  laws::update(
      rule, FlatRange<bf16, bf16, float>{gradient.data(), whole.data(), master.data(), {moment.data(), nullptr}, count},
      scalars);
  for (Size i = 0; i < count; i += 17)
    laws::update(rule,
                 FlatRange<bf16, bf16, float>{gradient.data() + i,
                                              cut.data() + i,
                                              cut_master.data() + i,
                                              {cut_moment.data() + i, nullptr},
                                              count - i < 17 ? count - i : 17},
                 scalars);
  CHECK(master == cut_master);
  CHECK(moment == cut_moment);
  bool rounded = true;
  for (std::size_t i = 0; i < count; ++i)
    rounded = rounded && whole[i].bits == bf16(master[i]).bits && cut[i].bits == whole[i].bits;
  CHECK(rounded);
}
