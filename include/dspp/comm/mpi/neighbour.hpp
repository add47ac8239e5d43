// SPDX-License-Identifier: Apache-2.0
/// Watches the process of another MPI rank on this machine and reports at once that it is gone.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()

#include <fcntl.h>
#include <mpi.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace dspp::detail {

/// A rank whose process ended without announcing it.
struct LostRank {
  int rank = -1;  ///< in the communicator given to NeighbourWatch
  long process = 0;
  std::string host;
};

/// The ranks on one machine form a ring; each holds a socket to the next, which the kernel closes when that process
/// ends. A process announces a regular exit first: announce_exit(). Only the first loss on a machine is reported, since
/// launchers then kill all other processes. An accepted connection is confirmed with a byte; without it, as between
/// processes in different PID namespaces, the rank is not watched.
///
/// Cost     two sockets, a page of memory and a sleeping thread for each rank; nothing where a machine has one rank
class NeighbourWatch {
 public:
  using Lost = std::function<void(const LostRank&)>;

  /// Collective over `comm`. Calls `lost` at most once, on a separate thread, when the next rank is lost.
  NeighbourWatch(MPI_Comm comm, Lost lost) : lost_(std::move(lost)) {
    MPI_Comm here = MPI_COMM_NULL;
    if (MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here) != MPI_SUCCESS) return;
    connect(comm, here);
    MPI_Comm_free(&here);
    if (next_ >= 0) watcher_ = std::jthread([this](const std::stop_token& stop) { watch(stop); });
  }
  NeighbourWatch(const NeighbourWatch&) = delete;
  NeighbourWatch& operator=(const NeighbourWatch&) = delete;
  ~NeighbourWatch() {
    announce_exit();
    if (watcher_.joinable()) watcher_.request_stop(), watcher_.join();
    for (const int file : {next_, previous_, page_})
      if (file >= 0) close(file);
    if (first_ != &alone_) munmap(first_, sizeof *first_);
  }

  /// This process is about to exit regularly: the rank that watches it reports nothing.
  void announce_exit() {
    if (exit_announced_.exchange(true)) return;
    [[maybe_unused]] const auto sent = previous_ < 0 ? 0 : send(previous_, "", 1, MSG_NOSIGNAL);
  }

  /// True if no process on this machine has reported an exit yet; marks it as reported.
  bool is_first_to_report() { return !first_->exchange(true); }

 private:
  /// What a rank publishes to the others on its machine.
  struct Card {
    int rank = -1;
    long process = 0;
    std::array<char, sizeof(sockaddr_un)> address{};
    unsigned address_bytes = 0;
    std::array<char, 64> host{};
    int page = -1;  ///< its shared-memory file, if it is the first rank on its machine
  };

  void connect(MPI_Comm comm, MPI_Comm here) {
    int rank = 0, size = 1;
    MPI_Comm_rank(here, &rank);
    MPI_Comm_size(here, &size);
    if (size == 1) return;
    Card own;
    const int listener = listen(own);
    MPI_Comm_rank(comm, &own.rank);
    own.process = getpid();
    gethostname(own.host.data(), own.host.size() - 1);
    if (rank == 0) own.page = page_ = memory_file();
    std::vector<Card> cards(static_cast<std::size_t>(size));
    constexpr int bytes = sizeof(Card);
    if (MPI_Allgather(&own, bytes, MPI_BYTE, cards.data(), bytes, MPI_BYTE, here) == MPI_SUCCESS) {
      const Card& next = cards[static_cast<std::size_t>((rank + 1) % size)];
      const Card& previous = cards[static_cast<std::size_t>((rank + size - 1) % size)];
      next_rank_ = {next.rank, next.process, next.host.data()};
      next_ = call(next);
      share_page("/proc/" + std::to_string(cards[0].process) + "/fd/" + std::to_string(cards[0].page));
      MPI_Barrier(here);  // all are connected
      if (listener >= 0) previous_ = answer(listener, previous.process);
    }
    if (listener >= 0) close(listener);
  }

  /// A socket with an abstract name: no file, nothing to remove.
  static int listen(Card& card) {
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socklen_t bytes = sizeof address;
    if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address.sun_family) != 0 ||
        ::listen(listener, 4) != 0 || getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
      if (listener >= 0) close(listener);
      return -1;
    }
    std::memcpy(card.address.data(), &address, bytes);
    card.address_bytes = bytes;
    return listener;
  }

  /// Anonymous memory: no file, nothing to remove.
  static int memory_file() {
    const int file = memfd_create("dspp", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, sizeof(std::atomic<bool>)) == 0) return file;
    if (file >= 0) close(file);
    return -1;
  }

  /// If the page cannot be mapped, each rank reports the loss it sees.
  void share_page(const std::string& path) {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void* const page = mmap(nullptr, sizeof *first_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (page != MAP_FAILED) first_ = static_cast<std::atomic<bool>*>(page);  // zero is false
  }

  static int call(const Card& card) {
    const int line = card.address_bytes == 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (line < 0) return -1;
    sockaddr_un address{};
    std::memcpy(&address, card.address.data(), card.address_bytes);
    if (::connect(line, reinterpret_cast<sockaddr*>(&address), card.address_bytes) == 0) return line;
    close(line);
    return -1;
  }

  /// Accepts the process that watches this one and confirms with a byte; closes other connections.
  static int answer(int listener, long process) {
    for (int line; (line = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
      ucred who{};
      socklen_t bytes = sizeof who;
      if (getsockopt(line, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.pid == process &&
          send(line, "", 1, MSG_NOSIGNAL) == 1)
        return line;
      close(line);
    }
    return -1;
  }

  void watch(const std::stop_token& stop) {
    bool taken = false;  // the connection was confirmed
    while (!stop.stop_requested()) {
      pollfd line{next_, POLLIN, 0};
      if (poll(&line, 1, 50) <= 0) continue;
      char word = 0;
      const auto bytes = recv(next_, &word, 1, 0);
      if (bytes == 0 || (bytes < 0 && errno != EINTR)) {  // closed without an announcement
        if (taken && !exit_announced_.load() && is_first_to_report()) lost_(next_rank_);
        return;
      }
      if (bytes == 1 && taken) return;  // a regular exit
      taken = taken || bytes == 1;
    }
  }

  Lost lost_;
  LostRank next_rank_;
  int next_ = -1, previous_ = -1, page_ = -1;
  std::atomic<bool> alone_{false};
  std::atomic<bool>* first_ = &alone_;
  static_assert(std::atomic<bool>::is_always_lock_free);
  std::atomic<bool> exit_announced_{false};
  std::jthread watcher_;
};

}  // namespace dspp::detail

#endif  // DSPP_HAS_MPI()
