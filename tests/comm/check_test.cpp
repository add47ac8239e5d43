// SPDX-License-Identifier: Apache-2.0
// The checks of each operation's arguments: each limit exactly, and one beyond it.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include <dspp/comm/check.hpp>

using namespace dspp;
using namespace dspp::detail;

namespace {

template <class F>
std::string refusal_of(F check) {
  try {
    check();
  } catch (const Error& error) {
    const std::string sentence = error.what();
    REQUIRE(sentence.starts_with("dspp: "));
    return sentence.substr(6);
  }
  return "none";
}

constexpr ElementType f32 = ElementType::f32, f64 = ElementType::f64, u8 = ElementType::u8;
Buffer out(Size count, ElementType type = f32) {
  return {nullptr, count, type};
}
ConstBuffer in(Size count, ElementType type = f32) {
  return {nullptr, count, type};
}

}  // namespace

TEST_CASE("a rank, a root and a peer must be in the group, and a peer must be another rank") {
  for (const int good : {0, 2}) {
    CHECK(refusal_of([&] { check_rank(good, 3); }) == "none");
    CHECK(refusal_of([&] { check_broadcast(out(0), good, 3); }) == "none");
    CHECK(refusal_of([&] { check_send(in(0), good, 1, 3); }) == "none");
    CHECK(refusal_of([&] { check_receive(out(0), good, 1, 3); }) == "none");
  }
  for (const int bad : {-1, 3}) {
    CHECK(refusal_of([&] { check_rank(bad, 3); }).starts_with("a group of 3 ranks needs a rank from 0 to 2, but got "));
    CHECK(refusal_of([&] { check_broadcast(out(0), bad, 3); }).starts_with("broadcast over 3 ranks needs a root from"));
    CHECK(refusal_of([&] { check_send(in(0), bad, 1, 3); }).starts_with("send needs another rank of its group of 3"));
    CHECK(refusal_of([&] { check_receive(out(0), bad, 1, 3); }).starts_with("receive needs another rank of its group"));
  }
  CHECK(refusal_of([] { check_send(in(1), 1, 1, 3); }).ends_with("Name a rank from 0 to 2 that is not its own."));
  CHECK(refusal_of([] { check_receive(out(1), 1, 1, 3); }).ends_with("Name a rank from 0 to 2 that is not its own."));
  CHECK(refusal_of([] { check_send(in(1), 0, 0, 1); }).ends_with("A group of one has none."));
}

TEST_CASE("a count may be 0 but not negative") {
  CHECK(refusal_of([] { check_all_reduce(out(0)); }) == "none");
  CHECK(refusal_of([] { check_reduce_scatter(in(0), out(0), 2); }) == "none");
  CHECK(refusal_of([] { check_all_gather(in(0), out(0), 2); }) == "none");
  CHECK(refusal_of([] { check_all_to_all(in(0), out(0), {}, 2); }) == "none");
  const auto negative = [](const char* who) {
    return std::string(who) + " needs a count of at least 0, but got -1. Check the extents that it was computed from.";
  };
  CHECK(refusal_of([] { check_all_reduce(out(-1)); }) == negative("all_reduce"));
  CHECK(refusal_of([] { check_reduce_scatter(in(-2), out(-1), 2); }) == negative("reduce_scatter"));
  CHECK(refusal_of([] { check_all_gather(in(-1), out(-2), 2); }) == negative("all_gather"));
  CHECK(refusal_of([] { check_all_to_all(in(-1), out(4), {}, 2); }) == negative("all_to_all"));
  CHECK(refusal_of([] { check_all_to_all(in(4), out(-1), {}, 2); }) == negative("all_to_all"));
  CHECK(refusal_of([] { check_broadcast(out(-1), 0, 2); }) == negative("broadcast"));
  CHECK(refusal_of([] { check_send(in(-1), 0, 1, 2); }) == negative("send"));
  CHECK(refusal_of([] { check_receive(out(-1), 0, 1, 2); }) == negative("receive"));
}

TEST_CASE("types must be equal, counts must match, and u8 is not summed") {
  CHECK(refusal_of([] { check_reduce_scatter(in(6), out(3), 2); }) == "none");
  CHECK(refusal_of([] { check_all_gather(in(3, u8), out(6, u8), 2); }) == "none");
  CHECK(refusal_of([] { check_all_to_all(in(6), out(6), {}, 2); }) == "none");
  CHECK(refusal_of([] { check_all_reduce(out(1, u8)); }).starts_with("all_reduce needs elements that can be summed"));
  CHECK(
      refusal_of([] { check_reduce_scatter(in(2, u8), out(1, u8), 2); }).starts_with("reduce_scatter needs elements"));
  CHECK(refusal_of([] { check_reduce_scatter(in(6, f64), out(3), 2); }) ==
        "reduce_scatter needs in and out of one element type, but got f64 and f32. Cast one of them first.");
  CHECK(refusal_of([] { check_all_gather(in(3), out(6, f64), 2); }).starts_with("all_gather needs in and out of one"));
  CHECK(refusal_of([] { check_all_to_all(in(6), out(6, f64), {}, 2); }).starts_with("all_to_all needs in and out of"));
  CHECK(refusal_of([] { check_reduce_scatter(in(7), out(3), 2); }) ==
        "reduce_scatter over 2 ranks needs in.count == 2 x out.count, but got 7 and 3. Pad to a multiple of the ranks, "
        "or pass matching buffers.");
  CHECK(refusal_of([] { check_all_gather(in(3), out(5), 2); }).starts_with("all_gather over 2 ranks needs out.count"));
  CHECK(refusal_of([] { check_all_to_all(in(6), out(4), {}, 2); }) ==
        "all_to_all of equal parts needs in.count == out.count, but got 6 and 4. Pass matching buffers, or give the "
        "parts.");
  CHECK(refusal_of([] { check_all_to_all(in(5), out(5), {}, 2); }) ==
        "all_to_all over 2 ranks needs in.count to be a multiple of 2, but got 5. Pad it, or give the parts.");
}

TEST_CASE("an all-to-all needs one part per rank, none negative, that add up") {
  const auto refusal = [](std::vector<Size> sent, std::vector<Size> received) {
    return refusal_of([&] { check_all_to_all(in(4), out(3), PartCounts{sent, received}, 2); });
  };
  CHECK(refusal({4, 0}, {1, 2}) == "none");
  CHECK(
      refusal({4}, {1, 2}).starts_with("all_to_all over 2 ranks needs 2 parts sent of at least 0 that add up to in."));
  CHECK(refusal({3, 1}, {1, 2, 0})
            .find("parts received of at least 0 that add up to out.count, but got {1, 2, 0} for 3") !=
        std::string::npos);
  CHECK(refusal({5, -1}, {1, 2}).find("{5, -1} for 4") != std::string::npos);
  CHECK(refusal({4, 1}, {1, 2}).find("{4, 1} for 4") != std::string::npos);
}

TEST_CASE("elements need memory that does not overlap by a byte or is the rank's own slice") {
  float x[12] = {};
  const auto at = [&](int first, Size count) { return ConstBuffer(buffer(x + first, count)); };
  const std::string no_memory = "all_gather needs memory to work on, but got a null pointer for 3 elements. ";
  CHECK(refusal_of([] { check_memory("all_gather", nullptr, 0); }) == "none");
  CHECK(refusal_of([&] { check_memory("all_gather", x, 3); }) == "none");
  CHECK(refusal_of([] { check_memory("all_gather", nullptr, 3); }).starts_with(no_memory));

  const auto place = [&](const ConstBuffer& part, const ConstBuffer& whole) {
    return refusal_of([&] { check_place("all_gather", "in", "out", part, whole, 1); });
  };
  CHECK(place(at(0, 3), at(3, 6)) == "none");
  CHECK(place(at(9, 3), at(3, 6)) == "none");
  CHECK(place(at(6, 3), at(3, 6)) == "none");
  for (const int overlapping : {1, 3, 5, 7, 8})
    CHECK(place(at(overlapping, 3), at(3, 6)) ==
          "all_gather needs in and out apart, or in exactly as slice rank() of out, but they overlap otherwise. Give "
          "them memory of their own.");
  CHECK(place(in(3), at(3, 6)).starts_with(no_memory));
  CHECK(place(at(0, 6), in(3)).starts_with(no_memory));

  const auto apart = [&](const ConstBuffer& a, const ConstBuffer& b) {
    return refusal_of([&] { check_apart("all_to_all", a, b); });
  };
  CHECK(apart(at(0, 3), at(3, 3)) == "none");
  CHECK(apart(at(3, 3), at(0, 3)) == "none");
  CHECK(apart(at(1, 0), at(0, 3)) == "none");
  CHECK(apart(at(0, 3), at(1, 0)) == "none");
  for (const int overlapping : {1, 2, 3, 4, 5})
    CHECK(apart(at(overlapping, 3), at(3, 3)) ==
          "all_to_all needs in and out apart, but they overlap. Give them memory of their own.");
}
