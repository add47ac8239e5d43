// SPDX-License-Identifier: Apache-2.0
/// A model with the weights of a `transformers` one gives its logits, its loss and all its gradients.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/engine/engine.hpp>
#include <dspp/io/safetensors.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/zero/full_tensors.hpp>

#include "difference.hpp"

namespace dspp::laws {

/// The batch of every golden file (tests/golden/README.md).
inline constexpr Size golden_batch = 2, golden_sequence = 12, golden_vocabulary = 61;

inline io::SafetensorsReader open_golden(const std::string& file) {
  return io::SafetensorsReader(std::string(DSPP_TESTS_DIRECTORY) + "/golden/" + file);
}

template <class T>
std::vector<T> values_of(const io::SafetensorsReader& file, const std::string& name) {
  const io::TensorEntry& entry = file.tensor(name);
  std::vector<T> values(static_cast<std::size_t>(entry.count()));
  file.read(entry, 0, entry.count(), values.data());
  return values;
}

struct GoldenOutcome {
  std::vector<double> logits =
      std::vector<double>(static_cast<std::size_t>(golden_batch * golden_sequence * golden_vocabulary));
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> gradients;
};

/// Everything within `bound` of the golden values, relative to the largest of each tensor.
///
/// `Golden` defines the type Model<P>, `config`, `prefix` of both files, the number of `parameters`, and
/// `in_our_order(file, prefix, our name)`, a tensor of the file as the parameter of our name has it.
template <class Golden, class P>
void check_golden(int ranks, double bound);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

template <class Golden, class P>
void run_golden(World<P>& world, GoldenOutcome& seen) {
  using Model = typename Golden::template Model<P>;
  const std::string prefix = Golden::prefix;
  const io::SafetensorsReader weights = open_golden(prefix + "_weights.safetensors"),
                              expected = open_golden(prefix + "_expected.safetensors");
  Engine<Model, AdamW> engine(world, Model(Golden::config), AdamW{}, EngineConfig{.bucket_bytes = 16000});
  for (const auto& named : engine.inventory().parameters)
    set_parameter(engine, named.name->text, Golden::in_our_order(weights, "", named.name->text));

  constexpr Size sequence = golden_sequence, vocabulary = golden_vocabulary;
  const Size own = golden_batch / world.data_size(), first = own * world.data_rank();
  Batch<Cpu> mine{Tensor<std::int32_t, 2>::zeros(shape(own, sequence), world.memory()),
                  Tensor<std::int32_t, 2>::zeros(shape(own, sequence), world.memory()), first};
  expected.read(expected.tensor("input_ids"), first * sequence, own * sequence, mine.tokens.data());
  expected.read(expected.tensor("targets"), first * sequence, own * sequence, mine.targets.data());

  const auto logits = engine.no_grad(
      [&](const Model& model, Tape<Cpu>& tape) { return model(Tokens<P>::constant(mine.tokens, tape)).value(); });
  const Size columns = logits[-1], first_column = columns * world.tp_rank();
  REQUIRE(columns == (vocabulary + P::tp - 1) / P::tp);
  for (Size i = 0; i < own * sequence; ++i)
    for (Size j = 0; j < columns && first_column + j < vocabulary; ++j)
      seen.logits[static_cast<std::size_t>((first * sequence + i) * vocabulary + first_column + j)] =
          static_cast<double>(logits.data()[i * columns + j]);

  auto loss = engine.forward(mine);
  const double mean = engine.all_reduce_mean(loss);
  engine.backward(loss);
  for (const auto& named : engine.inventory().parameters) {
    const auto gradient = engine.gather_gradient(named.name->text);
    if (world.is_first()) seen.gradients[named.name->text].assign(gradient.data(), gradient.data() + gradient.count());
  }
  if (world.is_first()) seen.losses.push_back(mean);
  const StepReport report = engine.step();
  CHECK(!report.skipped);
}

}  // namespace detail

template <class Golden, class P>
void check_golden(int ranks, double bound) {
  CAPTURE(ranks);
  CAPTURE(P::tp);
  GoldenOutcome seen;
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60},
                  [&](World<P>& world) { detail::run_golden<Golden>(world, seen); });
  const io::SafetensorsReader expected = open_golden(std::string(Golden::prefix) + "_expected.safetensors");
  CHECK(difference_to_largest(seen.logits, values_of<double>(expected, "logits")) < bound);
  const double loss = values_of<double>(expected, "loss")[0];
  REQUIRE(seen.losses.size() == 1);
  CHECK(difference(seen.losses[0], loss, loss) < bound);
  REQUIRE(seen.gradients.size() == Golden::parameters);
  double squares = 0, golden_squares = 0;
  for (const auto& named : seen.gradients) {
    const std::string& name = named.first;
    const std::vector<double>& gradient = named.second;
    CAPTURE(name);
    const auto golden = Golden::in_our_order(expected, "grad.", name);
    REQUIRE(gradient.size() == golden.size());
    CHECK(difference_to_largest(gradient, golden) < bound);
    for (double g : gradient) squares += g * g;
    for (double g : golden) golden_squares += g * g;
  }
  CHECK(difference(squares, golden_squares, golden_squares) < 2 * bound);
}

}  // namespace dspp::laws
