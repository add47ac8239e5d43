// SPDX-License-Identifier: Apache-2.0
// A folder of checkpoints: names, the content of `latest`, and which checkpoints are removed.
// tests/checkpoint/training_state_faults_test.cpp makes its calls fail and kills the process in them.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <chrono>

#include <dspp/io/checkpoint_folder.hpp>
#include <laws/faulty_files.hpp>
#include <laws/folder.hpp>
#include <laws/power_loss.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class F>
std::string sentence_of(F action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

void save(const Folder& folder, const std::string& tag, const std::string& content, int keep = 0,
          io::FileSystem* files = nullptr) {
  FaultyFiles faultless;  // does not sync to the disk
  io::FileSystem& system = files ? *files : faultless;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  io::begin_checkpoint(system, checkpoints, tag);
  folder.write("checkpoints/.tmp-" + tag + "/model.safetensors", content);
  io::publish_checkpoint(system, checkpoints, tag, "manifest of " + content, keep);
}

}  // namespace

TEST_CASE("names are valid file names, and sorting them sorts the steps") {
  CHECK(io::step_tag(0) == "step_00000000");
  CHECK(io::step_tag(12'345'678) == "step_12345678");
  CHECK(io::step_tag(1'234'567'890) == "step_1234567890");
  for (const char* good : {"best", "step_00000001", "a.b-c_D", "-", "latest2"}) CHECK_NOTHROW(io::require_tag(good));
  for (const std::string& bad : {std::string(), std::string("latest"), std::string(".x"), std::string("a/b"),
                                 std::string("../x"), std::string("a\n"), std::string(201, 'x')})
    CHECK_THROWS_AS(io::require_tag(bad), Error);
  CHECK_NOTHROW(io::require_tag(std::string(200, 'x')));
}

TEST_CASE("a published checkpoint exists, and `latest` names it; one of the same name is replaced") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  save(folder, "a", "first");
  CHECK(checkpoints.read_latest() == "a");
  save(folder, "b", "second");
  CHECK(checkpoints.read_latest() == "b");
  save(folder, "a", "third");
  CHECK(checkpoints.read_latest() == "a");
  CHECK(checkpoints.tags() == std::vector<std::string>{"a", "b"});
  CHECK(folder.read("checkpoints/a/model.safetensors") == "third");
  CHECK(folder.read("checkpoints/a/state.json") == "manifest of third");
  CHECK(folder.read("checkpoints/b/model.safetensors") == "second");
  CHECK(folder.read("checkpoints/latest") == io::sealed_text("a\n"));
  CHECK(folder.list().size() == 8);
}

TEST_CASE("only the newest step-tagged checkpoints stay, and leftovers of earlier saves are removed") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  save(folder, "best", "x");
  for (const Size step : {5, 6, 7, 8}) save(folder, io::step_tag(step), "x", 3);
  CHECK(checkpoints.tags() == std::vector<std::string>{"best", io::step_tag(6), io::step_tag(7), io::step_tag(8)});
  folder.write("checkpoints/.tmp-step_00000004/model.safetensors", "half of it");
  folder.write("checkpoints/.tmp-latest", "hal");
  save(folder, io::step_tag(2), "x", 1);
  CHECK(checkpoints.tags() == std::vector<std::string>{"best", io::step_tag(2)});
  CHECK(!fs::exists(checkpoints.temporary(io::step_tag(4))));
  CHECK(!fs::exists(checkpoints.temporary("latest")));
}

TEST_CASE("only checkpoints are removed, and another folder is in the way only of a checkpoint of its name") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  folder.write("checkpoints/.tmp-mine/notes.txt", "precious");
  save(folder, "a", "x");
  CHECK(checkpoints.read_latest() == "a");
  CHECK(sentence_of([&] {
          save(folder, "mine", "x");
        }).find("/.tmp-mine' needs a folder of nothing but a checkpoint, but it has 'notes.txt'") != std::string::npos);
  CHECK(folder.read("checkpoints/.tmp-mine/notes.txt") == "precious");
  folder.write("checkpoints/a/notes.txt", "of a");
  CHECK(sentence_of([&] {
          save(folder, "a", "y");
        }).find("/a' needs a folder of nothing but a checkpoint, but it has 'notes.txt'") != std::string::npos);
  CHECK(folder.read("checkpoints/a/notes.txt") == "of a");
  CHECK(folder.read("checkpoints/a/model.safetensors") == "x");
  CHECK(!fs::exists(checkpoints.temporary("a")));
}

TEST_CASE("an old checkpoint with foreign files in it stays, and saving continues") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  save(folder, io::step_tag(10), "x", 1);
  folder.write("checkpoints/step_00000010/notes.txt", "precious");
  for (const Size step : {20, 30}) {
    CHECK(sentence_of([&] { save(folder, io::step_tag(step), "x", 1); }) == "no error");
    CHECK(checkpoints.tags() == std::vector<std::string>{io::step_tag(10), io::step_tag(step)});
    CHECK(checkpoints.read_latest() == io::step_tag(step));
  }
  CHECK(folder.read("checkpoints/step_00000010/notes.txt") == "precious");
  CHECK(folder.read("checkpoints/step_00000010/model.safetensors") == "x");
}

TEST_CASE("a failed removal after publishing does not fail the save; a later save removes the rest") {
  class Reluctant : public FaultyFiles {
   public:
    int remove_file(const std::string&) override { return EBUSY; }
  };
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  save(folder, "best", "first");
  save(folder, io::step_tag(1), "x");
  Reluctant system;
  for (const std::string& tag : {std::string("best"), io::step_tag(2)}) {
    CHECK(sentence_of([&] { save(folder, tag, "second", 1, &system); }) == "no error");
    CHECK(checkpoints.read_latest() == tag);
  }
  CHECK(fs::exists(checkpoints.temporary("best")));
  CHECK(fs::exists(checkpoints.temporary(io::step_tag(1))));
  save(folder, io::step_tag(3), "x");
  CHECK(checkpoints.tags() == std::vector<std::string>{"best", io::step_tag(2), io::step_tag(3)});
  CHECK(folder.read("checkpoints/best/model.safetensors") == "second");
  CHECK(folder.list().size() == 11);  // the names of four folders, and nothing hidden
}

TEST_CASE("a checkpoint that is not step-tagged does not count among those that stay") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  for (const Size step : {1, 2, 3}) save(folder, io::step_tag(step), "x");
  save(folder, "step_", "x");
  save(folder, "best", "x", 3);
  CHECK(checkpoints.tags() ==
        std::vector<std::string>{"best", "step_", io::step_tag(1), io::step_tag(2), io::step_tag(3)});
  save(folder, "best", "x", 1);
  CHECK(checkpoints.tags() == std::vector<std::string>{"best", "step_", io::step_tag(3)});
}

TEST_CASE("a save that fails before its rename leaves the earlier checkpoint; after it, both exist") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  save(folder, "best", "first");
  FaultyFiles counted;
  save(folder, "other", "x", 0, &counted);
  for (Size n = 1; n <= counted.calls(); ++n) {
    CAPTURE(n);
    FaultyFiles system;
    system.fail_at(n, EIO);
    CHECK(sentence_of([&] { save(folder, "best", "second", 0, &system); }).find("Input/output") != std::string::npos);
    const bool named = folder.read("checkpoints/best/model.safetensors") == "second";
    CHECK(folder.read("checkpoints/best/state.json") == (named ? "manifest of second" : "manifest of first"));
    if (named) CHECK(folder.read("checkpoints/.tmp-best/model.safetensors") == "first");
    if (!named && n > 1) CHECK(!fs::exists(checkpoints.temporary("best")));
    CHECK(named == (n > counted.calls() - 6));  // a sync, three calls for `latest`, its name, a sync
    CHECK(checkpoints.read_latest() == (n == counted.calls() ? "best" : "other"));
    save(folder, "best", "first");
    CHECK(!fs::exists(checkpoints.temporary("best")));
    save(folder, "other", "x");
  }
}

TEST_CASE("a missing, changed or dangling `latest` is refused, and the existing checkpoints are named") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  const auto refusal = [&] { return sentence_of([&] { checkpoints.read_latest(); }); };
  CHECK(!checkpoints.has_latest());
  CHECK(refusal() ==
        "dspp: resuming needs a file '" + checkpoints.latest() +
            "' that names a checkpoint, but the folder does not exist. Begin without, or give the folder of "
            "another training.");
  save(folder, "good", "x");
  CHECK(checkpoints.has_latest());
  const std::string whole = folder.read("checkpoints/latest");
  const std::string end =
      "Load '" + checkpoints.path_of("good") + "': give that path, or its last name as LoadOptions::tag.";
  for (std::size_t length = 0; length < whole.size(); ++length) {
    folder.write("checkpoints/latest", whole.substr(0, length));
    CHECK(refusal().ends_with("this one is cut off or was changed. " + end));
  }
  folder.write("checkpoints/latest", io::sealed_text("gone\n"));
  CHECK(refusal().ends_with("but it names 'gone', which is not there. " + end));
  folder.write("checkpoints/latest", io::sealed_text(""));
  CHECK(refusal().ends_with("but this one names none. " + end));
  folder.write("checkpoints/latest", io::sealed_text("../good\n"));
  CHECK(refusal().ends_with("but it names '../good', which no checkpoint is called. " + end));
  folder.write("checkpoints/latest", io::sealed_text("good\nrun 12\n"));
  CHECK(checkpoints.read_latest_checkpoint().run == 12);
  for (const char* run :
       {"run 12", "run 12x", "run 12\n\n", "run x\n", "run 99999999999999999999\n", "ran 12\n", "r"}) {
    folder.write("checkpoints/latest", io::sealed_text("good\n" + std::string(run)));
    CHECK(refusal().ends_with("but this one names more than a checkpoint. " + end));
  }
  fs::remove(checkpoints.latest());
  CHECK(refusal().ends_with("but the folder has none. " + end));
}

TEST_CASE("if a checkpoint cannot be loaded the two newest others are named, not the checkpoint itself") {
  const Folder folder;
  const std::string at = folder.file("checkpoints");
  const std::string none = "Begin without, or give the folder of another training.";
  CHECK(io::load_another_than({at, "a"}) == none);
  for (const char* tag : {"a", "b", "c", "d"}) save(folder, tag, "x");
  int steps = 9;
  for (const char* tag : {"b", "c", "a", "d"})
    folder.write("checkpoints/" + std::string(tag) + "/state.json",
                 R"({"training":{"steps":)" + std::to_string(--steps));
  CHECK(io::checkpoints_newest_first(at) == std::vector<std::string>{"b", "c", "a", "d"});
  const auto load = [&](const std::string& first, const std::string& second) {
    return "Load '" + at + "/" + first + "' or '" + at + "/" + second +
           "': give that path, or its last name as LoadOptions::tag.";
  };
  CHECK(io::load_another_than({at, "a"}) == load("b", "c"));
  CHECK(io::load_another_than_that_of(at + "/b/model.safetensors") == load("c", "a"));
  for (const char* tag : {"b", "c", "a"}) fs::remove_all(at + "/" + tag);
  CHECK(io::load_another_than_that_of(at + "/d/state.json") == none);
}

TEST_CASE("checkpoints are ordered by their steps, whatever their times and numbers of digits") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  for (const Size step : {30, 10, 123'456'789, 20}) save(folder, io::step_tag(step), "x");
  const auto now = fs::file_time_type::clock::now();
  fs::last_write_time(checkpoints.path_of(io::step_tag(10)) + "/state.json", now + std::chrono::hours(1));
  CHECK(io::checkpoints_newest_first(checkpoints.folder) ==
        std::vector<std::string>{io::step_tag(123'456'789), io::step_tag(30), io::step_tag(20), io::step_tag(10)});
  save(folder, io::step_tag(40), "x", 2);
  CHECK(checkpoints.tags() == std::vector<std::string>{io::step_tag(40), io::step_tag(123'456'789)});
}

TEST_CASE(
    "a link in the folder of checkpoints is never followed: its target stays, under every name that a save uses") {
  const std::vector<std::string> planted{".tmp-step_00000007", ".tmp-step_00000003", ".tmp-latest",  "latest",
                                         "step_00000007",      "step_00000003",      "step_99999999"};
  for (const std::string& name : planted)
    for (const bool whole : {true, false})  // a link to a folder that looks like a checkpoint, or to a file
      for (const bool kept : {false, true}) {
        CAPTURE(name);
        CAPTURE(whole);
        const Folder folder;
        const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
        const std::string content = "precious";
        for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
          folder.write("elsewhere/" + std::string(file), content);
        save(folder, io::step_tag(5), "x"), save(folder, io::step_tag(6), "x");
        fs::remove(folder.path / "checkpoints" / name);
        fs::create_symlink(folder.path / "elsewhere" / (whole ? "" : "model.safetensors"),
                           folder.path / "checkpoints" / name);
        const std::string sentence = sentence_of([&] { save(folder, io::step_tag(7), "new", kept ? 2 : 0); });
        CHECK(folder.read("elsewhere/model.safetensors") == content);
        CHECK(folder.read("elsewhere/optimizer.safetensors") == content);
        CHECK(folder.read("elsewhere/state.json") == content);
        if (name == io::step_tag(7)) {  // in place of the checkpoint: a sentence, and nothing else changes
          CHECK(sentence.starts_with("dspp: "));
          CHECK(sentence.find("/step_00000007'") != std::string::npos);
          CHECK(fs::is_symlink(checkpoints.path_of(name)));
          CHECK(checkpoints.read_latest() == io::step_tag(6));
        } else {
          CHECK(sentence == "no error");
          CHECK(checkpoints.read_latest() == io::step_tag(7));
          CHECK(folder.read("checkpoints/step_00000007/model.safetensors") == "new");
          CHECK(fs::exists(checkpoints.path_of(io::step_tag(6)) + "/state.json"));
          CHECK(fs::exists(checkpoints.path_of(io::step_tag(5)) + "/state.json") == !kept);
          CHECK(!fs::is_symlink(checkpoints.latest()));
          CHECK(!fs::is_symlink(checkpoints.temporary(io::step_tag(7))));
        }
      }
}

TEST_CASE("a folder of checkpoints may be reached by a link") {
  const Folder folder;
  fs::create_directory(folder.path / "big");
  fs::create_directory_symlink(folder.path / "big", folder.path / "checkpoints");
  for (const Size step : {1, 2, 3}) save(folder, io::step_tag(step), "x", 2);
  CHECK(io::CheckpointFolder{folder.file("big")}.tags() == std::vector<std::string>{io::step_tag(2), io::step_tag(3)});
}

TEST_CASE(
    "the files of a checkpoint are private while they are written, and have the umask's permissions when published") {
  class Watching : public FaultyFiles {
   public:
    int open(const std::string& path, bool create, int& descriptor) override {
      const int error = FaultyFiles::open(path, create, descriptor);
      struct stat status = {};
      if (create && ::fstat(descriptor, &status) == 0) worst |= status.st_mode & 07777;
      return error;
    }
    mode_t worst = 0;
  };
  const Folder folder;
  Watching system;
  const mode_t before = ::umask(027);
  save(folder, "a", "x", 0, &system);
  ::umask(before);
  CHECK(system.worst == 0600);
  for (const char* file : {"checkpoints/a/state.json", "checkpoints/latest"}) {
    struct stat status = {};
    CHECK(::stat(folder.file(file).c_str(), &status) == 0);
    CHECK((status.st_mode & 07777) == 0640);
  }
}

TEST_CASE("a checkpoint's own path gives its folder and its name") {
  const Folder folder;
  save(folder, "a", "x");
  const std::string at = folder.file("checkpoints");
  CHECK(io::is_checkpoint(at + "/a"));
  CHECK(!io::is_checkpoint(at));
  for (const std::string& path : {at + "/a", at + "/a/", at + "/a//", at + "/../checkpoints/a"}) {
    const io::CheckpointPlace place = io::place_of_checkpoint(path);
    CHECK(fs::equivalent(place.folder, at));
    CHECK(place.tag == "a");
  }
  for (const std::string& path : {at + "/a/.", at + "/a/./"}) CHECK(io::place_of_checkpoint(path).tag == "a");
  fs::create_directory(folder.path / "checkpoints/a/in");
  CHECK(io::place_of_checkpoint(at + "/a/in/..").tag == "a");
  CHECK(io::place_of_checkpoint("a").folder == ".");
}

namespace {

/// True if row B3 of tests/faults/table.txt is run at full size.
const bool all_of_them = std::getenv("DSPP_FAULTS") != nullptr && std::getenv("DSPP_FAULTS") == std::string("full");

/// The content of each file of a saved checkpoint: the word distinguishes checkpoints, and partial files are detected.
std::string content_of(const std::string& word) {
  return word + std::string(all_of_them ? 130'000 : 700, word[0]) + ".";
}

/// A save as an engine makes it, with every write through the files.
void save_through(io::FileSystem& system, const io::CheckpointFolder& checkpoints, const std::string& tag,
                  const std::string& word, int keep = 0) {
  io::begin_checkpoint(system, checkpoints, tag);
  for (const char* name : {io::CheckpointFolder::model, io::CheckpointFolder::optimizer}) {
    const io::WrittenFile file = io::WrittenFile::create(system, checkpoints.temporary(tag) + "/" + name);
    const std::string content = content_of(word);
    constexpr Size piece = 5000;
    for (Size at = 0; at < std::ssize(content); at += piece)
      file.write_at(at, content.data() + at, std::min(piece, std::ssize(content) - at));
    file.sync();
  }
  io::publish_checkpoint(system, checkpoints, tag, content_of(word), keep);
}

/// True if the checkpoint holds that word in each of its files, and nothing else.
bool is_whole(const io::CheckpointFolder& checkpoints, const std::string& tag, const std::string& word) {
  for (const char* name :
       {io::CheckpointFolder::model, io::CheckpointFolder::optimizer, io::CheckpointFolder::manifest})
    if (read_file(checkpoints.path_of(tag) + "/" + name) != content_of(word)) return false;
  return io::names_in(checkpoints.path_of(tag)).size() == 3;
}

void check_nothing_hidden(const Folder& folder) {
  for (const std::string& name : folder.list()) CHECK(name.find(".tmp") == std::string::npos);
}

}  // namespace

TEST_CASE("a training removes its own old checkpoints, and none of another training") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  FaultyFiles files;  // does not sync to the disk
  const auto save_of = [&](Size step, std::uint64_t run) {
    io::begin_checkpoint(files, checkpoints, io::step_tag(step));
    const std::string training = run == 0 ? "{}" : "{\"run\":\"" + std::to_string(run) + "\"}";
    io::publish_checkpoint(files, checkpoints, io::step_tag(step), io::checkpoint_manifest_text(training, {}), 2, run);
  };
  for (const Size step : {80, 81}) save_of(step, 7);
  for (const Size step : {10, 20, 30, 85}) save_of(step, 8);
  CHECK(checkpoints.tags() ==
        std::vector<std::string>{io::step_tag(30), io::step_tag(80), io::step_tag(81), io::step_tag(85)});
  save_of(90, 7);
  CHECK(checkpoints.tags() ==
        std::vector<std::string>{io::step_tag(30), io::step_tag(81), io::step_tag(85), io::step_tag(90)});
  save_of(91, 0);  // of a run without a number: counts for any
  CHECK(checkpoints.tags() == std::vector<std::string>{io::step_tag(90), io::step_tag(91)});
}

TEST_CASE("after a power failure in a save, `latest` names a complete checkpoint: the earlier or the new one") {
  struct Case {
    std::string tag;
    int keep;
  };
  Size states_of_the_disk = 0;
  for (const Case& one :
       {Case{io::step_tag(2), 0}, Case{io::step_tag(1), 0}, Case{io::step_tag(2), 1}, Case{"best", 0}}) {
    CAPTURE(one.tag);
    CAPTURE(one.keep);
    const Folder folder, before;
    const io::CheckpointFolder checkpoints{folder.file("s")};
    FaultyFiles faultless;
    fs::create_directories(checkpoints.folder);
    save_through(faultless, checkpoints, io::step_tag(0), "first");
    save_through(faultless, checkpoints, io::step_tag(1), "old");
    fs::copy(checkpoints.folder, before.path / "s", fs::copy_options::recursive);
    RecordedFiles recorded;
    save_through(recorded, checkpoints, one.tag, "new", one.keep);
    bool was_new = false, was_old = false;
    const auto prepare = [&] {
      fs::remove_all(checkpoints.folder);
      fs::copy(before.path / "s", checkpoints.folder, fs::copy_options::recursive);
    };
    const auto check = [&](const std::string& name) {
      std::string tag = "none";
      try {
        tag = checkpoints.read_latest();
      } catch (const Error& error) {
        FAIL(name << ": " << error.what());
      }
      const bool new_one = tag == one.tag && is_whole(checkpoints, tag, "new");
      const bool old_one = tag == io::step_tag(1) && is_whole(checkpoints, tag, "old");
      if (!new_one && !old_one) FAIL(name << ": " << tag << " is not whole");
      was_new = was_new || new_one, was_old = was_old || old_one;
      save_through(faultless, checkpoints, io::step_tag(3), "next");
      CHECK(is_whole(checkpoints, checkpoints.read_latest(), "next"));
    };
    const Size checked = for_each_power_loss(recorded.log, prepare, check);
    CHECK(checked > 80);
    CHECK(was_new);
    CHECK(was_old);
    states_of_the_disk += checked;
  }
  MESSAGE(states_of_the_disk << " checkpoints of the disk");
  if (all_of_them) CHECK(states_of_the_disk >= 10'000);
}

TEST_CASE(
    "a save cut at any byte of state.json or `latest`, or at any sector of a file, leaves the earlier checkpoint") {
  const Folder folder;
  const io::CheckpointFolder checkpoints{folder.file("checkpoints")};
  save(folder, io::step_tag(1), "old");
  const std::string manifest(4096, 'm'), name = io::sealed_text(io::step_tag(2) + "\n"), shard(1 << 20, 's');
  const auto check = [&](const std::string& file, const std::string& whole, std::size_t bytes) {
    folder.write("checkpoints/" + file, whole.substr(0, bytes));
    if (checkpoints.read_latest() != io::step_tag(1)) FAIL(file << " at " << bytes);
    save(folder, io::step_tag(1), "old");
    CHECK(checkpoints.tags() == std::vector<std::string>{io::step_tag(1)});
    CHECK(folder.list().size() == 5);
  };
  for (std::size_t at = 0; at <= manifest.size(); ++at) check(".tmp-step_00000002/state.json", manifest, at);
  for (std::size_t at = 0; at <= name.size(); ++at) check(".tmp-latest", name, at);
  for (std::size_t at = 0; at <= shard.size(); at += 512) check(".tmp-step_00000002/model.safetensors", shard, at);
}

TEST_CASE("each system error at each call of a save gives a sentence, and the earlier checkpoint stays loadable") {
  for (const int error : {ENOSPC, EIO, EDQUOT, EFBIG, EROFS, EACCES, ENOMEM}) {
    CAPTURE(error);
    Size n = 0, calls = 1;
    for (bool failed = true; failed; ++n, calls = n) {
      CAPTURE(n);
      const Folder folder;
      const io::CheckpointFolder checkpoints{folder.file("s")};
      FaultyFiles faultless, faulty;
      fs::create_directories(checkpoints.folder);
      save_through(faultless, checkpoints, io::step_tag(1), "old");
      faulty.fail_at(n + 1, error);
      const std::string sentence = sentence_of([&] { save_through(faulty, checkpoints, io::step_tag(2), "new", 1); });
      failed = faulty.calls() > n;
      const bool new_one = checkpoints.read_latest() == io::step_tag(2);
      CHECK((new_one ? is_whole(checkpoints, io::step_tag(2), "new") : is_whole(checkpoints, io::step_tag(1), "old")));
      if (sentence == "no error") CHECK(new_one);  // only cleaning up failed
      if (sentence != "no error") {
        CHECK(sentence.starts_with("dspp: File needs '" + folder.path.string()));
        CHECK(sentence.find(std::error_code(error, std::generic_category()).message()) != std::string::npos);
      }
      if (sentence.find("bytes more") != std::string::npos)
        CHECK(sentence.find(" bytes are free") != std::string::npos);
      save_through(faultless, checkpoints, io::step_tag(3), "next", 1);
      CHECK(is_whole(checkpoints, checkpoints.read_latest(), "next"));
      check_nothing_hidden(folder);
    }
    CHECK(calls > 20);
  }
}

TEST_CASE("in 1,000 random schedules of saves the last checkpoint is kept, and of the others those of the most steps") {
  std::uint32_t random = 12345;
  const auto draw = [&](std::uint32_t below) { return (random = random * 1664525u + 1013904223u) / 65536u % below; };
  for (int schedule = 0; schedule < 1000; ++schedule) {
    CAPTURE(schedule);
    const Folder folder;
    const io::CheckpointFolder checkpoints{folder.file("s")};
    fs::create_directories(checkpoints.folder);
    FaultyFiles files;
    for (int i = 0; i < 4; ++i) {
      const bool named = draw(4) == 0;
      const std::string tag = named ? std::string(1, static_cast<char>('a' + draw(3))) : io::step_tag(draw(12));
      const int keep = static_cast<int>(draw(4));
      std::vector<std::string> expected = checkpoints.tags();
      std::erase(expected, tag);
      io::begin_checkpoint(files, checkpoints, tag);
      folder.write("s/.tmp-" + tag + "/model.safetensors", tag);
      io::publish_checkpoint(files, checkpoints, tag, "manifest", keep);
      std::vector<std::string> by_steps;
      for (const std::string& other : expected)
        if (other.starts_with("step_")) by_steps.push_back(other);
      const std::size_t stay = static_cast<std::size_t>(std::max(0, keep - (named ? 0 : 1)));
      while (keep > 0 && by_steps.size() > stay) {  // names sort in the order of steps
        std::erase(expected, by_steps.front());
        by_steps.erase(by_steps.begin());
      }
      expected.push_back(tag);
      std::sort(expected.begin(), expected.end());
      CHECK(checkpoints.tags() == expected);
      CHECK(checkpoints.read_latest() == tag);
      check_nothing_hidden(folder);
    }
  }
}
