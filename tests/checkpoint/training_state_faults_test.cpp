// SPDX-License-Identifier: Apache-2.0
// A save that is killed or fails anywhere leaves the earlier checkpoint; a checkpoint changed anywhere is refused.
// labels: thread races
#include <array>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/optim/sgd.hpp>
#include <laws/faulty_files.hpp>
#include <laws/folder.hpp>
#include <laws/killed_save.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F32, Zero<2>>;
using Tiny = TinyModel<P>;

/// One rank on this thread, which may fork.
struct Alone {
  Pool pool;
  World<P> world{mesh_of<P>(1), 0, Groups<Cpu>{}, pool, 5};
  Engine<Tiny, AdamW> engine;
  explicit Alone(const TinyConfig& config = {}) : engine(world, Tiny(config), AdamW{.lr = 0.1}) {}
};

/// The error sentence of an action.
template <class F>
std::string sentence_of(F action, ErrorCode code = ErrorCode::file) {
  try {
    action();
  } catch (const Error& error) {
    CHECK(error.code() == code);
    CHECK(std::string(error.what()).starts_with("dspp: "));
    return error.what();
  }
  return "no error";
}

bool holds(const std::string& sentence, const std::string& part) {
  const bool found = sentence.find(part) != std::string::npos;
  if (!found) MESSAGE(sentence << " lacks " << part);
  return found;
}

/// The folder's contents now and before.
struct Image {
  fs::path of;
  Folder copy;
  explicit Image(const fs::path& folder) : of(folder) { fs::copy(of, copy.path / "it", fs::copy_options::recursive); }
  void restore() const {
    fs::remove_all(of);
    fs::copy(copy.path / "it", of, fs::copy_options::recursive);
  }
};

/// What training_facts_text needs of an optimizer.
struct Described {
  static constexpr int moment_count = 0;
  const char* key;
  void describe(auto&& f) const { f("lr", 0.5), f(key, 2); }
};

std::uint64_t read_latest_run(const std::string& folder) {
  return io::CheckpointFolder{folder}.read_latest_checkpoint().run;
}

/// save_checkpoint through the files.
template <class Engine>
void save_through(FaultyFiles& files, Engine& engine, const std::string& folder, SaveOptions options) {
  options.files = &files;
  save_checkpoint(engine, folder, options);
}

/// Kills saves of `engine` at every call, over what is in the folder. The checkpoint that `latest` names then loads, is
/// the earlier or the new one, and from some call on always the new one; then the next save works.
void kill_at_every_call(Alone& saving, const Folder& folder, const SaveOptions& options, std::uint64_t before) {
  const std::string at = folder.file("checkpoints");
  const Image image(at);
  const std::uint64_t after = print_of_state(saving.engine);
  Alone other;
  for (const auto when : {FaultyFiles::When::before, FaultyFiles::When::half_way}) {
    bool done = false, published = false;
    Size n = 0;
    while (!done) {
      ++n;
      CAPTURE(n);
      image.restore();
      done = !killed_in_child(n, when, [&](FaultyFiles& files) { save_through(files, saving.engine, at, options); });
      load_checkpoint(other.engine, at);
      const std::uint64_t found = print_of_state(other.engine);
      CHECK((found == after || (found == before && !published && !done)));
      published = published || found == after;
      FaultyFiles files;
      save_through(files, saving.engine, at, options);
      load_checkpoint(other.engine, at);
      CHECK(print_of_state(other.engine) == after);
      for (const std::string& name : folder.list()) CHECK(name.find("/.tmp-") == std::string::npos);
    }
    CHECK(n > 20);
  }
}

}  // namespace

TEST_CASE("a save that is killed before or at any call leaves a complete checkpoint, and the next save cleans up") {
  const Folder folder;
  Alone training;
  take_step(training.world, training.engine);
  save_checkpoint(training.engine, folder.file("checkpoints"));
  const std::uint64_t first = print_of_state(training.engine);
  take_step(training.world, training.engine);
  SUBCASE("a second checkpoint, after which the first is removed") {
    kill_at_every_call(training, folder, {.keep = 1}, first);
  }
  SUBCASE("in the place of the first") {
    kill_at_every_call(training, folder, {.tag = "step_00000001"}, first);
  }
}

TEST_CASE("the first save that is killed at any call leaves nothing that loads, or all of it") {
  Alone training, other;
  take_step(training.world, training.engine);
  const std::uint64_t untouched = print_of_state(other.engine);
  bool done = false, published = false;
  for (Size n = 1; !done; ++n) {
    CAPTURE(n);
    const Folder folder;
    done = !killed_in_child(n, FaultyFiles::When::half_way,
                            [&](FaultyFiles& files) { save_through(files, training.engine, folder.file("a/b"), {}); });
    const std::string sentence = sentence_of([&] { load_checkpoint(other.engine, folder.file("a/b")); });
    published = sentence == "no error";
    if (!published)
      CHECK(holds(sentence, "resuming needs a file '" + folder.file("a/b") + "/latest' that names a checkpoint"));
    CHECK(published == (print_of_state(other.engine) != untouched));
  }
  CHECK(published);
}

TEST_CASE("everything is on the disk before it is renamed, and `latest` is last") {
  const Folder folder;
  Alone training;
  FaultyFiles files;
  save_checkpoint(training.engine, folder.file("checkpoints"), {.files = &files});
  std::vector<std::string> log;  // without repetitions: as many writes as there are tensors
  for (const std::string& entry : files.log())
    if (log.empty() || log.back() != entry) log.push_back(entry);
  const std::string root = folder.path.filename().string(), temporary = ".tmp-step_00000000/";
  CHECK(log == std::vector<std::string>{"make " + root + "/checkpoints",
                                        "sync " + (folder.path.parent_path().filename() / root).string(),
                                        "make checkpoints/.tmp-step_00000000",
                                        "create " + temporary + "model.safetensors",
                                        "create " + temporary + "optimizer.safetensors",
                                        "open " + temporary + "model.safetensors",
                                        "write " + temporary + "model.safetensors",
                                        "sync " + temporary + "model.safetensors",
                                        "open " + temporary + "optimizer.safetensors",
                                        "write " + temporary + "optimizer.safetensors",
                                        "sync " + temporary + "optimizer.safetensors",
                                        "create " + temporary + "state.json",
                                        "write " + temporary + "state.json",
                                        "sync " + temporary + "state.json",
                                        "sync checkpoints/.tmp-step_00000000",
                                        "rename to checkpoints/step_00000000",
                                        "sync " + root + "/checkpoints",
                                        "create checkpoints/.tmp-latest",
                                        "write checkpoints/.tmp-latest",
                                        "sync checkpoints/.tmp-latest",
                                        "rename to checkpoints/latest",
                                        "sync " + root + "/checkpoints"});
}

TEST_CASE(
    "a rank that cannot write makes every rank throw its error; the earlier checkpoint stays, and training continues") {
  constexpr int ranks = 4;
  const Folder folder;
  const std::string at = folder.file("checkpoints");
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
    Engine training{world, Tiny(TinyConfig{}), AdamW{.lr = 0.1}};
    Engine other{world, Tiny(TinyConfig{}), AdamW{.lr = 0.1}};
    take_step(world, training);
    save_checkpoint(training, at, {.tag = "before"});
    const std::uint64_t before = print_of_state(training);
    take_step(world, training);
    const std::uint64_t after = print_of_state(training);
    int failures = 0;
    for (int culprit = 0; culprit < ranks; ++culprit)
      for (const int error : {EIO, ENOSPC}) {
        bool failed = true;
        for (Size n = 1; failed; ++n) {
          FaultyFiles files;
          if (world.rank() == culprit) files.fail_at(n, error);
          const std::string sentence =
              sentence_of([&] { save_checkpoint(training, at, {.tag = "new", .files = &files}); });
          failed = sentence != "no error";
          if (failed) {
            ++failures;
            CHECK(holds(sentence, error == EIO ? "Input/output error" : "No space left on device"));
            CHECK(holds(sentence, at));
            CHECK(holds(sentence, "(It was rank " + std::to_string(culprit) + ".)"));
          }
          CHECK(print_of_state(training) == after);
          load_checkpoint(other, at);
          const std::uint64_t found = print_of_state(other);
          CHECK((found == after || (found == before && failed)));
          world.all().barrier();
          if (world.is_first()) {  // begin anew
            fs::remove_all(at + "/new");
            std::ofstream(at + "/latest") << io::sealed_text("before\n");
          }
          world.all().barrier();
        }
      }
    CHECK(failures > 60);
    take_step(world, training);
    CHECK(training.steps() == 3);
  });
}

TEST_CASE(
    "a save that fails after the rename leaves the earlier checkpoint beside the new one, and the next save works") {
  class NoLatest : public FaultyFiles {
   public:
    int open(const std::string& path, bool create, int& descriptor) override {
      return path.ends_with("/.tmp-latest") ? EIO : FaultyFiles::open(path, create, descriptor);
    }
  };
  const Folder folder;
  Alone training, other;
  const std::string at = folder.file("s");
  take_step(training.world, training.engine);
  save_checkpoint(training.engine, at, {.tag = "best"});
  const std::string before = folder.read("s/best/model.safetensors");
  take_step(training.world, training.engine);
  NoLatest files;
  CHECK(holds(sentence_of([&] { save_checkpoint(training.engine, at, {.tag = "best", .files = &files}); }),
              "Input/output error"));
  CHECK(folder.read("s/.tmp-best/model.safetensors") == before);
  load_checkpoint(other.engine, at);
  CHECK(print_of_state(other.engine) == print_of_state(training.engine));
  save_checkpoint(training.engine, at, {.tag = "best"});
  for (const std::string& name : folder.list()) CHECK(name.find(".tmp") == std::string::npos);
}

TEST_CASE("files that are removed after verification are still read") {
  const Folder folder;
  Alone training, other;
  take_step(training.world, training.engine);
  save_checkpoint(training.engine, folder.file("s"), {.tag = "a"});
  const dspp::detail::VerifiedCheckpoint checkpoint =
      dspp::detail::verify_checkpoint(other.engine, io::CheckpointFolder{folder.file("s")}, "a");
  fs::remove_all(folder.path / "s");
  other.engine.resume(checkpoint.facts.progress);
  dspp::detail::fill_from_checkpoint(other.engine, checkpoint);
  CHECK(print_of_state(other.engine) == print_of_state(training.engine));
}

TEST_CASE("a checkpoint without room is refused before anything is written, with both sizes") {
  class Full : public FaultyFiles {
   public:
    Size free_bytes(const std::string&) override { return free; }
    Size free = 0;
  };
  const Folder folder;
  Alone training;
  save_checkpoint(training.engine, folder.file("s"));
  const std::uint64_t before = print_of_state(training.engine);
  take_step(training.world, training.engine);
  const auto saving = [&](Size free) {
    Full files;
    files.free = free;
    const std::string sentence =
        sentence_of([&] { save_checkpoint(training.engine, folder.file("s"), {.files = &files}); });
    for (const std::string& entry : files.log()) CHECK(entry.find("write ") == std::string::npos);
    return sentence;
  };
  Size needed = 0;
  for (const Size free : {0, 1, 4096, 60'000}) {
    const std::string sentence = saving(free);
    REQUIRE(sentence.starts_with("dspp: saving in '" + folder.file("s") + "' needs "));
    CHECK(holds(sentence, " bytes that are free, but there are " + std::to_string(free) + ". Remove something"));
    needed = std::stoll(sentence.substr(sentence.find("needs ") + 6));
  }
  CHECK(needed > 64_KiB);
  CHECK(needed < 80_KiB);
  CHECK(holds(saving(needed - 1), std::to_string(needed - 1)));
  CHECK(io::CheckpointFolder{folder.file("s")}.tags() == std::vector<std::string>{"step_00000000"});
  for (const std::string& name : folder.list()) CHECK(name.find(".tmp") == std::string::npos);
  Full files;
  files.free = needed;
  save_checkpoint(training.engine, folder.file("s"), {.files = &files});
  files.free = -1;  // a file system that does not say
  save_checkpoint(training.engine, folder.file("s"), {.tag = "again", .files = &files});
  load_checkpoint(training.engine, folder.file("s"), {.tag = "step_00000000"});
  CHECK(print_of_state(training.engine) == before);
}

TEST_CASE("a folder in which another job saves is refused, also before the first save") {
  const Folder folder;
  const auto in_child = [&](auto action) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        action();
      } catch (const Error& error) {
        const std::string sentence = error.what();
        _exit(sentence.find("' is held by process " + std::to_string(::getppid()) + " on '") != std::string::npos ? 7
                                                                                                                  : 8);
      }
      _exit(9);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  Alone other;  // made here: a process that was forked starts no threads
  {
    Alone training;
    save_checkpoint(training.engine, folder.file("s"));
    CHECK(in_child([&] { save_checkpoint(other.engine, folder.file("s")); }) == 7);
    CHECK(in_child([&] { lock_checkpoint_folder(other.engine, folder.file("s")); }) == 7);
    CHECK(in_child([&] { load_checkpoint(other.engine, folder.file("s")); }) == 9);
    save_checkpoint(training.engine, folder.file("s"), {.tag = "again"});
    lock_checkpoint_folder(training.engine, folder.file("t"));
    CHECK(in_child([&] { save_checkpoint(other.engine, folder.file("t")); }) == 7);
  }
  CHECK(in_child([&] { save_checkpoint(other.engine, folder.file("s")); }) == 9);
  fs::remove(folder.path / "s" / ".lock");  // of the child, whose engine did not end
  for (const std::string& name : folder.list()) CHECK(name.find(".lock") == std::string::npos);
}

TEST_CASE("short and interrupted writes make the same files") {
  class Hesitant : public io::FileSystem {
   public:
    int write(int descriptor, const void* data, Size bytes, Size offset, Size& written) override {
      written = 0;
      if (++calls % 3 == 0) return EINTR;
      return io::FileSystem::write(descriptor, data, std::min<Size>(bytes, 1 + calls % 7), offset, written);
    }
    int sync(int descriptor) override { return ++calls % 2 == 0 ? EINTR : io::FileSystem::sync(descriptor); }
    Size calls = 0;
  };
  const Folder folder;
  Alone training;
  take_step(training.world, training.engine);
  Hesitant files;
  save_checkpoint(training.engine, folder.file("a"), {.files = &files});
  save_checkpoint(training.engine, folder.file("b"));
  for (const char* name : {"/step_00000001/model.safetensors", "/step_00000001/optimizer.safetensors",
                           "/step_00000001/state.json", "/latest"})
    CHECK(folder.read(std::string("a") + name) == folder.read(std::string("b") + name));
}

TEST_CASE("a flipped, truncated, longer or missing file is refused by name, and the engine is unchanged") {
  const Folder folder;
  Alone training, other;
  take_step(training.world, training.engine);
  take_step(other.world, other.engine);
  take_step(other.world, other.engine);
  save_checkpoint(training.engine, folder.file("s"));
  const std::uint64_t untouched = print_of_state(other.engine);
  const auto check_refused = [&](const std::string& name, Size where) {
    const std::string sentence = sentence_of([&] { load_checkpoint(other.engine, folder.file("s")); });
    if (sentence.find("'" + folder.file(name)) == std::string::npos) FAIL(name << " at " << where << ": " << sentence);
  };
  for (const std::string name : {"s/step_00000001/model.safetensors", "s/step_00000001/optimizer.safetensors",
                                 "s/step_00000001/state.json", "s/latest"}) {
    const std::string bytes = folder.read(name);
    const io::File file = io::File::to_write(folder.file(name));
    for (Size i = 0; i < std::ssize(bytes); ++i) {
      const char byte = bytes[static_cast<std::size_t>(i)], changed = static_cast<char>(byte ^ (1 << i % 8));
      file.write_at(i, &changed, 1);
      check_refused(name, i);
      file.write_at(i, &byte, 1);
    }
    file.write_at(std::ssize(bytes), "x", 1);
    check_refused(name, std::ssize(bytes));
    for (Size i = std::ssize(bytes) - 1; i >= 0; --i) {
      file.resize(i);
      check_refused(name, -i);
    }
    fs::remove(folder.path / name);
    check_refused(name, 0);
    folder.write(name, bytes);
    CHECK(print_of_state(other.engine) == untouched);
    CHECK(other.engine.steps() == 2);
  }
  load_checkpoint(other.engine, folder.file("s"));
  CHECK(print_of_state(other.engine) == print_of_state(training.engine));
}

TEST_CASE("the error of a damaged checkpoint names another, which loads by its path, by its tag and on every rank") {
  const Folder folder;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
    Engine engine{world, Tiny(TinyConfig{}), AdamW{.lr = 0.1}};
    save_checkpoint(engine, folder.file("s"));
    const std::uint64_t first = print_of_state(engine);
    take_step(world, engine);
    save_checkpoint(engine, folder.file("s"));
    if (world.is_first()) io::File::to_write(folder.file("s/step_00000001/optimizer.safetensors")).resize(9);
    world.all().barrier();
    const std::string named = folder.file("s/step_00000000");
    for (const std::string& path : {folder.file("s"), folder.file("s/step_00000001")})
      CHECK(holds(sentence_of([&] { load_checkpoint(engine, path); }),
                  "but has 9. Load '" + named + "': give that path, or its last name as LoadOptions::tag."));
    for (const std::string& path : {named, named + "/", folder.file("s/../s/step_00000000")}) {
      take_step(world, engine);
      CHECK(load_checkpoint(engine, path).tag == "step_00000000");
      CHECK(print_of_state(engine) == first);
    }
  });
}

TEST_CASE("a byte changed in any chunk is an error on all ranks, though each reads only some of the chunks") {
  const Folder folder;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
    Engine engine{world, Tiny(TinyConfig{.width = 600, .ffn_width = 1000}), AdamW{}};  // five chunks of weights
    save_checkpoint(engine, folder.file("s"));
    const std::string name = folder.file("s/step_00000000/model.safetensors");
    for (Size chunk = 0; chunk < 5; ++chunk) {
      const auto change = [&] {
        world.all().barrier();
        if (world.is_first()) {
          const io::File file = io::File::to_write(name);
          char byte = 0;
          file.read_at(chunk * io::checkpoint_chunk_bytes + 300'000, &byte, 1);
          byte = static_cast<char>(byte ^ 4);
          file.write_at(chunk * io::checkpoint_chunk_bytes + 300'000, &byte, 1);
        }
        world.all().barrier();
      };
      change();
      const std::string sentence = sentence_of([&] { load_checkpoint(engine, folder.file("s")); });
      CHECK(holds(sentence, "'" + name + "' needs the bytes that were saved, but those in [" +
                                std::to_string(chunk * io::checkpoint_chunk_bytes) + ", "));
      CHECK(holds(sentence, "(It was rank " + std::to_string(chunk % 2) + ".)"));
      change();
    }
    load_checkpoint(engine, folder.file("s"));
  });
}

TEST_CASE("complete checkpoints that were swapped, or are of another run, are refused if `latest` names them") {
  const Folder folder;
  Alone one, other;
  other.engine.set_learning_rate(0.2);
  for (Alone* training : {&one, &other}) {
    const std::string at = folder.file(training == &one ? "one" : "other");
    for (int step = 0; step < 2; ++step) {
      take_step(training->world, training->engine);
      save_checkpoint(training->engine, at);
    }
  }
  CHECK(one.engine.progress().run != 0);
  CHECK(one.engine.progress().run != other.engine.progress().run);
  const Image before(folder.path / "one");
  const std::uint64_t untouched = print_of_state(one.engine);
  const fs::path newest = folder.path / "one" / "step_00000002";
  const auto loading = [&] { return sentence_of([&] { load_checkpoint(one.engine, folder.file("one")); }); };
  fs::remove_all(newest);
  fs::copy(folder.path / "other" / "step_00000002", newest);
  CHECK(holds(loading(), "names, of run " + std::to_string(one.engine.progress().run) + ", but '" + newest.string() +
                             "' is of run " + std::to_string(other.engine.progress().run) +
                             ": it was put in its place. Load '" + folder.file("one/step_00000001")));
  before.restore();
  fs::rename(newest, folder.path / "one" / "x");
  fs::rename(folder.path / "one" / "step_00000001", newest);
  CHECK(holds(loading(), "names, 'step_00000002', but '" + newest.string() + "' is 'step_00000001': it was put"));
  CHECK(print_of_state(one.engine) == untouched);
  load_checkpoint(one.engine, newest.string());  // by its path: who renames a checkpoint knows it
  before.restore();
  CHECK(loading() == "no error");
  CHECK(one.engine.progress().run == read_latest_run(folder.file("one")));
  // one or two files of one checkpoint in the place of another's, of the same run and of another; none; each other's
  // names
  const std::array<std::string, 3> names{"model.safetensors", "optimizer.safetensors", "state.json"};
  int cases = 2;
  const auto check = [&] {
    const std::string sentence = loading();
    CHECK(holds(sentence, "'" + newest.string() + "/"));
    CHECK(print_of_state(one.engine) == untouched);
    before.restore();
    ++cases;
  };
  const auto take = [&](const char* from, const std::string& name) {
    fs::copy_file(folder.path / from / name, newest / name, fs::copy_options::overwrite_existing);
  };
  for (const char* from : {"one/step_00000001", "other/step_00000001", "other/step_00000002"})
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(from);
      CAPTURE(i);
      take(from, names[i]);
      check();
      take(from, names[i]), take(from, names[(i + 1) % 3]);
      check();
    }
  for (const std::string& name : names) {
    CAPTURE(name);
    fs::remove(newest / name);
    check();
  }
  fs::rename(newest / names[0], newest / "x"), fs::rename(newest / names[1], newest / names[0]);
  fs::rename(newest / "x", newest / names[1]);
  check();
  CHECK(cases == 24);
}

TEST_CASE("numbers out of range are refused, even with a valid checksum") {
  const Folder folder;
  Alone training;
  for (int step = 0; step < 3; ++step) take_step(training.world, training.engine);
  save_checkpoint(training.engine, folder.file("s"), {.position = {.next_step = 3}});
  const std::string path = "s/step_00000003/state.json", whole = folder.read(path);
  const std::uint64_t untouched = print_of_state(training.engine);
  const auto with = [&](const std::string& key, const std::string& from, const std::string& to) {
    std::string text = io::unsealed_text(whole, path);
    const std::string old = "\"" + key + "\":" + from;
    const std::size_t at = text.find(old);
    REQUIRE_MESSAGE(at != std::string::npos, old);
    folder.write(path, io::sealed_text(text.replace(at, old.size(), "\"" + key + "\":" + to)));
    return sentence_of([&] { load_checkpoint(training.engine, folder.file("s")); });
  };
  const std::vector<std::array<std::string, 3>> absurd{{"steps", "3", "-1"},
                                                       {"steps", "3", "9223372036854775807"},
                                                       {"steps", "3", "2"},
                                                       {"skipped_steps", "0", "-1"},
                                                       {"moment_steps", "3", "-1"},
                                                       {"moment_steps", "3", "4"},
                                                       {"learning_rate", "0.1", "-1"},
                                                       {"learning_rate", "0.1", "1e308"},
                                                       {"value", "1", "0"},
                                                       {"value", "1", "-2"},
                                                       {"value", "1", "1e300"},
                                                       {"updates", "0", "-1"},
                                                       {"last_overflow", "-1", "-2"},
                                                       {"last_overflow", "-1", "5"},
                                                       {"next_step", "3", "-1"},
                                                       {"next_sample", "0", "-1"},
                                                       {"next_step", "3", "9223372036854775807"},
                                                       {"next_sample", "0", "9223372036854775807"}};
  for (const auto& change : absurd) {
    const std::string &key = change[0], &from = change[1], &to = change[2];
    CAPTURE(key);
    CAPTURE(to);
    const std::string sentence = with(key, from, to);
    CHECK(holds(sentence, " of a training, in ["));
    CHECK(sentence.starts_with("dspp: '" + folder.file(path) + "' needs a '"));
  }
  CHECK(print_of_state(training.engine) == untouched);
  CHECK(with("learning_rate", "0.1", "0.25") == "no error");
  CHECK(training.engine.learning_rate() == 0.25);
  training.engine.set_learning_rate(1e308);  // a negative one it does not take
  CHECK(holds(sentence_of([&] { save_checkpoint(training.engine, folder.file("s")); }, ErrorCode::state),
              "saving needs a learning rate"));
  training.engine.set_learning_rate(0.5);
  CHECK(holds(sentence_of([&] { save_checkpoint(training.engine, folder.file("s"), {.position = {.next_step = -1}}); },
                          ErrorCode::usage),
              "saving needs a position in [0, 2^53]"));
}

TEST_CASE("load_weights verifies the checksums of a checkpoint's weights, on every rank") {
  const Folder folder;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 30}, [&](World<P>& world) {
    Engine engine{world, Tiny(TinyConfig{}), AdamW{.lr = 0.1}};
    take_step(world, engine);
    save_checkpoint(engine, folder.file("s"));
    const std::string checkpoint = folder.file("s/step_00000001"), name = checkpoint + "/model.safetensors";
    load_weights(engine, checkpoint);
    take_step(world, engine);
    const std::uint64_t untouched = print_of_state(engine);
    world.all().barrier();
    const Size bytes = static_cast<Size>(fs::file_size(name));
    for (const Size at : {bytes - 1, bytes / 2, Size{9}}) {
      const auto flip = [&] {
        world.all().barrier();
        if (world.is_first()) {
          const io::File file = io::File::to_write(name);
          char byte = 0;
          file.read_at(at, &byte, 1);
          byte = static_cast<char>(byte ^ 1);
          file.write_at(at, &byte, 1);
        }
        world.all().barrier();
      };
      flip();
      CHECK(holds(sentence_of([&] { load_weights(engine, checkpoint); }),
                  "'" + name + "' needs the bytes that were saved"));
      CHECK(print_of_state(engine) == untouched);
      flip();
    }
    load_weights(engine, checkpoint);
  });
}

TEST_CASE("a checkpoint of another training is an error with the difference") {
  const Folder folder;
  Alone training;
  save_checkpoint(training.engine, folder.file("s"));
  const std::string path = folder.file("s") + "/step_00000000/";
  {
    Alone other(TinyConfig{.ffn_width = 16});
    CHECK(holds(sentence_of([&] { load_checkpoint(other.engine, folder.file("s")); }),
                "'" + path + "model.safetensors' has another shape for 'inside.up.weight'"));
  }
  {
    Pool pool;
    World<P> world{mesh_of<P>(1), 0, Groups<Cpu>{}, pool};
    Engine other{world, Tiny(TinyConfig{}), Sgd{.lr = 0.5}};
    CHECK(sentence_of([&] { load_checkpoint(other, folder.file("s")); }) ==
          "dspp: resuming needs the state of Sgd with 0 moments, but '" + path +
              "state.json' is of 'AdamW' with 2. Resume with that optimizer, or load_weights() alone.");
    take_step(world, other);
    save_checkpoint(other, folder.file("none"));
    CHECK(holds(sentence_of([&] { load_checkpoint(training.engine, folder.file("none")); }), "is of 'Sgd' with 0"));
    CHECK(!fs::exists(folder.file("none/step_00000001/optimizer.safetensors")));
    const std::uint64_t print = print_of_state(other);
    take_step(world, other);
    load_checkpoint(other, folder.file("none"));
    CHECK(print_of_state(other) == print);
    CHECK(other.steps() == 1);
  }
  // files of two checkpoints, each whole by itself
  take_step(training.world, training.engine);
  save_checkpoint(training.engine, folder.file("t"), {.tag = "step_00000000"});
  fs::copy_file(folder.file("s/step_00000000/optimizer.safetensors"),
                folder.file("t/step_00000000/optimizer.safetensors"), fs::copy_options::overwrite_existing);
  CHECK(holds(sentence_of([&] { load_checkpoint(training.engine, folder.file("t")); }),
              "optimizer.safetensors' needs the bytes that were saved"));
}

TEST_CASE("a checkpoint that is missing, has a bad tag, or cannot be written is an error sentence") {
  const Folder folder;
  Alone training;
  auto& engine = training.engine;
  const auto loading = [&](const std::string& name, const LoadOptions& options = {}) {
    return sentence_of([&] { load_checkpoint(engine, folder.file(name), options); });
  };
  CHECK(holds(loading("absent"), "absent/latest' that names a checkpoint, but the folder does not exist"));
  fs::create_directory(folder.path / "empty");
  CHECK(holds(loading("empty"), "but the folder has none. Begin without, or give the folder of another training."));
  folder.write("gone/latest", io::sealed_text("step_00000007\n"));
  CHECK(holds(loading("gone"), "but it names 'step_00000007', which is not there"));
  save_checkpoint(engine, folder.file("gone"), {.tag = "best"});
  CHECK(load_checkpoint(engine, folder.file("gone"), {.tag = "best"}).tag == "best");
  folder.write("gone/latest", "step_00000007\n");
  CHECK(holds(loading("gone"), "cut off or was changed. Load '" + folder.file("gone/best") + "': give that path"));
  CHECK(holds(loading("gone", {.tag = "worst"}),
              "gone/worst/state.json', but it is not there. Load '" + folder.file("gone/best") + "': give that path"));
  for (const char* bad : {"latest", ".hidden", "a/b", "a b", "\xff"})
    CHECK(holds(sentence_of([&] { save_checkpoint(engine, folder.file("s"), {.tag = bad}); }, ErrorCode::usage),
                "a checkpoint needs a name of letters"));
  CHECK(sentence_of([&] { save_checkpoint(engine, folder.file("s"), {.keep = -1}); }, ErrorCode::usage) ==
        "dspp: save_checkpoint needs a keep of at least 0, but got -1. 0 keeps all.");
  folder.write("file", "text");
  CHECK(holds(sentence_of([&] { save_checkpoint(engine, folder.file("file")); }), "file' to be a folder"));
  CHECK(holds(sentence_of([&] { save_checkpoint(engine, folder.file("file/below")); }), "Not a directory"));
  CHECK(holds(sentence_of([&] { save_checkpoint(engine, "/proc/dspp"); }),
              "'/proc/dspp' to be made, but the system says"));
  folder.write("s/corpus/text.txt", "precious");
  CHECK(holds(sentence_of([&] { save_checkpoint(engine, folder.file("s"), {.tag = "corpus"}); }),
              "a name that is free or a checkpoint's, but '" + folder.file("s/corpus") + "' is something else"));
  CHECK(folder.read("s/corpus/text.txt") == "precious");
  CHECK(sentence_of(
            [&] {
              save_checkpoint(engine, folder.file("s"), {.client_state = {{"key", "\xff"}}});
            },
            ErrorCode::usage)
            .starts_with("dspp: saving needs a client_state in UTF-8"));
}

TEST_CASE("weights are loaded from one checkpoint, and a folder of several names the newest") {
  const Folder folder;
  Alone training;
  for (int step = 0; step < 2; ++step) {
    take_step(training.world, training.engine);
    save_checkpoint(training.engine, folder.file("s"));
  }
  CHECK(sentence_of([&] { load_weights(training.engine, folder.file("s")); }) ==
        "dspp: load_weights needs a checkpoint's own folder, but '" + folder.file("s") +
            "' is a folder of checkpoints. Load '" + folder.file("s/step_00000002") +
            "', the newest, or resume by load_checkpoint.");
  load_weights(training.engine, folder.file("s/step_00000002"));
}

TEST_CASE("saving between backward and step is an error, and loading there discards the step's gradients") {
  const Folder folder;
  Alone training, undisturbed;
  auto& engine = training.engine;
  save_checkpoint(engine, folder.file("s"));
  auto loss = engine.forward(batch_of(training.pool, 0, 0, 6, 4, 13));
  engine.backward(loss);
  CHECK(sentence_of([&] { save_checkpoint(engine, folder.file("s"), {.tag = "half"}); }, ErrorCode::state)
            .starts_with("dspp: save_checkpoint needs a training between two steps, but gradients wait"));
  CHECK(io::CheckpointFolder{folder.file("s")}.tags() == std::vector<std::string>{"step_00000000"});
  load_checkpoint(engine, folder.file("s"));
  take_step(training.world, engine);
  take_step(undisturbed.world, undisturbed.engine);
  CHECK(print_of_state(engine) == print_of_state(undisturbed.engine));
}

TEST_CASE(
    "position, client state, learning rate and seed are restored to the last bit; the optimizer's numbers are kept") {
  const Folder folder;
  Alone training, other;
  training.engine.set_learning_rate(0.1 + 0.2);
  const std::uint64_t seed = 0xfedcba9876543210u;
  save_checkpoint(training.engine, folder.file("s"),
                  {.tag = "all.there-1",
                   .position = {.next_step = 12, .next_sample = 1'234'567'890'123, .seed = seed},
                   .client_state = {{"epoch", "3"}, {"note \"1\"", "l\xc3\xa4uft\n"}}});
  const Resumed resumed = load_checkpoint(other.engine, folder.file("s"));
  CHECK(resumed.tag == "all.there-1");
  CHECK(resumed.position.next_step == 12);
  CHECK(resumed.position.next_sample == 1'234'567'890'123);
  CHECK(resumed.position.seed == seed);
  CHECK(resumed.client_state == std::map<std::string, std::string>{{"epoch", "3"}, {"note \"1\"", "l\xc3\xa4uft\n"}});
  CHECK(other.engine.learning_rate() == 0.1 + 0.2);
  CHECK(other.engine.progress().seed == 5);
  const io::CheckpointManifest manifest = io::read_checkpoint_manifest(folder.file("s/all.there-1/state.json"));
  CHECK(manifest.training().find("optimizer")->find("beta2")->real == 0.999);
}

TEST_CASE("an optimizer that describes two numbers by one name is refused; so are numbers of more than 64 bits") {
  const auto text = [](const char* key) {
    return training_facts_text(TrainingProgress{}, Described{key}, {.seed = ~std::uint64_t{0}}, {}, ElementType::f32);
  };
  for (const char* taken : {"name", "moments", "lr"})
    CHECK(holds(sentence_of([&] { text(taken); }, ErrorCode::usage),
                "a name of its own, but '" + std::string(taken) + "' is taken"));
  std::string facts = text("power");
  const auto seed_in = [&] {
    return read_training_facts<float, Described>(io::parse_json(facts, "facts"), "facts").position.seed;
  };
  CHECK(seed_in() == ~std::uint64_t{0});
  const std::string most = "18446744073709551615";
  facts.replace(facts.rfind(most), most.size(), "18446744073709551616");
  CHECK(holds(sentence_of(seed_in), "'facts' needs a 'seed' of a training"));
}

TEST_CASE("with keep, the newest checkpoints and other folders stay, and one saved again under its tag is replaced") {
  const Folder folder;
  Alone training;
  const io::CheckpointFolder checkpoints{folder.file("s")};
  save_checkpoint(training.engine, checkpoints.folder, {.tag = "best"});
  folder.write("s/step_notes/a.txt", "a");
  for (int step = 0; step < 5; ++step) {
    save_checkpoint(training.engine, checkpoints.folder, {.keep = 2});
    take_step(training.world, training.engine);
  }
  CHECK(checkpoints.tags() == std::vector<std::string>{"best", "step_00000003", "step_00000004"});
  CHECK(checkpoints.read_latest() == "step_00000004");
  CHECK(folder.read("s/step_notes/a.txt") == "a");
  // back to an older one: what is saved then is the newest, whatever its number
  load_checkpoint(training.engine, checkpoints.folder, {.tag = "best"});
  take_step(training.world, training.engine);
  save_checkpoint(training.engine, checkpoints.folder, {.keep = 2});
  CHECK(checkpoints.tags() == std::vector<std::string>{"best", "step_00000001", "step_00000004"});
  CHECK(checkpoints.read_latest() == "step_00000001");
  training.engine.set_learning_rate(0.25);
  save_checkpoint(training.engine, checkpoints.folder);
  Alone other;
  load_checkpoint(other.engine, checkpoints.folder);
  CHECK(other.engine.learning_rate() == 0.25);
  for (const std::string& name : folder.list()) CHECK(name.find(".tmp") == std::string::npos);
}
