// SPDX-License-Identifier: Apache-2.0
/// The format of a token file: a header of 64 bytes, then the tokens, all little-endian.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/fnv.hpp>

namespace dspp::data {

/// | byte | what                                                        |
/// |------|-------------------------------------------------------------|
/// |    0 | "dspp.tok"                                                  |
/// |    8 | version: 1, 32 bits                                         |
/// |   12 | bytes per token: 2 or 4, 32 bits                            |
/// |   16 | number of tokens                                            |
/// |   24 | size of the vocabulary; all tokens are below it             |
/// |   32 | FNV-1a of the tokens' bytes                                 |
/// |   40 | fingerprint of the tokenizer, or 0 where tokens are bytes   |
/// |   48 | 0                                                           |
/// |   56 | FNV-1a of bytes 0 to 55                                     |
/// |   64 | the tokens                                                  |
struct ShardHeader {
  static constexpr Size bytes = 64;
  std::uint32_t token_bytes = 2;
  std::uint64_t count = 0, vocabulary_size = 0, tokens_sum = 0, tokenizer = 0;
};

/// A header as 64 bytes.
std::string shard_header_bytes(const ShardHeader& header);

/// Reads a header from 64 bytes; `path` names the file in errors.
///
/// Throws   Error(file) if they are not a header of version 1, or damaged
ShardHeader read_shard_header(std::string_view bytes, const std::string& path);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

static_assert(std::endian::native == std::endian::little, "dspp: token files need a little-endian machine.");

inline constexpr std::string_view shard_magic = "dspp.tok";
inline constexpr std::uint32_t shard_version = 1;

[[noreturn]] void refuse_shard(const std::string& path, const std::string& needs, const std::string& got);

template <class T>
T read_value(std::string_view bytes, std::size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void refuse_shard(const std::string& path, const std::string& needs, const std::string& got) {
  fail(ErrorCode::file, "dspp: the token file '" + path + "' needs " + needs + ", but " + got + ". Make it again.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string shard_header_bytes(const ShardHeader& header) {
  std::string bytes(detail::shard_magic);
  const auto put = [&](const auto& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof value); };
  put(detail::shard_version), put(header.token_bytes), put(header.count), put(header.vocabulary_size);
  put(header.tokens_sum), put(header.tokenizer), put(std::uint64_t{0});
  put(Fnv1a().add(bytes).value());
  return bytes;
}

DSPP_INLINE ShardHeader read_shard_header(std::string_view bytes, const std::string& path) {
  const auto refuse = [&](const std::string& needs, const std::string& got) { detail::refuse_shard(path, needs, got); };
  if (bytes.substr(0, 8) != detail::shard_magic) refuse("\"dspp.tok\" at its beginning", "it is another kind of file");
  const auto version = detail::read_value<std::uint32_t>(bytes, 8);
  if (version != detail::shard_version) refuse("version 1", "it is of version " + std::to_string(version));
  if (detail::read_value<std::uint64_t>(bytes, 56) != Fnv1a().add(bytes.substr(0, 56)).value())
    refuse("the header that was written", "its checksum differs");
  const ShardHeader header{.token_bytes = detail::read_value<std::uint32_t>(bytes, 12),
                           .count = detail::read_value<std::uint64_t>(bytes, 16),
                           .vocabulary_size = detail::read_value<std::uint64_t>(bytes, 24),
                           .tokens_sum = detail::read_value<std::uint64_t>(bytes, 32),
                           .tokenizer = detail::read_value<std::uint64_t>(bytes, 40)};
  if (header.token_bytes != 2 && header.token_bytes != 4)
    refuse("2 or 4 bytes a token", "it has " + std::to_string(header.token_bytes));
  if (header.vocabulary_size < 1 || header.vocabulary_size > std::uint64_t{1} << 31)
    refuse("a vocabulary in [1, 2^31]", "it has " + std::to_string(header.vocabulary_size));
  if (header.count > std::uint64_t{1} << 60) refuse("less than 2^60 tokens", "it has more");
  return header;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
