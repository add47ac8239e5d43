// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <dspp/base/profiler.hpp>

using namespace dspp;

namespace {

const char* const first_kernel = "first";
const char* const second_kernel = "second";
const int first_parameter = 0, second_parameter = 0;

void work(Profiler& profiler, const char* name, Size bytes = 0) {
  const ProfiledKernel profiled(&profiler, name, bytes);
}

const Profiler::Row& row_of(const Profiler& profiler, const char* name, const void* parameter) {
  for (const Profiler::Row& row : profiler.rows())
    if (row.name == name && row.parameter == parameter) return row;
  FAIL("no row of ", name);
  return profiler.rows().front();
}

}  // namespace

TEST_CASE("work of one name in one place is one row, which sums what it was told of") {
  Profiler profiler;
  for (int i = 0; i < 3; ++i) {
    profiler.count_flops(10);
    profiler.count_bytes(7);
    work(profiler, first_kernel, 1);
  }
  work(profiler, second_kernel);
  REQUIRE(profiler.rows().size() == 2);
  const Profiler::Row& row = profiler.rows().front();
  CHECK(row.calls == 3);
  CHECK(row.flops == 30);
  CHECK(row.bytes == 24);
  CHECK(row.nanoseconds >= 0);
  CHECK(row.range == -1);
  CHECK(profiler.rows().back().flops == 0);
  CHECK(profiler.rows().back().bytes == 0);
}

TEST_CASE("work belongs to the parameter used last until its operation ends, and to the innermost range") {
  Profiler profiler;
  const std::uint64_t outer = profiler.begin_range("forward", "");
  const std::uint64_t inner = profiler.begin_range("forward", "blocks.0");
  profiler.use(&first_parameter);
  work(profiler, first_kernel);
  profiler.use(&second_parameter);
  work(profiler, first_kernel);
  profiler.end_operation();
  work(profiler, first_kernel);
  profiler.use(&first_parameter);
  profiler.end_range(inner);
  work(profiler, second_kernel);
  profiler.end_range(outer);
  work(profiler, second_kernel, 3);

  const auto name_of_range = [&](const Profiler::Row& row) {
    return row.range < 0 ? std::string("none") : profiler.ranges()[static_cast<std::size_t>(row.range)].name;
  };
  CHECK(row_of(profiler, first_kernel, &first_parameter).calls == 1);
  CHECK(row_of(profiler, first_kernel, &second_parameter).calls == 1);
  CHECK(name_of_range(row_of(profiler, first_kernel, nullptr)) == "blocks.0");
  const Profiler::Row& between = row_of(profiler, second_kernel, nullptr);
  CHECK(name_of_range(between).empty());
  CHECK(between.calls == 1);
  CHECK(name_of_range(profiler.rows().back()) == "none");
  CHECK(profiler.rows().back().bytes == 3);
}

TEST_CASE("the end of a range ends those that began in it, and an old number ends nothing") {
  Profiler profiler(10);
  const std::uint64_t outer = profiler.begin_range("backward", "outer");
  const std::uint64_t forgotten = profiler.begin_range("backward", "inner");
  profiler.end_range(outer);
  CHECK(profiler.events().size() == 2);
  profiler.end_range(forgotten);
  CHECK(profiler.events().size() == 2);
  work(profiler, first_kernel);
  CHECK(profiler.rows().back().range == -1);
}

TEST_CASE("work within work is the outer one's, also if something throws") {
  Profiler profiler(10);
  try {
    const ProfiledKernel outer(&profiler, first_kernel);
    profiler.count_flops(5);
    const ProfiledKernel inner(&profiler, second_kernel, 8);
    throw 1;
  } catch (int) {
  }
  REQUIRE(profiler.events().size() == 1);
  CHECK(row_of(profiler, first_kernel, nullptr).calls == 1);
  work(profiler, second_kernel);
  CHECK(row_of(profiler, second_kernel, nullptr).calls == 1);
}

TEST_CASE("events are kept up to their number, in order, and the others are counted") {
  Profiler profiler(3);
  for (int i = 0; i < 5; ++i) work(profiler, first_kernel);
  REQUIRE(profiler.events().size() == 3);
  CHECK(profiler.lost_events() == 2);
  CHECK(profiler.rows().front().calls == 5);
  for (std::size_t i = 0; i < 3; ++i) {
    const Profiler::Event& event = profiler.events()[i];
    CHECK(event.row == 0);
    CHECK(event.begin <= event.end);
    CHECK(event.begin >= (i == 0 ? 0 : profiler.events()[i - 1].end));
    CHECK(event.end <= profiler.now());
  }
}

TEST_CASE("without a profiler a kernel tells nobody") {
  const ProfiledKernel profiled(nullptr, first_kernel, 3);
}

TEST_CASE("what an error kept from its launch is not counted to the next kernel") {
  Profiler profiler;
  const std::uint64_t range = profiler.begin_range("forward", "");
  profiler.count_flops(5);
  profiler.count_bytes(7);
  profiler.end_range(range);
  work(profiler, first_kernel);
  CHECK(row_of(profiler, first_kernel, nullptr).flops == 0);
  CHECK(row_of(profiler, first_kernel, nullptr).bytes == 0);
}

TEST_CASE("stopped, it ends its ranges and hears nothing more") {
  Profiler profiler(10);
  profiler.begin_range("forward", "");
  work(profiler, first_kernel);
  profiler.stop();
  const std::int64_t elapsed = profiler.elapsed();
  REQUIRE(profiler.events().size() == 2);
  profiler.end_range(profiler.begin_range("backward", ""));
  work(profiler, second_kernel);
  profiler.stop();
  CHECK(profiler.events().size() == 2);
  CHECK(profiler.elapsed() == elapsed);
}
