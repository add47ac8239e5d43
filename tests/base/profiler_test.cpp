// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>

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

namespace {

/// A device of two streams, whose moments come when the test says so.
class TestClock final : public StreamClock {
 public:
  struct Times {
    std::deque<std::int64_t> to_come;  ///< of the moments that are marked next
    std::uint64_t come = 0;            ///< moments below it have come
    std::int64_t known = 0;
    bool tells = false;
    std::vector<Transfer> transfers;
    int waits = 0;
  };
  explicit TestClock(std::shared_ptr<Times> times) : times_(std::move(times)) {}

  std::uint64_t mark() override {
    REQUIRE(!times_->to_come.empty());
    marked_.push_back(times_->to_come.front());
    times_->to_come.pop_front();
    return marked_.size() - 1;
  }
  std::optional<Moment> read() noexcept override {
    if (read_ == marked_.size() || read_ >= times_->come) return std::nullopt;
    const Moment moment{read_, marked_[read_]};
    ++read_;
    return moment;
  }
  std::int64_t known_until() const noexcept override { return times_->known; }
  void wait() override { times_->come = marked_.size(), ++times_->waits; }
  bool tells_transfers() const override { return times_->tells; }
  std::vector<Transfer> take_transfers() override { return std::exchange(times_->transfers, {}); }

 private:
  std::shared_ptr<Times> times_;
  std::vector<std::int64_t> marked_;
  std::uint64_t read_ = 0;
};

const char* const moved = "all_gather";
const char* const purpose = "parameter";

}  // namespace

TEST_CASE("with a device's clock work has its times, once they have come") {
  const auto times = std::make_shared<TestClock::Times>();
  times->to_come = {0, 100, 110, 150, 160, 190, 200};
  Profiler profiler(10, std::make_unique<TestClock>(times));
  const std::uint64_t range = profiler.begin_range("step", "");
  work(profiler, first_kernel, 5);
  work(profiler, first_kernel);
  times->come = 4;  // the first kernel has run
  times->known = 150;
  profiler.end_range(range);
  CHECK(row_of(profiler, first_kernel, nullptr).nanoseconds == 40);
  CHECK(profiler.elapsed() == 150);
  CHECK(profiler.events().size() == 1);
  times->known = 200;
  profiler.settle();
  CHECK(times->waits == 1);
  const Profiler::Row& row = row_of(profiler, first_kernel, nullptr);
  CHECK(row.nanoseconds == 70);
  CHECK(row.calls == 2);
  CHECK(row.bytes == 5);
  REQUIRE(profiler.events().size() == 3);
  CHECK(profiler.events().back().begin == 100);
  CHECK(profiler.events().back().end == 200);
  CHECK(profiler.elapsed() == 200);
  profiler.stop();
  CHECK(profiler.elapsed() == 200);
  work(profiler, first_kernel);
  profiler.settle();
  CHECK(profiler.events().size() == 3);
}

TEST_CASE("transfers are those that the clock tells of, if it tells of them") {
  for (const bool tells : {false, true}) {
    CAPTURE(tells);
    const auto times = std::make_shared<TestClock::Times>();
    // The call, its flight, and a kernel; the wait; then two moments of the transfer, on another stream.
    times->to_come = {0, 10, 11, 12, 20, 50, 60, 90, 91};
    if (tells) times->to_come = {0, 10, 12, 20, 50, 60, 90, 13, 80};
    times->tells = tells;
    auto owned = std::make_unique<TestClock>(times);
    TestClock& clock = *owned;
    Profiler profiler(10, std::move(owned));
    profiler.begin_collective(moved, purpose, false);
    const Profiler::Event flight = profiler.begin_flight();
    profiler.end_collective(7);
    work(profiler, first_kernel);
    profiler.begin_collective(moved, purpose, false);
    profiler.end_collective(0, false);
    profiler.end_flight(flight);
    if (tells) {
      const std::uint64_t begin = clock.mark(), end = clock.mark();
      times->transfers = {{moved, purpose, begin, end}};
    }
    times->known = 100;
    profiler.settle();
    const Profiler::Communication all = profiler.communication();
    CHECK(all.under_way == (tells ? 67 : 80));
    CHECK(all.hidden == 30);
    CHECK(all.exposed == (tells ? 20 : 31));
    CHECK(row_of(profiler, moved, nullptr).calls == 1);
    CHECK(row_of(profiler, moved, nullptr).nanoseconds == 32);
    REQUIRE(profiler.flights().size() == 1);
    const Profiler::Event& one = profiler.flights().front();
    CHECK(one.end - one.begin == all.under_way);
    const Profiler::Row& row = profiler.rows()[static_cast<std::size_t>(one.row)];
    CHECK(row.kind == (tells ? Profiler::Kind::transfer : Profiler::Kind::collective));
    CHECK(row.name == moved);
  }
}

TEST_CASE("what is beside a collective is known when it ends, though the times of it were read before") {
  const auto times = std::make_shared<TestClock::Times>();
  times->to_come = {0, 10, 11, 12, 20, 30, 60, 70, 80, 90, 95};
  times->come = 100, times->known = 70;
  Profiler profiler(10, std::make_unique<TestClock>(times));
  profiler.begin_collective(moved, purpose, false);
  const Profiler::Event flight = profiler.begin_flight();
  profiler.end_collective(7);
  const std::uint64_t range = profiler.begin_range("backward", "");
  work(profiler, first_kernel);
  profiler.end_range(range);
  CHECK(profiler.communication().under_way == 0);
  profiler.begin_collective(moved, purpose, false);
  profiler.end_collective(0, false);
  profiler.end_flight(flight);
  times->known = 95;
  profiler.settle();
  CHECK(profiler.communication().under_way == 84);
  CHECK(profiler.communication().hidden == 30);
  CHECK(profiler.communication().exposed == 11);
}
