// SPDX-License-Identifier: Apache-2.0
/// state.json: everything in a checkpoint besides its tensors, and the checksums of each chunk of its files.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/base/crc32c.hpp>
#include <dspp/io/checkpoint_names.hpp>
#include <dspp/io/file.hpp>
#include <dspp/io/json.hpp>
#include <dspp/io/safetensors.hpp>
#include <dspp/io/text_file.hpp>

namespace dspp::io {

/// Bytes per checksum.
inline constexpr Size checkpoint_chunk_bytes = 1_MiB;

/// A file of a checkpoint and the CRC-32C of each of its chunks, the last of which may be shorter.
struct CheckpointFile {
  std::string name;
  Size bytes = 0;
  std::vector<std::uint32_t> checksums;

  static Size chunks_of(Size bytes) {
    return bytes / checkpoint_chunk_bytes + (bytes % checkpoint_chunk_bytes != 0 ? 1 : 0);
  }
  Size chunk_end(Size chunk) const {
    return chunk >= bytes / checkpoint_chunk_bytes ? bytes : (chunk + 1) * checkpoint_chunk_bytes;
  }
};

/// One rank's part of a file's checksums before they are combined: each rank adds the shares, crc32c_share, of the
/// bytes that it writes, in any order.
///
/// Memory   4 bytes for each MiB of the file
class ChecksumShares {
 public:
  explicit ChecksumShares(Size bytes)
      : bytes_(bytes), shares_(static_cast<std::size_t>(CheckpointFile::chunks_of(bytes)), 0) {}

  void add(Size offset, const void* data, Size bytes);
  std::vector<std::uint32_t>& shares() { return shares_; }

 private:
  Size bytes_;
  std::vector<std::uint32_t> shares_;
};

struct CheckpointManifest {
  std::string training_text = "{}";  ///< a JSON object
  std::vector<CheckpointFile> files;

  /// Lists, objects and their members are read from this manifest, which must outlive them and not move.
  Json training() const& { return Json(training_text); }
  Json training() && = delete;

  /// Throws Error(file) if there is none of that name.
  const CheckpointFile& file(std::string_view name, const std::string& path) const;
};

/// The text of state.json; `training` is a JSON object of the caller's.
std::string checkpoint_manifest_text(const std::string& training, const std::vector<CheckpointFile>& files);

/// Memory   3 times the file, of which the manifest keeps up to 1
/// Throws   Error(file) if the file is absent, cut off, changed in any byte, or not dspp's
CheckpointManifest read_checkpoint_manifest(const std::string& path);

/// Reads the chunks first, first + stride, ... of a file and verifies their checksums.
///
/// Memory   1 MiB
/// Throws   Error(file) if the file is absent, shorter or longer than it was, or changed in any byte
void verify_checkpoint_file(const std::string& path, const CheckpointFile& file, Size first, Size stride);

/// The text plus a last line with its checksum.
std::string sealed_text(const std::string& text);
/// The text without that line, in the same memory; throws Error(file) if the line or checksum is missing or wrong.
/// `path` is the text's.
std::string unsealed_text(std::string text, const std::string& path);
/// Reads a small file: at most 256 MiB, the checksums of 128 TiB. Throws Error(file).
std::string read_small_file(const std::string& path);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline constexpr std::string_view checkpoint_format = "dspp training state";
inline constexpr Size checkpoint_version = 1;

std::string hexadecimal(std::uint32_t number);

/// Eight hexadecimal digits at the front of `text`, or -1.
std::int64_t checksum_of(std::string_view text);

/// Throws unless there is such a file of a checkpoint.
void require_in_checkpoint(const std::string& path);

/// A file's entry; `refuse` does not return.
template <class Refuse>
CheckpointFile read_checkpoint_file(const Json& entry, Refuse refuse) {
  const std::string name = shortened(entry.key);
  const std::optional<Json> bytes = entry.find("bytes"), sums = entry.find("crc32c");
  if (!bytes || !bytes->is(Json::Kind::integer) || bytes->integer < 0 || !sums || !sums->is(Json::Kind::string))
    refuse("does not give the size and the checksums of '" + name + "'");
  CheckpointFile file{entry.key, bytes->integer, {}};
  const std::string& digits = sums->string;
  if (std::ssize(digits) / 8 != CheckpointFile::chunks_of(file.bytes) || digits.size() % 8 != 0)
    refuse("has another number of checksums than '" + name + "' has chunks");
  file.checksums.reserve(digits.size() / 8);
  for (std::size_t at = 0; at < digits.size(); at += 8) {
    const std::int64_t sum = checksum_of(std::string_view(digits).substr(at));
    if (sum < 0) refuse("has a checksum of '" + name + "' that is no number");
    file.checksums.push_back(static_cast<std::uint32_t>(sum));
  }
  return file;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string hexadecimal(std::uint32_t number) {
  std::string text;
  for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[number >> shift & 15];
  return text;
}

DSPP_INLINE std::int64_t checksum_of(std::string_view text) {
  std::uint32_t number = 0;
  if (text.size() < 8) return -1;
  for (const char c : text.substr(0, 8)) {
    const std::size_t digit = std::string_view("0123456789abcdef").find(c);
    if (digit == std::string_view::npos) return -1;
    number = number << 4 | static_cast<std::uint32_t>(digit);
  }
  return number;
}

DSPP_INLINE void require_in_checkpoint(const std::string& path) {
  if (!exists(path))
    fail(ErrorCode::file,
         "dspp: resuming needs the file '" + path + "', but it is not there. " + load_another_than_that_of(path));
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

inline std::string read_small_file(const std::string& path) {
  return read_text_file(path, 256_MiB);
}

namespace detail {

/// ", in which 'a' and 2 other tensors lie," for bytes [begin, end) of the file; empty if its header cannot be read,
/// which may be what was changed.
std::string tensors_between(const std::string& path, Size begin, Size end);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE std::string tensors_between(const std::string& path, Size begin, Size end) {
  try {
    const SafetensorsReader file(path);
    const std::vector<TensorEntry>& tensors = file.tensors();
    const Size data = tensors.empty() ? end : File::to_read(path).size() - tensors.back().end;
    const TensorEntry* found = nullptr;
    Size others = -1;
    for (const TensorEntry& tensor : tensors)
      if (tensor.begin < tensor.end && data + tensor.begin < end && data + tensor.end > begin) {
        if (!found) found = &tensor;
        ++others;
      }
    if (!found) return "";
    return ", in which '" + found->name + "'" +
           (others == 0   ? " lies,"
            : others == 1 ? " and another tensor lie,"
                          : " and " + std::to_string(others) + " other tensors lie,");
  } catch (const Error&) {
    return "";
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void ChecksumShares::add(Size offset, const void* data, Size bytes) {
  const auto* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const Size chunk = offset / checkpoint_chunk_bytes;
    const Size end = std::min((chunk + 1) * checkpoint_chunk_bytes, bytes_);
    const Size count = std::min(bytes, end - offset);
    shares_[static_cast<std::size_t>(chunk)] ^= crc32c_share(from, count, end - offset - count);
    from += count, offset += count, bytes -= count;
  }
}

DSPP_INLINE const CheckpointFile& CheckpointManifest::file(std::string_view name, const std::string& path) const {
  for (const CheckpointFile& f : files)
    if (f.name == name) return f;
  fail(ErrorCode::file, "dspp: '" + path + "' needs an entry for '" + std::string(name) +
                            "', but has none: a checkpoint of another optimizer? " + load_another_than_that_of(path));
}

DSPP_INLINE std::string sealed_text(const std::string& text) {
  return text + "crc32c " + detail::hexadecimal(crc32c(text.data(), std::ssize(text))) + "\n";
}

DSPP_INLINE std::string unsealed_text(std::string text, const std::string& path) {
  constexpr std::string_view key = "crc32c ";
  constexpr std::size_t seal = key.size() + 9;
  const auto refuse = [&](const char* got) {
    fail(ErrorCode::file, "dspp: '" + path + "' needs a last line with its checksum, but " + got + ". " +
                              load_another_than_that_of(path));
  };
  const std::string_view last = std::string_view(text).substr(text.size() - std::min(seal, text.size()));
  if (last.size() < seal || last.substr(0, key.size()) != key || last.back() != '\n' ||
      detail::checksum_of(last.substr(key.size())) < 0)
    refuse("has none: it is cut off, changed, or not written by dspp");
  const std::size_t body = text.size() - seal;
  if (detail::checksum_of(last.substr(key.size())) != crc32c(text.data(), static_cast<Size>(body)))
    refuse("that is of other bytes: it was changed");
  text.resize(body);
  return text;
}

DSPP_INLINE std::string checkpoint_manifest_text(const std::string& training,
                                                 const std::vector<CheckpointFile>& files) {
  JsonObject listed(JsonEscapes::demanded);
  for (const CheckpointFile& file : files) {
    std::string sums;
    for (const std::uint32_t sum : file.checksums) sums += detail::hexadecimal(sum);
    listed.new_line().add(file.name, JsonObject().add("bytes", file.bytes).add("crc32c", sums));
  }
  JsonObject manifest;
  manifest.add("format", detail::checkpoint_format).add("version", detail::checkpoint_version);
  manifest.new_line().add_json("training", training);
  manifest.new_line().add("chunk_bytes", checkpoint_chunk_bytes).add("files", listed);
  return sealed_text(manifest.text() + "\n");
}

DSPP_INLINE CheckpointManifest read_checkpoint_manifest(const std::string& path) {
  detail::require_in_checkpoint(path);
  const std::string text = unsealed_text(read_small_file(path), path);
  const Json all = parse_json(text, "'" + path + "'");
  const auto refuse = [&](const std::string& what) {
    fail(ErrorCode::file,
         "dspp: '" + path + "' needs to be a checkpoint of dspp, but " + what + ". " + load_another_than_that_of(path));
  };
  const std::optional<Json> format = all.find("format"), version = all.find("version"), chunk = all.find("chunk_bytes"),
                            training = all.find("training"), files = all.find("files");
  if (!format || format->string != detail::checkpoint_format) refuse("does not say that it is one");
  if (!version || version->integer != detail::checkpoint_version)
    refuse("has version " + std::to_string(version ? version->integer : 0) + " where this dspp reads " +
           std::to_string(detail::checkpoint_version));
  if (!chunk || chunk->integer != checkpoint_chunk_bytes) refuse("has chunks of another size");
  if (!training || !training->is(Json::Kind::object)) refuse("does not describe the training");
  if (!files || !files->is(Json::Kind::object)) refuse("names no files");
  CheckpointManifest manifest{std::string(training->text), {}};
  constexpr Size shortest = 27;  // bytes of an entry
  manifest.files.reserve(static_cast<std::size_t>(std::min(files->count(), std::ssize(files->text) / shortest)));
  for (const Json& entry : files->items()) manifest.files.push_back(detail::read_checkpoint_file(entry, refuse));
  return manifest;
}

DSPP_INLINE void verify_checkpoint_file(const std::string& path, const CheckpointFile& file, Size first, Size stride) {
  detail::require_in_checkpoint(path);
  const File stored = File::to_read(path);
  if (stored.size() != file.bytes)
    fail(ErrorCode::file, "dspp: '" + path + "' needs the " + std::to_string(file.bytes) +
                              " bytes that were saved, but has " + std::to_string(stored.size()) + ". " +
                              load_another_than_that_of(path));
  std::vector<char> bytes(static_cast<std::size_t>(std::min(checkpoint_chunk_bytes, file.bytes)));
  for (Size chunk = first; chunk < std::ssize(file.checksums); chunk += stride) {
    const Size begin = chunk * checkpoint_chunk_bytes, count = file.chunk_end(chunk) - begin;
    stored.read_at(begin, bytes.data(), count);
    if (crc32c(bytes.data(), count) != file.checksums[static_cast<std::size_t>(chunk)])
      fail(ErrorCode::file, "dspp: '" + path + "' needs the bytes that were saved, but those in [" +
                                std::to_string(begin) + ", " + std::to_string(begin + count) + ")" +
                                detail::tensors_between(path, begin, begin + count) +
                                " have another checksum: they were changed. " + load_another_than_that_of(path));
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
