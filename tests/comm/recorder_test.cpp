// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <vector>

#include <dspp/comm.hpp>

using namespace dspp;

namespace {

constexpr Buffer on_paper(Size count, ElementType type = ElementType::f32) {
  return {nullptr, count, type};
}

constexpr Traffic plan_everything(int rank, int size) {
  Recorder<> c(rank, size);
  all_reduce(c, on_paper(10), Purpose::gradient);
  reduce_scatter(c, on_paper(6 * size), on_paper(6), Purpose::gradient);
  all_gather(c, on_paper(3, ElementType::bf16), on_paper(3 * size, ElementType::bf16), Purpose::parameter);
  broadcast(c, on_paper(5, ElementType::f64), 1, Purpose::checkpoint);
  const GatherPair pairs[] = {{on_paper(2), on_paper(2 * size)},
                              {on_paper(1, ElementType::u8), on_paper(size, ElementType::u8)}};
  all_gather(c, pairs, Purpose::parameter);
  const Size sent[] = {0, 7, 1, 2}, received[] = {4, 0, 0, 9};
  all_to_all(c, on_paper(10), on_paper(13), {std::span(sent).first(4), received}, Purpose::activation);
  c.barrier();
  return c.traffic();
}

constexpr Traffic first = plan_everything(0, 4), last = plan_everything(3, 4);

}  // namespace

TEST_CASE("a Recorder has the sum order that it is given, and alone the exact one") {
  static_assert(Recorder<>(0, 2).sum_order() == SumOrder::rank);
  static_assert(Recorder<>(0, 1).sum_order() == SumOrder::exact);
}

TEST_CASE("a Recorder on paper plans its traffic in a constant expression") {
  static_assert(first.bytes(Collective::all_reduce) == (3 * 2 + 8) * 4);  // slice [0, 2) of 10
  static_assert(last.bytes(Collective::all_reduce) == (3 * 3 + 7) * 4);   // slice [7, 10)
  static_assert(first.bytes(Collective::reduce_scatter, Purpose::gradient) == 3 * 6 * 4);
  static_assert(first.bytes(Collective::all_gather, Purpose::parameter) == 3 * (3 * 2 + 2 * 4 + 1));
  static_assert(first.calls(Collective::all_gather, Purpose::parameter) == 2);
  static_assert(first.bytes(Collective::broadcast, Purpose::checkpoint) == 40);
  static_assert(plan_everything(1, 4).bytes(Collective::broadcast) == 0);
  static_assert(first.bytes(Collective::all_to_all) == 9 * 4 && last.bytes(Collective::all_to_all) == 4 * 4);
  CHECK(plan_everything(0, 4) == first);
}

TEST_CASE("the ranks of an all-reduce together read 2 (N-1) n elements") {
  for (int size : {2, 3, 4, 7, 64}) {
    Size total = 0;
    for (int r = 0; r < size; ++r) {
      Recorder<> c(r, size);
      all_reduce(c, on_paper(1000), Purpose::gradient);
      total += c.traffic().total();
    }
    CHECK(total == 2 * (size - 1) * 1000 * 4);
  }
}

TEST_CASE("a Recorder on paper checks its arguments") {
  Recorder<> c(1, 4);
  CHECK_THROWS_WITH_AS(reduce_scatter(c, on_paper(10), on_paper(3), Purpose::gradient),
                       "dspp: reduce_scatter over 4 ranks needs in.count == 4 x out.count, but got 10 and 3. Pad to a "
                       "multiple of the ranks, or pass matching buffers.",
                       Error);
  CHECK_THROWS_AS(all_reduce(c, on_paper(10, ElementType::u8), Purpose::gradient), Error);
  CHECK_THROWS_AS(broadcast(c, on_paper(10), 4, Purpose::gradient), Error);
  CHECK_THROWS_AS(Recorder<>(4, 4), Error);
  CHECK(c.traffic() == Traffic{});
}

TEST_CASE("the copies of an erased Recorder on paper share their traffic") {
  AnyCommunicator a(Recorder<>(0, 2));
  AnyCommunicator b = a;
  all_reduce(b, on_paper(4), Purpose::scalar);
  CHECK(a.traffic().bytes(Collective::all_reduce, Purpose::scalar) == 16);
  REQUIRE(a.get_if<Recorder<>>() != nullptr);
  CHECK(a.get_if<Recorder<>>()->traffic() == b.traffic());
  CHECK(a.get_if<Self>() == nullptr);
  CHECK(a.size() == 2);
}
