// SPDX-License-Identifier: Apache-2.0
/// Connections that say who they are: none is heard before it has presented the token.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <dspp/comm/tcp/socket.hpp>

namespace dspp::detail {

/// What a process says first, followed by its token.
struct TcpHello {
  std::array<char, 8> mark{};
  std::uint32_t version = 0, token_bytes = 0;
  std::int32_t rank = 0, size = 0;
  std::uint64_t world = 0;  ///< of a link between two ranks: the number that rank 0 gave out; else 0
  std::uint64_t node = 0;   ///< equal on ranks of one machine
  std::uint32_t port = 0;   ///< on which it waits for ranks above it
  std::uint32_t unused = 0;
};

/// The answer, followed by a sentence, or by what the ranks need.
struct TcpAnswer {
  std::array<char, 8> mark{};
  std::uint32_t refused = 0, bytes = 0;
  std::uint64_t world = 0;
};

inline constexpr std::array<char, 8> tcp_mark{'d', 's', 'p', 'p', '-', 't', 'c', 'p'};
inline constexpr std::uint32_t tcp_version = 1, longest_token = 512, longest_answer = 1u << 24;

/// A process that presented the token.
struct TcpGuest {
  Socket socket;
  TcpHello hello;
  std::string host;
};

void answer(const Socket& socket, bool refused, const std::string& text, std::uint64_t world = 0);

/// Reads what comes to a listener. What does not begin as a TcpHello is closed without an answer, what takes longer
/// than 10 seconds, too; of very many that say nothing the oldest are closed.
class TcpReception {
 public:
  TcpReception(const Socket& listener, std::string token, int ranks)
      : listener_(listener), token_(std::move(token)), most_strangers_(64 + 2 * static_cast<std::size_t>(ranks)) {}

  /// The next guest that comes before `until`.
  std::optional<TcpGuest> next(TcpClock::time_point until);
  /// " (a process at 10.0.0.7 presented another DSPP_TOKEN)", or empty.
  const std::string& refusals() const { return refusals_; }

 private:
  struct Stranger {
    Socket socket;
    std::string said;
    TcpClock::time_point until;
  };
  enum class Heard { more, all, nothing };

  Heard hear(Stranger& stranger, TcpGuest& guest);

  const Socket& listener_;
  std::string token_, refusals_;
  std::size_t most_strangers_;
  std::deque<Stranger> strangers_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void answer(const Socket& socket, bool refused, const std::string& text, std::uint64_t world) {
  const TcpAnswer head{tcp_mark, refused ? 1u : 0u, static_cast<std::uint32_t>(text.size()), world};
  std::string all(sizeof head, '\0');
  std::memcpy(all.data(), &head, sizeof head);
  all += text;
  send_all(socket, all.data(), all.size(), after_seconds(2));
}

/// In a time that does not tell how much of them is equal.
DSPP_INLINE bool are_same_tokens(const std::string& a, const std::string& b) {
  unsigned differs = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i)
    differs |= unsigned{static_cast<unsigned char>(a[i])} ^
               (b.empty() ? 0u : unsigned{static_cast<unsigned char>(b[i % b.size()])});
  return differs == 0;
}

DSPP_INLINE TcpReception::Heard TcpReception::hear(Stranger& stranger, TcpGuest& guest) {
  char text[sizeof(TcpHello) + longest_token];
  TcpHello hello;
  std::size_t wanted = sizeof hello;
  for (;;) {
    if (stranger.said.size() >= sizeof hello) {
      std::memcpy(&hello, stranger.said.data(), sizeof hello);
      if (hello.token_bytes > longest_token) return Heard::nothing;
      wanted = sizeof hello + hello.token_bytes;
      if (stranger.said.size() == wanted) break;
    }
    const auto bytes = ::recv(stranger.socket.file(), text, wanted - stranger.said.size(), MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::more;
    if (bytes <= 0) return Heard::nothing;
    stranger.said.append(text, static_cast<std::size_t>(bytes));
    const std::size_t known = std::min(stranger.said.size(), tcp_mark.size());
    if (std::memcmp(stranger.said.data(), tcp_mark.data(), known) != 0) return Heard::nothing;
  }
  guest.host = peer_address(stranger.socket).host();
  if (!are_same_tokens(stranger.said.substr(sizeof hello), token_)) {
    refusals_ = " (a process at " + guest.host + " presented another DSPP_TOKEN)";
    answer(
        stranger.socket, true,
        "dspp: rank " + std::to_string(hello.rank) +
            " needs the DSPP_TOKEN of the other ranks, but presented another one. Give all ranks the same, or none.");
    return Heard::nothing;
  }
  guest.hello = hello;
  return Heard::all;
}

DSPP_INLINE std::optional<TcpGuest> TcpReception::next(TcpClock::time_point until) {
  for (;;) {
    for (Socket came = accept_from(listener_); came; came = accept_from(listener_)) {
      strangers_.push_back({std::move(came), "", after_seconds(10)});
      if (strangers_.size() > most_strangers_) strangers_.pop_front();
    }
    for (auto one = strangers_.begin(); one != strangers_.end();) {
      TcpGuest guest;
      const Heard heard = hear(*one, guest);
      if (heard == Heard::all) guest.socket = std::move(one->socket);
      one = heard == Heard::more && TcpClock::now() < one->until ? one + 1 : strangers_.erase(one);
      if (heard == Heard::all) return guest;
    }
    std::vector<const Socket*> all{&listener_};
    for (const Stranger& one : strangers_) all.push_back(&one.socket);
    if (TcpClock::now() >= until) return std::nullopt;
    await_readable(all, std::min(until, after_seconds(0.1)));
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
