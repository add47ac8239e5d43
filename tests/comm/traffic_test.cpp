// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <dspp/comm/traffic.hpp>

using namespace dspp;

namespace {

constexpr Traffic example() {
  Traffic t;
  t.count(Collective::all_reduce, Purpose::gradient, 100);
  t.count(Collective::all_reduce, Purpose::scalar, 4);
  t.count(Collective::all_gather, Purpose::gradient, 7);
  t.count(Collective::all_gather, Purpose::gradient, 8);
  return t;
}

}  // namespace

TEST_CASE("traffic is summed by collective and by purpose") {
  constexpr Traffic t = example();
  static_assert(t.bytes(Collective::all_reduce, Purpose::gradient) == 100);
  static_assert(t.bytes(Collective::all_reduce) == 104);
  static_assert(t.bytes(Purpose::gradient) == 115);
  static_assert(t.calls(Collective::all_gather, Purpose::gradient) == 2);
  static_assert(t.calls(Collective::all_reduce) == 2);
  static_assert(t.total() == 119);
  CHECK(t.bytes(Collective::broadcast) == 0);
}

TEST_CASE("traffic adds, subtracts and compares") {
  constexpr Traffic t = example();
  constexpr Traffic twice = t + t;
  static_assert(twice.total() == 238);
  static_assert(twice - t == t);
  static_assert(t.only(Purpose::gradient).total() == 115);
  CHECK(twice.total() == 238);
  CHECK(twice.calls(Collective::all_gather) == 4);
  CHECK(twice - t == t);
  CHECK(twice != t);
  Traffic calls = t;
  calls.count(Collective::barrier, Purpose::check, 0);
  CHECK(calls != t);
  CHECK(calls.total() == t.total());
  Traffic next;
  next.count(Collective::reduce_scatter, Purpose::activation, 5);
  CHECK(next.bytes(Collective::all_reduce) == 0);
  CHECK(next.calls(Collective::reduce_scatter) == 1);
}

TEST_CASE("collectives and purposes have the names of their enumerators") {
  CHECK(std::string(name_of(Collective::reduce_scatter)) == "reduce_scatter");
  CHECK(std::string(name_of(Collective::barrier)) == "barrier");
  CHECK(std::string(name_of(Purpose::activation)) == "activation");
  CHECK(std::string(name_of(Purpose::replicated_gradient)) == "replicated_gradient");
  CHECK(std::string(name_of(Purpose::checkpoint)) == "checkpoint");
  CHECK(std::string(name_of(Purpose::check)) == "check");
}

TEST_CASE("the traffic of one purpose and of all others add up") {
  Traffic t;
  t.count(Collective::all_gather, Purpose::check, 8);
  t.count(Collective::reduce_scatter, Purpose::check, 100);
  t.count(Collective::reduce_scatter, Purpose::gradient, 1000);
  CHECK(t.only(Purpose::check).total() == 108);
  CHECK(t.only(Purpose::check).calls(Collective::reduce_scatter) == 1);
  CHECK(t.without(Purpose::check).total() == 1000);
  CHECK(t.only(Purpose::check) + t.without(Purpose::check) == t);
}
