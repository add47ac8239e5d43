// SPDX-License-Identifier: Apache-2.0
// A Gpt with the weights of a `transformers` GPT-2 gives its logits, its loss and all its gradients
// (tests/golden/README.md). labels: thread golden
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <dspp/engine/engine.hpp>
#include <dspp/engine/full_tensors.hpp>
#include <dspp/engine/run.hpp>
#include <dspp/io/safetensors.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

using namespace dspp;

namespace {

constexpr GptConfig config{.layers = 2, .width = 24, .heads = 12, .vocabulary = 61, .sequence = 16};
constexpr Size batch = 2, sequence = 12, vocabulary = 61;

SafetensorsReader open(const char* file) {
  return SafetensorsReader(std::string(DSPP_TESTS_DIRECTORY) + "/golden/" + file);
}

template <class T>
std::vector<T> values_of(const SafetensorsReader& file, const std::string& name) {
  const TensorEntry& entry = file.tensor(name);
  std::vector<T> values(static_cast<std::size_t>(entry.count()));
  file.read(entry, 0, entry.count(), values.data());
  return values;
}

/// blocks.1.mlp.up.weight -> transformer.h.1.mlp.c_fc.weight
std::string hugging_face_name(std::string name) {
  const std::pair<const char*, const char*> words[] = {
      {"tokens", "wte"},    {"positions", "wpe"},   {"blocks", "h"},           {"norm1", "ln_1"},
      {"norm2", "ln_2"},    {"norm.", "ln_f."},     {"attention.", "attn."},   {"qkv", "c_attn"},
      {"output", "c_proj"}, {"mlp.up", "mlp.c_fc"}, {"mlp.down", "mlp.c_proj"}};
  for (const auto& [ours, theirs] : words)
    if (const auto at = name.find(ours); at != std::string::npos) name.replace(at, std::string(ours).size(), theirs);
  return "transformer." + name;
}

/// A tensor of the file in our order: Conv1D keeps its weights as [in, out], Linear as [out, in].
std::vector<double> in_our_order(const SafetensorsReader& file, const std::string& prefix, const std::string& ours) {
  const std::string theirs = hugging_face_name(ours);
  const std::vector<double> values = values_of<double>(file, prefix + theirs);
  const bool conv1d = theirs.find(".c_") != std::string::npos && theirs.ends_with("weight");
  if (!conv1d) return values;
  const auto& extents = file.tensor(prefix + theirs).shape;
  const auto in = static_cast<std::size_t>(extents[0]), out = static_cast<std::size_t>(extents[1]);
  std::vector<double> transposed(values.size());
  for (std::size_t i = 0; i < in; ++i)
    for (std::size_t o = 0; o < out; ++o) transposed[o * in + i] = values[i * out + o];
  return transposed;
}

/// The largest |a - b| over the largest |b|.
template <class A>
double gap(const A& a, const std::vector<double>& b) {
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference = std::max(difference, std::abs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return difference / largest;
}

struct Seen {
  std::vector<double> logits = std::vector<double>(static_cast<std::size_t>(batch * sequence * vocabulary));
  std::vector<double> losses;
  std::map<std::string, std::vector<double>> gradients;
};

template <class P>
void look(World<P>& world, Seen& seen) {
  const SafetensorsReader weights = open("gpt2_weights.safetensors"), expected = open("gpt2_expected.safetensors");
  Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(config), AdamW{}, {.bucket_bytes = 16000});
  for (const auto& named : engine.inventory().parameters)
    set_parameter(engine, named.name.text, in_our_order(weights, "", named.name.text));

  const Size own = batch / world.data_size(), first = own * world.data_rank();
  Batch<Cpu> mine{Tensor<std::int32_t, 2>::zeros(shape(own, sequence), world.memory()),
                  Tensor<std::int32_t, 2>::zeros(shape(own, sequence), world.memory()), first};
  expected.read(expected.tensor("input_ids"), first * sequence, own * sequence, mine.tokens.data());
  expected.read(expected.tensor("targets"), first * sequence, own * sequence, mine.targets.data());

  const auto scores = engine.without_learning(
      [&](const Gpt<P>& model, Tape<Cpu>& tape) { return model(Tokens<P>::constant(mine.tokens, tape)).value(); });
  const Size columns = scores[-1], first_column = columns * world.place().tp;
  REQUIRE(columns == (vocabulary + P::tp - 1) / P::tp);
  for (Size i = 0; i < own * sequence; ++i)
    for (Size j = 0; j < columns && first_column + j < vocabulary; ++j)
      seen.logits[static_cast<std::size_t>((first * sequence + i) * vocabulary + first_column + j)] =
          static_cast<double>(scores.data()[i * columns + j]);

  auto loss = engine.forward(mine);
  const double mean = engine.mean(loss);
  engine.backward(loss);
  for (const auto& named : engine.inventory().parameters) {
    const auto gradient = engine.full_gradient(named.name.text);
    if (world.is_first()) seen.gradients[named.name.text].assign(gradient.data(), gradient.data() + gradient.count());
  }
  if (world.is_first()) seen.losses.push_back(mean);
  const StepReport report = engine.step();
  CHECK(!report.skipped);
}

/// Everything within `bound` of the golden values, relative to the largest of each tensor.
template <class P>
void check_golden(int ranks, double bound) {
  CAPTURE(ranks);
  CAPTURE(P::tp);
  Seen seen;
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60},
                  [&](World<P>& world) { look(world, seen); });
  const SafetensorsReader expected = open("gpt2_expected.safetensors");
  CHECK(gap(seen.logits, values_of<double>(expected, "logits")) < bound);
  const double loss = values_of<double>(expected, "loss")[0];
  REQUIRE(seen.losses.size() == 1);
  CHECK(std::abs(seen.losses[0] - loss) < bound * loss);
  REQUIRE(seen.gradients.size() == 28);
  double squares = 0, golden_squares = 0;
  for (const auto& [name, gradient] : seen.gradients) {
    CAPTURE(name);
    const auto golden = in_our_order(expected, "grad.", name);
    REQUIRE(gradient.size() == golden.size());
    CHECK(gap(gradient, golden) < bound);
    for (double g : gradient) squares += g * g;
    for (double g : golden) golden_squares += g * g;
  }
  CHECK(std::abs(squares - golden_squares) < 2 * bound * golden_squares);
}

}  // namespace

TEST_CASE("f64: logits, loss and all gradients are those of transformers, on one rank to 1e-12") {
  check_golden<Policy<F64>>(1, 1e-12);
}

TEST_CASE("f64: they are the same over two and three tensor ranks") {
  check_golden<Policy<F64, Tp<2>>>(2, 1e-12);
  check_golden<Policy<F64, Zero<1>, Tp<3>>>(3, 1e-12);
}

TEST_CASE("f64: they are the same over two data ranks, and over two data by two tensor ranks with split sequences") {
  check_golden<Policy<F64, Zero<2>>>(2, 1e-12);
  check_golden<Policy<F64, Zero<2>, Tp<2>>>(4, 1e-12);
  check_golden<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>(4, 1e-12);
}

TEST_CASE("f16 is within 1e-2 of the golden values, gradients with the loss scale taken out") {
  check_golden<Policy<F16>>(1, 1e-2);
  check_golden<Policy<F16, Zero<2>>>(2, 1e-2);
}

TEST_CASE("f32 is within 1e-5 of the golden values, bf16 within 5e-2") {
  check_golden<Policy<F32>>(1, 1e-5);
  check_golden<Policy<Bf16>>(1, 5e-2);
}
