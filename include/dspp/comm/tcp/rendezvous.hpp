// SPDX-License-Identifier: Apache-2.0
/// How processes that know the address of rank 0 connect: a socket between every two of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/comm/tcp/place.hpp>
#include <dspp/comm/tcp/reception.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <cstdio>
#include <fstream>
#include <random>
#include <thread>
#endif

namespace dspp {

namespace detail {

struct TcpMeeting {
  std::vector<Socket> links;  ///< by rank; the own one is empty
  std::vector<int> nodes;     ///< equal for ranks of one machine
};

/// Connects the ranks. Every rank calls it, and returns or throws at the latest two seconds after the timeout: if a
/// process has the right token but contradicts the others (another number of ranks, a rank twice, another version of
/// dspp), is lost, or does not come, each rank throws one sentence. A wrong token is refused, and waited on for.
///
/// Throws   Error(usage) for a place that cannot be used, or is contradicted; Error(peer_lost) for ranks that do not
///          come or are lost
TcpMeeting meet(const TcpPlace& place, double timeout_seconds);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

/// What rank 0 tells the others about a rank.
struct TcpCard {
  std::array<char, 64> host{};
  std::uint32_t port = 0, unused = 0;
  std::uint64_t node = 0;
};

/// Of this boot of this machine, and of its name: containers of one machine have names of their own.
DSPP_INLINE std::uint64_t number_of_machine() {
  std::string text;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> text;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  std::uint64_t number = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : text + name) number = (number ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return number;
}

/// The meeting of one rank.
class TcpMeet {
 public:
  TcpMeet(const TcpPlace& place, double timeout_seconds)
      : place_(place),
        seconds_(timeout_seconds),
        until_(after_seconds(timeout_seconds)),
        at_(place.host + ":" + std::to_string(place.port)) {
    meeting_.links.resize(static_cast<std::size_t>(place.size));
    cards_.resize(static_cast<std::size_t>(place.size));
    if (place_.token.size() > longest_token)
      fail(ErrorCode::usage, "dspp: DSPP_TOKEN needs at most 512 bytes, but has " +
                                 std::to_string(place_.token.size()) + ". Use a shorter one.");
  }

  TcpMeeting run() {
    own_.node = number_of_machine();
    if (place_.rank == 0)
      receive_all_ranks();
    else
      join();
    std::vector<std::uint64_t> keys;
    for (const TcpCard& card : cards_) {
      std::size_t i = 0;
      while (i < keys.size() && keys[i] != card.node) ++i;
      if (i == keys.size()) keys.push_back(card.node);
      meeting_.nodes.push_back(static_cast<int>(i));
    }
    return std::move(meeting_);
  }

 private:
  static std::string rank_name(int rank) { return "rank " + std::to_string(rank); }
  std::string name() const { return rank_name(place_.rank); }
  std::string seconds() const {
    char text[32];
    std::snprintf(text, sizeof text, "%g", seconds_);
    return text;
  }
  Socket& link(int rank) { return meeting_.links[static_cast<std::size_t>(rank)]; }
  TcpCard& card(int rank) { return cards_[static_cast<std::size_t>(rank)]; }

  /// Those of MASTER_ADDR that may be used.
  std::vector<TcpAddress> addresses() {
    std::string error;
    std::vector<TcpAddress> all = tcp_addresses(place_.host, place_.port, error);
    if (all.empty())
      fail(ErrorCode::usage, "dspp: " + name() + " needs an address for MASTER_ADDR '" + place_.host +
                                 "', but the system says: " + error + ". Set it to a name or number of rank 0's host.");
    if (!place_.token.empty()) return all;
    std::erase_if(all, [](const TcpAddress& one) { return !one.is_loopback(); });
    if (all.empty())
      fail(ErrorCode::usage,
           "dspp: " + name() + " needs the variable DSPP_TOKEN for a MASTER_ADDR beyond this machine, '" + place_.host +
               "', but it is not set. Set it to the same secret on every rank, or use 127.0.0.1.");
    return all;
  }

  // --- rank 0

  void receive_all_ranks() {
    const Socket listener = [&] {
      std::string error;
      bool in_use = false;
      for (const TcpAddress& one : addresses()) {
        Socket made = listen_at(one.is_loopback() ? one : one.of_any_host(), error, &in_use);
        if (made) return made;
        if (in_use) break;
      }
      fail(ErrorCode::usage, "dspp: rank 0 needs to listen at " + at_ +
                                 ", MASTER_ADDR and MASTER_PORT, but the system says: " + error +
                                 (in_use ? ". Choose another MASTER_PORT, or end what has this one."
                                         : ". Set MASTER_ADDR to an address of the host of rank 0."));
    }();
    TcpReception reception(listener, place_.token, place_.size);
    for (int came = 1; came < place_.size;) {
      if (std::optional<TcpGuest> guest = reception.next(std::min(until_, after_seconds(0.05)))) {
        admit(*guest);
        ++came;
      }
      for (int r = 1; r < place_.size; ++r)
        if (link(r) && is_hung_up(link(r)))
          refuse_all(ErrorCode::peer_lost, "dspp: every rank needs all the others, but " + rank_name(r) + " (" +
                                               card(r).host.data() +
                                               ") was lost before all had come. Look for what ended it.");
      if (came < place_.size && TcpClock::now() >= until_) miss(reception.refusals());
    }
    send_cards();
  }

  void admit(TcpGuest& guest) {
    const TcpHello& hello = guest.hello;
    std::string wrong;
    if (hello.version != tcp_version || hello.world != 0)
      wrong = "dspp: all ranks need one version of dspp, but " + guest.host +
              " speaks another. Build all ranks' programs from one version.";
    else if (hello.size != place_.size)
      wrong = "dspp: all ranks need one WORLD_SIZE, but rank 0 has " + std::to_string(place_.size) + " and " +
              rank_name(hello.rank) + " has " + std::to_string(hello.size) + ". Give all the same.";
    else if (hello.rank < 0 || hello.rank >= place_.size)
      wrong = "dspp: all ranks need a RANK from 0 to " + std::to_string(place_.size - 1) + ", but " + guest.host +
              " has " + std::to_string(hello.rank) + ". Give each process its own.";
    else if (hello.rank == 0 || link(hello.rank))
      wrong = "dspp: all ranks need a RANK of their own, but two processes came as " + rank_name(hello.rank) +
              ". Give each process its own.";
    if (!wrong.empty()) {
      answer(guest.socket, true, wrong);
      refuse_all(ErrorCode::usage, wrong);
    }
    TcpCard& its = card(hello.rank);
    guest.host.copy(its.host.data(), its.host.size() - 1);
    its.port = hello.port;
    its.node = hello.node;
    link(hello.rank) = std::move(guest.socket);
  }

  [[noreturn]] void refuse_all(ErrorCode code, const std::string& sentence) {
    for (const Socket& one : meeting_.links)
      if (one) answer(one, true, sentence);
    fail(code, sentence);
  }

  [[noreturn]] void miss(const std::string& refusals) {
    std::string missing;
    int count = 0;
    for (int r = 1; r < place_.size; ++r)
      if (!link(r) && ++count <= 16) missing += (count == 1 ? "" : ", ") + rank_name(r);
    if (count > 16) missing += " and " + std::to_string(count - 16) + " more";
    refuse_all(ErrorCode::peer_lost, "dspp: rank 0 needs all " + std::to_string(place_.size) + " ranks to begin, at " +
                                         at_ + ", but waited " + seconds() + " s and did not see " + missing +
                                         refusals + ". Look for what keeps them, or raise timeout_seconds.");
  }

  void send_cards() {
    card(0) = own_;
    std::string all(cards_.size() * sizeof(TcpCard), '\0');
    std::memcpy(all.data(), cards_.data(), all.size());
    std::random_device any;
    const std::uint64_t world = 1 + (std::uint64_t{any()} << 31) + any();
    for (int r = 1; r < place_.size; ++r) answer(link(r), false, all, world);
  }

  // --- the others

  void join() {
    std::string tried;
    Socket& first = link(0);
    for (double pause = 0.002; !first; pause = std::min(0.25, 2 * pause)) {
      for (const TcpAddress& one : addresses())
        if (!first) first = connect_to(one, std::min(until_, after_seconds(5)), tried);
      if (first) break;
      if (TcpClock::now() >= until_)
        fail(ErrorCode::peer_lost, "dspp: " + name() + " needs rank 0 at " + at_ +
                                       ", MASTER_ADDR and MASTER_PORT, but waited " + seconds() + " s: " + tried +
                                       ". Look whether rank 0 runs there, and whether a firewall is between.");
      std::this_thread::sleep_for(std::chrono::duration<double>(pause));
    }
    std::string error;
    const Socket listener = listen_at(own_address(first).with_port(0), error);
    if (!listener)
      fail(ErrorCode::state, "dspp: " + name() + " needs a port for the other ranks, but the system says: " + error +
                                 ". Look for limits on its sockets.");
    own_.port = static_cast<std::uint32_t>(own_address(listener).port());
    introduce(first, 0);
    const std::string text = hear_answer(first, 0, world_);
    if (text.size() != cards_.size() * sizeof(TcpCard)) fail_stranger(0);
    std::memcpy(cards_.data(), text.data(), text.size());
    for (TcpCard& one : cards_) one.host.back() = 0;
    connect_to_others(listener);
  }

  void connect_to_others(const Socket& listener) {
    std::string error;
    for (int r = 1; r < place_.rank; ++r) {
      const std::vector<TcpAddress> at = tcp_addresses(card(r).host.data(), static_cast<int>(card(r).port), error);
      if (!at.empty()) link(r) = connect_to(at.front(), until_, error);
      if (!link(r)) fail_link(r, error);
      introduce(link(r), world_);
    }
    TcpReception reception(listener, place_.token, place_.size);
    for (int missing = place_.size - 1 - place_.rank; missing > 0;) {
      for (int r = 0; r < place_.size; ++r)
        if (link(r) && is_hung_up(link(r))) fail_link(r, "it was closed");
      std::optional<TcpGuest> guest = reception.next(std::min(until_, after_seconds(0.05)));
      if (!guest && TcpClock::now() < until_) continue;
      if (!guest) {
        int r = place_.rank + 1;
        while (link(r)) ++r;
        fail_link(r, "it did not come in " + seconds() + " s");
      }
      const int r = guest->hello.rank;
      if (guest->hello.world != world_ || r <= place_.rank || r >= place_.size || link(r)) continue;
      answer(guest->socket, false, "", world_);
      link(r) = std::move(guest->socket);
      --missing;
    }
    for (int r = 1; r < place_.rank; ++r) {
      std::uint64_t world = 0;
      if (!hear_answer(link(r), r, world).empty() || world != world_) fail_stranger(r);
    }
  }

  void introduce(const Socket& to, std::uint64_t world) {
    const TcpHello hello{tcp_mark,    tcp_version, static_cast<std::uint32_t>(place_.token.size()),
                         place_.rank, place_.size, world,
                         own_.node,   own_.port,   0};
    std::string all(sizeof hello, '\0');
    std::memcpy(all.data(), &hello, sizeof hello);
    all += place_.token;
    send_all(to, all.data(), all.size(), until_);  // what fails here is heard below
  }

  std::string hear_answer(const Socket& from, int rank, std::uint64_t& world) {
    const auto until = until_ + std::chrono::seconds(2);  // rank 0 says first who is missing
    TcpAnswer head;
    std::string text;
    Moved moved = receive_all(from, &head, sizeof head, until);
    if (moved == Moved::all && (head.mark != tcp_mark || head.bytes > longest_answer)) fail_stranger(rank);
    if (moved == Moved::all) {
      text.resize(head.bytes);
      moved = receive_all(from, text.data(), text.size(), until);
    }
    if (moved == Moved::late)
      fail(ErrorCode::peer_lost, "dspp: " + name() + " needs an answer of " + rank_name(rank) + ", but waited " +
                                     seconds() + " s" + where(rank) +
                                     ". Look whether it is dspp that answers there, or raise timeout_seconds.");
    if (moved == Moved::closed)
      fail(ErrorCode::peer_lost, "dspp: " + name() + " needs an answer of " + rank_name(rank) +
                                     ", but the connection was closed" + where(rank) +
                                     ". See the error of that rank, or what else has its port.");
    if (head.refused != 0) fail(ErrorCode::usage, text);
    world = head.world;
    return text;
  }

  std::string where(int rank) const { return rank == 0 ? " at " + at_ : std::string(); }
  [[noreturn]] void fail_stranger(int rank) const {
    fail(ErrorCode::usage, "dspp: " + name() + " needs dspp's " + rank_name(rank) + where(rank) +
                               ", but something else answers. Choose another MASTER_PORT.");
  }
  [[noreturn]] void fail_link(int rank, const std::string& error) {
    fail(ErrorCode::peer_lost, "dspp: " + name() + " needs a connection with " + rank_name(rank) + " at " +
                                   card(rank).host.data() + ":" + std::to_string(card(rank).port) + ", but: " + error +
                                   ". Look for what ended it, and for a firewall between the two.");
  }

  const TcpPlace& place_;
  double seconds_;
  TcpClock::time_point until_;
  std::string at_;
  TcpMeeting meeting_;
  std::vector<TcpCard> cards_;
  TcpCard own_;
  std::uint64_t world_ = 0;
};

DSPP_INLINE TcpMeeting meet(const TcpPlace& place, double timeout_seconds) {
  require(place.size >= 1 && place.rank >= 0 && place.rank < place.size,
          "dspp: a TCP rank needs a number from 0 to below the number of ranks, but got another. Correct it.",
          ErrorCode::usage, {{"rank", place.rank}, {"ranks", place.size}});
  if (place.size == 1) return {std::vector<Socket>(1), {0}};
  return TcpMeet(place, timeout_seconds).run();
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

}  // namespace dspp
