// SPDX-License-Identifier: Apache-2.0
// What surrounds steps, with a model on a GPU: checkpoints, weights, folders of transformers, generation, evaluation,
// averages, and steps that are skipped or stopped; beside the Cpu in the same precision.
// labels: cuda
#include <dspp/launch/cuda_rank.hpp>

#include <dspp/checkpoint/average_file.hpp>
#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/bucket_batches.hpp>
#include <dspp/engine/evaluate.hpp>
#include <dspp/engine/generate.hpp>
#include <dspp/models/tiled.hpp>
#include <dspp/models/tiled_mlp.hpp>

#include <laws/hugging_face_folders.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Recomputed blocks whose feed-forward part comes in chunks, as the loss does, and dropout.
template <class D, class P = Policy<F32, D>>
using Model = Gpt<P, Recompute<GptBlock<P, TiledMlp<Mlp<P>, 3>>>>;

constexpr GptConfig config_of_model() {
  GptConfig config = golden_gpt2;
  config.dropout = 0.1, config.loss_chunk_tokens = 5;
  return config;
}

/// The stage is a value, so that every stage has the same engine.
template <class D>
auto engine_of(World<Policy<F32, D>>& world, EngineConfig config = {}, const BatchSizes& sizes = {}) {
  config.bucket_bytes = 3000;
  const ReplicaConfig stage = dspp::detail::replica_config<Policy<F32, Zero<3>>>(sizes, config);
  return Engine<Model<D>, AdamW>(world, Model<D>(config_of_model()), AdamW{.lr = 1e-2}, sizes, config, stage);
}

/// program(world) on every rank.
template <class D, class Program>
void on_ranks(int ranks, std::uint64_t seed, Program program) {
  run_ranks_of<Policy<F32, D>>({.ranks = ranks, .threads_per_rank = 1, .seed = seed, .timeout_seconds = 60}, program);
}

/// This rank's batch of a step, of four samples in all.
template <class D>
Batch<D> batch_of_step(World<Policy<F32, D>>& world, Size step) {
  const Size own = 4 / world.data_size();
  return batch_of<D>(world.memory(), 4 * step, own * world.data_rank(), own, 6, 61);
}

template <class Engine>
ParameterValues parameters_of(Engine& engine) {
  ParameterValues values;
  for (const auto& named : engine.inventory().parameters) {
    const auto whole = engine.gather_parameter(named.name->text);
    whole.read([&](const auto* host) { values[named.name->text].assign(host, host + whole.count()); });
  }
  return values;
}

/// The largest difference of two models, relative to the largest value of each parameter.
double gap_of(const ParameterValues& a, const ParameterValues& b) {
  Worst worst;
  REQUIRE(a.size() == b.size());
  for (const auto& [name, values] : b) worst.add(difference_to_largest(a.at(name), values));
  return worst.value();
}

struct Task {
  std::string from{}, to{};
  Size until = 0;
  int ranks = 2;
  std::uint64_t seed = 3;
};

/// The losses of the first rank, and the bits of every rank's values, masters and moments.
struct Seen {
  std::vector<double> losses{};
  std::vector<std::uint64_t> prints{};
};

template <class D>
Seen work_on(const Task& task) {
  Seen seen;
  seen.prints.resize(static_cast<std::size_t>(task.ranks));
  on_ranks<D>(task.ranks, task.seed, [&](auto& world) {
    auto engine = engine_of<D>(world, {.clip_norm = 0.5});
    Size step = task.from.empty() ? 0 : load_checkpoint(engine, task.from).position.next_step;
    for (; step < task.until; ++step) {
      engine.set_learning_rate(0.02 / static_cast<double>(1 + step));
      const auto report = engine.train_batch(batch_of_step<D>(world, step));
      if (world.is_first()) seen.losses.push_back(report->loss);
    }
    seen.prints[static_cast<std::size_t>(world.rank())] = print_of_state(engine);
    if (!task.to.empty()) save_checkpoint(engine, task.to, {.tag = "saved", .position = {.next_step = step}});
  });
  return seen;
}

void check_same_files(const Folder& folder, const std::string& a, const std::string& b) {
  for (const char* file : {"saved/model.safetensors", "saved/optimizer.safetensors", "saved/state.json", "latest"}) {
    CAPTURE(file);
    CHECK(folder.read(a + "/" + file) == folder.read(b + "/" + file));
  }
}

}  // namespace

TEST_CASE("a training on a GPU saved and resumed equals the uninterrupted one, in every bit of every rank") {
  const Folder folder;
  const Seen whole = work_on<Cuda>({.until = 5});
  work_on<Cuda>({.to = folder.file("gpu"), .until = 2});
  const Seen resumed = work_on<Cuda>({.from = folder.file("gpu"), .until = 5, .seed = 99});
  CHECK(resumed.losses == std::vector<double>(whole.losses.begin() + 2, whole.losses.end()));
  CHECK(resumed.prints == whole.prints);
  CHECK(whole.losses.front() != whole.losses.back());
}

TEST_CASE("a checkpoint of a GPU resumes on the Cpu and the Cpu's on a GPU, and is written again byte for byte") {
  const Folder folder;
  const auto check = [&]<class From, class To>(From, To, const std::string& name) {
    const std::string first = folder.file(name), again = folder.file(name + "_again");
    const double next = work_on<From>({.to = first, .until = 2}).losses.back();
    work_on<To>({.from = first, .to = again, .ranks = 1, .seed = 88});
    check_same_files(folder, name, name + "_again");
    const auto here = work_on<From>({.from = first, .until = 5}).losses;
    const auto there = work_on<To>({.from = again, .until = 5, .ranks = 1}).losses;
    REQUIRE(there.size() == 3);
    CHECK(worst_difference(there, here) < 1e-5);
    CHECK(here[0] != next);
  };
  check(Cuda(), Cpu(), "of_gpu");
  check(Cpu(), Cuda(), "of_cpu");
}

namespace {

struct Used {
  std::vector<std::int32_t> likeliest, drawn;
  double validation = 0;
  GoldenLogits logits{};
};

/// Loads the golden folder of transformers, writes it again and its weights, reads those, and uses the model.
template <class D>
Used use_golden_folder(const Folder& folder, const std::string& name) {
  const std::string golden = std::string(DSPP_TESTS_DIRECTORY) + "/golden/gpt2_sharded";
  Used used;
  on_ranks<D>(2, 5, [&](auto& world) {
    auto engine = engine_of<D>(world);
    hub::load_hugging_face(engine, golden);
    const ParameterValues loaded = parameters_of(engine);
    hub::save_hugging_face(engine, folder.file(name + "_folder"));
    save_weights(engine, folder.file(name + "_weights"));
    for (const bool of_folder : {false, true}) {
      engine.train_batch(batch_of_step<D>(world, 0)).get();
      CHECK(parameters_of(engine) != loaded);
      of_folder ? hub::load_hugging_face(engine, folder.file(name + "_folder")),
          0     : (load_weights(engine, folder.file(name + "_weights")), 0);
      CHECK(parameters_of(engine) == loaded);
    }
    fill_logits(world, engine, open_golden("gpt2_expected.safetensors"), used.logits);
    const GenerateConfig greedy{.tokens = 10, .sequence = 8, .temperature = 0};
    const GenerateConfig draws{.tokens = 10, .sequence = 8, .temperature = 1.5, .seed = 4};
    const auto likeliest = generate(engine, {1, 2, 3}, greedy), drawn = generate(engine, {1, 2, 3}, draws);
    auto text = std::make_shared<data::Text>();
    for (int i = 0; i < 60; ++i) text->bytes.push_back(static_cast<unsigned char>(i * i % 61));
    text->training_bytes = 30;
    const Evaluation evaluation = evaluate(engine, text, {.micro_batch = 1, .sequence = 8});
    CHECK(evaluation.tokens == 24);
    if (world.is_first()) used.likeliest = likeliest, used.drawn = drawn, used.validation = evaluation.loss;
  });
  return used;
}

}  // namespace

TEST_CASE("on a GPU a folder of transformers gives its logits, the Cpu's tokens and validation loss, and its files") {
  const Folder folder;
  const Used on_gpu = use_golden_folder<Cuda>(folder, "gpu"), on_cpu = use_golden_folder<Cpu>(folder, "cpu");
  const auto expected = values_of<double>(open_golden("gpt2_sharded_expected.safetensors"), "logits");
  CHECK(difference_to_largest(on_gpu.logits, expected) < 1e-5);
  CHECK(on_gpu.likeliest == on_cpu.likeliest);
  CHECK(on_gpu.drawn == on_cpu.drawn);
  CHECK(on_gpu.drawn != on_gpu.likeliest);
  CHECK(difference(on_gpu.validation, on_cpu.validation, on_cpu.validation) < 1e-6);
  for (const char* file : {"_folder/model.safetensors", "_folder/config.json", "_weights/model.safetensors"}) {
    CAPTURE(file);
    CHECK(folder.read(std::string("gpu") + file) == folder.read(std::string("cpu") + file));
  }
}

TEST_CASE(
    "on a GPU an average of weights has its formula's values, is saved and loaded, and training does not notice") {
  const Folder folder;
  on_ranks<Cuda>(2, 4, [&](auto& world) {
    auto engine = engine_of<Cuda>(world);
    WeightAverage average{engine, 0.75};
    ParameterValues expected = parameters_of(engine);
    for (Size step = 0; step < 3; ++step) {
      engine.train_batch(batch_of_step<Cuda>(world, step)).get();
      average.update();
      for (const auto& [name, values] : parameters_of(engine))
        for (std::size_t i = 0; i < values.size(); ++i) expected[name][i] = 0.75 * expected[name][i] + 0.25 * values[i];
    }
    const std::uint64_t print = print_of_state(engine);
    save_average(average, folder.file("average"));
    ParameterValues kept;
    average.within([&] { kept = parameters_of(engine); });
    CHECK(gap_of(kept, expected) < 1e-6);
    CHECK(print_of_state(engine) == print);
    CHECK(gap_of(parameters_of(engine), kept) > 1e-3);
    average.update();
    load_average(average, folder.file("average"));
    average.within([&] { CHECK(parameters_of(engine) == kept); });
  });
}

namespace {

/// What the engine throws on every rank.
template <class F>
std::string sentence_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// The sentence of a step from a parameter that is not finite, and how two steps were skipped.
template <class D>
std::string stop_at_nan() {
  std::string sentence;
  on_ranks<D>(2, 5, [&](auto& world) {
    auto engine = engine_of<D>(world, {.skip_nonfinite = 1, .largest_norm = 1e-9});
    const std::uint64_t print = print_of_state(engine);
    const StepReport skipped = engine.train_batch(batch_of_step<D>(world, 0));
    CHECK(skipped.skipped);
    CHECK(std::isfinite(skipped.gradient_norm));
    CHECK(engine.skipped_steps() == 1);
    CHECK(print_of_state(engine) == print);
    auto weight = parameters_of(engine).at("blocks.1.mlp.up.weight");
    weight[7] = std::nan("");
    set_parameter(engine, "blocks.1.mlp.up.weight", weight);
    const std::string own = sentence_of([&] { engine.train_batch(batch_of_step<D>(world, 1)).get(); });
    if (world.is_first()) sentence = own;
  });
  return sentence;
}

}  // namespace

TEST_CASE("on a GPU a large step is skipped without a changed bit, and NaN has the Cpu's sentence") {
  const std::string sentence = stop_at_nan<Cuda>();
  CHECK(sentence == stop_at_nan<Cpu>());
  CHECK(sentence.find("'blocks.1.mlp.up.weight'") != std::string::npos);
}

TEST_CASE("a bit flipped in a reduced gradient in a GPU's memory is found in its step, before anything is updated") {
  std::vector<std::string> sentences(2);
  on_ranks<Cuda>(2, 5, [&](auto& world) {
    auto engine = engine_of<Cuda>(world, {}, {.accumulate = 2});
    const std::uint64_t print = print_of_state(engine);
    const auto take = [&](bool flips) {
      PendingReport report;
      for (Size a = 0; a < 2; ++a) {
        engine.backward(engine.forward(batch_of_step<Cuda>(world, a)));
        engine.replicas().complete_all();
        if (flips && world.rank() == 1 && a == 0) {
          std::byte* const at = engine.units()[0]->buckets()[0].reduced.data() + 3;
          std::byte value{};
          Cuda::to_host(world.memory(), &value, at, 1);
          value ^= std::byte{4};
          Cuda::from_host(world.memory(), at, &value, 1);
        }
        report = engine.step();
      }
      report.get();
    };
    sentences[static_cast<std::size_t>(world.rank())] = sentence_of([&] { take(true); });
    CHECK(engine.steps() == 0);
    CHECK(print_of_state(engine) == print);
    take(false);
    CHECK(engine.steps() == 1);
    CHECK(print_of_state(engine) != print);
  });
  CHECK(sentences[0] == sentences[1]);
  CHECK(sentences[0].rfind("dspp: a reduced gradient needs to stay unchanged until the update, but on ", 0) == 0);
  CHECK(sentences[0].find(" on rank 1 ") != std::string::npos);
}

namespace {

/// Sample n has 1 + n mod 7 tokens.
struct Lines {
  template <class P>
  using Batch = dspp::Batch<DeviceOf<P>>;

  Size size() const { return 12; }
  Size length(Size sample) const { return 1 + sample % 7; }
  auto shapes(const BatchSizes& sizes) const { return std::tuple(shape(sizes.sequence), shape(sizes.sequence)); }
  auto padding() const { return std::tuple(3, ignored_target); }
  void fill(Size sample, std::span<std::int32_t> tokens, std::span<std::int32_t> targets) const {
    for (std::size_t i = 0; i < static_cast<std::size_t>(length(sample)); ++i) {
      tokens[i] = static_cast<std::int32_t>((5 * sample + 3 * static_cast<Size>(i)) % 61);
      targets[i] = (tokens[i] + 4) % 61;
    }
  }
};

/// The losses of an epoch in buckets of three lengths.
template <class D>
std::vector<double> trained_in_buckets() {
  std::vector<double> losses;
  on_ranks<D>(2, 5, [&](auto& world) {
    const auto buckets = bucket_plan(Lines{}, {.lengths = {2, 5, 7}, .tokens = 28});
    auto engine = engine_of<D>(world, {}, buckets.engine_sizes(2));
    const auto data = batches(world, Lines{}, buckets, {.steps = buckets.steps()});
    for (Size step = 0; step < buckets.steps(); ++step) {
      const auto report = engine.train_batch(data.step(step));
      if (world.is_first()) losses.push_back(report->loss);
      report.get();
    }
  });
  return losses;
}

}  // namespace

TEST_CASE("on a GPU batches in buckets of lengths follow the Cpu") {
  const auto on_cpu = trained_in_buckets<Cpu>();
  CHECK(on_cpu.size() > 2);
  CHECK(worst_difference(trained_in_buckets<Cuda>(), on_cpu) < 1e-5);
}

TEST_CASE(
    "on a GPU under f16, with tiled weights, an overflow skips its step without a changed bit, and the scale follows "
    "its rule") {
  using P = Policy<F16, Zero<2>, Cuda>;
  using InTiles = TinyModel<P, Tiled<ColumnParallel<Linear, P>, 2, 3>, Tiled<RowParallel<Linear, P>, 3, 2>>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .seed = 5, .timeout_seconds = 60}, [&](World<P>& world) {
    const LossScaleConfig rule{.initial = 0x1p20, .window = 2, .hysteresis = 1};
    Engine engine{world, InTiles(TinyConfig{}), AdamW{.lr = 1e-2},
                  EngineConfig{.bucket_bytes = 256, .loss_scale = rule}};
    LossScale expected(rule);
    std::vector<double> losses;
    for (Size step = 0; step < 12; ++step) {
      const std::uint64_t before = print_of_state(engine);
      const StepReport report = engine.train_batch(batch_of<Cuda>(world.memory(), 0, 2 * world.data_rank(), 2, 6, 13));
      CHECK(report.loss_scale == expected.value());
      CHECK(report.skipped == !std::isfinite(report.gradient_norm));
      CHECK((print_of_state(engine) == before) == report.skipped);
      expected.update(report.skipped);
      CHECK(engine.loss_scale() == expected.value());
      losses.push_back(report.loss);
    }
    CHECK(engine.skipped_steps() > 0);
    CHECK(engine.steps() > 2);
    CHECK(losses.back() < losses.front());
  });
}
