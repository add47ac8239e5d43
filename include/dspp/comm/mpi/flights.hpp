// SPDX-License-Identifier: Apache-2.0
/// The last operations of MPI ranks, readable by other processes on the same machine.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()

#include <fcntl.h>
#include <mpi.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <dspp/comm/flight_recorder.hpp>

namespace dspp::detail {

/// This rank's FlightRecorder in an anonymous shared-memory file, and access to the other ranks'.
class MpiFlights {
 public:
  /// Collective over `comm`.
  explicit MpiFlights(MPI_Comm comm) {
    int rank = 0, size = 1;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    Card own;
    own.process = getpid();
    gethostname(own.host.data(), own.host.size() - 1);
    own.file = file_ = memfd_create("dspp", MFD_CLOEXEC);
    void* memory = MAP_FAILED;
    if (file_ >= 0 && ftruncate(file_, sizeof(FlightRecorder)) == 0)
      memory = mmap(nullptr, sizeof(FlightRecorder), PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    struct stat facts {};
    if (memory != MAP_FAILED && fstat(file_, &facts) == 0) {
      own.device = facts.st_dev, own.number = facts.st_ino;
      own_ = new (memory) FlightRecorder;
    } else {
      own.file = -1;
      alone_ = std::make_unique<FlightRecorder>();
      own_ = alone_.get();
    }
    rank_ = rank;
    cards_.resize(static_cast<std::size_t>(size));
    constexpr int bytes = sizeof(Card);
    if (MPI_Allgather(&own, bytes, MPI_BYTE, cards_.data(), bytes, MPI_BYTE, comm) != MPI_SUCCESS) cards_.clear();
  }
  MpiFlights(const MpiFlights&) = delete;
  MpiFlights& operator=(const MpiFlights&) = delete;
  ~MpiFlights() {
    if (!alone_) munmap(own_, sizeof(FlightRecorder));
    if (file_ >= 0) close(file_);
  }

  FlightRecorder& own() { return *own_; }

  /// The list of all ranks' last operations.
  std::string list() const {
    std::vector<Mapped> mapped(cards_.size());
    return list_operations(static_cast<int>(cards_.size()), [&](int r) {
      Mapped& other = mapped[static_cast<std::size_t>(r)];
      return r == rank_ ? own_
                        : other.map(cards_[static_cast<std::size_t>(r)], cards_[static_cast<std::size_t>(rank_)]);
    });
  }

 private:
  struct Card {
    long process = 0;
    int file = -1;
    std::uint64_t device = 0, number = 0;  ///< of the file: another host may have the same two above
    std::array<char, 64> host{};
  };

  /// Another rank's memory, for as long as it is read.
  struct Mapped {
    void* memory = MAP_FAILED;
    Mapped() = default;
    Mapped(const Mapped&) = delete;
    Mapped& operator=(const Mapped&) = delete;
    ~Mapped() {
      if (memory != MAP_FAILED) munmap(memory, sizeof(FlightRecorder));
    }

    /// Null where the process is on another machine or not readable.
    const FlightRecorder* map(const Card& other, const Card& own) {
      if (other.file < 0 || other.host != own.host) return nullptr;
      const std::string path = "/proc/" + std::to_string(other.process) + "/fd/" + std::to_string(other.file);
      char target[32] = {};
      if (readlink(path.c_str(), target, sizeof target - 1) < 0 || std::string(target).rfind("/memfd:dspp", 0) != 0)
        return nullptr;  // the process id was reused, or processes do not see each other
      const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
      struct stat facts {};
      if (file >= 0 && fstat(file, &facts) == 0 && facts.st_size == sizeof(FlightRecorder) &&
          facts.st_dev == other.device && facts.st_ino == other.number)
        memory = mmap(nullptr, sizeof(FlightRecorder), PROT_READ, MAP_SHARED, file, 0);
      if (file >= 0) close(file);
      return memory == MAP_FAILED ? nullptr : static_cast<const FlightRecorder*>(memory);
    }
  };

  int file_ = -1, rank_ = 0;
  FlightRecorder* own_ = nullptr;
  std::unique_ptr<FlightRecorder> alone_;
  std::vector<Card> cards_;
};

}  // namespace dspp::detail

#endif  // DSPP_HAS_MPI()
