// SPDX-License-Identifier: Apache-2.0
// labels: thread
#include <doctest/doctest.h>

#include <barrier>
#include <thread>

#include <dspp/io/safetensors_folder.hpp>
#include <laws/folder.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Names = std::vector<std::string>;
const std::string first = "model-00001-of-00002.safetensors", second = "model-00002-of-00002.safetensors";

void write_file(const std::string& path, const Names& tensors) {
  std::vector<io::TensorSpec> specs;
  for (const auto& name : tensors) specs.push_back({name, ElementType::f32, {2}});
  io::SafetensorsWriter writer(path, specs);
  writer.create();
  writer.commit();
}

void write_index(const Folder& folder, const std::map<std::string, std::string>& file_of) {
  folder.write(io::safetensors_index_name, io::safetensors_index_text({file_of, 0}, 0));
}

std::string sentence_of(const Folder& folder) {
  try {
    io::SafetensorsFolder reader(folder.path.string());
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    std::string sentence = error.what();
    const std::string path = folder.path.string();
    for (std::size_t at; (at = sentence.find(path)) != std::string::npos;) sentence.replace(at, path.size(), "FOLDER");
    return sentence;
  }
  return "no error";
}

const std::vector<io::TensorSpec> specs{
    {"a", ElementType::f32, {3}}, {"b", ElementType::f32, {2, 2}}, {"c", ElementType::f32, {1}}};

float value_of(const std::string& name, Size i) {
  return static_cast<float>(name[0]) + static_cast<float>(i);
}

/// Writes `specs` from one rank.
void write_folder(const Folder& folder, Size max_shard_bytes, const std::map<std::string, std::string>& texts = {}) {
  io::SafetensorsFolderWriter writer(folder.path.string(), specs, max_shard_bytes);
  writer.create();
  for (const io::TensorSpec& spec : specs) {
    Size count = 1;
    for (const Size extent : spec.shape) count *= extent;
    for (Size i = 0; i < count; ++i) {
      const float value = value_of(spec.name, i);
      writer.write(spec.name, i, 1, &value);
    }
  }
  writer.flush();
  writer.commit(texts);
}

void check_values(const Folder& folder) {
  const io::SafetensorsFolder reader(folder.path.string());
  CHECK(reader.tensors().size() == specs.size());
  for (const io::TensorSpec& spec : specs) {
    const io::StoredTensor tensor = reader.find(spec.name);
    REQUIRE(tensor.entry != nullptr);
    CHECK(tensor.entry->shape == spec.shape);
    std::vector<float> values(static_cast<std::size_t>(tensor.entry->count()));
    tensor.file->read(*tensor.entry, 0, tensor.entry->count(), values.data());
    for (std::size_t i = 0; i < values.size(); ++i) CHECK(values[i] == value_of(spec.name, static_cast<Size>(i)));
  }
  CHECK(reader.bytes_read() == 32);
  CHECK(reader.find("d").entry == nullptr);
}

}  // namespace

TEST_CASE("a folder is read from one file or from shards, as it was written") {
  const Folder folder;
  write_folder(folder, 100);
  CHECK(folder.list() == Names{"model.safetensors"});
  check_values(folder);
  write_folder(folder, 16, {{"config.json", "{}\n"}});
  CHECK(folder.list() == Names{"config.json", "model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors",
                               "model-00003-of-00003.safetensors", "model.safetensors.index.json"});
  check_values(folder);
  write_folder(folder, 28);  // two: the earlier third shard is removed
  CHECK(folder.list() == Names{"config.json", first, second, "model.safetensors.index.json"});
  check_values(folder);
  write_folder(folder, 32, {{"config.json", "{ }\n"}});
  CHECK(folder.list() == Names{"config.json", "model.safetensors"});
  CHECK(folder.read("config.json") == "{ }\n");
  check_values(folder);
}

TEST_CASE("ranks write their own elements of the shards") {
  for (const int ranks : {1, 2, 3, 4}) {
    const Folder folder;
    std::barrier sync(ranks);
    const auto work = [&](int rank) {
      io::SafetensorsFolderWriter writer(folder.file("made"), specs, 16);
      if (rank == 0) writer.create();
      sync.arrive_and_wait();
      for (const io::TensorSpec& spec : specs)
        for (Size i = rank; i < (spec.name == "a" ? 3 : spec.name == "b" ? 4 : 1); i += ranks) {
          const float value = value_of(spec.name, i);
          writer.write(spec.name, i, 1, &value);
        }
      writer.flush();
      sync.arrive_and_wait();
      if (rank == 0) writer.commit();
    };
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(work, rank);
    for (std::thread& thread : threads) thread.join();
    const Folder whole;
    write_folder(whole, 16);
    CHECK(whole.list().size() == 4);
    for (const std::string& name : whole.list()) CHECK(folder.read("made/" + name) == whole.read(name));
  }
}

TEST_CASE("a writer that does not commit, or cannot, leaves a folder unchanged") {
  const Folder folder;
  write_folder(folder, 100, {{"config.json", "old\n"}});
  const std::string before = folder.read("model.safetensors");
  {
    io::SafetensorsFolderWriter writer(folder.path.string(), specs, 16);
    writer.create();
    CHECK(folder.list().size() == 5);
  }
  CHECK(folder.list() == Names{"config.json", "model.safetensors"});
  CHECK(folder.read("model.safetensors") == before);
  // a text that cannot be written is detected before anything is removed
  fs::create_directory(folder.path / "vocabulary.json.partial");
  CHECK_THROWS_AS(write_folder(folder, 16, {{"config.json", "new\n"}, {"vocabulary.json", "x"}}), Error);
  fs::remove(folder.path / "vocabulary.json.partial");
  CHECK(folder.list() == Names{"config.json", "model.safetensors"});
  CHECK(folder.read("model.safetensors") == before);
  CHECK(folder.read("config.json") == "old\n");
}

TEST_CASE("a commit that fails between its renames leaves a folder that is refused, never a mixture") {
  const Folder folder;
  write_folder(folder, 100, {{"config.json", "old\n"}});
  fs::create_directory(folder.path / second);  // no file can be renamed to it
  fs::create_directory(folder.path / second / "full");
  CHECK_THROWS_AS(write_folder(folder, 28, {{"config.json", "new\n"}}), Error);
  fs::remove_all(folder.path / second);
  CHECK(sentence_of(folder).starts_with("dspp: folder 'FOLDER' needs model.safetensors or"));
  // the old weights are removed, the new ones are missing
  CHECK(folder.list() == Names{"config.json", first, std::string(second) + ".partial"});
  CHECK(folder.read("config.json") == "old\n");
  write_folder(folder, 28, {{"config.json", "new\n"}});
  CHECK(folder.list() == Names{"config.json", first, second, "model.safetensors.index.json"});
}

TEST_CASE("the single file comes after its texts, and if the texts change the old entries are removed first") {
  const Folder folder;
  write_folder(folder, 16);
  fs::create_directories(folder.path / "config.json" / "full");  // no file can be renamed to it
  CHECK_THROWS_AS(write_folder(folder, 100, {{"config.json", "new\n"}}), Error);
  CHECK(!fs::exists(folder.path / "model.safetensors"));
  fs::remove_all(folder.path / "config.json");

  const Folder other;
  other.write("config.json", "same\n");
  fs::create_directory(other.path / "model.safetensors");  // which is removed with the old entries, or is in the way
  CHECK_THROWS_AS(write_folder(other, 100, {{"config.json", "same\n"}}), Error);
  CHECK(fs::is_directory(other.path / "model.safetensors"));
  write_folder(other, 100, {{"config.json", "new\n"}});
  check_values(other);
}

TEST_CASE("a folder that cannot be created, and an entry that cannot be removed, give sentences") {
  const Folder folder;
  folder.write("file", "x");
  const auto refusal = [](const auto& action) {
    try {
      action();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(
      refusal([&] {
        io::SafetensorsFolderWriter(folder.file("file/in"), specs, 100).create();
      }).starts_with("dspp: saving needs a directory that can be made, but '" + folder.file("file/in") + "' gives '"));
  fs::create_directories(folder.path / "model.safetensors" / "full");
  CHECK(
      refusal([&] {
        write_folder(folder, 16);
      }).starts_with("dspp: saving needs to replace '" + folder.file("model.safetensors") + "', but the system says"));
}

TEST_CASE("duplicate names are refused, also across shards") {
  CHECK_THROWS_WITH_AS(
      io::SafetensorsFolderWriter("x", {{"a", ElementType::f32, {1}}, {"a", ElementType::f32, {1}}}, 4),
      "dspp: a safetensors file needs every name once, but \"a\" comes twice.", Error);
  io::SafetensorsFolderWriter writer("x", specs, 16);
  const float value = 0;
  CHECK_THROWS_WITH_AS(writer.write("z", 0, 1, &value),
                       "dspp: SafetensorsWriter needs a name it was made with, but \"z\" is none. Add it to the list.",
                       Error);
}

TEST_CASE("a folder without weights is refused in a sentence") {
  const Folder folder;
  CHECK(sentence_of(folder) ==
        "dspp: folder 'FOLDER' needs model.safetensors or model.safetensors.index.json, but has neither. Name a folder "
        "of safetensors.");
}

TEST_CASE("shards that contradict the index are refused in a sentence") {
  const std::string begin = "dspp: 'FOLDER/model.safetensors.index.json' needs ",
                    end = ". Download or write the folder again.";
  const Folder folder;
  write_file(folder.file(first), {"a", "b"});
  write_index(folder, {{"a", first}, {"b", first}, {"c", second}});
  CHECK(sentence_of(folder) ==
        begin + "its shard '" + second + "', but there is no such file, and \"c\" lies in it" + end);
  write_file(folder.file(second), {"c"});
  CHECK(sentence_of(folder) == "no error");

  write_file(folder.file(second), {"d"});
  write_index(folder, {{"a", first}, {"b", first}, {"c", second}, {"d", second}});
  CHECK(sentence_of(folder) == begin + "the tensors that it names, but '" + second + "' has no \"c\"" + end);

  write_file(folder.file(second), {"b", "c"});
  write_index(folder, {{"a", first}, {"b", first}, {"c", second}});
  CHECK(sentence_of(folder) ==
        begin + "every tensor in one shard, but \"b\" is in '" + first + "' and in '" + second + "'" + end);

  write_file(folder.file(second), {"c", "e"});
  CHECK(sentence_of(folder) ==
        begin + "every tensor of its shards in weight_map, but \"e\" of '" + second + "' is not" + end);

  fs::resize_file(folder.file(second), fs::file_size(folder.file(second)) - 1);
  CHECK(sentence_of(folder).starts_with("dspp: the header of 'FOLDER/" + second + "' needs "));

  folder.write(io::safetensors_index_name, R"({"weight_map":{"a":"../a.safetensors"}})");
  CHECK(sentence_of(folder) ==
        begin + "safetensors files of its own folder in weight_map, but \"a\" has \"../a.safetensors\"" + end);
}
