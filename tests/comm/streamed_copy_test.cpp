// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <dspp/comm/threads/streamed_copy.hpp>

TEST_CASE("a copy past the caches has the bytes of its range alone, wherever both ends lie in their lines") {
  using dspp::Size;
  std::vector<std::byte> from(512), to(512), expected(512);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
  for (std::size_t in = 0; in < 64; in += 5)
    for (std::size_t out = 0; out <= 64; ++out)
      for (const std::size_t bytes : std::array<std::size_t, 10>{0, 1, 63, 64, 65, 127, 128, 129, 191, 300}) {
        std::fill(to.begin(), to.end(), std::byte{0});
        expected = to;
        for (std::size_t i = 0; i < bytes; ++i) expected[out + i] = from[in + i];
        dspp::detail::streamed_copy(to.data() + out, from.data() + in, static_cast<Size>(bytes));
        if (to != expected) FAIL_CHECK(in, " ", out, " ", bytes);
      }
}
