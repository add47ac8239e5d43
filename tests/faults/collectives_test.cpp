// SPDX-License-Identifier: Apache-2.0
// Rows A2, A4, A5, F3 and I5 on thread ranks: each operation, and every way to disagree about it.
// labels: faults thread races
#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <iterator>
#include <memory>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include <dspp/comm.hpp>
#include <dspp/tensor/pool.hpp>

#include <laws/contributions.hpp>
#include <laws/without_sites.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

struct Outcome {
  bool threw = false;
  ErrorCode code = ErrorCode::state;
  std::string sentence;
  double seconds = 0;
};

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The outcome of f(rank) on each rank, on threads that nobody stops.
std::vector<Outcome> on_threads(int ranks, const std::function<void(int)>& f) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      Outcome& outcome = outcomes[static_cast<std::size_t>(r)];
      const auto start = std::chrono::steady_clock::now();
      try {
        f(r);
      } catch (const Error& e) {
        outcome.threw = true, outcome.code = e.code(), outcome.sentence = e.what();
      }
      outcome.seconds = seconds_since(start);
    });
  threads.clear();
  return outcomes;
}

constexpr int operations = 7;
enum Operation { all_reduces, reduce_scatters, all_gathers, all_to_alls, broadcasts, sends, barriers };

/// One call, with every field in which ranks may differ.
struct Call {
  int operation = all_reduces;
  Size count = 24;  ///< divisible by 2, 3, 4 and 8
  ElementType type = ElementType::f32;
  int root = 0;
  Purpose purpose = Purpose::gradient;
};

/// What a rank reads and writes; written bytes differ from untouched ones.
struct Memory {
  std::vector<double> in = std::vector<double>(1000, 1.0), out = std::vector<double>(1000, -1.0);
  bool untouched() const { return in == Memory().in && out == Memory().out; }
};

/// A program line for each rank.
CallSite line_of(int rank, int operation) {
  const char* programs[] = {"/home/a/rank_0.cpp", "/home/a/rank_1.cpp", "/home/a/rank_2.cpp", "/home/a/rank_3.cpp"};
  return {programs[rank], 100 + operation};
}

/// Begins the call; a barrier, which cannot be begun, is called. Rank 1 receives what rank 0 sends; others do nothing.
Pending<> start(Threads& c, const Call& call, Memory& memory) {
  const CallSite site = line_of(c.rank(), call.operation);
  const PurposeAt purpose(call.purpose, site);
  const Size n = c.size();
  const auto buffer_of = [&](std::vector<double>& x, Size count) { return Buffer{x.data(), count, call.type}; };
  const auto in = [&](Size count) { return ConstBuffer(buffer_of(memory.in, count)); };
  switch (call.operation) {
    case all_reduces: return c.start_all_reduce(buffer_of(memory.in, call.count), purpose);
    case reduce_scatters: return c.start_reduce_scatter(in(n * call.count), buffer_of(memory.out, call.count), purpose);
    case all_gathers: return c.start_all_gather(in(call.count), buffer_of(memory.out, n * call.count), purpose);
    case all_to_alls:
      return c.start_all_to_all(in(n * call.count), buffer_of(memory.out, n * call.count), PartCounts{}, purpose);
    case broadcasts: return c.start_broadcast(buffer_of(memory.in, call.count), call.root, purpose);
    case sends:
      if (c.rank() == 0) return c.start_send(in(call.count), 1 + call.root, purpose);
      if (c.rank() == 1) return c.start_receive(buffer_of(memory.out, call.count), call.root, purpose);
      return {};
    default: c.barrier(site); return {};
  }
}

const char* name_of(int operation) {
  const char* names[] = {"all_reduce(", "reduce_scatter(", "all_gather(", "all_to_all(", "broadcast(", "(", "barrier"};
  return names[operation];
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Rank 0 calls at that line of this file, every other rank at its own.
void check_both(const std::string& sentence, int line) {
  CAPTURE(sentence);
  CHECK(holds(sentence, " at faults/collectives_test.cpp:" + std::to_string(line) + ", but rank 1 calls "));
  CHECK(holds(sentence, " at a/rank_1.cpp:100. Make every rank call"));
}

/// Each side of the sentence names the line of that rank's call: operation b on the rank `odd`, else a. (A rank with
/// nothing to send or receive continues with a barrier.)
void check_lines(const std::string& sentence, int odd, int a, int b) {
  CAPTURE(sentence);
  const std::regex side("rank ([0-9]) (?:calls|waits in) (?:[^:]*) at a/rank_([0-9]).cpp:1([0-9]+)[ ,.]");
  int sides = 0;
  for (std::sregex_iterator at(sentence.begin(), sentence.end(), side), end; at != end; ++at, ++sides) {
    const int rank = std::stoi((*at)[1]), operation = std::stoi((*at)[3]);
    CHECK((*at)[2] == (*at)[1]);
    const int called = rank == odd ? b : a;
    CHECK(operation == (called == sends && rank > 1 ? barriers : called));
  }
  const std::regex any("rank [0-9] (calls|waits in) ");
  CHECK(sides == std::distance(std::sregex_iterator(sentence.begin(), sentence.end(), any), std::sregex_iterator()));
  CHECK(sides >= 2);  // a cycle of waits may have more
}

/// Every rank has the same sentence, which names both sides and the odd rank, within a second.
void check_told(const std::vector<Outcome>& outcomes, int odd, int a, int b) {
  for (const Outcome& o : outcomes) {
    CHECK(o.threw);
    CAPTURE(o.sentence);
    CHECK(o.code == ErrorCode::mismatch);
    CHECK(o.seconds < 1);
    CHECK(o.sentence == outcomes[0].sentence);
    CHECK(holds(o.sentence, name_of(a)));
    CHECK(holds(o.sentence, name_of(b)));
    CHECK((holds(o.sentence, " calls ") || holds(o.sentence, " waits in ")));
    CHECK(holds(o.sentence, "rank " + std::to_string(odd) + (holds(o.sentence, " calls ") ? " calls " : " waits in ")));
    CHECK(holds(o.sentence, ", but rank "));
  }
  check_lines(outcomes[0].sentence, odd, a, b);
}

}  // namespace

TEST_CASE(
    "A4: ranks that differ in one field of a call, in every operation, get one sentence, and no data is accessed") {
  int cases = 0;
  const auto check = [&](int ranks, const Call& call, const Call& other, bool other_group) {
    ++cases;
    CAPTURE(ranks);
    CAPTURE(call.operation);
    CAPTURE(other.operation);
    CAPTURE(other_group);
    ThreadGroup group(ranks, {.timeout_seconds = 30});
    std::vector<int> all;
    for (int r = 0; r < ranks; ++r) all.push_back(r);
    ThreadGroup second = group.subgroup("axis Tp", all);
    const int odd = call.operation == sends || other.operation == sends ? 1 : ranks - 1;
    const auto outcomes = on_threads(ranks, [&](int rank) {
      Threads c = (rank == odd && other_group ? second : group).communicator(rank);
      Memory memory;
      try {
        start(c, rank == odd ? other : call, memory).wait();
        if (call.operation == sends || other.operation == sends)
          group.communicator(rank).barrier(line_of(rank, barriers));
      } catch (...) {
        CHECK(memory.untouched());
        throw;
      }
    });
    check_told(outcomes, odd, call.operation, other.operation);
  };
  for (const int ranks : {2, 3, 4})
    for (int operation = 0; operation < operations; ++operation) {
      const Call call{.operation = operation};
      for (int other = 0; other < operations; ++other)
        if (other != operation) check(ranks, call, {.operation = other}, false);
      check(ranks, call, call, true);
      if (operation == barriers) continue;
      check(ranks, call, {.operation = operation, .count = 48}, false);
      check(ranks, call, {.operation = operation, .type = ElementType::bf16}, false);
      check(ranks, call, {.operation = operation, .purpose = Purpose::parameter}, false);
      if (operation == broadcasts || (operation == sends && ranks > 2))
        check(ranks, call, {.operation = operation, .root = operation == sends ? 2 : 1}, false);
    }
  MESSAGE(cases << " disagreements");
  CHECK(cases > 6 * 7 * 3);
}

TEST_CASE("A4: the line that a sentence names is that of the call, of every collective") {
  int line = 0;
  std::vector<float> in(8), out(8);
  const ConstBuffer a = buffer(in.data(), 4), twice_a = buffer(in.data(), 8);
  const Buffer x = buffer(in.data(), 4), y = buffer(out.data(), 4), twice_y = buffer(out.data(), 8);
  const Purpose g = Purpose::gradient;
  const ScatterPair scatter[] = {{twice_a, y}};
  const GatherPair gather[] = {{a, twice_y}};
  // clang-format off
  const std::vector<std::function<void(Threads&)>> calls{
      [&](Threads& c) { line = __LINE__; all_reduce(c, x, g); },
      [&](Threads& c) { line = __LINE__; reduce_scatter(c, twice_a, y, g); },
      [&](Threads& c) { line = __LINE__; reduce_scatter(c, scatter, g); },
      [&](Threads& c) { line = __LINE__; all_gather(c, a, twice_y, g); },
      [&](Threads& c) { line = __LINE__; all_gather(c, gather, g); },
      [&](Threads& c) { line = __LINE__; all_to_all(c, a, y, g); },
      [&](Threads& c) { line = __LINE__; all_to_all(c, a, y, PartCounts{}, g); },
      [&](Threads& c) { line = __LINE__; broadcast(c, x, 0, g); },
      [&](Threads& c) { line = __LINE__; AnyCommunicator(c).start_all_reduce(x, g).wait(); },
      [&](Threads& c) { line = __LINE__; AnyCommunicator(c).barrier(); },
      [&](Threads& c) { line = __LINE__; all_gather(Recorder<Threads>(c), a, twice_y, g); },
      [&](Threads& c) { line = __LINE__; Recorder<Threads>(c).barrier(); }};
  // clang-format on
  for (const auto& call : calls) {
    ThreadGroup group(2, {.timeout_seconds = 30});
    const auto outcomes = on_threads(2, [&](int rank) {
      Threads c = group.communicator(rank);
      if (rank == 0) call(c);
      if (rank == 1) all_reduce(c, Buffer{out.data(), 3, ElementType::f32}, PurposeAt(g, line_of(1, all_reduces)));
    });
    check_both(outcomes[0].sentence, line);
  }
  ThreadGroup group(2, {.timeout_seconds = 30});
  const auto outcomes = on_threads(2, [&](int rank) {
    Threads c = group.communicator(rank);
    // clang-format off
    if (rank == 0) { line = __LINE__; send(c, a, 1, g); }
    // clang-format on
    if (rank == 1) receive(c, Buffer{out.data(), 3, ElementType::f32}, 0, PurposeAt(g, line_of(1, all_reduces)));
  });
  check_both(outcomes[0].sentence, line);
}

TEST_CASE("A4: within a call of dspp a sentence names the lines of the outermost and the innermost call") {
  ThreadGroup group(2, {.timeout_seconds = 30});
  const auto outcomes = on_threads(2, [&](int rank) {
    Threads c = group.communicator(rank);
    float x = 0;
    const CalledAt outer(CallSite{"/home/my/train.cpp", 41});
    if (rank == 0) all_reduce(c, buffer(&x, 1), PurposeAt(Purpose::scalar, CallSite{"dspp/zero/replicas.hpp", 7}));
    if (rank == 1) {
      { const CalledAt over(CallSite{"over.cpp", 5}); }
      const CalledAt inner(CallSite{"/home/my/models/layer.cpp", 30});
      c.barrier(CallSite{"dspp/autograd/move.hpp", 8});
    }
  });
  CHECK(holds(outcomes[1].sentence, "rank 0 calls all_reduce(f32 x 1) at my/train.cpp:41 (zero/replicas.hpp:7), but "));
  CHECK(holds(outcomes[1].sentence, "rank 1 calls barrier at my/train.cpp:41 (models/layer.cpp:30). Make"));
}

namespace {

/// Every rank is listed with the operation that it has not completed, at its line; one that never called as such.
void check_list(const std::string& list, int ranks, int away, int operation, bool begins) {
  CAPTURE(list);
  CHECK(holds(list, "  the last operations of each rank, "));
  CHECK_FALSE(holds(list, "dspp: "));
  for (int r = 0; r < ranks; ++r) {
    const std::string rank = "\n    rank " + std::to_string(r);
    const CallSite line = line_of(r, operation);
    if (r == away && !begins)
      CHECK(holds(list, rank + " has called none"));
    else
      CHECK(std::regex_search(
          list, std::regex(rank +
                           " [> ] [a-z_]*([(]f32 x [0-9]+(, root 0)?[)])?, the 1st operation of the [^\n]* at a/rank_" +
                           std::to_string(r) + ".cpp:" + std::to_string(line.line) + "(\n|$)")));
  }
  CHECK(holds(list, " > "));
}

}  // namespace

TEST_CASE("A2: a rank that never calls, and one that never finishes, is named in every operation after the timeout") {
  constexpr double timeout = 0.2;
  for (int operation = 0; operation < operations; ++operation)
    for (const bool begins : {false, true}) {
      if (begins && operation == barriers) continue;  // a barrier that is called is also finished
      CAPTURE(operation);
      CAPTURE(begins);
      const int ranks = operation == sends ? 2 : 3, away = ranks - 1;
      ThreadGroup group(ranks, {.timeout_seconds = timeout});
      std::vector<Memory> memory(static_cast<std::size_t>(ranks));
      Threads absent = group.communicator(away);
      const Call call{.operation = operation, .count = 100};
      // a rank that begins a broadcast or a send has nothing left to do for the others: it receives
      Pending<> begun;
      if (begins) begun = start(absent, call, memory[static_cast<std::size_t>(away)]);
      const auto outcomes = on_threads(away, [&](int rank) {
        Threads c = group.communicator(rank);
        start(c, call, memory[static_cast<std::size_t>(rank)]).wait();
        c.barrier();
      });
      for (const Outcome& o : outcomes) {
        CHECK(o.threw);
        CHECK(o.code == ErrorCode::peer_lost);
        CHECK(o.seconds >= timeout);
        CHECK(o.seconds < timeout + 0.5);
        CAPTURE(o.sentence);
        // a rank that waits for one that has begun may itself be waited for: then both are named
        CHECK(holds(o.sentence, "rank " + std::to_string(away) + " in "));
        if (!begins) CHECK(holds(o.sentence, " needs rank " + std::to_string(away) + " in "));
        CHECK(holds(o.sentence, "but waited 0.2 s and "));
        CHECK(o.sentence == outcomes[0].sentence);
      }
      check_list(group.last_operations(), ranks, away, operation, begins);
      try {
        begun.wait();
      } catch (const Error& error) {
        CHECK(error.what() == outcomes[0].sentence);
      }
    }
}

namespace {

/// The calls of each rank, one letter each: R all-reduce, S reduce-scatter, G all-gather, A all-to-all, B broadcast,
/// - barrier, r an all-reduce of 25 elements; then the sentence of all ranks, without the common beginning.
struct Recorded {
  std::vector<std::string> calls;
  std::string verdict;
};

const std::string different = "the ranks of the world call different collectives, the ",
                  same_order = ". Make every rank call the same operations in the same order.",
                  ended = " has ended. Make every rank call the same operations.";

const std::vector<Recorded>& recorded() {
  static const std::vector<Recorded> all{
      // skipped by the last, the first, a middle one; at the beginning, in the middle, at the end
      {{"RG-", "G-"},
       different + "1st of this group: rank 0 calls all_reduce(f32 x 24), but rank 1 calls all_gather(f32 x 24)"},
      {{"G-", "RG-"},
       different + "1st of this group: rank 0 calls all_gather(f32 x 24), but rank 1 calls all_reduce(f32 x 24)"},
      {{"RSG", "RG", "RSG"},
       different + "2nd of this group: rank 0 calls reduce_scatter(f32 x 72), but rank 1 calls all_gather(f32 x 24)"},
      {{"RB-", "RB-", "RB-", "R-"},
       different + "2nd of this group: rank 0 calls broadcast(f32 x 24, root 0), but rank 3 calls barrier"},
      {{"RRG", "RG"},
       different + "2nd of this group: rank 0 calls all_reduce(f32 x 24), but rank 1 calls all_gather(f32 x 24)"},
      {{"RR", "RR", "R"}, "needs rank 2 in all_reduce(f32 x 24), the 2nd operation of the world, but rank 2" + ended},
      {{"-A", "-"}, "needs rank 1 in all_to_all(f32 x 48), the 2nd operation of the world, but rank 1" + ended},
      // called twice
      {{"RG", "RRG"},
       different + "2nd of this group: rank 0 calls all_gather(f32 x 24), but rank 1 calls all_reduce(f32 x 24)"},
      {{"S-", "SS-", "S-"},
       different + "2nd of this group: rank 0 calls barrier, but rank 1 calls reduce_scatter(f32 x 72)"},
      {{"RR", "R"}, "needs rank 1 in all_reduce(f32 x 24), the 2nd operation of the world, but rank 1" + ended},
      // it names one of three that end in any order
      {{"G", "G", "G", "GG"}, " in all_gather(f32 x 24), the 2nd operation of the world, but rank "},
      // two swapped
      {{"RG", "GR"},
       different + "1st of this group: rank 0 calls all_reduce(f32 x 24), but rank 1 calls all_gather(f32 x 24)"},
      {{"RSG-", "RGS-", "RSG-"},
       different + "2nd of this group: rank 0 calls reduce_scatter(f32 x 72), but rank 1 calls all_gather(f32 x 24)"},
      // a skipped call that is detected at the next, whose size differs
      {{"Rr-", "r-"},
       different + "1st of this group: rank 0 calls all_reduce(f32 x 24), but rank 1 calls all_reduce(f32 x 25)"},
      // none
      {{"RSGAB-", "RSGAB-", "RSGAB-"}, ""}};
  return all;
}

void call_by(char letter, Threads& c) {
  const std::string letters = "RSGAB";
  Memory memory;
  const auto at = letters.find(letter);
  Call call{.operation = at == std::string::npos ? int(barriers) : static_cast<int>(at)};
  if (letter == 'r') call.operation = all_reduces, call.count = 25;
  start(c, call, memory).wait();
}

}  // namespace

TEST_CASE("A5: each recorded program that skips, repeats or swaps a call ends in its recorded verdict on every rank") {
  for (const Recorded& one : recorded()) {
    const int ranks = static_cast<int>(one.calls.size());
    CAPTURE(one.calls[0]);
    CAPTURE(one.calls.back());
    CAPTURE(one.verdict);
    ThreadGroup group(ranks, {.timeout_seconds = 30});
    const auto outcomes = on_threads(ranks, [&](int rank) {
      Threads c = group.communicator(rank);
      for (const char letter : one.calls[static_cast<std::size_t>(rank)]) call_by(letter, c);
      group.leave(rank);
    });
    int told = 0;
    for (const Outcome& o : outcomes) {
      CHECK(o.seconds < 1);
      if (!o.threw) continue;
      ++told;
      CAPTURE(o.sentence);
      CHECK(holds(without_sites(o.sentence), one.verdict));
      if (holds(one.verdict, " calls "))
        CHECK(without_sites(o.sentence) == "dspp: " + one.verdict + same_order);
      else
        CHECK(holds(without_sites(o.sentence), ended));
    }
    // a rank that has made its last call gets no error; of two that call differently, both do
    CHECK((told > 0) == !one.verdict.empty());
    if (holds(one.verdict, " calls ")) CHECK(told == ranks);
  }
  CHECK(recorded().size() >= 12 + 1);
}

TEST_CASE("F3: if one rank has no memory, the others, in any wait, fail within a second") {
  for (const int ranks : {2, 4})
    for (int operation = 0; operation < operations; ++operation) {
      CAPTURE(ranks);
      CAPTURE(operation);
      const int poor = operation == sends ? 1 : ranks - 1;
      ThreadGroup group(ranks, {.timeout_seconds = 30});
      std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
      const auto begun = std::chrono::steady_clock::now();
      std::string thrown;
      try {
        run_ranks(group, [&](int rank) {
          Threads c = group.communicator(rank);
          Memory memory;
          Outcome& outcome = outcomes[static_cast<std::size_t>(rank)];
          try {
            c.barrier();
            if (rank == poor) {
              Pool pool(1024);
              pool.take(2048, Category::activations, "too large");
            }
            start(c, {.operation = operation}, memory).wait();
            c.barrier();
          } catch (const Error& error) {
            outcome.threw = true, outcome.code = error.code(), outcome.sentence = error.what();
            throw;
          }
        });
      } catch (const Error& error) {
        thrown = error.what();
        CHECK(error.code() == ErrorCode::out_of_memory);
      }
      CHECK(seconds_since(begun) < 1);
      for (int r = 0; r < ranks; ++r) {
        const Outcome& o = outcomes[static_cast<std::size_t>(r)];
        CHECK(o.threw);
        CHECK(o.code == (r == poor ? ErrorCode::out_of_memory : ErrorCode::aborted));
        if (r == poor) CHECK(o.sentence == thrown);
        if (r != poor) CHECK(holds(o.sentence, "but rank " + std::to_string(poor) + " failed: "));
        CHECK(holds(o.sentence, " of a limit of "));
      }
    }
}

TEST_CASE("I5: each operation gives every rank the bits of rank order, on 2, 3, 4 and 8 ranks, in each of 20 runs") {
  constexpr Size count = 1009;
  for (const int ranks : {2, 3, 4, 8})
    for (int run = 0; run < 20; ++run) {
      CAPTURE(ranks);
      CAPTURE(run);
      ThreadGroup group(ranks, {.timeout_seconds = 30});
      run_ranks(group, [&](int rank) {
        Threads c = group.communicator(rank);
        const auto check = [&]<class T>(T) {
          std::vector<T> x = contributions<T>(rank, count, run), part(count),
                         all(count * static_cast<std::size_t>(ranks));
          const std::vector<T> own = x, wide = contributions<T>(rank, count * ranks, run);
          all_reduce(c, all_of(x), Purpose::gradient);
          CHECK(same_bits(x, sums<T>(ranks, count, run)));
          reduce_scatter(c, all_of(wide), all_of(part), Purpose::gradient);
          CHECK(same_bits(part, sums<T>(ranks, count, run, count * rank)));
          all_gather(c, all_of(own), all_of(all), Purpose::parameter);
          CHECK(same_bits(all, concatenation<T>(ranks, count, run)));
          all_to_all(c, all_of(wide), all_of(all), Purpose::activation);
          for (int from = 0; from < ranks; ++from) {
            const std::vector<T> sent = contributions<T>(from, count, run, count * rank);
            CHECK(std::equal(sent.begin(), sent.end(), all.begin() + from * count,
                             [](T a, T b) { return std::memcmp(&a, &b, sizeof a) == 0; }));
          }
          x = own;
          broadcast(c, all_of(x), ranks - 1, Purpose::parameter);
          CHECK(same_bits(x, contributions<T>(ranks - 1, count, run)));
          const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
          Pending<> sending = c.start_send(all_of(own), next, Purpose::activation);
          receive(c, all_of(part), previous, Purpose::activation);
          sending.wait();
          CHECK(same_bits(part, contributions<T>(previous, count, run)));
          c.barrier();
        };
        check(float{}), check(bf16{}), check(double{});
      });
    }
}
