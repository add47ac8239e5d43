// SPDX-License-Identifier: Apache-2.0
/// Reads and writes safetensors files by ranges of elements, so that each rank touches only its own bytes.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <dspp/base/facts.hpp>
#include <dspp/base/out_of_memory.hpp>
#include <dspp/io/mapped_file.hpp>
#include <dspp/io/pickled.hpp>
#include <dspp/io/safetensors_header.hpp>

namespace dspp::io {

/// A memory-mapped file. Reading is const and may happen from several threads at once.
///
/// Memory   the header; the system loads and evicts the pages of the tensors
/// Throws   Error(file) if the file is absent, unreadable, cut off or malformed; Error(out_of_memory)
/// Source   https://github.com/huggingface/safetensors, "Format"
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::string& path);

  SafetensorsReader(SafetensorsReader&& other) noexcept
      : file_(std::move(other.file_)),
        header_(std::move(other.header_)),
        data_begin_(other.data_begin_),
        bytes_read_(other.bytes_read()) {}

  const std::string& path() const { return file_.path(); }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  const TensorEntry* find(std::string_view name) const { return header_.find(name); }
  /// The bytes of tensors read so far.
  Size bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

  /// What ranks that read separate files compare: the header, and 4 KiB of each MiB of the data. That distinguishes
  /// checkpoints of different steps, but does not detect one changed number.
  Facts facts() const;

  /// The tensor of that name. Throws Error(file) if there is none.
  const TensorEntry& tensor(std::string_view name) const;

  /// Elements [first, first + count), unconverted. Throws Error(file) if the tensor has another type, Error(usage)
  /// outside it.
  template <class T>
  void read(const TensorEntry& tensor, Size first, Size count, T* out) const;

  /// The same, converted from any floating-point type of the file; rounded to nearest even.
  template <class T>
  void read_as(const TensorEntry& tensor, Size first, Size count, T* out) const;
  /// Elements [first, first + count) of the transpose of a matrix: of [in, out] those of [out, in], in its order.
  template <class T>
  void read_transposed_as(const TensorEntry& matrix, Size first, Size count, T* out) const;
  /// Throws Error(file) unless read_as can convert the tensor.
  void require_convertible(const TensorEntry& tensor) const;
  /// Advises the system that these elements will be read.
  void will_need(const TensorEntry& tensor, Size first, Size count) const;

 private:
  /// The bytes of elements [first, first + count), of which `used` will be read.
  const unsigned char* bytes_of_elements(const TensorEntry& tensor, Size first, Size count, Size used) const;
  /// Calls f(From{}), From the element type of the tensor.
  template <class F>
  void with_type_of(const TensorEntry& tensor, F f) const;

  MappedFile file_;
  SafetensorsHeader header_;
  Size data_begin_ = 0;
  mutable std::atomic<Size> bytes_read_ = 0;
};

/// Writes one file from several ranks, threads or processes. All construct it with the same arguments; then
///
///   if (rank == 0) writer.create();       // the partial file: header, and zeros
///   barrier();
///   writer.write(...);                    // every rank its own elements, in any order
///   writer.flush();
///   barrier();
///   if (rank == 0) writer.commit();       // replaces `path` in one step
///
/// The file is built as `path` + ".partial"; if the rank that created it does not commit, its destructor deletes it.
/// The file at `path` is complete at any time.
class SafetensorsWriter {
 public:
  SafetensorsWriter(std::string path, const std::vector<TensorSpec>& tensors,
                    std::map<std::string, std::string> metadata = {{"format", "pt"}});
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  const SafetensorsHeader& header() const { return header_; }

  void create();
  /// Writes elements [first, first + count) of the tensor of that name. Throws Error(usage) for another type or range.
  template <class T>
  void write(std::string_view name, Size first, Size count, const T* data);
  /// Returns when this rank's bytes are on the disk.
  void flush();
  void commit();
  /// Keeps the partial file in any case: call before the file at `path` is removed.
  void keep_partial() { kept_ = true; }

 private:
  std::string partial() const { return path_ + ".partial"; }

  std::string path_;
  SafetensorsHeader header_;
  Size data_begin_ = 0;
  File file_;
  bool created_ = false, kept_ = false;
};

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The byte offset in the data of element `first`, after checking the range.
Size range_begin(const TensorEntry& tensor, Size first, Size count, Size element_bytes);

/// Element i of those at `bytes`, at any alignment, converted and rounded to nearest even.
template <class From, class To>
To converted(const unsigned char* bytes, Size i) {
  From value;
  std::memcpy(&value, bytes + i * static_cast<Size>(sizeof(From)), sizeof(From));
  if constexpr (std::is_same_v<From, To>)
    return value;
  else
    return static_cast<To>(static_cast<double>(value));
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Size range_begin(const TensorEntry& tensor, Size first, Size count, Size element_bytes) {
  if (first < 0 || count < 0 || first > tensor.count() - count)
    fail(ErrorCode::usage, "dspp: tensor " + json_quoted(tensor.name) + " needs elements in [0, " +
                               std::to_string(tensor.count()) + "), but was asked for " + std::to_string(count) +
                               " from " + std::to_string(first) + " on. Check the slice.");
  return tensor.begin + first * element_bytes;
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

template <class T>
void SafetensorsReader::read(const TensorEntry& tensor, Size first, Size count, T* out) const {
  if (tensor.type() != element_type<T>)
    fail(ErrorCode::file, "dspp: '" + path() + "' needs " + json_quoted(tensor.name) + " as " +
                              safetensors_dtype(element_type<T>) + ", but it is " + tensor.dtype +
                              ". Convert the file.");
  const unsigned char* bytes = bytes_of_elements(tensor, first, count, count);
  std::copy_n(bytes, count * static_cast<Size>(sizeof(T)), reinterpret_cast<unsigned char*>(out));
}

template <class T>
void SafetensorsReader::read_as(const TensorEntry& tensor, Size first, Size count, T* out) const {
  if (tensor.type() == element_type<T>) return read(tensor, first, count, out);
  with_type_of(tensor, [&]<class From>(From) {
    const unsigned char* bytes = bytes_of_elements(tensor, first, count, count);
    for (Size i = 0; i < count; ++i) out[i] = detail::converted<From, T>(bytes, i);
  });
}

template <class T>
void SafetensorsReader::read_transposed_as(const TensorEntry& matrix, Size first, Size count, T* out) const {
  if (matrix.shape.size() != 2)
    fail(ErrorCode::usage, "dspp: read_transposed_as needs a matrix, but " + json_quoted(matrix.name) + " has " +
                               std::to_string(matrix.shape.size()) + " dimensions. Use read_as.");
  const Size in = matrix.shape[0], outputs = matrix.shape[1];
  detail::range_begin(matrix, first, count, 1);
  if (count == 0) return;  // of a matrix that may have 2^47 rows and no column
  with_type_of(matrix, [&]<class From>(From) {
    const unsigned char* bytes = bytes_of_elements(matrix, 0, matrix.count(), count);
    for (Size i = 0; i < in; ++i) {
      // element o in + i of the transpose lies in [first, first + count) for these o
      const Size begin = std::max<Size>(0, (first - i + in - 1) / in), end = (first + count - i + in - 1) / in;
      for (Size o = begin; o < end; ++o) out[o * in + i - first] = detail::converted<From, T>(bytes, i * outputs + o);
    }
  });
}

template <class F>
void SafetensorsReader::with_type_of(const TensorEntry& tensor, F f) const {
  require_convertible(tensor);
  if (tensor.type() == ElementType::f64) return f(double{});
  if (tensor.type() == ElementType::f32) return f(float{});
  if (tensor.type() == ElementType::f16) return f(f16{});
  return f(bf16{});
}

template <class T>
void SafetensorsWriter::write(std::string_view name, Size first, Size count, const T* data) {
  const TensorEntry* tensor = header_.find(name);
  if (!tensor)
    fail(ErrorCode::usage, "dspp: SafetensorsWriter needs a name it was made with, but " + json_quoted(name) +
                               " is none. Add it to the list.");
  if (tensor->type() != element_type<T>)
    fail(ErrorCode::usage, "dspp: SafetensorsWriter needs " + json_quoted(name) + " as " + tensor->dtype +
                               ", but got " + safetensors_dtype(element_type<T>) + ". Cast it first.");
  const Size begin = detail::range_begin(*tensor, first, count, sizeof(T));
  if (!file_) file_ = File::to_write(partial());
  file_.write_at(data_begin_ + begin, data, count * static_cast<Size>(sizeof(T)));
}

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Facts SafetensorsReader::facts() const {
  Digest header, data;
  const auto add = [&](Digest& digest, Size offset, Size bytes) { digest.add(file_.range(offset, bytes), bytes); };
  add(header, 0, data_begin_);
  for (Size at = data_begin_; at < file_.size(); at += 1_MiB) add(data, at, std::min(file_.size() - at, Size{4096}));
  Facts facts;
  facts.add("bytes", file_.size());
  const auto step = metadata().find("step");
  if (step != metadata().end()) facts.add("step", step->second);
  return facts.add("digest of the header", digest_text(header.value()))
      .add("digest of the data", digest_text(data.value()));
}

DSPP_INLINE SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  const std::string who = "the header of '" + path + "'";
  const Size bytes = file_.size();
  const auto refuse = [&](const std::string& needs, const std::string& got) {
    fail(ErrorCode::file, "dspp: " + who + " needs " + needs + ", but " + got + ". Name a safetensors file.");
  };
  if (bytes < 8) refuse("8 bytes with its length", "the file has " + std::to_string(bytes));
  const unsigned char* length = file_.range(0, 8);
  std::uint64_t json_bytes = 0;
  for (int i = 0; i < 8; ++i) json_bytes |= static_cast<std::uint64_t>(length[i]) << (8 * i);
  if (json_bytes > static_cast<std::uint64_t>(detail::safetensors_header_limit)) {
    if (detail::begins_pickled(length)) detail::refuse_pickled(path);
    refuse("at most " + std::to_string(detail::safetensors_header_limit) + " bytes",
           "it claims " + std::to_string(json_bytes));
  }
  data_begin_ = 8 + static_cast<Size>(json_bytes);
  if (data_begin_ > bytes)
    refuse(std::to_string(json_bytes) + " bytes", "the file ends after " + std::to_string(bytes - 8));
  const auto* json = reinterpret_cast<const char*>(file_.range(8, static_cast<Size>(json_bytes)));
  header_ = or_out_of_memory(who.c_str(), [&] {
    return parse_safetensors_header({json, static_cast<std::size_t>(json_bytes)}, bytes - data_begin_, who);
  });
}

DSPP_INLINE const TensorEntry& SafetensorsReader::tensor(std::string_view name) const {
  const TensorEntry* found = find(name);
  if (!found)
    fail(ErrorCode::file, "dspp: '" + path() + "' needs a tensor " + json_quoted(name) +
                              ", but has none of that name among " + std::to_string(tensors().size()) +
                              ". Is it of another model?");
  return *found;
}

DSPP_INLINE const unsigned char* SafetensorsReader::bytes_of_elements(const TensorEntry& tensor, Size first, Size count,
                                                                      Size used) const {
  const Size element_bytes = detail::dtype_bytes(tensor.dtype);
  const Size begin = detail::range_begin(tensor, first, count, element_bytes);
  bytes_read_.fetch_add(used * element_bytes, std::memory_order_relaxed);
  return file_.range(data_begin_ + begin, count * element_bytes);
}

DSPP_INLINE void SafetensorsReader::will_need(const TensorEntry& tensor, Size first, Size count) const {
  const Size element_bytes = detail::dtype_bytes(tensor.dtype);
  const Size begin = detail::range_begin(tensor, first, count, element_bytes);
  file_.will_need(data_begin_ + begin, count * element_bytes);
}

DSPP_INLINE void SafetensorsReader::require_convertible(const TensorEntry& tensor) const {
  const auto type = tensor.type();
  if (type != ElementType::f64 && type != ElementType::f32 && type != ElementType::bf16 && type != ElementType::f16)
    fail(ErrorCode::file, "dspp: '" + path() + "' needs " + json_quoted(tensor.name) +
                              " as F64, F32, BF16 or F16, but it is " + tensor.dtype + ". Convert the file.");
}

DSPP_INLINE SafetensorsWriter::SafetensorsWriter(std::string path, const std::vector<TensorSpec>& tensors,
                                                 std::map<std::string, std::string> metadata)
    : path_(std::move(path)), header_(lay_out_safetensors(tensors, std::move(metadata))) {
  data_begin_ = std::ssize(safetensors_prefix(header_));
}

DSPP_INLINE SafetensorsWriter::~SafetensorsWriter() {
  if (created_ && !kept_) ::unlink(partial().c_str());
}

DSPP_INLINE void SafetensorsWriter::create() {
  require_free_bytes(detail::folder_of(path_), data_begin_ + header_.data_bytes());
  file_ = File::create(partial());
  created_ = true;
  const std::string prefix = safetensors_prefix(header_);
  file_.write_at(0, prefix.data(), std::ssize(prefix));
  file_.resize(data_begin_ + header_.data_bytes());
}

DSPP_INLINE void SafetensorsWriter::flush() {
  if (file_) file_.sync();
}

DSPP_INLINE void SafetensorsWriter::commit() {
  if (!created_)
    fail(ErrorCode::state,
         "dspp: SafetensorsWriter needs create() before commit(), but it was not called here. Commit where it was "
         "created.");
  file_.share();
  file_.sync();
  replace_file(partial(), path_);
  created_ = false;
  file_ = File();
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
