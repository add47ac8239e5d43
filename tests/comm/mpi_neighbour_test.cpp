// SPDX-License-Identifier: Apache-2.0
// A rank whose process is gone is reported once, by the rank that watches it; one that ends regularly, or that nobody
// can watch, is not. Run by mpirun on 1, 2, 3 and 4 ranks; a process that is gone is one whose socket is closed, which
// is all that the kernel lets the others see of it.
#include <doctest/doctest.h>
#include <laws/mpi_worlds.hpp>
#include <support/open_files.hpp>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <dspp/comm/mpi/neighbour.hpp>

using namespace dspp;
using namespace dspp::laws;
using detail::LostRank;
using detail::NeighbourWatch;

namespace {

int sum(int own) {
  MPI_Allreduce(MPI_IN_PLACE, &own, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  return own;
}

/// `own` of rank `of` of `comm`.
long from(MPI_Comm comm, int of, long own) {
  MPI_Bcast(&own, 1, MPI_LONG, of, comm);
  return own;
}

/// Long enough for a watcher to see what has happened to its socket.
void let_it_see() {
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

/// A watch over `comm`, and what it has reported.
class Watched {
 public:
  explicit Watched(MPI_Comm comm) : before_(open_files("")) {
    watch.emplace(comm, [this](const LostRank& lost) {
      lost_ = lost;
      ++reports_;
    });
  }

  /// What the kernel does to the socket that the rank before holds to this one when this process is gone.
  void be_gone() {
    for (const int file : opened_since(before_, "socket:")) {
      sockaddr_un name{};
      socklen_t bytes = sizeof name;
      REQUIRE(getsockname(file, reinterpret_cast<sockaddr*>(&name), &bytes) == 0);
      if (bytes > sizeof name.sun_family) REQUIRE(shutdown(file, SHUT_RDWR) == 0);  // that was accepted: it has a name
    }
  }

  int sockets() const { return static_cast<int>(opened_since(before_, "socket:").size()); }
  int pages() const { return static_cast<int>(opened_since(before_, "/memfd:dspp").size()); }
  int reports() const { return reports_; }
  const LostRank& lost() const { return lost_; }

  std::optional<NeighbourWatch> watch;

 private:
  std::vector<int> before_;
  std::atomic<int> reports_{0};
  LostRank lost_;
};

/// The reports of all ranks, when there are as many as `awaited` or have not been for ten seconds, and a little later.
int all_reports(const Watched& watched, int awaited) {
  for (int i = 0; i < 50 && sum(watched.reports()) < awaited; ++i) let_it_see();
  let_it_see();
  return sum(watched.reports());
}

/// The ranks of MPI_COMM_WORLD in the opposite order.
class Reversed {
 public:
  Reversed() { MPI_Comm_split(MPI_COMM_WORLD, 0, -mpi_rank(), &comm_); }
  Reversed(const Reversed&) = delete;
  Reversed& operator=(const Reversed&) = delete;
  ~Reversed() { MPI_Comm_free(&comm_); }
  operator MPI_Comm() const { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace

TEST_CASE("an MPI rank that is gone is reported once, with its rank in the communicator, its process and its host") {
  const int ranks = mpi_ranks();
  if (ranks == 1 || mpi_hosts() > 1) return;
  const Reversed comm;
  for (int gone = 0; gone < ranks; ++gone) {
    CAPTURE(gone);
    Watched watched(comm);
    const long process = from(comm, gone, getpid());
    if (mpi_rank(comm) == gone) watched.be_gone();
    CHECK(all_reports(watched, 1) == 1);
    if (watched.reports() > 0) {
      std::array<char, 64> host{};
      gethostname(host.data(), host.size() - 1);
      CHECK(watched.lost().rank == gone);
      CHECK(watched.lost().process == process);
      CHECK(watched.lost().host == host.data());
    }
    watched.watch->announce_exit();
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_CASE("when all MPI ranks of a machine are gone one of them is reported") {
  if (mpi_ranks() == 1 || mpi_hosts() > 1) return;
  Watched watched(MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  watched.be_gone();
  CHECK(all_reports(watched, 1) == 1);
  CHECK(sum(watched.watch->is_first_to_report() ? 1 : 0) == 0);
}

TEST_CASE("the first MPI rank of a machine to report is one, whoever asks first") {
  if (mpi_hosts() > 1) return;
  const int ranks = mpi_ranks();
  for (int turn = 0; turn < ranks; ++turn) {
    Watched watched(MPI_COMM_WORLD);
    int first = 0;
    for (int i = 0; i < ranks; ++i) {  // from rank `turn` on
      if (mpi_rank() == (turn + i) % ranks) first = watched.watch->is_first_to_report() ? 1 : 0;
      MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(first == (mpi_rank() == turn ? 1 : 0));
    CHECK(!watched.watch->is_first_to_report());
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST_CASE("an MPI rank that ends regularly is not reported, and waits for no other") {
  if (mpi_ranks() == 1) return;
  for (int ended = 0; ended < mpi_ranks(); ++ended) {
    CAPTURE(ended);
    Watched watched(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_rank() == ended) watched.watch.reset();
    MPI_Barrier(MPI_COMM_WORLD);  // without end if it waited for the others
    let_it_see();
    CHECK(sum(watched.reports()) == 0);
  }
}

TEST_CASE("an MPI rank that is about to end, or has announced it, reports nothing and is not reported") {
  if (mpi_ranks() == 1 || mpi_hosts() > 1) return;
  const int last = mpi_ranks() - 1;
  for (const bool both : {false, true}) {
    CAPTURE(both);
    Watched watched(MPI_COMM_WORLD);
    if (both || mpi_rank() == last) watched.watch->announce_exit();
    MPI_Barrier(MPI_COMM_WORLD);
    let_it_see();
    watched.be_gone();
    // Without `both`: each but the last, whose watcher knows that it ends, and which watches rank 0 no longer.
    const int reports = both || last == 1 ? 0 : 1;
    CHECK(all_reports(watched, reports) == reports);
  }
}

TEST_CASE("a watch has two sockets and one page for a machine, and leaves none behind") {
  if (mpi_hosts() > 1) return;
  { const Watched before(MPI_COMM_WORLD); }  // MPI has the files that it needs
  const std::vector<int> before = open_files("");
  const int mapped = mappings_of("/memfd:dspp");
  const bool alone = mpi_ranks() == 1;
  {
    Watched watched(MPI_COMM_WORLD);
    CHECK(watched.sockets() == (alone ? 0 : 2));
    CHECK(watched.pages() == (!alone && mpi_rank() == 0 ? 1 : 0));
    CHECK(mappings_of("/memfd:dspp") == mapped + (alone ? 0 : 1));
    MPI_Barrier(MPI_COMM_WORLD);
  }
  CHECK(opened_since(before, "").empty());
  CHECK(mappings_of("/memfd:dspp") == mapped);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("an MPI rank that has files for some of a watch is not lost, and leaves none of them open") {
  if (mpi_ranks() == 1) return;
  { const Watched before(MPI_COMM_WORLD); }  // and a sanitizer opens files when it first sees a type
  for (int few = 0; few <= 3; ++few) {
    for (int poor = 0; poor < 2; ++poor) {
      CAPTURE(few);
      CAPTURE(poor);
      const std::vector<int> before = open_files("");
      {
        std::optional<FewFiles> limit;
        if (mpi_rank() == poor) limit.emplace(few);
        std::atomic<int> reports{0};
        const NeighbourWatch watch(MPI_COMM_WORLD, [&](const LostRank&) { ++reports; });
        limit.reset();
        let_it_see();
        CHECK(sum(reports) == 0);
      }
      CHECK(opened_since(before, "").empty());
      MPI_Barrier(MPI_COMM_WORLD);
    }
  }
}

TEST_CASE("an MPI rank without a standard input, whose files begin at 0, is watched as others") {
  if (mpi_ranks() == 1 || mpi_hosts() > 1) return;
  const NoInput none;
  const std::vector<int> before = open_files("");
  {
    Watched watched(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mpi_rank() == 1) watched.be_gone();
    CHECK(all_reports(watched, 1) == 1);
  }
  CHECK(none.is_free());
  CHECK(opened_since(before, "").empty());
}
