// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include <dspp/data/sample_order.hpp>

using namespace dspp;

namespace {

std::vector<Size> epoch_of(std::uint64_t seed, Size epoch, Size samples) {
  std::vector<Size> order;
  for (Size i = 0; i < samples; ++i) order.push_back(data::sample_at(seed, epoch * samples + i, samples));
  return order;
}

std::vector<Size> in_order(Size samples) {
  std::vector<Size> all(static_cast<std::size_t>(samples));
  std::iota(all.begin(), all.end(), Size{0});
  return all;
}

}  // namespace

TEST_CASE("every epoch takes every sample once") {
  for (const Size samples : {1, 2, 3, 4, 15, 16, 17, 63, 64, 65, 100, 1000, 5000}) {
    for (const Size epoch : {Size{0}, Size{1}, Size{7}, Size{1} << 33}) {
      CAPTURE(samples);
      CAPTURE(epoch);
      std::vector<Size> order = epoch_of(11, epoch, samples);
      std::sort(order.begin(), order.end());
      CHECK(order == in_order(samples));
    }
  }
}

TEST_CASE("epochs and seeds have different, reproducible orders") {
  const auto first = epoch_of(1, 0, 1000);
  CHECK(first != in_order(1000));
  CHECK(epoch_of(1, 0, 1000) == first);
  CHECK(epoch_of(1, 1, 1000) != first);
  CHECK(epoch_of(2, 0, 1000) != first);
  CHECK(epoch_of(1, Size{1} << 32, 1000) != first);  // the generator's counter for steps ends here
  CHECK(epoch_of(std::uint64_t{1} << 32 | 1, 0, 1000) != first);
  // A change of these numbers changes the order of every resumed run.
  static_assert(data::sample_at(1, 0, 1000) == 748 && data::sample_at(1, 1, 1000) == 956 &&
                data::sample_at(1, 5000, 1000) == 19);
}

TEST_CASE("over the epochs each sample is equally often at each position") {
  for (const Size samples : {3, 5, 20}) {
    CAPTURE(samples);
    const Size epochs = 1000 * samples;
    std::vector<int> counts(static_cast<std::size_t>(samples * samples));
    for (Size epoch = 0; epoch < epochs; ++epoch) {
      const auto order = epoch_of(4, epoch, samples);
      for (Size i = 0; i < samples; ++i)
        ++counts[static_cast<std::size_t>(i * samples + order[static_cast<std::size_t>(i)])];
    }
    for (const int count : counts) CHECK(std::abs(count - 1000) < 160);  // five deviations of 31.6
  }
}

TEST_CASE("neighbours in an epoch are not neighbours in the data") {
  const auto order = epoch_of(9, 0, 20000);
  double product = 0;
  int runs = 0;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    product += (static_cast<double>(order[i]) / 9999.5 - 1) * (static_cast<double>(order[i + 1]) / 9999.5 - 1);
    runs += order[i + 1] == order[i] + 1;
  }
  CHECK(std::abs(product / 20000) < 5.0 / 3 / std::sqrt(20000.0));  // each factor has a variance of a third
  CHECK(runs < 8);                                                  // one is expected
}

TEST_CASE("as many samples as disks hold") {
  constexpr Size many = (Size{1} << 40) + 12345;
  std::vector<Size> seen;
  for (Size i = 0; i < 2000; ++i) seen.push_back(data::sample_at(3, many + i, many));
  CHECK(*std::min_element(seen.begin(), seen.end()) >= 0);
  CHECK(*std::max_element(seen.begin(), seen.end()) < many);
  CHECK(*std::max_element(seen.begin(), seen.end()) > many / 100 * 99);
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  CHECK_THROWS_AS(data::sample_at(1, 0, 0), Error);
  CHECK_THROWS_AS(data::sample_at(1, -1, 5), Error);
  CHECK_THROWS_AS(data::sample_at(1, 0, (Size{1} << 60) + 1), Error);
}
