// SPDX-License-Identifier: Apache-2.0
// Failures of a world of MPI ranks: each ends as an error with a sentence on every rank, never as a hang. Run by mpirun
// on 1, 2, 3 and 4 ranks; every case has its own world.
#include <laws/contributions.hpp>
#include <laws/mpi_worlds.hpp>
#include <laws/without_sites.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <dspp/comm.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

struct Outcome {
  bool threw = false;
  ErrorCode code = ErrorCode::state;
  std::string sentence;
  double seconds = 0;
  std::string with_sites;  ///< the sentence as it was thrown
};

Outcome outcome_of(const std::function<void()>& f) {
  Outcome outcome;
  const auto start = std::chrono::steady_clock::now();
  try {
    f();
  } catch (const Error& e) {
    outcome = {true, e.code(), laws::without_sites(e.what()), 0, e.what()};
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

void check(const Outcome& o, ErrorCode code, const std::string& sentence) {
  CHECK(o.threw);
  CHECK(o.code == code);
  CHECK(o.sentence == sentence);
  CHECK(o.seconds < 5.0);
}

MpiWorld world_of_all(double timeout_seconds = 30) {
  return MpiWorld(Mesh(Degrees{.data = mpi_ranks()}), {.timeout_seconds = timeout_seconds});
}

using Call = std::function<void(AnyCommunicator&, std::vector<float>&)>;

/// Rank `odd` makes a different seventh call.
void check_mismatch(int odd, const Call& call, const Call& other, const std::string& sentence) {
  CAPTURE(sentence);
  MpiWorld world = world_of_all();
  AnyCommunicator c = world.groups().world;
  for (int i = 0; i < 6; ++i) c.barrier();
  std::vector<float> x(1000, 1.0f);
  check(outcome_of([&] { (c.rank() == odd ? other : call)(c, x); }), ErrorCode::mismatch, sentence);
  CHECK(x == std::vector<float>(1000, 1.0f));  // the error came before any data was accessed
  check(outcome_of([&] { c.barrier(); }), ErrorCode::mismatch, sentence);
}

void reduce(AnyCommunicator& c, std::vector<float>& x, Size count = 100, Purpose purpose = Purpose::gradient) {
  all_reduce(c, buffer(x.data(), count), purpose);
}
void reduce_100(AnyCommunicator& c, std::vector<float>& x) {
  reduce(c, x);
}

std::string differ(int rank, const std::string& a, const std::string& b) {
  return "dspp: the ranks of the world call different collectives, the 7th of this group: rank 0 calls " + a +
         ", but rank " + std::to_string(rank) + " calls " + b +
         ". Make every rank call the same operations in the same order.";
}

}  // namespace

TEST_CASE("MPI ranks that call differently get one sentence that names both sides") {
  const int last = mpi_ranks() - 1;
  if (last == 0) return;
  const auto from = [](int root) {
    return [root](AnyCommunicator& c, std::vector<float>& x) { broadcast(c, buffer(x.data(), 10), root, {}); };
  };
  const Call barrier = [](AnyCommunicator& c, std::vector<float>&) { c.barrier(); };
  const Call more = [](AnyCommunicator& c, std::vector<float>& x) { reduce(c, x, 101); };
  const Call scalars = [](AnyCommunicator& c, std::vector<float>& x) { reduce(c, x, 100, Purpose::scalar); };
  const Call bf16s = [](AnyCommunicator& c, std::vector<float>&) {
    std::vector<bf16> y(100);
    all_reduce(c, buffer(y.data(), 100), Purpose::gradient);
  };
  const std::string same = "all_reduce(f32 x 100)";
  check_mismatch(last, reduce_100, barrier, differ(last, same, "barrier"));
  check_mismatch(0, reduce_100, barrier, differ(1, "barrier", same));
  check_mismatch(last, reduce_100, more, differ(last, same, "all_reduce(f32 x 101)"));
  check_mismatch(1, reduce_100, bf16s, differ(1, same, "all_reduce(bf16 x 100)"));
  check_mismatch(1, reduce_100, scalars, differ(1, same + " for gradient", same + " for scalar"));
  check_mismatch(1, from(0), from(1), differ(1, "broadcast(f32 x 10, root 0)", "broadcast(f32 x 10, root 1)"));
}

TEST_CASE("MPI ranks that call with different lists of pairs get one sentence that names the pair") {
  const int n = mpi_ranks();
  if (n == 1) return;
  const auto list = [](std::vector<Size> counts) {
    return [counts](AnyCommunicator& c, std::vector<float>& x) {
      std::vector<float> out(1000);
      std::vector<ScatterPair> pairs;
      for (Size k : counts) pairs.push_back({buffer(x.data(), k * c.size()), buffer(out.data(), k)});
      reduce_scatter(c, pairs, Purpose::gradient);
    };
  };
  const auto second = [n](Size count) {
    return "reduce_scatter(3 pairs, the 2nd f32 x " + std::to_string(count * n) + ")";
  };
  check_mismatch(1, list({10, 20, 30}), list({10, 21, 30}), differ(1, second(20), second(21)));
}

TEST_CASE("a disagreement on one axis stops the ranks of all others, and names world ranks") {
  if (mpi_ranks() != 4) return;
  MpiWorld world(Mesh(Degrees{.data = 2, .tp = 2}), {.timeout_seconds = 30});
  RankGroups groups = world.groups();
  std::vector<float> x(20);
  const Outcome o = outcome_of([&] {
    all_reduce(groups[Axis::Tp], buffer(x.data(), 20), Purpose::activation);
    all_reduce(groups[Axis::Data], buffer(x.data(), world.rank() == 3 ? 11 : 10), Purpose::gradient);
    for (;;) groups.world.barrier();
  });
  check(o, ErrorCode::mismatch,
        "dspp: the ranks of axis Data call different collectives, the 1st of this group: rank 1 calls "
        "all_reduce(f32 x 10), but rank 3 calls all_reduce(f32 x 11). Make every rank call the same "
        "operations in the same order.");
}

TEST_CASE("the sentence about MPI ranks that call differently has the line of each, on every rank") {
  const int odd = mpi_ranks() - 1;
  if (odd == 0) return;
  MpiWorld world = world_of_all();
  AnyCommunicator c = world.groups().world;
  float x = 0;
  const CallSite here{"/home/a/folder/rank_0.cpp", 41},
      there{"/home/a/a_name_of_more_than_forty_characters_is_cut/of_the_odd_rank.cpp", 1'000'042};
  const Outcome o = outcome_of([&] {
    if (c.rank() == odd) {
      const CalledAt scope(CallSite{"train.cpp", 7});
      c.barrier(there);
    } else {
      all_reduce(c, buffer(&x, 1), PurposeAt(Purpose::scalar, here));
    }
  });
  CHECK(o.with_sites ==
        "dspp: the ranks of the world call different collectives, the 1st of this group: rank 0 calls "
        "all_reduce(f32 x 1) at folder/rank_0.cpp:41, but rank " +
            std::to_string(odd) +
            " calls barrier at train.cpp:7 (of_the_odd_rank.cpp:1000042). Make every rank call the "
            "same operations in the same order.");
}

TEST_CASE("a failed MPI rank stops the others at once, in any wait") {
  const int last = mpi_ranks() - 1;
  if (last == 0) return;
  MpiWorld world = world_of_all();
  AnyCommunicator c = world.groups().world;
  std::vector<float> x(1 << 20, 1.0f);
  Pending<> pending;
  const Outcome o = outcome_of([&] {
    reduce_100(c, x);
    if (world.rank() == last) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      CHECK(world.abort("the disk is full"));
      CHECK_FALSE(world.abort("later"));
    }
    all_reduce(c, buffer(x.data(), 1 << 20), Purpose::gradient);
  });
  check(o, ErrorCode::aborted,
        "dspp: every rank needs all the others, but rank " + std::to_string(last) +
            " failed: the disk is full. All ranks stop.");
  CHECK(world.end());
  REQUIRE(world.failure() != nullptr);
  CHECK(world.failure()->culprit == last);
  CHECK(world.failure()->reason == "the disk is full");
}

TEST_CASE("an MPI rank that ended stops the ranks that wait for it, now or later") {
  if (mpi_ranks() == 1) return;
  for (int late : {0, 50}) {
    MpiWorld world = world_of_all();
    AnyCommunicator c = world.groups().world;
    c.barrier();
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(late));
      world.leave();
      CHECK(world.end());
      continue;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50 - late));
    std::vector<float> x(100);
    const Outcome o = outcome_of([&] { reduce_100(c, x); });
    CHECK(o.code == ErrorCode::peer_lost);
    CHECK(o.sentence.find(" needs rank 1 in all_reduce(f32 x 100), the 2nd operation of the world, but rank 1 has "
                          "ended. Make every rank call the same operations.") != std::string::npos);
    CHECK(o.seconds < 5);
    CHECK(world.end());
  }
}

TEST_CASE(
    "MPI ranks that send and receive differently get one sentence, and so do ranks that wait for one that ended") {
  if (mpi_ranks() == 1) return;
  {
    MpiWorld world = world_of_all();
    AnyCommunicator c = world.groups().world;
    std::vector<float> x(100);
    const Outcome o = outcome_of([&] {
      if (world.rank() == 0) send(c, buffer(x.data(), 100), 1, Purpose::activation);
      if (world.rank() == 1) receive(c, buffer(x.data(), 99), 0, Purpose::activation);
      c.barrier();
    });
    check(
        o, ErrorCode::mismatch,
        "dspp: the ranks of the channel from rank 0 to rank 1 call different collectives, the 1st of this group: rank "
        "0 calls send(f32 x 100), but rank 1 calls receive(f32 x 99). Make every rank call the same operations in "
        "the same order.");
    CHECK(world.end());
  }
  MpiWorld world = world_of_all();
  AnyCommunicator c = world.groups().world;
  std::vector<float> x(100);
  if (world.rank() == 0) {
    const Outcome o = outcome_of([&] { receive(c, buffer(x.data(), 100), 1, Purpose::activation); });
    CHECK(o.code == ErrorCode::peer_lost);
    CHECK(
        o.sentence ==
        "dspp: rank 0 needs rank 1 in receive(f32 x 100), the 1st operation of the channel from rank 1 to rank 0, but "
        "rank 1 has ended. Make every rank call the same operations.");
    CHECK(o.seconds < 5);
  }
  CHECK(world.end());
}

TEST_CASE("MPI ranks that end after their last operation disturb no other rank") {
  for (int round = 0; round < 20; ++round) {
    MpiWorld world = world_of_all();
    AnyCommunicator c = world.groups().world;
    std::vector<float> x(1000, 1.0f);
    broadcast(c, buffer(x.data(), 1000), 0, Purpose::parameter);
    all_reduce(c, buffer(x.data(), 1000), Purpose::gradient);
    CHECK(x[999] == static_cast<float>(mpi_ranks()));
    world.leave();
    CHECK(world.end());
    CHECK(world.failure() == nullptr);
  }
}

TEST_CASE("an MPI rank that does not call is named after the timeout") {
  if (mpi_ranks() == 1) return;
  MpiWorld world = world_of_all(0.3);
  AnyCommunicator c = world.groups().world;
  std::vector<float> x(100);
  if (world.rank() == 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    CHECK(outcome_of([&] { c.barrier(); }).code == ErrorCode::peer_lost);
  } else {
    const Outcome o = outcome_of([&] { reduce_100(c, x); });
    CHECK(o.seconds > 0.29);
    CHECK(o.seconds < 1.4);
    CHECK(o.code == ErrorCode::peer_lost);
    CHECK(o.sentence.find(" needs rank 1 in all_reduce(f32 x 100), the 1st operation of the world, but waited 0.3 s "
                          "and it did not come. Look for what keeps them, or raise timeout_seconds.") !=
          std::string::npos);
  }
  CHECK(world.end());
}

TEST_CASE("an MPI rank that posts and does not continue is named as not finishing") {
  if (mpi_ranks() == 1) return;
  MpiWorld world = world_of_all(0.3);
  AnyCommunicator c = world.groups().world;
  std::vector<float> x(1 << 20);
  Pending<> pending = c.start_all_reduce(buffer(x.data(), 1 << 20), Purpose::gradient);
  if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  const Outcome o = outcome_of([&] { pending.wait(); });
  CHECK(o.code == ErrorCode::peer_lost);
  CHECK(o.sentence.find("rank 1 in all_reduce(f32 x 1048576), the 1st operation of the world, but waited 0.3 s and it "
                        "did not finish it.") != std::string::npos);
  CHECK(world.end());
}

TEST_CASE("stack unwinding abandons a pending operation, and the other MPI ranks' error names its rank") {
  if (mpi_ranks() == 1) return;
  MpiWorld world = world_of_all();
  AnyCommunicator c = world.groups().world;
  const Outcome o = outcome_of([&] {
    std::vector<float> x(100);
    Pending<> pending = c.start_all_reduce(buffer(x.data(), 100), Purpose::gradient);
    if (world.rank() == 1) fail(ErrorCode::file, "dspp: mine.");
    pending.wait();
    c.barrier();
  });
  if (world.rank() == 1) {
    CHECK(o.sentence == "dspp: mine.");
  } else {
    check(o, ErrorCode::peer_lost,
          "dspp: the other ranks need rank 1 in all_reduce(f32 x 100), the 1st operation of the world, but "
          "it gave up after an exception. See the error of rank 1.");
  }
  CHECK(world.end());
}

TEST_CASE("an MPI rank receives the failure for which another one ends before that end, whoever failed first") {
  if (mpi_ranks() < 3) return;
  detail::MpiFailureState state(MPI_COMM_WORLD, 30);
  const auto poll_until = [&](const auto& done) {
    for (const auto start = std::chrono::steady_clock::now(); !done();) {
      state.poll();
      if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) break;
    }
    REQUIRE(done());
  };
  if (state.rank() == 0) {  // has sent its failure to rank 1, and not yet to the others
    const std::string sentence = "dspp: rank 0 failed: want of a thing.", reason = "want of a thing.";
    const auto code = [](ErrorCode of) { return static_cast<std::int64_t>(of); };
    const std::int64_t head[] = {code(ErrorCode::aborted), 0, 1, code(ErrorCode::usage), std::ssize(sentence)};
    const std::string text = std::string(reinterpret_cast<const char*>(head), sizeof head) + sentence + reason;
    MPI_Send(text.data(), static_cast<int>(text.size()), MPI_CHAR, 1, 1, state.comm());
    poll_until([&] { return state.has_ended(1); });
  } else if (state.rank() == 1) {
    poll_until([&] { return state.failed(); });
    state.end();
  } else {
    poll_until([&] { return state.has_ended(1); });
    REQUIRE(state.failed());
    CHECK(state.failure().sentence == "dspp: rank 0 failed: want of a thing.");
    CHECK(state.failure().culprit == 0);
  }
  state.end();
  poll_until([&] { return state.all_ended(); });
}

TEST_CASE("a mesh of another size and a timeout of 0 are errors") {
  CHECK(outcome_of([] { MpiWorld(Mesh(Degrees{.data = mpi_ranks() + 1})); }).code == ErrorCode::placement);
  CHECK(outcome_of([] { world_of_all(0); }).code == ErrorCode::usage);
}
