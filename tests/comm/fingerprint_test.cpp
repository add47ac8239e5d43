// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/comm/fingerprint.hpp>

using namespace dspp;
using namespace dspp::detail;

TEST_CASE("a fingerprint that was read agrees with the call that was written, and with no other") {
  const Posted call{Collective::broadcast,
                    Purpose::checkpoint,
                    3,
                    {{nullptr, nullptr, 1LL << 40, ElementType::bf16}, {nullptr, nullptr, 0, ElementType::u8}}};
  Fingerprint words;
  write_fingerprint(call, words);
  CHECK_FALSE(is_last(words));
  Posted read;
  read_fingerprint(words, read);
  CHECK(read.agrees_with(call));
  for (std::size_t i = 0; i < words.size(); ++i) {
    Fingerprint other = words;
    ++other[i];
    read_fingerprint(other, read);
    CHECK_FALSE(read.agrees_with(call));
  }
  CHECK(is_last(last_fingerprint()));
}
