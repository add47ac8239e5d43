// SPDX-License-Identifier: Apache-2.0
// Weights are saved and loaded under any strategy by global name, bit for bit, with the step.
// labels: thread races
#include <functional>

#include <dspp/checkpoint/checkpoint.hpp>
#include <laws/difference.hpp>
#include <laws/folder.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Parameters = std::map<std::string, std::vector<float>>;

/// Whole parameters, on every rank.
template <class Engine>
Parameters parameters_of(Engine& engine) {
  Parameters all;
  for (const auto& named : engine.inventory().parameters) {
    const auto whole = engine.gather_parameter(named.name->text);
    all[named.name->text].assign(whole.data(), whole.data() + whole.count());
  }
  return all;
}

template <class P, class Program>
void with_engine(int ranks, const GptConfig& config, Program program) {
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>(config), AdamW{.lr = 1e-2}, EngineConfig{.bucket_bytes = 4000}};
    program(world, engine);
  });
}

/// A saved file and its values.
struct Saved {
  Parameters parameters;
  double loss = 0;  ///< of a fixed batch
};

template <class World, class Engine>
double fixed_loss(World& world, Engine& engine) {
  return engine.eval_batch(batch_of(world.memory(), 0, 0, 6, 12, 61)).mean;
}

template <class P>
Saved train_and_save(int ranks, const std::string& folder) {
  Saved saved;
  with_engine<P>(ranks, small_gpt(), [&](auto& world, auto& engine) {
    for (Size step = 0; step < 3; ++step) {
      auto loss = engine.forward(batch_of(world.memory(), 12 * step, 3 * world.data_rank(), 3, 12, 61));
      engine.backward(loss);
      engine.step();
    }
    save_weights(engine, folder);
    const Parameters mine = parameters_of(engine);
    const double loss = fixed_loss(world, engine);
    if (world.is_first()) saved = {mine, loss};
  });
  return saved;
}

/// Loads the same parameters, step and loss on every rank; saving them again gives the same file.
template <class P>
void check_loading(int ranks, const std::string& from, const std::string& again, const Saved& saved, double tolerance) {
  with_engine<P>(ranks, small_gpt(), [&](auto& world, auto& engine) {
    CHECK(engine.steps() == 0);
    load_weights(engine, from);
    CHECK(engine.steps() == 3);
    CHECK(parameters_of(engine) == saved.parameters);
    CHECK(fixed_loss(world, engine) == doctest::Approx(saved.loss).epsilon(tolerance));
    save_weights(engine, again);
  });
  CHECK(read_file(again + "/model.safetensors") == read_file(from + "/model.safetensors"));
}

struct NamedStrategy {
  const char* name;
  bool narrow;  ///< its activations are bf16
  std::function<Saved(const std::string& folder)> save;
  std::function<void(const std::string& from, const std::string& again, const Saved&, double tolerance)> load;
};

template <class P>
NamedStrategy named(const char* name, int ranks) {
  return {name, sizeof(typename P::Element) < 4,
          [=](const std::string& folder) { return train_and_save<P>(ranks, folder); },
          [=](const std::string& from, const std::string& again, const Saved& saved, double tolerance) {
            check_loading<P>(ranks, from, again, saved, tolerance);
          }};
}

/// The error of loading; checks that no parameter has changed.
template <class P>
std::string refusal(int ranks, const GptConfig& config, const std::string& folder) {
  try {
    with_engine<P>(ranks, config, [&](auto&, auto& engine) {
      const Parameters before = parameters_of(engine);
      try {
        load_weights(engine, folder);
      } catch (const Error&) {
        CHECK(parameters_of(engine) == before);
        CHECK(engine.steps() == 0);
        throw;
      }
    });
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("weights saved under any strategy are the same under any other, with the step, and save to the same bytes") {
  const NamedStrategy strategies[] = {named<Policy<F32>>("one rank", 1),
                                      named<Policy<F32, Zero<3>>>("stage 3 on three", 3),
                                      named<Policy<F32, Zero<1>, Tp<2>>>("stage 1 beside two tensor ranks", 4),
                                      named<Policy<F32, Zero<2>, Tp<4>, SequenceParallel>>("sequences over four", 4),
                                      named<Policy<Bf16, Zero<2>>>("bf16 on two", 2)};
  for (const NamedStrategy& from : strategies) {
    CAPTURE(std::string(from.name));
    const Folder folder;
    const Saved saved = from.save(folder.file("saved"));
    for (const NamedStrategy& to : strategies) {
      CAPTURE(std::string(to.name));
      const double tolerance = from.narrow || to.narrow ? 1e-2 : 1e-5;
      to.load(folder.file("saved"), folder.file(std::string("again, ") + to.name), saved, tolerance);
    }
  }
}

TEST_CASE("loading into an engine that was trained before, or into a new one, continues alike, from zero moments") {
  using P = Policy<F32, Zero<1>>;
  const Folder folder;
  train_and_save<P>(2, folder.file("saved"));
  std::array<Parameters, 2> after;
  for (const bool trained : {false, true})
    with_engine<P>(2, small_gpt(), [&](auto& world, auto& engine) {
      const auto one_step = [&](Size step) {
        auto loss = engine.forward(batch_of(world.memory(), 12 * step, 3 * world.data_rank(), 3, 12, 61));
        engine.backward(loss);
        return loss;
      };
      if (trained) {
        for (Size step = 0; step < 5; ++step) {
          auto loss = one_step(step);
          engine.step();
        }
        one_step(5);  // leaves a gradient behind
      }
      load_weights(engine, folder.file("saved"));
      const Parameters before = parameters_of(engine);
      auto loss = one_step(3);
      engine.step();
      CHECK(engine.steps() == 4);
      const Parameters now = parameters_of(engine);
      // Adam's first step from zero moments is the rate, 1e-2, in each element
      for (const auto& parameter : now)
        CHECK_MESSAGE(worst_difference(parameter.second, before.at(parameter.first)) <= 1.001e-2, parameter.first);
      if (world.is_first()) after[trained] = now;
    });
  CHECK(after[0] == after[1]);
}

TEST_CASE("a tensor of another element type is refused before anything is changed") {
  const Folder folder;
  train_and_save<Policy<F32>>(1, folder.file("saved"));
  std::string bytes = folder.read("saved/model.safetensors");
  const std::size_t at = bytes.rfind("\"F32\"", 20000);  // of the last tensor
  REQUIRE(at != std::string::npos);
  bytes.replace(at, 5, "\"I32\"");
  folder.write("saved/model.safetensors", bytes);
  CHECK(refusal<Policy<F32>>(1, small_gpt(), folder.file("saved"))
            .ends_with("as F64, F32, BF16 or F16, but it is I32. Convert the file."));
}

TEST_CASE("a checkpoint of another model is refused on every rank, and nothing is changed") {
  const Folder folder;
  const std::string saved = folder.file("saved");
  train_and_save<Policy<F32>>(1, saved);
  const std::string begin = "dspp: loading needs the weights of this model, but '" + saved + "/model.safetensors' ";
  GptConfig other = small_gpt();
  other.layers = 3;
  CHECK(refusal<Policy<F32>>(1, other, saved).starts_with(begin + "has no tensor 'blocks.2."));
  other.layers = 1;
  CHECK(refusal<Policy<F32, Zero<3>>>(3, other, saved).starts_with(begin + "has a tensor 'blocks.1."));
  other.layers = 2;
  other.vocabulary = 62;
  CHECK(refusal<Policy<F32, Zero<1>, Tp<2>>>(4, other, saved).starts_with(begin + "has another shape for 'tokens."));
  CHECK(refusal<Policy<F32>>(1, small_gpt(), folder.file("absent")).find("absent/model.safetensors") !=
        std::string::npos);
  CHECK(refusal<Policy<F32>>(1, small_gpt(), saved) == "no error");
}
