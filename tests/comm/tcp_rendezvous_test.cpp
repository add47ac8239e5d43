// SPDX-License-Identifier: Apache-2.0
// labels: comm
// What can go wrong where TCP ranks meet: a sentence on every rank, in time. Ranks are forked processes on loopback.
#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include <dspp/comm/tcp/failure_state.hpp>
#include <dspp/comm/tcp/rendezvous.hpp>

#include <laws/tcp_processes.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr std::uint32_t message_mark = 0x70737064;  // what each begins with

constexpr double timeout_seconds = 0.4;

/// Rank `rank` of `ranks` meets the others and calls one barrier.
std::string meet_as(const TcpPlace& place, double seconds = timeout_seconds) {
  TcpWorld world(Mesh(Degrees{.data = place.size}), place, seconds);
  try {
    AnyCommunicator all = world.groups().world;
    all.barrier();
  } catch (const Error& error) {
    world.abort(error);
    world.end(1);
    throw;
  }
  world.end(1);
  return "met";
}

/// What a process says first.
std::string hello_of(const TcpPlace& place) {
  const dspp::detail::TcpHello hello{.mark = dspp::detail::tcp_mark,
                                     .version = dspp::detail::tcp_version,
                                     .token_bytes = static_cast<std::uint32_t>(place.token.size()),
                                     .rank = place.rank,
                                     .size = place.size};
  std::string text(sizeof hello, '\0');
  std::memcpy(text.data(), &hello, sizeof hello);
  return text + place.token;
}

dspp::detail::TcpAddress address_of(const TcpPlace& place) {
  std::string error;
  return dspp::detail::tcp_addresses("127.0.0.1", place.port, error).at(0);
}

/// A connection to rank 0, once it listens.
dspp::detail::Socket connected_to(const TcpPlace& place) {
  std::string error;
  const auto until = dspp::detail::after_seconds(5);
  for (;;) {
    auto socket = dspp::detail::connect_to(address_of(place), until, error);
    if (socket || dspp::detail::TcpClock::now() > until) return socket;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void say(const dspp::detail::Socket& to, const std::string& text) {
  dspp::detail::send_all(to, text.data(), text.size(), dspp::detail::after_seconds(5));
}

/// Waits for what is said; true if anything was.
bool hears(const dspp::detail::Socket& from, double seconds = 5) {
  char byte = 0;
  return dspp::detail::receive_all(from, &byte, 1, dspp::detail::after_seconds(seconds)) == dspp::detail::Moved::all;
}

/// True if nothing comes but the end.
bool is_closed(const dspp::detail::Socket& from, double seconds = 5) {
  char byte = 0;
  return dspp::detail::receive_all(from, &byte, 1, dspp::detail::after_seconds(seconds)) == dspp::detail::Moved::closed;
}

/// A fault: what the odd rank does instead of meet_as(), and what it and the others are told.
struct Fault {
  std::string name;
  std::function<std::string(TcpPlace)> odd;
  std::string odd_is_told, rank_0_is_told, others_are_told;
};

std::vector<Fault> faults(const std::string& odd) {
  const std::string two = "two processes came as rank ", place = "MASTER_ADDR and MASTER_PORT";
  return {
      {"another token", [](TcpPlace p) { return p.token = "guess", meet_as(p); },
       "rank " + odd + " needs the DSPP_TOKEN of the other ranks",
       "did not see rank " + odd + " (a process at 127.0.0.1", "did not see rank " + odd},
      {"no token", [](TcpPlace p) { return p.token = "", meet_as(p); }, "needs the DSPP_TOKEN of the other ranks",
       "presented another DSPP_TOKEN", "presented another DSPP_TOKEN"},
      {"another number of ranks", [](TcpPlace p) { return ++p.size, meet_as(p); }, "need one WORLD_SIZE",
       "and rank " + odd + " has", "and rank " + odd + " has"},
      {"the rank of another", [](TcpPlace p) { return p.rank = 1 + p.rank % (p.size - 1), meet_as(p); }, two, two, two},
      {"it does not come", [](TcpPlace) { return ""; }, "", "did not see rank " + odd, "did not see rank " + odd},
      {"it ends after its first words", [](const TcpPlace& p) { return say(connected_to(p), hello_of(p)), ""; }, "",
       "rank ", "rank "},
      {"another version of dspp",
       [](const TcpPlace& p) {
         const auto line = connected_to(p);
         std::string text = hello_of(p);
         ++text[8];
         say(line, text);
         CHECK(hears(line));
         return "";
       },
       "", "need one version of dspp, but 127.0.0.1 speaks another", "need one version of dspp"},
      {"a rank beyond the last",
       [](TcpPlace p) {
         p.rank = p.size + 3;
         const auto line = connected_to(p);
         say(line, hello_of(p));
         CHECK(hears(line));
         return "";
       },
       "", "need a RANK from 0 to", "need a RANK from 0 to"},
  };
}

/// One sentence, in time.
void check_told(const EndedProcess& one, const std::string& what, double within = timeout_seconds + 2.5) {
  INFO(one.said);
  CHECK(one.status == 0);
  CHECK(one.seconds < within);
  CHECK(one.said.find(what) != std::string::npos);
  if (what.empty() || what == "met") return;
  CHECK(one.said.rfind("dspp: ", 0) == 0);
  CHECK(one.said.back() == '.');
  CHECK(one.said.find('\n') == std::string::npos);
}

}  // namespace

TEST_CASE("TCP ranks that contradict one another, do not come or are lost while they meet: a sentence on each") {
  for (const int ranks : {2, 3, 4})
    for (int odd = 1; odd < ranks; odd += std::max(1, ranks - 2))  // the first and the last
      for (const Fault& fault : faults(std::to_string(odd))) {
        if (ranks == 2 && fault.name == "the rank of another") continue;
        CAPTURE(fault.name);
        CAPTURE(ranks);
        CAPTURE(odd);
        const HeldPort port;
        const auto all = in_processes(ranks, [&](int rank) {
          const TcpPlace place{.rank = rank, .size = ranks, .port = port.port(), .token = "secret"};
          if (rank != odd) return meet_as(place);
          std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the others are there
          return fault.odd(place);
        });
        for (int r = 0; r < ranks; ++r) {
          CAPTURE(r);
          const bool doubled = fault.name == "the rank of another" && r == 1 + odd % (ranks - 1);
          check_told(all[static_cast<std::size_t>(r)], r == odd  ? fault.odd_is_told
                                                       : r == 0  ? fault.rank_0_is_told
                                                       : doubled ? "two processes came"
                                                                 : fault.others_are_told);
        }
      }
}

TEST_CASE("a port that is taken is named by rank 0, and by the others with what answers there") {
  const HeldPort port;
  std::string refusal(24, '\0');  // an answer but for its mark
  refusal[8] = 1, refusal[12] = 3, refusal += "abc";
  for (const std::string& answers : {std::string(), std::string("HTTP/1.1 400 Bad Request\r\nServer: none\r\n\r\n"),
                                     refusal, std::string("closes")}) {
    CAPTURE(answers);
    REQUIRE(listen(port.file(), 16) == 0);
    const auto all = in_processes(3, [&](int rank) -> std::string {
      if (rank < 2) return meet_as({.rank = rank, .size = 2, .port = port.port()});
      std::vector<int> kept;
      pollfd one{port.file(), POLLIN, 0};
      while (poll(&one, 1, 300) > 0) {
        kept.push_back(accept(port.file(), nullptr, nullptr));
        [[maybe_unused]] const auto sent =
            send(kept.back(), answers.data(), answers == "closes" ? 0 : answers.size(), 0);
        if (answers == "closes") close(kept.back());
      }
      std::this_thread::sleep_for(std::chrono::seconds(answers == "closes" ? 0 : 3));
      return "";
    });
    const std::string at = "at 127.0.0.1:" + std::to_string(port.port());
    check_told(all[0], "rank 0 needs to listen " + at + ", MASTER_ADDR and MASTER_PORT, but the system says: Address");
    check_told(all[1], (answers.empty()       ? "needs an answer of rank 0, but waited 0.4 s "
                        : answers == "closes" ? "needs an answer of rank 0, but the connection was closed "
                                              : "needs dspp's rank 0 ") +
                           at);
  }
}

TEST_CASE("a rank 0 that is not there, has no address, or another one's, and a token that is missing: a sentence") {
  const HeldPort port;
  const TcpPlace second{.rank = 1, .size = 2, .port = port.port()}, first{.rank = 0, .size = 2, .port = port.port()};
  const auto told = [&](TcpPlace place, const std::string& host, const std::string& token, const std::string& what) {
    place.host = host, place.token = token;
    check_told(in_processes(1, [&](int) { return meet_as(place); }).at(0), what, 60);
  };
  told(second, "127.0.0.1", "",
       "needs rank 0 at 127.0.0.1:" + std::to_string(port.port()) + ", MASTER_ADDR and MASTER_");
  told(second, "127.0.0.1", "", "but waited 0.4 s: Connection refused.");
  told(first, "127.0.0.1", "", "needs all 2 ranks to begin, at 127.0.0.1:");
  for (const TcpPlace& place : {first, second}) {
    told(place, "no.such.host.invalid", "",
         "needs an address for MASTER_ADDR 'no.such.host.invalid', but the system says:");
    told(place, "192.0.2.1", "", "needs the variable DSPP_TOKEN for a MASTER_ADDR beyond this machine, '192.0.2.1'");
    told(place, "127.0.0.1", std::string(513, 'x'), "DSPP_TOKEN needs at most 512 bytes, but has 513");
  }
}

TEST_CASE("a hostile MASTER_ADDR is a sentence of one line, whatever is in it") {
  for (const std::string& host :
       {std::string("a\nb"), std::string("\033[2J"), std::string("%s%n"), std::string("-oProxyCommand=touch x"),
        std::string("$(touch x)"), std::string(5000, 'a'), std::string("\xff\xfe"), std::string("127.0.0.1:80"),
        std::string("[::1"), std::string(" "), std::string("http://localhost")})
    for (const int rank : {0, 1}) {
      CAPTURE(host);
      const auto one = in_processes(
          1, [&](int) { return meet_as({.rank = rank, .size = 2, .host = host, .port = 1, .token = "secret"}); });
      check_told(one[0], "needs an address for MASTER_ADDR '", 60);
      for (const char c : one[0].said) CHECK((c >= ' ' && c != 127));
    }
}

TEST_CASE("TCP ranks with a token meet on a name of loopback and on all addresses of this machine") {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3"}) {
    const HeldPort port;
    const auto all = in_processes(3, [&](int rank) {
      return meet_as({.rank = rank, .size = 3, .host = host, .port = port.port(), .token = "secret"}, 20);
    });
    for (const EndedProcess& one : all) check_told(one, "met", 20);
  }
}

TEST_CASE("bytes that are not dspp's, and connections that say nothing, do not keep TCP ranks from meeting") {
  std::mt19937 random(7);
  const HeldPort port;
  const TcpPlace place{.rank = 0, .size = 2, .port = port.port(), .token = "secret"};
  const auto all = in_processes(3, [&](int i) -> std::string {
    TcpPlace own = place;
    if (i == 0) return meet_as(own, 20);
    std::vector<dspp::detail::Socket> silent;
    for (int n = 0; i == 2 && n < 300; ++n) {
      auto line = connected_to(own);
      std::string text = n % 3 == 0 ? "" : hello_of({.rank = 1, .size = 2, .token = "secret"});
      text.resize(n % 3 == 1 ? random() % text.size() : text.size());  // cut anywhere, or with one wrong byte
      if (n % 3 == 2) text[random() % text.size()] ^= static_cast<char>(1 + random() % 255);
      if (n % 3 == 2) text.resize(std::max<std::size_t>(9, text.size() - 1));
      if (n % 3 == 0)
        for (std::size_t k = random() % 400; k > 0; --k) text += static_cast<char>(random());
      say(line, text);
      if (n % 2 == 0) silent.push_back(std::move(line));
    }
    if (i == 2) {
      std::string other = hello_of({.rank = 1, .size = 2, .token = "secret"});
      other[3] ^= 1;
      const auto line = connected_to(own);
      say(line, other);
      CHECK(is_closed(line));  // without an answer
      std::vector<dspp::detail::Socket> quiet;
      while (quiet.size() < 100) quiet.push_back(connected_to(own));
      CHECK(is_closed(quiet.front(), 0.3));  // for those that came later
      return "";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    own.rank = 1;
    return meet_as(own, 20);
  });
  check_told(all[0], "met", 20);
  check_told(all[1], "met", 20);
  CHECK(all[2].status == 0);
}

namespace {

/// Rank 1 of two, by hand, until both are connected.
dspp::detail::Socket linked_to_rank_0(const TcpPlace& place) {
  auto line = connected_to(place);
  say(line, hello_of(place));
  constexpr std::size_t card_bytes = 80;  // a rank's: host, port, machine
  std::string answer(sizeof(dspp::detail::TcpAnswer) + 2 * card_bytes, '\0');
  REQUIRE(dspp::detail::receive_all(line, answer.data(), answer.size(), dspp::detail::after_seconds(5)) ==
          dspp::detail::Moved::all);
  return line;
}

}  // namespace

TEST_CASE("whatever comes on a link that is not dspp's is a sentence, and nothing waits") {
  std::mt19937 random(3);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const HeldPort port;
    const auto seed = static_cast<unsigned>(random());
    const auto all = in_processes(2, [&](int rank) -> std::string {
      const TcpPlace place{.rank = rank, .size = 2, .port = port.port()};
      if (rank == 0) return meet_as(place, 5);
      std::mt19937 own(seed);
      const auto line = linked_to_rank_0(place);
      std::string text;
      for (int message = 0; message < 20; ++message) {
        // Some of them begin as a message does, with numbers that are small, or all of 32 bits.
        const dspp::detail::TcpHead head{message_mark, static_cast<dspp::detail::TcpKind>(own() % 6),
                                         static_cast<std::uint16_t>(own() % 5),
                                         static_cast<std::uint32_t>(own() % 8 == 0 ? own() : 8 * (own() % 40))};
        if (round % 3 > 0) text.append(reinterpret_cast<const char*>(&head), sizeof head);
        for (std::uint32_t k = 0; k < std::min(head.bytes, 400u); ++k)
          text += static_cast<char>(round % 3 == 1 ? own() : own() % 2);
      }
      say(line, text);
      hears(line, round % 2 == 0 ? 0.05 : 5);
      return "";
    });
    INFO(all[0].said);
    CHECK(all[0].status == 0);
    CHECK(all[0].seconds < 8);
    CHECK(all[0].said.rfind("dspp: ", 0) == 0);
  }
}

TEST_CASE("a TCP rank that is lost while another has yet to come is named at once") {
  const HeldPort port;
  const auto all = in_processes(3, [&](int rank) -> std::string {
    const TcpPlace place{.rank = rank, .size = 4, .port = port.port()};
    if (rank < 2) return meet_as(place, 20);
    const auto line = connected_to(place);
    say(line, hello_of(place));
    std::this_thread::sleep_for(std::chrono::seconds(1));  // rank 1, too, has come
    return "";
  });
  for (const int r : {0, 1}) check_told(all[static_cast<std::size_t>(r)], "rank 2 (127.0.0.1) was lost before all", 5);
}

TEST_CASE("a message that dspp does not send there is named with its rank, and is not taken") {
  using dspp::detail::TcpKind;
  const auto message = [](TcpKind kind, const std::string& payload, int line = 0) {
    const dspp::detail::TcpHead head{message_mark, kind, static_cast<std::uint16_t>(line),
                                     static_cast<std::uint32_t>(payload.size()), 0};
    std::string text(sizeof head, '\0');
    std::memcpy(text.data(), &head, sizeof head);
    return text + payload;
  };
  const auto words = [](const std::vector<std::int64_t>& all) {
    return std::string(reinterpret_cast<const char*>(all.data()), 8 * all.size());
  };
  // A call of an all-reduce of 10 f32, and one of its words changed.
  dspp::detail::Fingerprint call;
  dspp::detail::write_fingerprint(
      {Collective::all_reduce, Purpose::gradient, 0, {{nullptr, nullptr, 10, ElementType::f32}}}, call);
  dspp::detail::add_place({}, call);
  std::vector<std::string> wrong{message(TcpKind::ready, "") + message(TcpKind::ready, ""),
                                 message(TcpKind::data, "12345678"),
                                 message(TcpKind::data, "", 1),
                                 message(TcpKind::failure, "short"),
                                 message(TcpKind::failure, words({99, 0, 0, 0, 0})),
                                 message(TcpKind::failure, words({0, 0, 0, -1, 0})),
                                 message(TcpKind::failure, words({0, 0, 0, 0, 1})),
                                 message(TcpKind::call, ""),
                                 message(TcpKind::call, words(call) + "x"),
                                 message(TcpKind::call, words(call).substr(8)),
                                 message(TcpKind::call, words({-1}))};
  for (const auto& [at, value] : std::vector<std::pair<std::size_t, std::int64_t>>{
           {0, -1}, {0, 7}, {0, 512}, {1, -1}, {1, 8}, {5, -1}, {6, -1}, {6, 7}, {7, -1}}) {
    dspp::detail::Fingerprint other = call;
    other[at] = value;
    wrong.push_back(message(TcpKind::call, words(other)));
  }
  std::string many;
  for (int i = 0; i < 100; ++i) many += message(TcpKind::call, words(call), 3);
  wrong.push_back(many);
  for (std::size_t i = 0; i <= wrong.size(); ++i) {
    CAPTURE(i);
    const HeldPort port;
    const auto all = in_processes(2, [&](int rank) -> std::string {
      const TcpPlace place{.rank = rank, .size = 2, .port = port.port()};
      if (rank == 0) return meet_as(place, 5);
      const auto line = linked_to_rank_0(place);
      say(line, i < wrong.size() ? wrong[i] : message(TcpKind::call, words(call)));
      for (bool waits = hears(line); waits && i == wrong.size();) waits = hears(line);
      return "";
    });
    check_told(
        all[0],
        i < wrong.size() ? "but rank 1 sent what dspp does not send there." : "rank 1 calls all_reduce(f32 x 10)", 4);
  }
}

TEST_CASE("a TCP rank that is lost between its answer and its links is an error of all") {
  const HeldPort port;
  const auto all = in_processes(3, [&](int rank) -> std::string {
    const TcpPlace place{.rank = rank, .size = 3, .port = port.port()};
    if (rank < 2) return meet_as(place, 20);
    const auto line = connected_to(place);
    say(line, hello_of(place));
    hears(line);
    return "";
  });
  check_told(all[0], "rank 2 closed its connection", 5);
  check_told(all[1], "rank ", 5);
}
