// SPDX-License-Identifier: Apache-2.0
// labels: thread races
#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include <laws/communicator.hpp>
#include <laws/random_program.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("Threads obeys the laws of a communicator") {
  for (int ranks : {1, 2, 3, 4}) check_communicator_laws<ThreadsWorld>(ranks);
}

TEST_CASE("a communicator reports its tier, a group of one every tier, and a Recorder that of its inner communicator") {
  for (const SumOrder order : {SumOrder::rank, SumOrder::transport}) {
    const ThreadGroup pair(2, {.sum_order = order}), alone(1, {.sum_order = order});
    CHECK(pair.communicator(1).sum_order() == order);
    CHECK(pair.subgroup("both", {1, 0}).communicator(0).sum_order() == order);
    CHECK(pair.subgroup("one", {1}).communicator(0).sum_order() == SumOrder::exact);
    CHECK(alone.communicator(0).sum_order() == SumOrder::exact);
    CHECK(AnyCommunicator(pair.communicator(0)).sum_order() == order);
    CHECK(Recorder<Threads>(pair.communicator(0)).sum_order() == order);
    CHECK(Recorder<>(0, 2, order).sum_order() == order);
    CHECK(Recorder<>(0, 1, order).sum_order() == SumOrder::exact);
  }
  CHECK(AnyCommunicator().sum_order() == SumOrder::exact);
  CHECK_THROWS_WITH_AS(ThreadGroup(2, {.sum_order = SumOrder::exact}),
                       "dspp: a thread group needs a sum order that it offers, rank or transport, but got exact. Leave "
                       "sum_order out for rank.",
                       Error);
}

TEST_CASE("three ranks get different bits in ring order than in rank order, and different ones from reduce_scatter") {
  RingWorld::run(3, [](Threads& c) {
    std::vector<float> x = contributions<float>(c.rank(), 3000), slice(1000);
    reduce_scatter(c, all_of(std::as_const(x)), all_of(slice), Purpose::gradient);
    all_reduce(c, all_of(x), Purpose::gradient);
    const std::vector<float> own(x.begin() + 1000 * c.rank(), x.begin() + 1000 * (c.rank() + 1));
    const bool from_the_first = c.rank() == 2;  // the ring of the last rank's slice begins after it
    CHECK(same_bits(own, sums<float>(3, 1000, 0, 1000 * c.rank())) == from_the_first);
    CHECK(!same_bits(slice, own));
  });
}

TEST_CASE("thread ranks make the digest of a sum, in either order") {
  for (const SumOrder order : {SumOrder::rank, SumOrder::transport}) {
    const ThreadGroup group(3, {.sum_order = order});
    run_ranks(group, [&](int rank) {
      auto c = group.communicator(rank);
      std::vector<float> in(3000, 0.5f), out(1000);
      SumDigest digest;
      reduce_scatter(c, buffer(in.data(), 3000), buffer(out.data(), 1000), PurposeAt().with_digest(&digest));
      CHECK(digest.made);
      CHECK(!digest.nonfinite);
    });
  }
}

TEST_CASE("no digest is of a sum that is not finite, in any type, element and rank") {
  const auto check = [](auto zero, auto infinite) {
    using T = decltype(zero);
    const ThreadGroup group(2, {});
    run_ranks(group, [&](int rank) {
      auto c = group.communicator(rank);
      for (const Size at : {Size{-1}, Size{0}, Size{511}, Size{512}, Size{699}, Size{700}, Size{1399}}) {
        std::vector<T> in(1400, zero), out(700);
        if (at >= 0 && rank == at % 2) in[static_cast<std::size_t>(at)] = infinite;
        SumDigest digest;
        reduce_scatter(c, buffer(in.data(), 1400), buffer(out.data(), 700), PurposeAt().with_digest(&digest));
        CHECK(digest.made);
        CHECK(digest.nonfinite == (at >= 0 && rank == at / 700));
      }
    });
  };
  check(0.0, std::numeric_limits<double>::infinity());
  check(0.0f, -std::numeric_limits<float>::quiet_NaN());
  check(bf16(1.0f), bf16(std::numeric_limits<float>::infinity()));
  check(f16(1.0f), f16(-std::numeric_limits<float>::infinity()));
}

TEST_CASE("the communicators of an axis obey the laws of a communicator") {
  for (int ranks : {1, 2, 3, 4}) check_communicator_laws<SubgroupWorld>(ranks);
}

TEST_CASE("a gather of more than the caches hold moves every byte, from aligned memory and from other") {
  const Size count = 5600004;  // of 3 ranks more than 64 MiB, in vectors of 16 bytes, but not in lines of 64
  const ThreadGroup group(3);
  run_ranks(group, [&](int rank) {
    Threads c = group.communicator(rank);
    const auto part = [&](int r, Size first) {
      std::vector<std::int32_t> x(static_cast<std::size_t>(count));
      std::iota(x.begin(), x.end(), static_cast<std::int32_t>(r * count + first));
      return x;
    };
    std::vector<std::int32_t> room(static_cast<std::size_t>(3 * count + 4));
    for (const Size offset : {0, 1}) {
      const auto mine = part(rank, offset);
      std::int32_t* out = room.data() + offset;
      out[3 * count] = -1;
      all_gather(c, buffer(mine.data(), count), buffer(out, 3 * count), Purpose::parameter);
      for (int r = 0; r < 3; ++r) CHECK(std::equal(out + r * count, out + (r + 1) * count, part(r, offset).begin()));
      CHECK(out[3 * count] == -1);
    }
  });
}

TEST_CASE("a reduce-scatter of more than the caches hold has the sums of every element, and writes no other") {
  const Size count = 8388611;  // of f64 more than 64 MiB a rank, and neither whole lines nor whole tiles
  const ThreadGroup group(2);
  run_ranks(group, [&](int rank) {
    Threads c = group.communicator(rank);
    std::vector<double> in(static_cast<std::size_t>(2 * count)), out(static_cast<std::size_t>(count + 2), -1);
    std::iota(in.begin(), in.end(), rank * 0.5);
    reduce_scatter(c, all_of(std::as_const(in)), buffer(out.data() + 1, count), Purpose::gradient);
    Size wrong = 0;
    for (Size i = 0; i < count; ++i)
      wrong += out[static_cast<std::size_t>(i + 1)] != 2.0 * static_cast<double>(rank * count + i) + 0.5;
    CHECK(wrong == 0);
    CHECK(out.front() == -1);
    CHECK(out.back() == -1);
  });
}

TEST_CASE("1000 random programs end with the right bits on ranks with random delays") {
  check_random_programs<RecordedWorld<ThreadsWorld>>(2, 400);
  check_random_programs<RecordedWorld<ThreadsWorld>>(3, 300);
  check_random_programs<RecordedWorld<ErasedWorld<ThreadsWorld>>>(4, 300);
}

TEST_CASE("a group serves one set of threads after another") {
  ThreadGroup group(2);
  for (int round = 0; round < 3; ++round) {
    run_ranks(group, [&](int rank) {
      Threads c = group.communicator(rank);
      all_reduce_sums<float>(c, 100);
    });
  }
}

TEST_CASE("a pending operation outlives its handle and its group") {
  std::vector<float> x[2] = {contributions<float>(0, 100), contributions<float>(1, 100)};
  std::vector<Pending<>> pendings;
  {
    ThreadGroup group(2);
    for (int r = 0; r < 2; ++r)
      pendings.push_back(group.communicator(r).start_all_reduce(all_of(x[r]), Purpose::gradient));
  }
  std::thread other([&] { pendings[1].wait(); });
  pendings[0].wait();
  other.join();
  for (int r = 0; r < 2; ++r) CHECK(same_bits(x[r], sums<float>(2, 100)));
}

TEST_CASE("waits in different orders across groups do not deadlock") {
  ThreadGroup world(2, {.timeout_seconds = 20});
  ThreadGroup other = world.subgroup("axis Data", {0, 1});
  run_ranks(world, [&](int rank) {
    Threads a = world.communicator(rank), b = other.communicator(rank);
    for (int round = 0; round < 100; ++round) {
      std::vector<float> x = contributions<float>(rank, 50, round), y = contributions<float>(rank, 60, round);
      Pending<> p = a.start_all_reduce(all_of(x), Purpose::gradient);
      Pending<> q = b.start_all_reduce(all_of(y), Purpose::gradient);
      (rank == 0 ? p : q).wait();
      (rank == 0 ? q : p).wait();
      CHECK(same_bits(x, sums<float>(2, 50, round)));
      CHECK(same_bits(y, sums<float>(2, 60, round)));
    }
  });
}
