// SPDX-License-Identifier: Apache-2.0
/// The safetensors of a folder as one: model.safetensors, or an index and its shards.
#pragma once

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <dspp/io/safetensors.hpp>
#include <dspp/io/safetensors_index.hpp>
#include <dspp/io/text_file.hpp>

namespace dspp::io {

/// A tensor, and the file that holds it.
struct StoredTensor {
  const SafetensorsReader* file = nullptr;
  const TensorEntry* entry = nullptr;
};

/// A folder's tensors. If both exist, model.safetensors is read and the index is not, as in transformers.
///
/// Memory   the headers of all files
/// Throws   Error(file) if neither exists; if a shard is missing, lacks tensors that the index names, or has others
class SafetensorsFolder {
 public:
  explicit SafetensorsFolder(const std::string& directory);

  /// For sentences: model.safetensors or the index.
  const std::string& path() const { return path_; }
  /// By name.
  const std::map<std::string, StoredTensor, std::less<>>& tensors() const { return tensors_; }
  /// The tensor of that name, or one without a file.
  StoredTensor find(std::string_view name) const;
  Size bytes_read() const;
  /// The facts of all files: SafetensorsReader::facts.
  Facts facts() const;

 private:
  void open_shards(const std::string& directory);

  std::string path_;
  std::map<std::string, SafetensorsReader> files_;
  std::map<std::string, StoredTensor, std::less<>> tensors_;
};

/// Writes the tensors of a folder from several ranks, as SafetensorsWriter writes one file:
///
///   if (rank == 0) writer.create();
///   barrier();
///   writer.write(...); writer.flush();    // every rank its own elements
///   barrier();
///   if (rank == 0) writer.commit(texts);  // and files of text beside them: {"config.json", ...}
///
/// Until commit the folder is unchanged. A crash within commit, which only renames, leaves a folder that is unchanged,
/// is complete, or has neither model.safetensors nor an index: never parts of both. Earlier weights are removed.
class SafetensorsFolderWriter {
 public:
  /// Throws   Error(usage) as cut_into_shards and lay_out_safetensors
  SafetensorsFolderWriter(std::string directory, const std::vector<TensorSpec>& tensors, Size max_shard_bytes);

  /// Creates the folder if there is none.
  void create();
  template <class T>
  void write(const std::string& name, Size first, Size count, const T* data) {
    const auto at = writer_of_.find(name);
    (at == writer_of_.end() ? writers_.front().get() : at->second)->write(name, first, count, data);
  }
  void flush();
  void commit(const std::map<std::string, std::string>& texts = {});

 private:
  std::string file(const std::string& name) const { return directory_ + "/" + name; }
  void commit_writers() {
    for (auto& writer : writers_) writer->commit();
  }
  std::string index_text() const;
  bool changes_several(const std::map<std::string, std::string>& texts) const;
  void remove_entries() const;
  void remove_other_shards() const;

  std::string directory_;
  std::vector<SafetensorsShard> shards_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;  // one per shard
  std::map<std::string, SafetensorsWriter*> writer_of_;
};

// ---------------------------------------------------------------------------------------------------------------------

/// True if readers could see some of this folder's old files beside some of the new ones.

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE Facts SafetensorsFolder::facts() const {
  Facts facts;
  for (const auto& [name, file] : files_) facts.add(file.facts(), name + " ");
  return facts;
}

DSPP_INLINE SafetensorsFolder::SafetensorsFolder(const std::string& directory) {
  namespace fs = std::filesystem;
  const std::string one = directory + "/" + safetensors_file_name, index = directory + "/" + safetensors_index_name;
  std::error_code ignored;
  if (fs::exists(one, ignored)) {
    path_ = one;
    const SafetensorsReader& file = files_.emplace(one, SafetensorsReader(one)).first->second;
    for (const TensorEntry& entry : file.tensors()) tensors_[entry.name] = {&file, &entry};
  } else if (fs::exists(index, ignored)) {
    path_ = index;
    open_shards(directory);
  } else {
    refuse_pickled_weights_in(directory);
    fail(ErrorCode::file, "dspp: folder '" + directory + "' needs " + safetensors_file_name + " or " +
                              safetensors_index_name + ", but has neither. Name a folder of safetensors.");
  }
}

DSPP_INLINE void SafetensorsFolder::open_shards(const std::string& directory) {
  const std::string who = "'" + path_ + "'";
  const auto refuse = [&](const std::string& needs, const std::string& got) {
    fail(ErrorCode::file,
         "dspp: " + who + " needs " + needs + ", but " + got + ". Download or write the folder again.");
  };
  const SafetensorsIndex index = parse_safetensors_index(read_text_file(path_), who);
  for (const auto& [tensor, name] : index.file_of) {
    if (files_.contains(name)) continue;
    const std::string path = directory + "/" + name;
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored))
      refuse("its shard '" + name + "'", "there is no such file, and " + json_quoted(tensor) + " lies in it");
    files_.emplace(name, SafetensorsReader(path));
  }
  for (const auto& [name, file] : files_)
    for (const TensorEntry& entry : file.tensors()) {
      const auto at = index.file_of.find(entry.name);
      if (at == index.file_of.end())
        refuse("every tensor of its shards in weight_map", json_quoted(entry.name) + " of '" + name + "' is not");
      const bool also_there = at->second != name && files_.at(at->second).find(entry.name);
      if (also_there)
        refuse("every tensor in one shard",
               json_quoted(entry.name) + " is in '" + at->second + "' and in '" + name + "'");
      if (at->second == name) tensors_[entry.name] = {&file, &entry};
    }
  for (const auto& [tensor, name] : index.file_of)
    if (!tensors_.contains(tensor)) refuse("the tensors that it names", "'" + name + "' has no " + json_quoted(tensor));
}

DSPP_INLINE StoredTensor SafetensorsFolder::find(std::string_view name) const {
  const auto at = tensors_.find(name);
  return at == tensors_.end() ? StoredTensor{} : at->second;
}

DSPP_INLINE Size SafetensorsFolder::bytes_read() const {
  Size bytes = 0;
  for (const auto& [name, file] : files_) bytes += file.bytes_read();
  return bytes;
}

DSPP_INLINE SafetensorsFolderWriter::SafetensorsFolderWriter(std::string directory,
                                                             const std::vector<TensorSpec>& tensors,
                                                             Size max_shard_bytes)
    : directory_(std::move(directory)), shards_(cut_into_shards(tensors, max_shard_bytes)) {
  lay_out_safetensors(tensors);  // refuses a duplicate name, also across shards
  for (const SafetensorsShard& shard : shards_) {
    writers_.push_back(std::make_unique<SafetensorsWriter>(file(shard.file), shard.tensors));
    for (const TensorSpec& tensor : shard.tensors) writer_of_[tensor.name] = writers_.back().get();
  }
}

DSPP_INLINE void SafetensorsFolderWriter::create() {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error)
    fail(ErrorCode::file, "dspp: saving needs a directory that can be made, but '" + directory_ + "' gives '" +
                              error.message() + "'. Give another path.");
  Size bytes = 0;
  for (const auto& writer : writers_) bytes += writer->header().data_bytes();
  require_free_bytes(directory_, bytes);
  for (auto& writer : writers_) writer->create();
}

DSPP_INLINE void SafetensorsFolderWriter::flush() {
  for (auto& writer : writers_) writer->flush();
}

DSPP_INLINE void SafetensorsFolderWriter::commit(const std::map<std::string, std::string>& texts) {
  std::vector<StagedText> staged;
  for (const auto& [name, text] : texts) staged.emplace_back(file(name), text);
  if (shards_.size() > 1) staged.emplace_back(file(safetensors_index_name), index_text());
  if (changes_several(texts)) {
    for (auto& writer : writers_) writer->keep_partial();  // from here on an error must not delete the new weights
    remove_entries();
  }
  // The file that makes the folder readable comes last: the index, or the one file.
  const bool sharded = shards_.size() > 1;
  if (sharded) commit_writers();
  for (StagedText& text : staged) text.commit();
  if (!sharded) commit_writers();
  remove_other_shards();
}

DSPP_INLINE std::string SafetensorsFolderWriter::index_text() const {
  SafetensorsIndex index;
  Size elements = 0;
  for (const SafetensorsShard& shard : shards_)
    for (const TensorSpec& tensor : shard.tensors) {
      const Size bytes = detail::bytes_of_shape(tensor.shape, bytes_of(tensor.type));
      elements += bytes / bytes_of(tensor.type);
      index.total_bytes += bytes;
      index.file_of[tensor.name] = shard.file;
    }
  return safetensors_index_text(index, elements);
}

DSPP_INLINE bool SafetensorsFolderWriter::changes_several(const std::map<std::string, std::string>& texts) const {
  std::error_code ignored;
  if (shards_.size() > 1 || std::filesystem::exists(file(safetensors_index_name), ignored)) return true;
  for (const auto& [name, text] : texts) {
    if (!std::filesystem::exists(file(name), ignored) || read_text_file(file(name)) != text) return true;
  }
  return false;
}

DSPP_INLINE void SafetensorsFolderWriter::remove_entries() const {
  std::error_code error;
  for (const char* entry : {safetensors_file_name, safetensors_index_name})
    if (!std::filesystem::remove(file(entry), error) && error)
      fail(ErrorCode::file, "dspp: saving needs to replace '" + file(entry) +
                                "', but the system says: " + error.message() + ". Check its permissions.");
}

DSPP_INLINE void SafetensorsFolderWriter::remove_other_shards() const {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool own = std::any_of(shards_.begin(), shards_.end(), [&](const auto& shard) { return shard.file == name; });
    if (is_shard_name(name) && !own) std::filesystem::remove(entry.path(), ignored);
  }
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::io
