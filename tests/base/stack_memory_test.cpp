// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include <dspp/base/stack_memory.hpp>

using namespace dspp;

namespace {

struct Piece {
  void* at;
  std::size_t bytes;
};

/// Pushes pieces of these sizes, each filled with its number.
std::vector<Piece> push_all(StackMemory& memory, const std::vector<std::size_t>& sizes) {
  std::vector<Piece> pieces;
  for (const std::size_t bytes : sizes) {
    pieces.push_back({memory.push(bytes), bytes});
    std::memset(pieces.back().at, static_cast<int>(pieces.size()), bytes);
  }
  return pieces;
}

/// Bytes that are not their piece's number: two pieces share them.
std::size_t wrong_bytes(const std::vector<Piece>& pieces) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i)
    for (std::size_t k = 0; k < pieces[i].bytes; ++k)
      wrong += static_cast<const unsigned char*>(pieces[i].at)[k] != static_cast<unsigned char>(i + 1);
  return wrong;
}

std::vector<std::size_t> mixed_sizes() {
  std::vector<std::size_t> sizes;
  for (std::size_t i = 0; i < 200; ++i) sizes.push_back(i % 7 == 3 ? 5000 + i : 1 + i * 37 % 400);
  return sizes;
}

}  // namespace

TEST_CASE("pieces of any size are apart and aligned") {
  StackMemory memory;
  const auto pieces = push_all(memory, mixed_sizes());
  CHECK(wrong_bytes(pieces) == 0);
  for (const Piece& piece : pieces) CHECK(reinterpret_cast<std::uintptr_t>(piece.at) % alignof(std::max_align_t) == 0);
}

TEST_CASE("pieces that are freed in reverse order, or all at once, serve again where they were") {
  StackMemory memory;
  const auto places = [](const std::vector<Piece>& pieces) {
    std::vector<void*> at;
    for (const Piece& piece : pieces) at.push_back(piece.at);
    return at;
  };
  const auto first = push_all(memory, mixed_sizes());
  for (std::size_t i = first.size(); i-- > 0;) memory.pop(first[i].at, first[i].bytes);
  const auto second = push_all(memory, mixed_sizes());
  CHECK(places(second) == places(first));
  memory.clear();
  const auto third = push_all(memory, mixed_sizes());
  CHECK(places(third) == places(first));
  CHECK(wrong_bytes(third) == 0);
}

TEST_CASE("a piece that is freed while later ones are not gives its memory to none of them, nor to the next") {
  StackMemory memory;
  auto pieces = push_all(memory, mixed_sizes());
  for (std::size_t i = 0; i < pieces.size(); i += 3) {
    memory.pop(pieces[i].at, pieces[i].bytes);
    pieces[i].bytes = 0;
  }
  std::set<const void*> taken;
  for (int i = 0; i < 100; ++i) {
    void* const more = memory.push(300);
    std::memset(more, 255, 300);
    taken.insert(more);
  }
  CHECK(taken.size() == 100);
  CHECK(wrong_bytes(pieces) == 0);
}
