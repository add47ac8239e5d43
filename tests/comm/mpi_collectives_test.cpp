// SPDX-License-Identifier: Apache-2.0
// labels: mpi
// MPI's own collectives: their laws, and their failures, which end as those in rank order do. Run by mpirun on 1, 2, 3
// and 4 ranks: every process runs every test.
#include <laws/communicator.hpp>
#include <laws/mpi_worlds.hpp>
#include <laws/random_program.hpp>
#include <laws/without_sites.hpp>
#include <laws/worlds.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

using namespace dspp;
using namespace dspp::laws;

namespace {

MpiWorld world_of_all(double timeout_seconds = 30) {
  return MpiWorld(Mesh(Degrees{.data = mpi_ranks()}),
                  {.timeout_seconds = timeout_seconds, .sum_order = SumOrder::transport});
}

/// The sentence that f throws within five seconds; empty if it does not throw.
std::string sentence_of(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  std::string sentence;
  try {
    f();
  } catch (const Error& e) {
    sentence = without_sites(e.what());
  }
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
  return sentence;
}

void use_memory_again() {
  for (int i = 0; i < 20; ++i) {
    const std::vector<float> x(1 << 20, 0.5f);
    CHECK(x[static_cast<std::size_t>(i)] == 0.5f);
  }
}

}  // namespace

TEST_CASE("Mpi with MPI's own collectives obeys the laws of its tier, and moves what was planned") {
  check_communicator_laws<MpiCollectivesWorld>(mpi_ranks());
  check_communicator_laws<RecordedWorld<ErasedWorld<MpiCollectivesWorld>>>(mpi_ranks());
  check_random_programs<RecordedWorld<MpiCollectivesWorld>>(mpi_ranks(), 200);
}

TEST_CASE("MPI's own collectives reduce and gather tiles of every size") {
  MpiCollectivesWorld::run(mpi_ranks(), [](Mpi& c) {
    for (Size count : {1'000'003, 2'500'000}) {
      all_reduce_sums<double>(c, count);
      every_rank_gets_the_bits_of_the_first<float>(c, count);
      reduce_scatter_gives_the_slice_of_the_sum<bf16>(c, count);
      all_gather_gives_every_contribution<std::int64_t>(c, count);
    }
  });
}

TEST_CASE("MPI ranks with different sum orders get a sentence on each") {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const SumOrder own = rank == 0 ? SumOrder::transport : SumOrder::rank;
  if (mpi_ranks() == 1) return;
  const std::string sentence = "dspp: a world of MPI ranks needs one sum order, but rank " + std::to_string(rank) +
                               " has " + name_of(own) + " and others another. Give all ranks the same.";
  CHECK_THROWS_WITH_AS(MpiWorld(Mesh(Degrees{.data = mpi_ranks()}), {.sum_order = own}), sentence.c_str(), Error);
}

TEST_CASE("with MPI's own collectives ranks that call differently get one sentence before any data moves") {
  if (mpi_ranks() == 1) return;
  MpiWorld world = world_of_all();
  AnyCommunicator c = world.groups().world;
  std::vector<float> x(100'000, 1.0f);
  all_reduce(c, all_of(x), Purpose::gradient);
  const std::vector<float> sum(x.size(), static_cast<float>(mpi_ranks()));
  CHECK(same_bits(x, sum));
  const std::string sentence =
      sentence_of([&] { all_reduce(c, buffer(x.data(), c.rank() == 1 ? 99'999 : 100'000), Purpose::gradient); });
  CHECK(sentence ==
        "dspp: the ranks of the world call different collectives, the 2nd of this group: rank 0 calls all_reduce(f32 "
        "x 100000), but rank 1 calls all_reduce(f32 x 99999). Make every rank call the same operations in the same "
        "order.");
  CHECK(same_bits(x, sum));
  CHECK(world.end());
}

TEST_CASE("with MPI's own collectives a rank that fails during one stops the others, and their memory is free") {
  const int last = mpi_ranks() - 1;
  if (last == 0) return;
  for (int collective : {0, 1, 2}) {
    MpiWorld world = world_of_all();
    AnyCommunicator c = world.groups().world;
    const std::string sentence = sentence_of([&] {
      std::vector<float> part(1 << 18, 1.0f), whole(part.size() * static_cast<std::size_t>(mpi_ranks()), 1.0f);
      const Purpose p = Purpose::gradient;
      Pending<> pending = collective == 0   ? c.start_all_reduce(all_of(whole), p)
                          : collective == 1 ? c.start_reduce_scatter(all_of(std::as_const(whole)), all_of(part), p)
                                            : c.start_all_gather(all_of(std::as_const(part)), all_of(whole), p);
      if (c.rank() == last) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        world.abort("the disk is full");
      }
      pending.wait();
    });
    use_memory_again();
    CHECK(sentence == "dspp: every rank needs all the others, but rank " + std::to_string(last) +
                          " failed: the disk is full. All ranks stop.");
    CHECK(world.end());
    use_memory_again();
  }
}

TEST_CASE("with MPI's own collectives a rank that does not call is named, and one that calls but stops is not") {
  if (mpi_ranks() == 1) return;
  {
    MpiWorld world = world_of_all(0.3);
    AnyCommunicator c = world.groups().world;
    std::vector<float> x(1 << 20);
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    const std::string sentence = sentence_of([&] { all_reduce(c, all_of(x), Purpose::gradient); });
    CHECK(sentence.find(" needs rank 1 in all_reduce(f32 x 1048576), the 1st operation of the world, but waited 0.3 s "
                        "and it did not come. Look for what keeps them, or raise timeout_seconds.") !=
          std::string::npos);
    CHECK(world.end());
  }
  MpiWorld world = world_of_all(0.3);
  AnyCommunicator c = world.groups().world;
  std::vector<float> x(1 << 20);
  Pending<> pending = c.start_all_reduce(all_of(x), Purpose::gradient);
  if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  const std::string sentence = sentence_of([&] { pending.wait(); });
  CHECK(sentence.find(" needs the other ranks in all_reduce(f32 x 1048576), the 1st operation of the world, but waited "
                      "0.3 s and they did not finish it.") != std::string::npos);
  CHECK(world.end());
}

TEST_CASE("with MPI's own collectives stack unwinding abandons a pending operation") {
  if (mpi_ranks() == 1) return;
  MpiWorld world = world_of_all();
  AnyCommunicator c = world.groups().world;
  const std::string sentence = sentence_of([&] {
    std::vector<float> x(1 << 20);
    Pending<> pending = c.start_all_reduce(all_of(x), Purpose::gradient);
    if (world.rank() == 1) fail(ErrorCode::file, "dspp: mine.");
    pending.wait();
  });
  CHECK(sentence == (world.rank() == 1 ? "dspp: mine."
                                       : "dspp: the other ranks need rank 1 in all_reduce(f32 x 1048576), the 1st "
                                         "operation of the world, but it gave up after an exception. See "
                                         "the error of rank 1."));
  CHECK(world.end());
}
