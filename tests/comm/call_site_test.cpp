// SPDX-License-Identifier: Apache-2.0
// Descriptions of call sites: the file and its folder; the end of a long name.
#include <doctest/doctest.h>

#include <string>

#include <dspp/comm/call_site.hpp>

using namespace dspp;
using namespace dspp::detail;

namespace {

CallSite site(const char* file, int line) {
  return CallSite::here(file, line);
}

}  // namespace

TEST_CASE(
    "a file is named with its folder, without it if that is too long, and by its end if the file name is too long") {
  const std::string letters(longest_site_name, 'x'), longer = letters + "y";
  CHECK(short_name(site(nullptr, 1)) == "");
  CHECK(short_name(site("a.cpp", 1)) == "a.cpp");
  CHECK(short_name(site("/a.cpp", 1)) == "/a.cpp");
  CHECK(short_name(site("b/a.cpp", 1)) == "b/a.cpp");
  CHECK(short_name(site("/b/a.cpp", 1)) == "b/a.cpp");
  CHECK(short_name(site("/c/b/a.cpp", 1)) == "b/a.cpp");
  CHECK(short_name(site(letters.c_str(), 1)) == letters);
  CHECK(short_name(site(("b/" + letters.substr(2)).c_str(), 1)) == "b/" + letters.substr(2));  // as long as may be
  CHECK(short_name(site(longer.c_str(), 1)) == longer.substr(1));
  CHECK(short_name(site(("b/" + letters).c_str(), 1)) == letters);
  CHECK(short_name(site(("b/" + longer).c_str(), 1)) == longer.substr(1));
}

TEST_CASE("a call site is the call of the program and, if different, the one within dspp") {
  const CallSite outer = site("b/a.cpp", 7), inner = site("d/c.hpp", 9);
  CHECK(describe(CallPlace{}) == "");
  CHECK(at_place(CallPlace{}) == "");
  CHECK(describe(CallPlace{outer, outer}) == "b/a.cpp:7");
  CHECK(describe(CallPlace{outer, CallSite{}}) == "b/a.cpp:7");
  CHECK(at_place(CallPlace{outer, inner}) == " at b/a.cpp:7 (d/c.hpp:9)");
  CHECK(place_of(outer).outer == outer);
  CHECK(place_of(outer).inner == outer);
  {
    const CalledAt called(outer);
    CHECK(place_of(inner).outer == outer);
    CHECK(place_of(inner).inner == inner);
    const CalledAt within(inner);
    CHECK(place_of(site("x", 1)).outer == outer);
    CHECK(place_of(site("x", 1)).inner == inner);
    CHECK_FALSE(place_of(site("x", 1)).inner == outer);
  }
  CHECK(place_of(inner).outer == inner);
}
