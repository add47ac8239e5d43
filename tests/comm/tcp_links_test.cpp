// SPDX-License-Identifier: Apache-2.0
// labels: comm
#include <doctest/doctest.h>

#include <sys/socket.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include <dspp/comm/tcp/links.hpp>

using namespace dspp;
using namespace dspp::detail;

namespace {

/// Keeps what comes, with the bytes.
struct Kept final : TcpInbox {
  struct Message {
    TcpKind kind;
    int line;
    std::string bytes;
  };
  std::vector<Message> messages;
  std::string memory;  // of the data that are awaited
  std::string closed_by;

  std::byte* room(int, int, Size bytes) override {
    return bytes == std::ssize(memory) ? reinterpret_cast<std::byte*>(memory.data()) : nullptr;
  }
  void arrived(int, const TcpHead& head, std::vector<std::byte>& payload) override {
    const bool in_place = head.kind == TcpKind::data && payload.empty();
    messages.push_back(
        {head.kind, head.line,
         in_place ? memory : std::string(reinterpret_cast<const char*>(payload.data()), payload.size())});
  }
  void closed(int, const std::string& why) override { closed_by = why; }
};

/// Two ends of a connection. `raw` is the other end's socket where it is no TcpLinks.
struct Pair {
  Kept here, there;
  int raw = -1;
  std::unique_ptr<TcpLinks> from, to;

  explicit Pair(bool both = true) {
    int ends[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    from = made(here, ends[0]);
    raw = ends[1];
    if (both) to = made(there, ends[1]);
  }
  static std::unique_ptr<TcpLinks> made(Kept& inbox, int file) {
    std::vector<Socket> sockets;
    sockets.emplace_back(file);
    return std::make_unique<TcpLinks>(inbox, std::move(sockets));
  }
  void move() const {
    for (bool moved = true; moved;) {
      moved = from->poll(0);
      moved = to->poll(0) || moved;
    }
  }
};

std::string noise(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

constexpr std::size_t many = 3'000'000;  // more than a socket takes at once

}  // namespace

TEST_CASE("messages arrive whole and in order, whatever the socket takes at once, and data where they belong") {
  Pair pair;
  Kept& there = pair.there;
  const std::string data = noise(many, 1), text = noise(100'000, 2);
  there.memory.resize(many);
  int unsent = 0;
  pair.from->send(0, TcpKind::call, 7, bytes_of(text));
  pair.from->send_data(0, 9, bytes_of(data).data(), std::ssize(data), unsent);
  pair.from->send(0, TcpKind::end, 3);
  CHECK(unsent == 1);
  CHECK_FALSE(pair.from->is_empty());
  pair.move();
  CHECK(unsent == 0);
  CHECK(pair.from->is_empty());
  REQUIRE(there.messages.size() == 3);
  CHECK((there.messages[0].kind == TcpKind::call && there.messages[0].line == 7 && there.messages[0].bytes == text));
  CHECK((there.messages[1].kind == TcpKind::data && there.messages[1].line == 9 && there.messages[1].bytes == data));
  CHECK((there.messages[2].kind == TcpKind::end && there.messages[2].bytes.empty()));
}

TEST_CASE("memory that is withdrawn is not read any more: what had begun is sent as it was, the rest is not") {
  Pair pair;
  std::string first = noise(many, 1), second = noise(many, 2);
  const std::string was = first;
  int unsent = 0;
  pair.from->send_data(0, 4, bytes_of(first).data(), std::ssize(first), unsent);
  pair.from->send_data(0, 4, bytes_of(second).data(), std::ssize(second), unsent);
  pair.from->withdraw(4);
  first.assign(first.size(), 'x'), second.assign(second.size(), 'y');
  unsent = 100;
  pair.from->send(0, TcpKind::failure, 0);
  pair.move();
  CHECK(unsent == 100);  // it may be gone as well
  REQUIRE(pair.there.messages.size() == 2);
  CHECK(pair.there.messages[0].bytes == was);
  CHECK(pair.there.messages[1].kind == TcpKind::failure);
}

TEST_CASE("memory that is withdrawn is not written any more: what comes for it goes elsewhere") {
  Pair pair;
  Kept& there = pair.there;
  const std::string data = noise(many, 1);
  there.memory.resize(many);
  int unsent = 0;
  pair.from->send_data(0, 4, bytes_of(data).data(), std::ssize(data), unsent);
  pair.to->poll(0);  // a part
  CHECK(there.messages.empty());
  pair.to->withdraw(5);
  pair.to->withdraw(4);
  const std::string part = there.memory;
  CHECK(part != data);
  pair.from->send(0, TcpKind::end, 0);
  pair.move();
  CHECK(there.memory == part);
  CHECK(there.messages.size() == 2);
}

TEST_CASE("a head that no end of dspp writes closes the connection, and the length of a message is bounded") {
  const TcpHead good{0x70737064, TcpKind::call, 0, 0, 0};  // the mark of each message
  TcpHead mark = good, kind = good, none = good, length = good;
  mark.mark ^= 1, kind.kind = static_cast<TcpKind>(6), none.kind = static_cast<TcpKind>(0);
  length.bytes = static_cast<std::uint32_t>(TcpLinks::most_payload_bytes) + 1;
  for (const TcpHead& head : {mark, kind, none, length}) {
    Pair pair(false);
    REQUIRE(send(pair.raw, &head, sizeof head, 0) == sizeof head);
    pair.from->poll(0);
    CHECK(pair.here.closed_by == "sent what is no message of dspp");
    CHECK(pair.here.messages.empty());
    CHECK_FALSE(pair.from->poll(0));
    close(pair.raw);
  }
  Pair pair(false);
  REQUIRE(send(pair.raw, &good, sizeof good, 0) == sizeof good);
  REQUIRE(send(pair.raw, &good, sizeof good - 1, 0) == sizeof good - 1);
  close(pair.raw);
  pair.from->poll(0);
  CHECK(pair.here.messages.size() == 1);
  CHECK(pair.here.closed_by == "closed its connection");
}
