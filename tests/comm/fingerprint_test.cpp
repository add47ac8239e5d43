// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/comm/fingerprint.hpp>

using namespace dspp;
using namespace dspp::detail;

TEST_CASE("a decoded fingerprint equals the call that was encoded, and no other") {
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

TEST_CASE("the call site is sent after the fingerprint: lines, and names as far as they fit") {
  const Posted call{Collective::all_reduce, Purpose::gradient, 0, {{nullptr, nullptr, 7, ElementType::f32}}};
  Fingerprint alone, words;
  write_fingerprint(call, alone);
  const std::string longest(longest_site_name, 'n'), longer = "/x/" + longest + "n";
  for (const CallPlace& at : {CallPlace{{"/a/b/c.cpp", 1}, {"d.hpp", 1 << 30}}, CallPlace{},
                              CallPlace{{longest.c_str(), 3}, {longer.c_str(), 4}}}) {
    write_fingerprint(call, words);
    add_place(at, words);
    PlaceNames names;
    const CallPlace read = take_place(words, names);
    CHECK(words == alone);
    CHECK(describe(read) == describe(at));
    CHECK(static_cast<bool>(read.inner) == static_cast<bool>(at.inner));
  }
  CHECK(describe(CallSite{longer.c_str(), 4}) == longest + ":4");
  CHECK(describe(CallSite{"/home/me/examples/train.cpp", 5}) == "examples/train.cpp:5");
}
