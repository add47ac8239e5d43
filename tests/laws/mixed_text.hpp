// SPDX-License-Identifier: Apache-2.0
/// Text of many scripts and special cases, generated from a seed, byte for byte as by make_tokenizer_golden.py.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dspp::laws {

/// True if this byte continues a UTF-8 character.
inline bool is_inside_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80u;
}

inline void append_character(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) return put(0xc0 | code >> 6), put(0x80 | (code & 0x3f));
  if (code < 0x10000) return put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f)), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
}

class MixedText {
 public:
  MixedText(std::string_view seed, std::size_t size) : seed_(seed) {
    while (text.size() < size) {
      const std::uint64_t kind = draw(8);
      if (kind <= 4)
        add_slice();
      else if (kind == 5)
        add_block();
      else if (kind == 6)
        add_run();
      else
        for (std::uint64_t count = 1 + draw(30); count > 0; --count) text += ascii[draw(ascii.size())];
    }
  }

  std::string text;

 private:
  static constexpr std::string_view ascii =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789    ''\n\t.,!<|>_";
  static constexpr std::uint32_t odd[] = {
      0x20,   0x09,   0x0A, 0x0D, 0x0B, 0x0C, 0x85,  0xA0,   0x1680,  0x2003, 0x2028, 0x3000, 0x200B, 0x200D,
      0xFEFF, 0x180E, 0x1C, 0x00, 0x7F, 0x27, 0x301, 0xFE0F, 0x1F600, 0x61,   0x39,   0x2026, 0xFFFD, 0x10FFFF};

  std::uint64_t draw(std::uint64_t count) {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 33) % count;
  }

  void add_slice() {
    std::size_t start = draw(seed_.size());
    const std::size_t length = 1 + draw(300);
    while (is_inside_character(seed_, start)) ++start;
    std::size_t end = std::min(start + length, seed_.size());
    while (is_inside_character(seed_, end)) ++end;
    text += seed_.substr(start, end - start);
  }

  void add_block() {
    const std::uint64_t planes = draw(4) ? 0x20000 : 0x110000, block = draw(planes / 128);
    for (std::uint64_t count = 1 + draw(40); count > 0; --count) {
      const auto code = static_cast<std::uint32_t>(128 * block + draw(128));
      if (code < 0xd800 || code >= 0xe000) append_character(text, code);
    }
  }

  void add_run() {
    const std::uint32_t code = odd[draw(std::size(odd))];
    for (std::uint64_t count = 1 + draw(12); count > 0; --count) append_character(text, code);
  }

  std::string_view seed_;
  std::uint64_t state_ = 2026;
};

/// Pieces of 4096 bytes, slightly more to keep characters whole.
inline std::vector<std::string_view> blocks_of(std::string_view text) {
  std::vector<std::string_view> blocks;
  for (std::size_t start = 0; start < text.size();) {
    std::size_t end = std::min<std::size_t>(start + 4096, text.size());
    while (is_inside_character(text, end)) ++end;
    blocks.push_back(text.substr(start, end - start));
    start = end;
  }
  return blocks;
}

}  // namespace dspp::laws
