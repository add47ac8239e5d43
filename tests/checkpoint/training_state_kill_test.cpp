// SPDX-License-Identifier: Apache-2.0
// A save of several ranks that is killed at any of their calls leaves the earlier or the new checkpoint, bit for bit.
// labels: engine
#include <array>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/optim/adamw.hpp>
#include <laws/faulty_files.hpp>
#include <laws/folder.hpp>
#include <laws/killed_save.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr int ranks = 3;
using Prints = std::array<std::uint64_t, ranks>;  ///< of every rank's values, masters and moments

/// Runs body(world, engine) on every rank; returns their final checkpoints.
template <class P, class Body>
Prints on_ranks_of(Body body) {
  Prints prints{};
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine{world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 0.1}};
    body(world, engine);
    prints[static_cast<std::size_t>(world.rank())] = print_of_state(engine);
  });
  return prints;
}

/// Resumes from `at`, takes one step and saves, through a file system shared by the ranks.
template <class P>
Prints go_on(const std::string& at, const SaveOptions& options, FaultyFiles& files) {
  return on_ranks_of<P>([&](auto& world, auto& engine) {
    load_checkpoint(engine, at);
    take_step(world, engine);
    SaveOptions with = options;
    with.files = &files;
    save_checkpoint(engine, at, with);
  });
}

/// Kills at every call of all ranks. `latest` then names the earlier checkpoint, or from some call on the new one; the
/// next save works and cleans up.
template <class P>
void kill_at_every_call(FaultyFiles::When when, const SaveOptions& options) {
  const Folder origin;
  FaultyFiles files;
  const Prints before = on_ranks_of<P>([&](auto& world, auto& engine) {
    take_step(world, engine);
    save_checkpoint(engine, origin.file("s"), {.files = &files});
  });
  Prints after{};
  bool killed = true, published = false;
  Size n = 0;
  while (killed) {
    ++n;
    CAPTURE(n);
    const Folder folder;
    const std::string at = folder.file("s");
    fs::copy(origin.path / "s", at, fs::copy_options::recursive);
    killed = killed_in_child(n, when, [&](FaultyFiles& shared) { go_on<P>(at, options, shared); });
    Prints found = on_ranks_of<P>([&](auto&, auto& engine) { load_checkpoint(engine, at); });
    if (found == before) {
      CHECK(!published);
      CHECK(killed);
      found = go_on<P>(at, options, files);
    } else {
      published = true;
    }
    if (n == 1) after = found;
    CHECK(found == after);
    CHECK(on_ranks_of<P>([&](auto&, auto& engine) { load_checkpoint(engine, at); }) == after);
    if (published) go_on<P>(at, options, files);
    for (const std::string& name : folder.list()) CHECK(name.find("/.tmp-") == std::string::npos);
  }
  CHECK(published);
  CHECK(n > 40);
}

}  // namespace

TEST_CASE("a save of three ranks that is killed before any of their calls leaves a complete checkpoint") {
  kill_at_every_call<Policy<F32, Zero<2>>>(FaultyFiles::When::before, {.keep = 1});
}

TEST_CASE("a save of three ranks that is killed half-way through any of their calls leaves a complete checkpoint") {
  kill_at_every_call<Policy<F32, Zero<2>>>(FaultyFiles::When::half_way, {.keep = 1});
}

TEST_CASE("a save of three ranks over an earlier checkpoint that is killed leaves one of the two, complete") {
  kill_at_every_call<Policy<F32, Zero<2>>>(FaultyFiles::When::half_way, {.tag = "step_00000001"});
}
