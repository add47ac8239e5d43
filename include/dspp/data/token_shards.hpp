// SPDX-License-Identifier: Apache-2.0
/// Tokens on disk: one or more files, mapped into memory and read as one long sequence.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <dspp/base/error.hpp>
#include <dspp/base/types.hpp>
#include <dspp/data/shard_header.hpp>
#include <dspp/io/mapped_file.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <utility>

#include <dspp/data/token_index.hpp>
#endif

namespace dspp::data {

/// One file of tokens, in the format of shard_header.hpp.
///
/// Memory   none but address space
/// Throws   Error(file) if it is not a token file, its header is damaged, or its length differs from its header's
class TokenShard {
 public:
  explicit TokenShard(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// The descriptor of the open file, also after the path is replaced; owned by this object.
  int descriptor() const { return file_.descriptor(); }
  Size size() const { return static_cast<Size>(header_.count); }
  const ShardHeader& header() const { return header_; }

  /// Tokens [first, first + count) into `out`. Throws Error(file) for one outside the vocabulary.
  void read(Size first, Size count, std::int32_t* out) const;
  /// Reads the whole file and throws Error(file) unless its tokens match their checksum.
  void verify() const;

 private:
  template <class Token>
  void read_as(Size first, Size count, std::int32_t* out) const;
  [[noreturn]] void refuse(const std::string& needs, const std::string& got) const;

  io::MappedFile file_;
  ShardHeader header_;
};

/// The path of shards: a file, or a folder whose files *.tokens are taken in the byte order of their names.
struct TokenFiles {
  std::string path;
};

/// Shards as one sequence of tokens, in the order given, whatever their lengths. Each file is verified once, when it is
/// first opened, and recorded in its folder (`.verified`); the files of a folder are compared with its index.
///
/// Cost     of the first opening: the files are read, about 1 ns per byte
/// Throws   Error(file) if two shards have different vocabularies or tokenizers, if files of a folder are missing or
///          exchanged, or if tokens do not match their checksum; errors of TokenShard
class TokenShards {
 public:
  explicit TokenShards(const std::vector<std::string>& paths);
  explicit TokenShards(const TokenFiles& files);
  static std::vector<std::string> paths_of(const TokenFiles& files);

  Size size() const { return begins_.back(); }
  Size vocabulary_size() const { return static_cast<Size>(shards_[0].header().vocabulary_size); }
  /// The tokenizer's fingerprint, or 0 for bytes.
  std::uint64_t tokenizer() const { return shards_[0].header().tokenizer; }
  /// A hash of the headers, which differs for other tokens or other cuts into files (with high probability).
  std::uint64_t fingerprint() const;
  const std::vector<TokenShard>& shards() const { return shards_; }

  /// Tokens [first, first + count) of the sequence into `out`. Throws Error(usage) outside it.
  void read(Size first, Size count, std::int32_t* out) const;
  /// "4460770 tokens of a vocabulary of 6004 in 3 files".
  std::string summary() const;

 private:
  void open(const std::vector<std::string>& paths);
  void verify_once() const;

  std::vector<TokenShard> shards_;
  std::vector<Size> begins_;  // the first token of each shard, and the end of the last
};

/// What batches(world, files, ...) reads.
std::shared_ptr<const TokenShards> open_data(const TokenFiles& files);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

template <class Token>
void TokenShard::read_as(Size first, Size count, std::int32_t* out) const {
  constexpr Size width = sizeof(Token);
  const unsigned char* const from = file_.range(ShardHeader::bytes + first * width, count * width);
  Token largest = 0;
  for (Size i = 0; i < count; ++i) {
    Token token;
    std::memcpy(&token, from + i * width, sizeof token);
    largest = std::max(largest, token);
    out[i] = static_cast<std::int32_t>(token);
  }
  if (largest >= header_.vocabulary_size)
    refuse("tokens below its vocabulary of " + std::to_string(header_.vocabulary_size),
           std::to_string(largest) + " is among tokens " + std::to_string(first) + " to " +
               std::to_string(first + count - 1));
}

DSPP_INLINE TokenShards::TokenShards(const std::vector<std::string>& paths) {
  open(paths);
  verify_once();
}

DSPP_INLINE TokenShard::TokenShard(const std::string& path) : file_(path) {
  if (file_.size() < ShardHeader::bytes)
    refuse("a header of " + std::to_string(ShardHeader::bytes) + " bytes",
           "it has " + std::to_string(file_.size()) + " bytes in all");
  const auto* const begin = reinterpret_cast<const char*>(file_.range(0, ShardHeader::bytes));
  header_ = read_shard_header(std::string_view(begin, ShardHeader::bytes), path);
  const Size bytes = ShardHeader::bytes + size() * header_.token_bytes;
  if (file_.size() != bytes)
    refuse(std::to_string(bytes) + " bytes for its " + std::to_string(size()) + " tokens",
           "it has " + std::to_string(file_.size()));
}

DSPP_INLINE void TokenShard::refuse(const std::string& needs, const std::string& got) const {
  detail::refuse_shard(path(), needs, got);
}

DSPP_INLINE void TokenShard::read(Size first, Size count, std::int32_t* out) const {
  if (header_.token_bytes == 2) return read_as<std::uint16_t>(first, count, out);
  read_as<std::uint32_t>(first, count, out);
}

DSPP_INLINE void TokenShard::verify() const {
  constexpr Size block = 1 << 16;
  std::vector<std::int32_t> tokens(block);
  Fnv1a sum;
  for (Size first = 0; first < size(); first += block) {
    const Size count = std::min(block, size() - first), bytes = count * header_.token_bytes;
    read(first, count, tokens.data());
    const unsigned char* const from = file_.range(ShardHeader::bytes + first * header_.token_bytes, bytes);
    sum.add({reinterpret_cast<const char*>(from), static_cast<std::size_t>(bytes)});
  }
  if (sum.value() != header_.tokens_sum) refuse("the tokens that were written", "their checksum differs");
}

DSPP_INLINE TokenShards::TokenShards(const TokenFiles& files) {
  open(paths_of(files));
  std::error_code error;
  if (std::filesystem::is_directory(files.path, error)) {
    std::vector<std::pair<std::string, ShardHeader>> there;
    for (const TokenShard& shard : shards_)
      there.emplace_back(std::filesystem::path(shard.path()).filename().string(), shard.header());
    require_indexed(files.path, there);
  }
  verify_once();
}

DSPP_INLINE void TokenShards::verify_once() const {
  std::map<std::string, VerifiedFiles> folders;
  for (const TokenShard& shard : shards_) {
    const std::string folder = io::detail::folder_of(shard.path());
    VerifiedFiles& known = folders.try_emplace(folder, folder).first->second;
    known.once(shard.path(), shard.descriptor(), shard.header(), [&] { shard.verify(); });
  }
  for (const auto& [folder, known] : folders) known.keep();
}

DSPP_INLINE void TokenShards::open(const std::vector<std::string>& paths) {
  require(!paths.empty(), "dspp: TokenShards needs a file at least, but got none. Name one.");
  begins_.push_back(0);
  for (const std::string& path : paths) {
    shards_.emplace_back(path);
    const ShardHeader &first = shards_[0].header(), &now = shards_.back().header();
    const auto require_equal = [&](const std::string& what, std::uint64_t wanted, std::uint64_t got) {
      if (wanted == got) return;
      detail::refuse_shard(path, what + " " + std::to_string(wanted) + ", as '" + paths[0] + "' has",
                           "it has " + std::to_string(got));
    };
    require_equal("a vocabulary of", first.vocabulary_size, now.vocabulary_size);
    require_equal("tokens of the tokenizer", first.tokenizer, now.tokenizer);
    begins_.push_back(begins_.back() + shards_.back().size());
  }
}

DSPP_INLINE std::vector<std::string> TokenShards::paths_of(const TokenFiles& files) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(files.path, error)) return {files.path};
  std::vector<std::string> paths;
  for (fs::directory_iterator entry(files.path, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    if (entry->path().extension() == ".tokens") paths.push_back(entry->path().string());
  if (error || paths.empty()) {
    std::error_code ignored;
    const std::string train = (fs::path(files.path) / "train").string();
    const bool whole = fs::is_directory(train, ignored);  // a folder for TokenFolder
    fail(ErrorCode::file,
         "dspp: TokenFiles needs a file, or a folder with files *.tokens, but '" + files.path + "' " +
             (error ? "cannot be searched: " + error.message() : "holds none") +
             (whole ? ". Name '" + train + "', or open a TokenFolder." : ". Make some with ./dspp tokenize."));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

DSPP_INLINE void TokenShards::read(Size first, Size count, std::int32_t* out) const {
  if (first < 0 || count < 0 || first > size() - count)
    fail(ErrorCode::usage, "dspp: TokenShards need tokens in [0, " + std::to_string(size()) + "), but was asked for " +
                               std::to_string(count) + " from " + std::to_string(first) + " on. Check the range.");
  auto shard = static_cast<std::size_t>(std::upper_bound(begins_.begin(), begins_.end(), first) - begins_.begin()) - 1;
  for (; count > 0; ++shard) {
    const Size here = std::min(count, begins_[shard + 1] - first);
    shards_[shard].read(first - begins_[shard], here, out);
    first += here, out += here, count -= here;
  }
}

DSPP_INLINE std::uint64_t TokenShards::fingerprint() const {
  Fnv1a sum;
  for (const TokenShard& shard : shards_) sum.add(shard_header_bytes(shard.header()));
  return sum.value();
}

DSPP_INLINE std::string TokenShards::summary() const {
  return std::to_string(size()) + " tokens of a vocabulary of " + std::to_string(vocabulary_size()) + " in " +
         std::to_string(shards_.size()) + (shards_.size() == 1 ? " file" : " files");
}

DSPP_INLINE std::shared_ptr<const TokenShards> open_data(const TokenFiles& files) {
  return std::make_shared<const TokenShards>(files);
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::data
