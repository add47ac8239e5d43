// SPDX-License-Identifier: Apache-2.0
/// Messages between ranks, over a socket between every two: framed, with lengths that are checked.
#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include <dspp/comm/tcp/socket.hpp>

namespace dspp::detail {

enum class TcpKind : std::uint16_t {
  call = 1,  ///< a Fingerprint
  ready,     ///< the sender awaits the next data of a line
  data,
  failure,  ///< an encoded TcpFailure
  end       ///< the sender calls nothing more
};

/// What every message begins with.
struct TcpHead {
  std::uint32_t mark = 0;
  TcpKind kind = TcpKind::end;
  std::uint16_t line = 0;  ///< of a group, or of its messages in one direction
  std::uint32_t bytes = 0, unused = 0;
};

/// Who is given what comes.
class TcpInbox {
 public:
  /// Where that many bytes of data go; null if none are awaited.
  virtual std::byte* room(int rank, int line, Size bytes) = 0;
  virtual void arrived(int rank, const TcpHead& head, std::vector<std::byte>& payload) = 0;
  /// The connection is over; `why` is what the other rank did.
  virtual void closed(int rank, const std::string& why) = 0;

 protected:
  ~TcpInbox() = default;
};

/// Sends at once what the sockets take, and the rest in poll(). Data are sent from where they lie.
class TcpLinks {
 public:
  static constexpr Size most_payload_bytes = 64 << 20;

  TcpLinks(TcpInbox& inbox, std::vector<Socket> sockets);

  /// A message whose payload is copied.
  void send(int rank, TcpKind kind, int line, std::span<const std::byte> payload = {});
  /// `data` must stay until `unsent`, which is raised, is lowered again; or until withdraw(line).
  void send_data(int rank, int line, const std::byte* data, Size bytes, int& unsent);

  /// Moves what can be moved; waits at most that long for the first. True if anything moved.
  bool poll(int milliseconds);
  /// True if every message has been given to the system.
  bool is_empty() const;
  /// Memory of that line's data is not touched any more.
  void withdraw(int line);

 private:
  struct Outgoing {
    std::vector<std::byte> own;
    const std::byte* data = nullptr;
    Size bytes = 0;  // of data
    int line = -1;
    int* unsent = nullptr;

    Size all() const { return std::ssize(own) + bytes; }
  };
  struct Link {
    Socket socket;
    std::deque<Outgoing> out;
    Size sent = 0;  // of the first
    TcpHead head;
    Size received = 0;  // of the head and its payload
    std::byte* to = nullptr;
    std::vector<std::byte> payload;
  };

  void flush(int rank);
  bool read(int rank);
  bool begin_payload(int rank);
  void close(int rank, const std::string& why);
  Link& link(int rank) { return links_[static_cast<std::size_t>(rank)]; }
  static TcpHead head_of(TcpKind kind, int line, Size bytes);

  TcpInbox& inbox_;
  std::vector<Link> links_;
};

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

inline constexpr std::uint32_t tcp_message = 0x70737064;  // "dpsp", read as a number

DSPP_INLINE TcpLinks::TcpLinks(TcpInbox& inbox, std::vector<Socket> sockets) : inbox_(inbox), links_(sockets.size()) {
  for (std::size_t r = 0; r < sockets.size(); ++r) links_[r].socket = std::move(sockets[r]);
}

DSPP_INLINE TcpHead TcpLinks::head_of(TcpKind kind, int line, Size bytes) {
  return {tcp_message, kind, static_cast<std::uint16_t>(line), static_cast<std::uint32_t>(bytes), 0};
}

DSPP_INLINE void TcpLinks::send(int rank, TcpKind kind, int line, std::span<const std::byte> payload) {
  if (!link(rank).socket) return;
  const TcpHead head = head_of(kind, line, std::ssize(payload));
  Outgoing next;
  next.own.resize(sizeof head + payload.size());
  std::memcpy(next.own.data(), &head, sizeof head);
  if (!payload.empty()) std::memcpy(next.own.data() + sizeof head, payload.data(), payload.size());
  link(rank).out.push_back(std::move(next));
  flush(rank);
}

DSPP_INLINE void TcpLinks::send_data(int rank, int line, const std::byte* data, Size bytes, int& unsent) {
  if (!link(rank).socket) return;
  const TcpHead head = head_of(TcpKind::data, line, bytes);
  Outgoing next{std::vector<std::byte>(sizeof head), data, bytes, line, &unsent};
  std::memcpy(next.own.data(), &head, sizeof head);
  ++unsent;
  link(rank).out.push_back(std::move(next));
  flush(rank);
}

DSPP_INLINE void TcpLinks::flush(int rank) {
  Link& to = link(rank);
  while (to.socket && !to.out.empty()) {
    Outgoing& first = to.out.front();
    const Size own = std::ssize(first.own);
    const std::byte* const at = to.sent < own ? first.own.data() + to.sent : first.data + (to.sent - own);
    const Size rest = to.sent < own ? own - to.sent : first.all() - to.sent;
    const bool more = to.sent < own && first.bytes > 0;
    const auto moved = ::send(to.socket.file(), at, static_cast<std::size_t>(rest),
                              MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
    if (moved < 0) {
      if (errno == EAGAIN || errno == EINTR) return;
      to.out.clear();  // read() finds what the other rank still said, and the end
      to.sent = 0;
      return;
    }
    to.sent += moved;
    if (to.sent < first.all()) continue;
    if (first.unsent != nullptr) --*first.unsent;
    to.out.pop_front();
    to.sent = 0;
  }
}

DSPP_INLINE bool TcpLinks::begin_payload(int rank) {
  Link& from = link(rank);
  const TcpHead& head = from.head;
  const bool known = head.mark == tcp_message && head.kind >= TcpKind::call && head.kind <= TcpKind::end;
  if (known && static_cast<Size>(head.bytes) <= most_payload_bytes) {
    from.payload.clear();
    from.to = nullptr;
    if (head.kind == TcpKind::data) from.to = inbox_.room(rank, head.line, static_cast<Size>(head.bytes));
    if (from.to == nullptr) {
      from.payload.resize(head.bytes);
      from.to = from.payload.data();
    }
    return true;
  }
  close(rank, "sent what is no message of dspp");
  return false;
}

DSPP_INLINE bool TcpLinks::read(int rank) {
  Link& from = link(rank);
  constexpr Size head_bytes = sizeof(TcpHead), enough = 8 << 20;
  for (Size moved_bytes = 0; from.socket && moved_bytes < enough;) {
    const Size whole = head_bytes + (from.received < head_bytes ? 0 : static_cast<Size>(from.head.bytes));
    std::byte* const at = from.received < head_bytes ? reinterpret_cast<std::byte*>(&from.head) + from.received
                                                     : from.to + (from.received - head_bytes);
    const auto moved = ::recv(from.socket.file(), at, static_cast<std::size_t>(whole - from.received), MSG_DONTWAIT);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) return moved_bytes > 0;
    if (moved <= 0) {
      close(rank, "closed its connection");
      return true;
    }
    moved_bytes += moved;
    from.received += moved;
    if (from.received < whole) continue;
    if (from.received == head_bytes && !begin_payload(rank)) return true;
    if (from.received < head_bytes + static_cast<Size>(from.head.bytes)) continue;
    from.received = 0;
    inbox_.arrived(rank, from.head, from.payload);
  }
  return true;
}

DSPP_INLINE void TcpLinks::close(int rank, const std::string& why) {
  link(rank).socket.close();
  link(rank).out.clear();
  inbox_.closed(rank, why);
}

DSPP_INLINE bool TcpLinks::poll(int milliseconds) {
  std::vector<pollfd> all;
  std::vector<int> ranks;
  for (int r = 0; r < static_cast<int>(links_.size()); ++r) {
    if (!link(r).socket) continue;
    all.push_back({link(r).socket.file(), static_cast<short>(POLLIN | (link(r).out.empty() ? 0 : POLLOUT)), 0});
    ranks.push_back(r);
  }
  if (::poll(all.data(), all.size(), milliseconds) <= 0) return false;
  bool moved = false;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((all[i].revents & POLLOUT) != 0) flush(ranks[i]), moved = true;
    if ((all[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && link(ranks[i]).socket) moved = read(ranks[i]) || moved;
  }
  return moved;
}

DSPP_INLINE bool TcpLinks::is_empty() const {
  for (const Link& one : links_)
    if (one.socket && !one.out.empty()) return false;
  return true;
}

DSPP_INLINE void TcpLinks::withdraw(int line) {
  for (Link& one : links_) {
    for (Outgoing& next : one.out) {
      if (next.line != line) continue;
      const bool begun = &next == &one.out.front() && one.sent > 0;
      if (begun) next.own.insert(next.own.end(), next.data, next.data + next.bytes);  // the stream stays whole
      if (!begun) next.own.clear();
      next.data = nullptr, next.bytes = 0, next.unsent = nullptr;
    }
    std::erase_if(one.out, [](const Outgoing& next) { return next.all() == 0; });
    const bool has_head = one.received >= static_cast<Size>(sizeof(TcpHead));
    if (has_head && one.head.kind == TcpKind::data && one.head.line == line && one.payload.empty()) {
      one.payload.resize(one.head.bytes);
      one.to = one.payload.data();
    }
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
