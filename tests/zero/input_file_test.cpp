// SPDX-License-Identifier: Apache-2.0
// A file of kept inputs: random orders of keeping, taking and dropping, as recomputations within one another make them;
// the memory and file of the same calls on paper; a disk that refuses a transfer.
// labels: zero
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include <dspp/tensor/tensor.hpp>
#include <dspp/zero/input_file.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

struct Call {
  enum class What { keep, take, drop } what = What::keep;
  Size bytes = 0;         ///< that are kept
  std::size_t which = 0;  ///< of those that are kept, the one taken or dropped
};

/// Mostly the one kept last is taken, as a backward does.
std::vector<Call> random_calls(std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  std::vector<Call> calls;
  const Size largest = seed % 3 == 0 ? 300000 : 9000;
  std::size_t kept = 0;
  for (int i = 0; i < 60; ++i) {
    if (kept == 0 || below(2) == 0) {
      calls.push_back({Call::What::keep, static_cast<Size>(below(6) == 0 ? 0 : random() % largest), 0});
      ++kept;
      continue;
    }
    const std::size_t which = below(4) == 0 ? below(kept) : kept - 1;
    calls.push_back({below(5) == 0 ? Call::What::drop : Call::What::take, 0, which});
    --kept;
  }
  return calls;
}

/// The calls on a device. `check(input, bytes)` of what was taken.
template <class D, class New, class Check>
void make_calls(KeptInputFile<D>& file, Memory<D>& memory, const std::vector<Call>& calls, New new_input, Check check) {
  struct Kept {
    int input = 0;
    Size bytes = 0;
    dspp::detail::BytesInFile<D> in_file;
  };
  std::vector<Kept> kept;
  const auto room = [&](Size bytes) { return Storage<Memory<D>>(memory, bytes, Category::activations, "input"); };
  int inputs = 0;
  for (const Call& call : calls) {
    if (call.what == Call::What::keep) {
      const Storage<Memory<D>> from = room(call.bytes + 3);
      new_input(++inputs, from, call.bytes);
      kept.push_back({inputs, call.bytes, dspp::detail::BytesInFile<D>(file, from, 3, call.bytes)});
      continue;
    }
    const auto at = kept.begin() + static_cast<std::ptrdiff_t>(call.which);
    if (call.what == Call::What::take) {
      const Storage<Memory<D>> to = room(at->bytes);
      at->in_file.take(to);
      check(at->input, to, at->bytes);
    }
    kept.erase(at);
  }
}

std::byte byte_at(int input, Size i) {
  return static_cast<std::byte>((static_cast<Size>(input) * 37 + i * i + i / 251) & 255);
}
void fill(int input, const Storage<Pool>& from, Size bytes) {
  for (Size i = 0; i < bytes; ++i) from.data()[i + 3] = byte_at(input, i);
}
bool is_input(int input, const Storage<Pool>& to, Size bytes) {
  for (Size i = 0; i < bytes; ++i)
    if (to.data()[i] != byte_at(input, i)) return false;
  return true;
}

/// Refuses the n-th call of a kind.
struct Refusing : io::BlockCalls {
  bool writes = false;
  Size at = 0, calls = 0;
  std::mutex mutex;
  void before(io::BlockPiece& piece) noexcept override {
    const std::scoped_lock turn(mutex);
    if (piece.writes == writes && ++calls == at) piece.error = EIO;
  }
  int extend(int descriptor, Size offset, Size bytes) override {
    return offset + bytes > most ? ENOSPC : BlockCalls::extend(descriptor, offset, bytes);
  }
  Size most = Size{1} << 40;  ///< bytes of the file
};

/// A file in a folder of its own, with windows in `pool`.
struct OnDisk {
  Folder folder{in_memory()};
  std::string path = folder.path.string();
  Pool pool;
  Refusing calls;
  KeptInputFile<Cpu> file;
  OnDisk() { file.open(pool, pool, {.folder = path, .calls = &calls}); }

  /// Inputs are checked where they are taken.
  void make(const std::vector<Call>& these) {
    make_calls<Cpu>(file, pool, these, fill,
                    [](int input, const Storage<Pool>& to, Size bytes) { CHECK(is_input(input, to, bytes)); });
  }
  std::string sentence_of_making(const std::vector<Call>& these) {
    return sentence_of([&] { make(these); });
  }
};

/// `inputs` are kept and taken, the last one first.
std::vector<Call> pass_of(std::size_t inputs, Size bytes) {
  std::vector<Call> pass(inputs, {Call::What::keep, bytes, 0});
  for (std::size_t i = inputs; i-- > 0;) pass.push_back({Call::What::take, 0, i});
  return pass;
}

}  // namespace

TEST_CASE("inputs are what they were, in any order, in the memory and file that paper states") {
  using Paper = MetaOf<Cpu>;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    const std::vector<Call> calls = random_calls(seed);
    CHECK(std::count_if(calls.begin(), calls.end(), [](const Call& c) { return c.what == Call::What::take; }) > 5);
    OnDisk on;
    on.make(calls);
    Memory<Paper> memory;
    KeptInputFile<Paper> paper;
    CHECK(!paper.is_open());
    paper.open(memory, memory, {});
    make_calls<Paper>(
        paper, memory, calls, [](auto&&...) {}, [](auto&&...) {});
    CHECK(memory.peak() == on.pool.peak());
    CHECK(memory.live() == 0);
    CHECK(on.pool.live() == 0);
    CHECK(paper.bytes() == on.file.bytes());
    CHECK(fs::is_empty(on.folder.path));
  }
}

TEST_CASE("what was kept before the input that is taken is read without being asked for, of two passes, too") {
  OnDisk on;
  const auto reads = [&] {
    const std::scoped_lock turn(on.calls.mutex);
    return on.calls.calls;
  };
  const Storage<Pool> room(on.pool, 9003, Category::activations, "input");
  dspp::detail::BytesInFile<Cpu> kept[6];
  for (int i = 0; i < 6; ++i) {
    fill(i, room, 9000);
    kept[i] = dspp::detail::BytesInFile<Cpu>(on.file, room, 3, 9000);
  }
  // Of the first three the last one is read when it is asked for; the last of all has not left its window.
  constexpr struct {
    int input;
    Size reads;
  } takes[] = {{2, 2}, {1, 3}, {0, 3}, {5, 4}, {4, 5}, {3, 5}};
  for (const auto& take : takes) {
    CAPTURE(take.input);
    kept[take.input].take(room);
    CHECK(is_input(take.input, room, 9000));
    for (int wait = 0; reads() < take.reads && wait < 5000; ++wait) ::usleep(1000);
    CHECK(reads() == take.reads);
  }
}

TEST_CASE("a pass needs a window at a time, and a file of what was kept at once") {
  constexpr Size bytes = 10000, window = io::BlockFile::bytes_of(bytes) + 4096 - 64;
  OnDisk on;
  for (int step = 0; step < 3; ++step) on.make(pass_of(7, bytes));
  CHECK(on.file.bytes() == 7 * io::BlockFile::bytes_of(bytes));
  CHECK(on.pool.live() == 0);
  CHECK(on.pool.peak() == window + round_up(bytes + 3, Size{64}));  // and the input itself
}

TEST_CASE("a refused transfer is a sentence where it is waited for, and what is kept later is kept") {
  for (const bool writes : {true, false}) {
    CAPTURE(writes);
    Size calls_made = 0, refused = 0;
    for (Size at = 0; at <= calls_made; ++at) {
      CAPTURE(at);
      OnDisk on;
      on.calls.writes = writes, on.calls.at = at;
      const std::string sentence = on.sentence_of_making(pass_of(5, 9000));
      if (at == 0) calls_made = on.calls.calls;
      if (sentence != "no error") {
        CHECK(sentence.starts_with("dspp: BlockFile needs "));
        CHECK(sentence.find(" at offset ") != std::string::npos);
        CHECK(sentence.find(writes ? " to be writable, but " : " to be readable, but ") != std::string::npos);
        ++refused;
      }
      CHECK(on.pool.live() == 0);
      on.calls.at = 0;
      CHECK(on.sentence_of_making(pass_of(5, 9000)) == "no error");
      CHECK(on.pool.live() == 0);
    }
    CHECK(calls_made >= 4);
    CHECK(refused >= 3);
  }
}

TEST_CASE("a full disk is a sentence, and takes what there is room for; a file needs a folder") {
  OnDisk on;
  on.calls.most = 50000;  // three inputs
  for (int i = 0; i < 2; ++i) {
    CHECK(on.sentence_of_making(pass_of(4, 9000)).find("No space left on device") != std::string::npos);
    CHECK(on.pool.live() == 0);
    CHECK(on.sentence_of_making(pass_of(3, 9000)) == "no error");
    CHECK(on.file.bytes() == 3 * io::BlockFile::bytes_of(9000));
  }
  KeptInputFile<Cpu> nowhere;
  CHECK(
      sentence_of([&] { nowhere.open(on.pool, on.pool, {}); }).starts_with("dspp: Offload<what, Disk> needs a folder"));
  CHECK(on.pool.live() == 0);
}

TEST_CASE("an input whose write was refused is still there, and is written with the next one") {
  OnDisk on;
  on.calls.writes = true, on.calls.at = 2;
  const Storage<Pool> room(on.pool, 9003, Category::activations, "input");
  dspp::detail::BytesInFile<Cpu> kept[4];
  const auto keep = [&](int i) {
    fill(i, room, 9000);
    kept[i] = dspp::detail::BytesInFile<Cpu>(on.file, room, 3, 9000);
  };
  keep(0), keep(1);
  CHECK(sentence_of([&] { keep(2); }).find(" to be writable, but ") != std::string::npos);
  for (const int i : {2, 3}) keep(i);
  for (const int i : {1, 3, 0, 2}) {
    CAPTURE(i);
    kept[i].take(room);
    CHECK(is_input(i, room, 9000));
  }
}

TEST_CASE("passes one ahead of the other need the room of two") {
  constexpr Size bytes = 9000;
  std::vector<Call> calls(3, {Call::What::keep, bytes, 0});
  for (int pass = 0; pass < 8; ++pass) {
    for (int i = 0; i < 3; ++i) calls.push_back({Call::What::keep, bytes, 0});
    for (std::size_t i = 3; i-- > 0;) calls.push_back({Call::What::take, 0, i});  // of the pass before
  }
  OnDisk on;
  on.make(calls);
  CHECK(on.file.bytes() == 6 * io::BlockFile::bytes_of(bytes));
}
