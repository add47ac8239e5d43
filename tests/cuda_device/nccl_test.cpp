// SPDX-License-Identifier: Apache-2.0
// Collectives by NCCL: on a GPU those of one rank; in software those of several, which are threads with a GPU each.
// labels: cuda
#include <kernels/cuda_memory.cuh>
#include <kernels/nccl.cuh>

#include <atomic>
#include <chrono>
#include <thread>

#include <laws/communicator.hpp>
#include <laws/device_communicator.hpp>
#include <laws/device_schedules.hpp>
#include <laws/random_program.hpp>

using namespace dspp;
using namespace dspp::laws;

TEST_CASE("NCCL's collectives of one rank obey the laws of a communicator") {
  check_communicator_laws<NcclOnDevice>(1);
}

#if !DSPP_HAS_NVCC()
TEST_CASE("NCCL's collectives obey the laws of a communicator, with the planned traffic") {
  for (int ranks : {2, 3, 4}) check_communicator_laws<RecordedWorld<NcclOnDevice>>(ranks);
  CHECK(software_gpu::live_nccl_communicators() == 0);
}

TEST_CASE("random programs run on NCCL's communicators, of all ranks and of parts") {
  for (int ranks : {2, 3}) check_random_programs<NcclOnDevice>(ranks, 20);
  check_random_programs<NcclSubgroups>(2, 20);
  CHECK(software_gpu::live_nccl_communicators() == 0);
}

// --- what can go wrong: each is a sentence, on every rank, and none waits for ever

namespace {

/// What every rank's program throws, in rank order; each catches its own, so that no rank stops another.
template <class F>
std::vector<std::string> sentences_of(int ranks, F f, double timeout_seconds = 60) {
  std::vector<std::string> all(static_cast<std::size_t>(ranks));
  try {
    on_nccl_ranks(
        Mesh(Degrees{.data = ranks}),
        [&](NcclRank& own, Groups<Cuda>& groups) {
          try {
            f(own, groups);
          } catch (const Error& error) {
            all[static_cast<std::size_t>(groups.world.rank())] = error.what();
            throw;
          }
        },
        {}, timeout_seconds);
  } catch (const Error& error) {
    if (all[0].empty()) all[0] = error.what();
  }
  software_gpu::set_gpus(1);
  CHECK(software_gpu::live_nccl_communicators() == 0);
  return all;
}

bool says(const std::string& sentence, const std::string& text) {
  INFO(sentence);
  return sentence.rfind("dspp: ", 0) == 0 && sentence.find(text) != std::string::npos;
}

using Vector = Tensor<float, 1, Cuda>;

Vector ones(NcclRank& own, Size count) {
  const auto x = Vector::uninitialized(shape(count), own.pool);
  x.write([&](float* host) { std::fill_n(host, count, 1.0f); });
  return x;
}

float first_of(const Vector& x) {
  float value = 0;
  x.read([&](const float* host) { value = host[0]; });
  return value;
}

/// What reading throws is the program's error, not the check's.
void check_first(const Vector& x, float value) {
  const float first = first_of(x);
  CHECK(first == value);
}

}  // namespace

TEST_CASE("two ranks on one GPU are named before NCCL connects them") {
  ThreadWorld world(Mesh(Degrees{.data = 3}), {.timeout_seconds = 60});
  software_gpu::set_gpus(2);
  std::atomic<int> named{0};
  CHECK_THROWS_AS(run_ranks(world.group(),
                            [&](int rank) {
                              NcclRank own(0, world.groups(rank));
                              try {
                                own.groups(world.groups(rank));
                              } catch (const Error& error) {
                                named += says(error.what(), "rank 0 and rank 2 are both on GPU 0000:01:00.0");
                                throw;
                              }
                            }),
                  Error);
  software_gpu::set_gpus(1);
  CHECK(named == 3);
}

TEST_CASE("a library of NCCL that is older than its header is named with both versions") {
  software_gpu::set_nccl_version(21805);
  CHECK(says(sentences_of(2, [](auto&, auto&) {})[0], "not older than the header 2.28.9 of this program, but 2.18.5"));
  software_gpu::set_nccl_version(0);
}

TEST_CASE("ranks that call different collectives of NCCL are named with both calls") {
  const auto all = sentences_of(3, [](NcclRank& own, Groups<Cuda>& groups) {
    const auto x = ones(own, 30);
    const Size count = groups.world.rank() == 1 ? 20 : 10;
    all_reduce(groups.world, buffer(x.data(), count), Purpose::gradient);
    first_of(x);
  });
  for (const std::string& one : all) CHECK(says(one, "rank 0 calls all_reduce(f32 x 10)"));
  for (const std::string& one : all) CHECK(says(one, "rank 1 calls all_reduce(f32 x 20)"));
}

TEST_CASE("a rank that ended, or that does not come, is named by those that wait for NCCL") {
  for (const bool late : {false, true}) {
    std::atomic<bool> over{false};
    const auto all = sentences_of(
        2,
        [&](NcclRank& own, Groups<Cuda>& groups) {
          const auto x = ones(own, 30);
          if (groups.world.rank() == 1) {
            while (late && !over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return;
          }
          struct Over {
            std::atomic<bool>& now;
            ~Over() { now = true; }
          } on_exit{over};
          all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
          first_of(x);
        },
        late ? 0.5 : 60);
    CHECK(says(all[0], late ? "needs rank 1 in all_reduce(f32 x 30)" : "rank 0 calls all_reduce(f32 x 30)"));
    if (!late) CHECK(says(all[0], "but rank 1 calls barrier"));
    if (late) CHECK(says(all[0], "but waited 0.5 s and it did not come"));
  }
}

TEST_CASE("a rank that throws in the middle of NCCL's collectives stops the others with its sentence") {
  const auto all = sentences_of(3, [](NcclRank& own, Groups<Cuda>& groups) {
    const auto x = ones(own, 30);
    for (int i = 0; i < 40; ++i) {
      if (i == 20 && groups.world.rank() == 2) fail(ErrorCode::usage, "dspp: rank 2 gives up. Nothing to do.");
      all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
      if (i % 7 == 0) first_of(x);
    }
    first_of(x);
  });
  for (int r : {0, 1}) {
    INFO(all[static_cast<std::size_t>(r)]);
    CHECK(all[static_cast<std::size_t>(r)].find("rank 2") != std::string::npos);
  }
}

TEST_CASE("a rank that NCCL loses is an error of every rank, with the operation") {
  const auto all = sentences_of(2, [](NcclRank& own, Groups<Cuda>& groups) {
    const auto x = ones(own, 30);
    all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
    check_first(x, 2);
    groups.world.barrier();
    software_gpu::lose_nccl_rank(1);
    all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
    first_of(x);
  });
  software_gpu::lose_nccl_rank(-1);
  const bool first = says(all[0], "in all_reduce(f32 x 30), the 2nd operation of the world by NCCL");
  CHECK((first || says(all[1], "in all_reduce(f32 x 30), the 2nd operation of the world by NCCL")));
  for (const std::string& one : all) CHECK(says(one, "remote process exited or there was a network error"));
}

TEST_CASE("whichever call of NCCL fails, every rank ends with a sentence, and the next run is as if it had not") {
  const auto program = [](NcclRank& own, Groups<Cuda>& groups) {
    const auto x = ones(own, 30), y = ones(own, 15);
    AnyCommunicator& c = groups.world;
    all_reduce(c, buffer(x.data(), 30), Purpose::gradient);
    reduce_scatter(c, buffer(static_cast<const float*>(x.data()), 30), buffer(y.data(), 15), Purpose::gradient);
    all_gather(groups.along.data, buffer(static_cast<const float*>(y.data()), 15), buffer(x.data(), 30),
               Purpose::parameter);
    if (c.rank() == 0)
      send(c, buffer(static_cast<const float*>(y.data()), 15), 1, Purpose::activation);
    else
      receive(c, buffer(y.data(), 15), 0, Purpose::activation);
    check_first(x, 4);
    check_first(y, 4);
  };
  software_gpu::fail_nccl_call(0);
  CHECK(sentences_of(2, program)[0].empty());
  const int calls = software_gpu::fail_nccl_call(0);
  REQUIRE(calls > 40);
  int thrown = 0, runs = 0;
  for (int n = 1; n < calls; n += n < 30 ? 1 : 5) {
    CAPTURE(n);
    software_gpu::fail_nccl_call(n);
    const auto all = sentences_of(2, program);
    if (software_gpu::fail_nccl_call(0) < n) continue;  // this run asked less often
    ++runs;
    thrown += !all[0].empty() || !all[1].empty();
    for (const std::string& one : all) CHECK((one.empty() || says(one, "")));
  }
  REQUIRE(runs > 20);
  CHECK(thrown > runs / 2);  // the last calls are of the end
  CHECK(sentences_of(2, program)[0].empty());
}

TEST_CASE("whichever call of CUDA fails beside NCCL, every rank ends with a sentence") {
  const auto program = [](NcclRank& own, Groups<Cuda>& groups) {
    const auto x = ones(own, 30);
    for (int i = 0; i < 3; ++i) all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
    check_first(x, 8);
  };
  software_gpu::fail_call(0);
  CHECK(sentences_of(2, program)[0].empty());
  const int calls = software_gpu::fail_call(0);
  REQUIRE(calls > 15);
  for (int n = 1; n < calls; n += 2) {
    CAPTURE(n);
    software_gpu::fail_call(n);
    for (const std::string& one : sentences_of(2, program)) CHECK((one.empty() || one.rfind("dspp: ", 0) == 0));
    software_gpu::fail_call(0);
  }
}

TEST_CASE("the host does not wait for NCCL's collectives: a rank may go on before the other calls its own") {
  std::atomic<bool> went_on{false};
  const auto all = sentences_of(2, [&](NcclRank& own, Groups<Cuda>& groups) {
    const auto x = ones(own, 30);
    if (groups.world.rank() == 1)
      while (!went_on) std::this_thread::yield();
    all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
    went_on = true;
    check_first(x, 2);
  });
  CHECK(all[0].empty());
}

TEST_CASE("a rank's own work that takes longer than the timeout does not count as waiting for others") {
  const auto all = sentences_of(
      2,
      [&](NcclRank& own, Groups<Cuda>& groups) {
        const auto x = ones(own, 30);
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(700);
        software_gpu::issue_when(
            gpu::stream_of(own.memory), [until] { return std::chrono::steady_clock::now() > until; }, [] {});
        for (int i = 0; i < 3; ++i) all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
        check_first(x, 8);
      },
      0.3);
  for (const std::string& one : all) CHECK(one.empty());
}

TEST_CASE("an error of NCCL after the last value that the host read is an error of the rank's end") {
  int failed = 0;
  for (const std::string& one : sentences_of(2, [&](NcclRank&own, Groups<Cuda>&groups) {
         const auto x = ones(own, 30);
         all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
         check_first(x, 2);
         all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
         groups.world.barrier();  // all have issued it
         software_gpu::lose_nccl_rank(1);
         own.end();
       }))
    failed += says(one, "remote process exited or there was a network error");
  software_gpu::lose_nccl_rank(-1);
  CHECK(failed == 2);
}

TEST_CASE("a message of NCCL goes on while its rank waits in a barrier, or in a collective of host memory") {
  for (const bool in_barrier : {true, false}) {
    CAPTURE(in_barrier);
    const auto all = sentences_of(
        2,
        [&](NcclRank& own, Groups<Cuda>& groups) {
          AnyCommunicator& c = groups.world;
          const auto x = ones(own, 10);
          const auto meet = [&] {
            std::vector<float> sum(3, 1.0f);
            if (in_barrier) return c.barrier();
            all_reduce(*own.host_group(), buffer(sum.data(), 3), Purpose::check);
            CHECK(sum == std::vector<float>(3, 2.0f));
          };
          for (int round = 0; round < 3; ++round)
            if (c.rank() == 0) {
              x.fill(5.0f + static_cast<float>(round));
              Pending<> sent = c.start_send(buffer(static_cast<const float*>(x.data()), 10), 1, Purpose::activation);
              meet();
              sent.wait();
            } else {
              receive(c, buffer(x.data(), 10), 0, Purpose::activation);
              check_first(x, 5.0f + static_cast<float>(round));
              meet();
            }
        },
        1);
    for (const std::string& one : all) {
      INFO(one);
      CHECK(one.empty());
    }
  }
}

TEST_CASE("messages of NCCL in both directions go on whichever a rank waits for first, and beside collectives") {
  const auto all = sentences_of(2, [&](NcclRank& own, Groups<Cuda>& groups) {
    AnyCommunicator& c = groups.world;
    const auto a = ones(own, 10), b = ones(own, 10), x = ones(own, 10);
    const ConstBuffer from_a = buffer(static_cast<const float*>(a.data()), 10);
    if (c.rank() == 0) {
      a.fill(5);
      Pending<> later = c.start_receive(buffer(b.data(), 10), 1, Purpose::activation);
      Pending<> sooner = c.start_send(from_a, 1, Purpose::activation);
      all_reduce(c, buffer(x.data(), 10), Purpose::gradient);
      sooner.wait();
      c.start_send(from_a, 1, Purpose::activation).wait();
      later.wait();
      check_first(b, 5);
    } else {
      all_reduce(c, buffer(x.data(), 10), Purpose::gradient);
      c.start_receive(buffer(a.data(), 10), 0, Purpose::activation).wait();
      c.start_receive(buffer(b.data(), 10), 0, Purpose::activation).wait();
      c.start_send(from_a, 0, Purpose::activation).wait();
    }
    check_first(x, 2);
  });
  CHECK(all[0].empty());
}

namespace {

/// What a rank finds after operations of NCCL's between which its stream writes, reads and overwrites their memory.
struct Chain {
  static constexpr Size n = 30;

  NcclRank& own;
  AnyCommunicator& c;
  AnyCommunicator& alone;
  std::atomic<int>& queued;  ///< the ranks that have called all
  Vector seen = ones(own, 16 * n);
  Size kept = 0;

  void keep(const Vector& x) {
    own.memory.copy(reinterpret_cast<std::byte*>(seen.data() + kept), reinterpret_cast<const std::byte*>(x.data()),
                    x.bytes());
    kept += x.count();
  }
  /// Waits until both ranks have called all: on a busy machine the streams of one would else be through before the
  /// other calls, and no order of theirs would be late.
  void meet() const {
    ++queued;
    for (int i = 0; i < 100'000 && queued < 2; ++i) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  void write(const Vector& x, int salt) const { x.fill(static_cast<float>(10 * salt + c.rank())); }

  std::vector<float> run() {
    const Vector a = ones(own, 2 * n), b = ones(own, 2 * n), s = ones(own, n), d = ones(own, n), z = ones(own, 2 * n);
    const auto in = [](const Vector& x) { return buffer(static_cast<const float*>(x.data()), x.count()); };
    const auto out = [](const Vector& x) { return buffer(x.data(), x.count()); };
    write(a, 1);
    Pending<> first = c.start_reduce_scatter(in(a), out(s), Purpose::gradient);
    write(d, 2);
    Pending<> second = c.start_all_gather(in(d), out(b), Purpose::gradient);
    first.wait();
    keep(s), write(a, 3), write(s, 4);
    second.wait();
    keep(b), write(b, 5), write(d, 6);
    all_reduce(c, out(d), Purpose::gradient);
    keep(d), write(d, 7);
    broadcast(c, out(d), 1, Purpose::parameter);
    keep(d), write(d, 8), write(a, 9), write(z, 10);
    all_to_all(c, in(a), out(z), Purpose::activation);
    keep(z), write(a, 11), write(z, 12);
    for (int round : {13, 17}) {
      write(s, round), write(d, round + 1);
      if (c.rank() == 0)
        send(c, in(s), 1, Purpose::activation);
      else
        receive(c, out(d), 0, Purpose::activation);
      keep(c.rank() == 0 ? s : d), write(s, round + 2), write(d, round + 3);
    }
    reduce_scatter(alone, in(s), out(d), Purpose::gradient);
    keep(d), write(s, 21), write(d, 22);
    all_gather(alone, in(s), out(d), Purpose::gradient);
    keep(d), write(s, 23), write(d, 24);
    { const Pending<> not_waited_for = c.start_all_reduce(out(d), Purpose::gradient); }
    keep(d), write(s, 25), write(d, 26);
    {
      const Pending<> not_waited_for =
          c.rank() == 0 ? c.start_send(in(s), 1, Purpose::activation) : c.start_receive(out(d), 0, Purpose::activation);
    }
    keep(c.rank() == 0 ? s : d), write(s, 27), write(d, 28);
    meet();
    seen.read([&](const float* host) { found.assign(host, host + kept); });
    return found;
  }
  std::vector<float> found{};
};

/// The results of both ranks when one of them leaves out its n-th wait, and the waits that it came to.
std::pair<std::vector<std::vector<float>>, int> run_chain(int leaves_out, int number) {
  std::vector<std::vector<float>> found(2);
  int waits = 0;
  std::atomic<int> queued = 0;
  on_nccl_ranks(Mesh(Degrees{.data = 2}), [&](NcclRank& own, Groups<Cuda>& groups) {
    const int rank = groups.world.rank();
    Chain chain{own, groups.world, groups.along.tp, queued};
    software_gpu::leave_out_wait(rank == leaves_out ? number : 0);
    found[static_cast<std::size_t>(rank)] = chain.run();
    const int came = software_gpu::leave_out_wait(0);
    if (rank == leaves_out) waits = came;
  });
  return {found, waits};
}

}  // namespace

TEST_CASE("each wait of NCCL's streams for an event is needed: without it, some schedule gives other values") {
  const auto right = run_chain(0, 0).first;
  CHECK(right[0] != right[1]);
  for (int rank = 0; rank < 2; ++rank) {
    const int waits = run_chain(rank, 0).second;
    CHECK(waits == 22);  // two of each operation
    for (int number = 1; number <= waits; ++number) {
      int tries = 0;
      while (++tries <= 1000 && run_chain(rank, number).first == right) {
      }
      CAPTURE(rank);
      CAPTURE(number);
      CHECK(tries <= 1000);
    }
  }
}

TEST_CASE("under random schedules operations of NCCL between which their memory is written give the same") {
  const auto right = run_chain(0, 0).first;
  under_schedules([&] { CHECK(run_chain(0, 0).first == right); });
}

TEST_CASE("registered blocks are registered once with every communicator, and no longer when they are freed") {
  on_nccl_ranks(Mesh(Degrees{.data = 2, .tp = 2}),
                [&](NcclRank& own, Groups<Cuda>& groups) {
                  {
                    const auto x = ones(own, 30);
                    groups.world.barrier();
                    const int four = software_gpu::registered_nccl_blocks();
                    CHECK(four == 4 * 3);  // of 4 ranks with the world, Data and Tp
                    groups.world.barrier();
                    all_reduce(groups.along.data, buffer(x.data(), 30), Purpose::gradient);
                    check_first(x, 2);
                  }
                  const auto again = ones(own, 30);
                  groups.world.barrier();
                  CHECK(software_gpu::registered_nccl_blocks() == 4 * 3);
                  groups.world.barrier();
                },
                {.register_buffers = true});
  CHECK(software_gpu::registered_nccl_blocks() == 0);
  CHECK(software_gpu::live_nccl_communicators() == 0);
}

#endif
