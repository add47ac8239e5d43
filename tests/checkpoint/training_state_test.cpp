// SPDX-License-Identifier: Apache-2.0
// A training that is saved and resumed equals the uninterrupted one, bit for bit; and a checkpoint of any strategy
// resumes under any other without changing a bit.
// labels: engine
#include <bit>
#include <cstdlib>
#include <functional>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/models/tiled.hpp>
#include <dspp/optim/adamw.hpp>
#include <laws/folder.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// A run: resume or begin, train up to a step, save or not.
struct Task {
  std::string from{}, to{};
  Size until = 0;
  std::uint64_t seed = 3;
};

/// The results of each rank.
struct Seen {
  std::vector<double> losses{}, scales{};
  std::vector<std::uint64_t> norms{};  ///< as bits: those of skipped steps are not numbers
  std::uint64_t print = 0;             ///< of values, masters and moments
  Size skipped = 0;
};

template <class Model, class P>
Seen work_on(World<P>& world, const BatchSizes& sizes, const EngineConfig& config, const Task& task) {
  Engine engine{world, Model(TinyConfig{}), AdamW{.lr = 0.1}, sizes, config};
  Size step = 0;
  Seen seen;
  const Size micro_batch = 24 / sizes.accumulate / world.data_size(), sequence = 12 / world.cp().size();
  if (!task.from.empty()) {
    // gradients of a step that does not come: nothing of them is left in the training that goes on
    const auto batch = batch_of(world.memory(), 900, 0, micro_batch, sequence, 13, sequence * world.cp().rank());
    auto loss = engine.forward(batch);
    engine.backward(loss);
    step = load_checkpoint(engine, task.from).position.next_step;
  }
  for (; step < task.until; ++step) {
    engine.set_learning_rate(0.05 / static_cast<double>(1 + step));
    for (Size a = 0; a < sizes.accumulate; ++a) {
      const Size first = (a * world.data_size() + world.data_rank()) * micro_batch;
      auto loss = engine.forward(
          batch_of(world.memory(), 24 * step, first, micro_batch, sequence, 13, sequence * world.cp().rank()));
      seen.losses.push_back(engine.value_of(loss));
      engine.backward(loss);
      const StepReport report = engine.step();
      if (report.acted)
        seen.norms.push_back(std::bit_cast<std::uint64_t>(report.gradient_norm)),
            seen.scales.push_back(engine.loss_scale());
    }
  }
  seen.print = print_of_state(engine), seen.skipped = engine.skipped_steps();
  if (!task.to.empty()) save_checkpoint(engine, task.to, {.tag = "checkpoint", .position = {.next_step = step}});
  return seen;
}

/// A strategy without its type.
struct AnyStrategy {
  std::string name;
  int ranks;
  std::string element;  ///< of the values
  std::function<std::vector<Seen>(const Task&)> run;
};

template <class P, class Model = TinyModel<P>>
AnyStrategy strategy(const char* name, int ranks, Size bucket_bytes, Size accumulate = 1) {
  const BatchSizes sizes{.accumulate = accumulate};
  EngineConfig config{.clip_norm = 0.5, .bucket_bytes = bucket_bytes};
  if constexpr (needs_loss_scale<typename P::Element>) config.loss_scale = {.initial = 0x1p20, .window = 2};
  return {name, ranks, name_of(element_type<typename P::Element>), [=](const Task& task) {
            std::vector<Seen> seen(static_cast<std::size_t>(ranks));
            run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .seed = task.seed, .timeout_seconds = 60},
                            [&](World<P>& world) {
                              seen[static_cast<std::size_t>(world.rank())] = work_on<Model>(world, sizes, config, task);
                            });
            return seen;
          }};
}

using Split = Policy<F64, Zero<2>, Cp<2>, Tp<2>, SequenceParallel>;

const std::vector<AnyStrategy>& strategies() {
  static const std::vector<AnyStrategy> all = {
      strategy<Policy<F64>>("f64 stage 0 on 1", 1, 1_MiB),
      strategy<Policy<F64>>("f64 stage 0 on 3, accumulating", 3, 600, 2),
      strategy<Split,
               TinyModel<Split, Tiled<ColumnParallel<Linear, Split>, 2, 3>, Tiled<RowParallel<Linear, Split>, 3, 2>>>(
          "f64 stage 2 on 1 x 2 x 2, tiled", 4, 400),
      strategy<Policy<F64, Zero<3>>>("f64 stage 3 on 4, accumulating", 4, 500, 3),
      strategy<Policy<F64, Zero<3>>>("f64 stage 3 on 2", 2, 300),
      strategy<Policy<F64, Zero<3>>>("f64 stage 3 on 1", 1, 1_MiB),
      strategy<Policy<F32, Zero<1>, Tp<2>>>("f32 stage 1 on 1 x 2", 2, 400),
      strategy<Policy<F32, Zero<1>, Tp<2>>>("f32 stage 1 on 3 x 2", 6, 100),
      strategy<Policy<Bf16, Zero<3>, Tp<2>>>("bf16 stage 3 on 2 x 2", 4, 300),
      strategy<Policy<Bf16, Zero<3>, Tp<2>>>("bf16 stage 3 on 1 x 2, accumulating", 2, 1_MiB, 3),
      strategy<Policy<F16, Zero<2>>>("f16 stage 2 on 3", 3, 200),
      strategy<Policy<F16, Zero<2>>>("f16 stage 2 on 1, accumulating", 1, 100, 2)};
  return all;
}

/// With DSPP_FAULTS=full row I3 of tests/faults/table.txt at its size: 16 layouts of each precision, on 1 to 8 ranks,
/// with buckets of several sizes, which cut the optimizer's state; else the strategies above.
std::vector<AnyStrategy> layouts() {
  std::vector<AnyStrategy> all = strategies();
  const char* size = std::getenv("DSPP_FAULTS");
  if (size == nullptr || size != std::string("full")) return all;
  for (const int ranks : {2, 4, 6, 8}) all.push_back(strategy<Policy<F64>>("f64 stage 0", ranks, 700));
  for (const int ranks : {3, 6, 8}) all.push_back(strategy<Policy<F64, Zero<3>>>("f64 stage 3", ranks, 350));
  for (const int ranks : {6, 8}) all.push_back(strategy<Policy<F64, Zero<3>>>("f64 stage 3, small buckets", ranks, 64));
  using Column = Tiled<ColumnParallel<Linear, Split>, 2, 3>;
  using Row = Tiled<RowParallel<Linear, Split>, 3, 2>;
  all.push_back(strategy<Split, TinyModel<Split, Column, Row>>("f64 stage 2 on 2 x 2 x 2, tiled", 8, 400));
  for (const int ranks : {4, 8})
    all.push_back(strategy<Policy<F32, Zero<1>, Tp<2>>>("f32 stage 1 over Tp", ranks, 200));
  for (const int ranks : {6, 8})
    all.push_back(strategy<Policy<Bf16, Zero<3>, Tp<2>>>("bf16 stage 3 over Tp", ranks, 250));
  for (const int ranks : {2, 4, 6, 8}) all.push_back(strategy<Policy<F16, Zero<2>>>("f16 stage 2", ranks, 150));
  for (const int ranks : {6, 8}) all.push_back(strategy<Policy<F16, Zero<2>>>("f16 stage 2, small buckets", ranks, 40));
  return all;
}

/// Of the first step of each, over the ranks.
double first_loss(const std::vector<Seen>& seen) {
  double sum = 0, count = 0;
  for (const Seen& rank : seen)
    for (const double loss : rank.losses) sum += loss, ++count;
  return sum / count;
}

template <class T>
std::vector<T> tail(const std::vector<T>& all, std::size_t count) {
  REQUIRE(all.size() > count);
  return {all.end() - static_cast<std::ptrdiff_t>(count), all.end()};
}

}  // namespace

TEST_CASE("a training saved and resumed equals the uninterrupted one, in every bit of every rank") {
  for (const AnyStrategy& s : strategies()) {
    CAPTURE(s.name);
    const Folder folder;
    const std::string at = folder.file("checkpoints");
    const std::vector<Seen> whole = s.run({.until = 8});
    s.run({.to = at, .until = 4});
    // another seed: the checkpoint's counts, not the world's
    const std::vector<Seen> resumed = s.run({.from = at, .until = 8, .seed = 99});
    for (std::size_t r = 0; r < whole.size(); ++r) {
      CAPTURE(r);
      CHECK(resumed[r].losses == tail(whole[r].losses, resumed[r].losses.size()));
      CHECK(resumed[r].norms == tail(whole[r].norms, 4));
      CHECK(resumed[r].scales == tail(whole[r].scales, 4));
      CHECK(resumed[r].print == whole[r].print);
      CHECK(resumed[r].skipped == whole[r].skipped);
    }
    if (s.element == "f16") CHECK(whole[0].skipped > 0);  // the scale was in motion
    CHECK(whole[0].losses.front() != whole[0].losses.back());
  }
}

TEST_CASE("a checkpoint of any strategy resumes under any other of its precision, and is written again byte for byte") {
  Size pairs = 0;
  for (const AnyStrategy& from : layouts()) {
    CAPTURE(from.name);
    CAPTURE(from.ranks);
    const Folder folder;
    from.run({.to = folder.file("first"), .until = 3});
    const double next_loss = first_loss(from.run({.from = folder.file("first"), .until = 4}));
    for (const AnyStrategy& to : layouts()) {
      if ((from.element == "f64") != (to.element == "f64")) continue;  // another precision of sums is refused
      CAPTURE(to.name);
      CAPTURE(to.ranks);
      ++pairs;
      const double rounding = to.element == "f64" ? 1e-12 : to.element == from.element ? 5e-3 : 5e-2;
      const double loss = first_loss(to.run({.from = folder.file("first"), .until = 4, .seed = 88}));
      CHECK(loss == doctest::Approx(next_loss).epsilon(rounding));
      to.run({.from = folder.file("first"), .to = folder.file("again"), .seed = 77});
      for (const char* file :
           {"checkpoint/model.safetensors", "checkpoint/optimizer.safetensors", "checkpoint/state.json", "latest"}) {
        CAPTURE(file);
        const bool other_scale = from.element != to.element && std::string(file) == "checkpoint/state.json";
        if (!other_scale) CHECK(folder.read(std::string("again/") + file) == folder.read(std::string("first/") + file));
      }
    }
  }
  MESSAGE(pairs << " pairs");
  CHECK((pairs == 72 || pairs >= 500));
}

TEST_CASE("the files' checksums are those of their bytes, and their tensors are read by name") {
  const Folder folder;
  strategies()[2].run({.to = folder.file("checkpoints"), .until = 2});
  const io::CheckpointManifest manifest =
      io::read_checkpoint_manifest(folder.file("checkpoints/checkpoint/state.json"));
  REQUIRE(manifest.files.size() == 2);
  for (const io::CheckpointFile& file : manifest.files) {
    const std::string bytes = folder.read("checkpoints/checkpoint/" + file.name);
    CHECK(file.bytes == std::ssize(bytes));
    REQUIRE(file.checksums.size() == 1);
    CHECK(file.checksums[0] == crc32c(bytes.data(), std::ssize(bytes)));
  }
  const io::SafetensorsReader moments(folder.file("checkpoints/checkpoint/optimizer.safetensors"));
  CHECK(moments.tensors().size() == 14);
  CHECK(moments.tensor("inside.up.weight.moment2").shape == std::vector<Size>{12, 8});
  CHECK(moments.tensor("inside.up.weight.moment2").dtype == "F64");
  CHECK(folder.list() == std::vector<std::string>{"checkpoints", "checkpoints/checkpoint",
                                                  "checkpoints/checkpoint/model.safetensors",
                                                  "checkpoints/checkpoint/optimizer.safetensors",
                                                  "checkpoints/checkpoint/state.json", "checkpoints/latest"});
}

TEST_CASE("a tensor of several chunks, cut over both axes, has the checksum of every chunk right") {
  using P = Policy<F32, Zero<1>, Tp<2>>;
  const Folder folder;
  run_ranks_of<P>({.ranks = 4, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    // 700 x 1500 and 1500 x 700 floats: 4.2 MB each, whose runs of 2800 or 3000 bytes cross the borders of chunks
    Engine engine{world, TinyModel<P>(TinyConfig{.width = 700, .ffn_width = 1500}), AdamW{}};
    save_checkpoint(engine, folder.file("checkpoints"));
    const std::uint64_t print = print_of_state(engine);
    engine.set_learning_rate(7);
    load_checkpoint(engine, folder.file("checkpoints"));
    CHECK(print_of_state(engine) == print);
    CHECK(engine.learning_rate() == 1e-3);
  });
  const io::CheckpointManifest manifest =
      io::read_checkpoint_manifest(folder.file("checkpoints/step_00000000/state.json"));
  REQUIRE(manifest.files.at(0).checksums.size() == 9);
  const std::string bytes = folder.read("checkpoints/step_00000000/model.safetensors");
  for (Size chunk = 0; chunk < 9; ++chunk) {
    const Size begin = chunk * io::checkpoint_chunk_bytes;
    CHECK(manifest.files[0].checksums[static_cast<std::size_t>(chunk)] ==
          crc32c(bytes.data() + begin, manifest.files[0].chunk_end(chunk) - begin));
  }
}

TEST_CASE("the weights of a checkpoint are read by load_weights, too") {
  using P = Policy<Bf16, Zero<3>, Tp<2>>;
  const Folder folder;
  run_ranks_of<P>({.ranks = 4, .threads_per_rank = 1, .seed = 4, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine{world, TinyModel<P>(TinyConfig{}), AdamW{}};
    auto loss = engine.forward(batch_of(world.memory(), 0, 6 * world.data_rank(), 6, 5, 13));
    engine.backward(loss);
    engine.step();
    save_checkpoint(engine, folder.file("checkpoints"));
    const auto before = engine.gather_parameter("inside.down.weight");
    Engine other{world, TinyModel<P>(TinyConfig{}), AdamW{}};
    load_weights(other, folder.file("checkpoints/step_00000001"));
    const auto after = other.gather_parameter("inside.down.weight");
    CHECK(std::equal(before.data(), before.data() + before.count(), after.data()));
    CHECK(other.steps() == 1);
  });
}

TEST_CASE("a checkpoint in another precision of sums is refused on every rank, and the engine is unchanged") {
  const Folder folder;
  strategies()[0].run({.to = folder.file("checkpoints"), .until = 1});
  using P = Policy<F32, Zero<1>, Tp<2>>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine{world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 0.1}};
    const std::uint64_t untouched = print_of_state(engine);
    std::string sentence;
    try {
      load_checkpoint(engine, folder.file("checkpoints"));
    } catch (const Error& error) {
      sentence = error.what();
    }
    CHECK(sentence == "dspp: resuming needs a checkpoint in F32, as this policy sums, but '" +
                          folder.file("checkpoints/checkpoint/state.json") +
                          "' is in F64. Take a policy of the precision that was saved. (It was rank 0.)");
    CHECK(print_of_state(engine) == untouched);
    CHECK(engine.steps() == 0);
  });
}
