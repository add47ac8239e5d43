// SPDX-License-Identifier: Apache-2.0
/// TCP sockets that never wait without a deadline.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <dspp/base/config.hpp>
#include <dspp/base/types.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#endif

namespace dspp::detail {

using TcpClock = std::chrono::steady_clock;

inline TcpClock::time_point after_seconds(double seconds) {
  return TcpClock::now() + std::chrono::duration_cast<TcpClock::duration>(std::chrono::duration<double>(seconds));
}

/// Owns a file descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int file) : file_(file) {}
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  ~Socket() { close(); }

  int file() const { return file_; }
  explicit operator bool() const { return file_ >= 0; }
  void close() noexcept;

 private:
  int file_ = -1;
};

/// An IPv4 or IPv6 address with its port: a sockaddr.
struct TcpAddress {
  alignas(8) std::array<unsigned char, 128> data{};
  unsigned bytes = 0;

  std::string host() const;  ///< in numbers
  int port() const;
  bool is_loopback() const;
  TcpAddress with_port(int port) const;
  TcpAddress of_any_host() const;
};

/// Those of a name; empty, with the system's words in `error`, if there are none.
std::vector<TcpAddress> tcp_addresses(const std::string& host, int port, std::string& error);
TcpAddress own_address(const Socket& socket);
TcpAddress peer_address(const Socket& socket);

/// A socket that listens, and does not block; none, with the system's words, if it cannot.
Socket listen_at(const TcpAddress& address, std::string& error, bool* in_use = nullptr);
/// One that is connected, and does not block.
Socket connect_to(const TcpAddress& address, TcpClock::time_point deadline, std::string& error);
/// A connection that came; none if there is none.
Socket accept_from(const Socket& listener);

/// True if one can be read before the deadline: data, a connection or its end.
bool await_readable(const std::vector<const Socket*>& sockets, TcpClock::time_point deadline);

/// True if the other end has ended, whether or not there is more to read.
bool is_hung_up(const Socket& socket);

enum class Moved { all, closed, late };
Moved send_all(const Socket& socket, const void* data, std::size_t bytes, TcpClock::time_point deadline);
Moved receive_all(const Socket& socket, void* data, std::size_t bytes, TcpClock::time_point deadline);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void Socket::close() noexcept {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

DSPP_INLINE std::string TcpAddress::host() const {
  char text[NI_MAXHOST] = {};
  if (getnameinfo(reinterpret_cast<const sockaddr*>(data.data()), bytes, text, sizeof text, nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return "an unknown address";
  return text;
}

DSPP_INLINE int TcpAddress::port() const {
  const auto* any = reinterpret_cast<const sockaddr*>(data.data());
  return ntohs(any->sa_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(any)->sin6_port
                                          : reinterpret_cast<const sockaddr_in*>(any)->sin_port);
}

DSPP_INLINE bool TcpAddress::is_loopback() const {
  const auto* any = reinterpret_cast<const sockaddr*>(data.data());
  if (any->sa_family == AF_INET)
    return (ntohl(reinterpret_cast<const sockaddr_in*>(any)->sin_addr.s_addr) >> 24) == 127;
  return any->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6*>(any)->sin6_addr);
}

DSPP_INLINE TcpAddress TcpAddress::with_port(int port) const {
  TcpAddress other = *this;
  auto* any = reinterpret_cast<sockaddr*>(other.data.data());
  const auto number = htons(static_cast<std::uint16_t>(port));
  if (any->sa_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(any)->sin6_port = number;
  else
    reinterpret_cast<sockaddr_in*>(any)->sin_port = number;
  return other;
}

DSPP_INLINE TcpAddress TcpAddress::of_any_host() const {
  TcpAddress other = *this;
  auto* any = reinterpret_cast<sockaddr*>(other.data.data());
  if (any->sa_family == AF_INET6)
    reinterpret_cast<sockaddr_in6*>(any)->sin6_addr = in6addr_any;
  else
    reinterpret_cast<sockaddr_in*>(any)->sin_addr.s_addr = htonl(INADDR_ANY);
  return other;
}

DSPP_INLINE std::vector<TcpAddress> tcp_addresses(const std::string& host, int port, std::string& error) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  std::vector<TcpAddress> all;
  if (code != 0) {
    error = gai_strerror(code);
    return all;
  }
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if ((one->ai_family != AF_INET && one->ai_family != AF_INET6) || one->ai_addrlen > TcpAddress{}.data.size())
      continue;
    TcpAddress address;
    std::memcpy(address.data.data(), one->ai_addr, one->ai_addrlen);
    address.bytes = one->ai_addrlen;
    all.push_back(address.with_port(port));
  }
  freeaddrinfo(found);
  if (all.empty()) error = "it has no address of IPv4 or IPv6";
  return all;
}

DSPP_INLINE TcpAddress own_address(const Socket& socket) {
  TcpAddress address;
  socklen_t bytes = static_cast<socklen_t>(address.data.size());
  if (getsockname(socket.file(), reinterpret_cast<sockaddr*>(address.data.data()), &bytes) == 0) address.bytes = bytes;
  return address;
}

DSPP_INLINE TcpAddress peer_address(const Socket& socket) {
  TcpAddress address;
  socklen_t bytes = static_cast<socklen_t>(address.data.size());
  if (getpeername(socket.file(), reinterpret_cast<sockaddr*>(address.data.data()), &bytes) == 0) address.bytes = bytes;
  return address;
}

/// Small messages at once; a machine that is gone is found after a minute.
DSPP_INLINE void set_tcp_options(const Socket& socket) {
  const int yes = 1, idle_seconds = 30, every_seconds = 10, times = 3;
  setsockopt(socket.file(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(socket.file(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  setsockopt(socket.file(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  setsockopt(socket.file(), IPPROTO_TCP, TCP_KEEPINTVL, &every_seconds, sizeof every_seconds);
  setsockopt(socket.file(), IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

DSPP_INLINE Socket tcp_socket(const TcpAddress& address) {
  return Socket(::socket(reinterpret_cast<const sockaddr*>(address.data.data())->sa_family,
                         SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

DSPP_INLINE Socket listen_at(const TcpAddress& address, std::string& error, bool* in_use) {
  Socket listener = tcp_socket(address);
  const int yes = 1;  // a port that an ended run had is free again
  if (listener && setsockopt(listener.file(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
      bind(listener.file(), reinterpret_cast<const sockaddr*>(address.data.data()), address.bytes) == 0 &&
      ::listen(listener.file(), 4096) == 0)
    return listener;
  if (in_use != nullptr) *in_use = errno == EADDRINUSE;
  error = std::strerror(errno);
  return {};
}

DSPP_INLINE bool await_events(const Socket& socket, short events, TcpClock::time_point deadline) {
  for (;;) {
    pollfd one{socket.file(), events, 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - TcpClock::now()).count();
    const int ready = ::poll(&one, 1, static_cast<int>(std::clamp<long long>(left, 0, 1000)));
    if (ready > 0) return true;
    if (left <= 0) return false;
  }
}

DSPP_INLINE Socket connect_to(const TcpAddress& address, TcpClock::time_point deadline, std::string& error) {
  Socket socket = tcp_socket(address);
  int code = 0;
  if (!socket || ::connect(socket.file(), reinterpret_cast<const sockaddr*>(address.data.data()), address.bytes) != 0)
    code = errno;
  if (code == EINPROGRESS) {
    socklen_t bytes = sizeof code;
    if (!await_events(socket, POLLOUT, deadline))
      code = ETIMEDOUT;
    else
      getsockopt(socket.file(), SOL_SOCKET, SO_ERROR, &code, &bytes);
  }
  // A port that no process has may be this socket's own, which is then connected to itself.
  if (code == 0 && own_address(socket).data == peer_address(socket).data) code = ECONNREFUSED;
  if (code != 0) {
    error = std::strerror(code);
    return {};
  }
  set_tcp_options(socket);
  return socket;
}

DSPP_INLINE Socket accept_from(const Socket& listener) {
  Socket socket(accept4(listener.file(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) set_tcp_options(socket);
  return socket;
}

DSPP_INLINE bool await_readable(const std::vector<const Socket*>& sockets, TcpClock::time_point deadline) {
  std::vector<pollfd> all;
  for (const Socket* socket : sockets) all.push_back({socket->file(), POLLIN, 0});
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - TcpClock::now()).count();
  return ::poll(all.data(), all.size(), static_cast<int>(std::clamp<long long>(left, 0, 1'000'000))) > 0;
}

DSPP_INLINE bool is_hung_up(const Socket& socket) {
  pollfd one{socket.file(), POLLRDHUP, 0};
  return ::poll(&one, 1, 0) > 0;
}

DSPP_INLINE Moved send_all(const Socket& socket, const void* data, std::size_t bytes, TcpClock::time_point deadline) {
  const auto* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto moved = ::send(socket.file(), at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (moved > 0) {
      at += moved, bytes -= static_cast<std::size_t>(moved);
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!await_events(socket, POLLOUT, deadline)) return Moved::late;
    } else {
      return Moved::closed;
    }
  }
  return Moved::all;
}

DSPP_INLINE Moved receive_all(const Socket& socket, void* data, std::size_t bytes, TcpClock::time_point deadline) {
  auto* at = static_cast<char*>(data);
  while (bytes > 0) {
    const auto moved = ::recv(socket.file(), at, bytes, MSG_DONTWAIT);
    if (moved > 0) {
      at += moved, bytes -= static_cast<std::size_t>(moved);
    } else if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (!await_events(socket, POLLIN, deadline)) return Moved::late;
    } else {
      return Moved::closed;
    }
  }
  return Moved::all;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::detail
