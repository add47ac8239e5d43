// SPDX-License-Identifier: Apache-2.0
// What one rank reads of the others' flight recorders, and that it reads nothing that is not one. Run by mpirun on 1,
// 2, 3 and 4 ranks.
#include <doctest/doctest.h>
#include <laws/mpi_worlds.hpp>
#include <support/open_files.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include <dspp/comm/mpi/flights.hpp>

using namespace dspp;
using namespace dspp::laws;
using detail::MpiFlights;

namespace {

constexpr const char* unreadable = " cannot be read from here";

void record(MpiFlights& flights, int rank) {
  const CallSite site{"/a/b/c.cpp", 10 + rank};
  const detail::Posted posted{
      Collective::all_reduce, Purpose::gradient, 0, {{nullptr, nullptr, 100 + rank, ElementType::f32}}, {site, site}};
  flights.own().enter(posted, mpi_ranks(), 4, detail::words_of_name("the world"));
}

std::string line_of(int rank) {
  return "\n    rank " + std::to_string(rank) + " > all_reduce(f32 x " + std::to_string(100 + rank) +
         "), the 5th operation of the world at b/c.cpp:" + std::to_string(10 + rank);
}

/// The list, in which the lines of ranks `others` are `line` behind their names.
std::string list_with(const std::vector<int>& others, const std::string& line) {
  std::string list = "  the last operations of each rank, the newest first; > is not complete:";
  const int each = mpi_ranks() / mpi_hosts();
  for (int r = 0; r < mpi_ranks(); ++r) {
    const bool other = std::find(others.begin(), others.end(), r) != others.end();
    const std::string name = "\n    rank " + std::to_string(r);
    list += r / each != mpi_rank() / each ? name + unreadable : other ? name + line : line_of(r);
  }
  return list;
}

/// What the others read when `change(file)` has run on the last rank, where `file` is the memory of its recorder.
template <class Change>
void check_unreadable(Change change) {
  const int last = mpi_ranks() - 1;
  const std::vector<int> before = open_files("/memfd:dspp");
  MpiFlights flights(MPI_COMM_WORLD);
  const std::vector<int> opened = opened_since(before, "/memfd:dspp");
  REQUIRE(opened.size() == 1);
  record(flights, mpi_rank());
  if (mpi_rank() == last) change(opened[0]);
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(flights.list() == (mpi_rank() == last ? list_with({}, "") : list_with({last}, unreadable)));
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Puts another file in the place of `file`.
void replace(int file, const char* name, long bytes) {
  const int other = memfd_create(name, MFD_CLOEXEC);
  REQUIRE(other >= 0);
  REQUIRE(ftruncate(other, bytes) == 0);
  REQUIRE(dup2(other, file) == file);
  close(other);
}

}  // namespace

TEST_CASE("every MPI rank lists the last operations of all ranks on its machine") {
  MpiFlights flights(MPI_COMM_WORLD);
  MPI_Barrier(MPI_COMM_WORLD);
  std::vector<int> all;
  for (int r = 0; r < mpi_ranks(); ++r) all.push_back(r);
  CHECK(flights.list() == list_with(all, " has called none"));
  MPI_Barrier(MPI_COMM_WORLD);
  record(flights, mpi_rank());
  MPI_Barrier(MPI_COMM_WORLD);
  for (int i = 0; i < 2; ++i) CHECK(flights.list() == list_with({}, ""));
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("a list and its recorder leave no file and no mapping behind") {
  const auto mappings = [] { return mappings_of("/memfd:dspp"); };
  const std::vector<int> before = open_files("");
  const int mapped = mappings();
  {
    MpiFlights flights(MPI_COMM_WORLD);
    record(flights, mpi_rank());
    CHECK(mappings() == mapped + 1);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 3; ++i) flights.list();
    CHECK(mappings() == mapped + 1);
    CHECK(opened_since(before, "/memfd:dspp").size() == 1);
    MPI_Barrier(MPI_COMM_WORLD);
  }
  CHECK(mappings() == mapped);
  CHECK(opened_since(before, "/memfd:dspp").empty());
}

TEST_CASE("memory that is not the recorder of an MPI rank is not read: closed, of another name, size or file") {
  check_unreadable([](int file) { close(file); });
  check_unreadable([](int file) { replace(file, "other", sizeof(detail::FlightRecorder)); });
  check_unreadable([](int file) { replace(file, "dspp", sizeof(detail::FlightRecorder) + 4096); });
  check_unreadable([](int file) { replace(file, "dspp", sizeof(detail::FlightRecorder)); });
}

TEST_CASE("an MPI rank without a file for its recorder keeps it to itself") {
  const int last = mpi_ranks() - 1;
  { const MpiFlights before(MPI_COMM_WORLD); }  // MPI has the files that it needs
  std::optional<FewFiles> few;
  if (mpi_rank() == last) few.emplace(0);
  MpiFlights flights(MPI_COMM_WORLD);
  few.reset();
  record(flights, mpi_rank());
  MPI_Barrier(MPI_COMM_WORLD);
  CHECK(flights.list() == (mpi_rank() == last ? list_with({}, "") : list_with({last}, unreadable)));
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST_CASE("an MPI rank without a standard input, whose files begin at 0, is read and reads as others") {
  {
    const NoInput none;
    {
      MpiFlights flights(MPI_COMM_WORLD);
      CHECK(!none.is_free());  // it is the recorder's
      record(flights, mpi_rank());
      MPI_Barrier(MPI_COMM_WORLD);
      CHECK(flights.list() == list_with({}, ""));
      MPI_Barrier(MPI_COMM_WORLD);
    }
    CHECK(none.is_free());
  }
  MpiFlights flights(MPI_COMM_WORLD);
  record(flights, mpi_rank());
  MPI_Barrier(MPI_COMM_WORLD);
  {
    const NoInput none;
    CHECK(flights.list() == list_with({}, ""));
    CHECK(none.is_free());
  }
  MPI_Barrier(MPI_COMM_WORLD);
}
