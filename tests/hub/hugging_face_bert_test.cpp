// SPDX-License-Identifier: Apache-2.0
// A folder of transformers' BERT (tests/golden/README.md) gives its logits, loss and gradients, and is saved as it was.
// labels: golden
#include <dspp/hub/hugging_face_bert.hpp>
#include <laws/hugging_face_folders.hpp>
#include <laws/json_tree.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const std::string golden = std::string(DSPP_TESTS_DIRECTORY) + "/golden/hub/bert";

std::string refused(const std::string& members) {
  try {
    hub::parse_bert_config("{" + members + "}", "a config");
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

/// This rank's samples of the golden batch.
template <class P>
BertBatch<P> golden_samples(World<P>& world, const auto& model, const io::SafetensorsReader& file) {
  const Size own = golden_batch / world.data_size(), first = own * world.data_rank();
  auto batch = model.new_batch(BatchSizes{.micro_batch = own, .sequence = golden_sequence}, world.memory());
  const auto fill = [&](auto& field, const char* name, Size columns) {
    field.value().write([&](std::int32_t* out) { file.read(file.tensor(name), first * columns, own * columns, out); });
  };
  fill(batch.tokens, "input_ids", golden_sequence), fill(batch.token_types, "token_type_ids", golden_sequence);
  fill(batch.lengths, "lengths", 1), fill(batch.labels, "labels", golden_sequence);
  return batch;
}

/// Logits, loss and gradients within 1e-12 of the golden values, relative to the largest; and the folder saved again.
template <class P>
void check_folder(int ranks) {
  CAPTURE(ranks);
  constexpr double bound = 1e-12;
  const io::SafetensorsReader expected = open_golden("hub/bert_expected.safetensors");
  const BertConfig config = hub::read_bert_config(golden);
  const Folder saved;
  GoldenLogits logits{};
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
  with_engine<Bert<P>>(ranks, config, [&](auto& world, auto& engine) {
    hub::load_hugging_face(engine, golden);
    hub::save_hugging_face(engine, saved.file("again"), {.tokens = hub::read_hugging_face_tokens(golden)});
    auto batch = golden_samples<P>(world, engine.model(), expected);
    const auto own =
        engine.no_grad([&](const auto& model, Tape<Cpu>& tape) { return model.logits(on_tape(batch, tape)).value(); });
    const Size columns = own[-1], first_column = columns * world.tp_rank(), first = own[0] * world.data_rank();
    for (Size i = 0; i < own[0] * own[1]; ++i)
      for (Size j = 0; j < columns && first_column + j < golden_vocabulary; ++j)
        logits[static_cast<std::size_t>((first * golden_sequence + i) * golden_vocabulary + first_column + j)] =
            own.data()[i * columns + j];
    auto y = engine.forward(batch);
    const double mean = engine.all_reduce_mean(y);
    engine.backward(y);
    for (const auto& named : engine.inventory().parameters) {
      const auto gradient = engine.gather_gradient(named.name->text);
      if (world.is_first()) gradients[named.name->text].assign(gradient.data(), gradient.data() + gradient.count());
    }
    if (world.is_first()) loss = mean;
    engine.step();
  });
  CHECK(difference_to_largest(logits, values_of<double>(expected, "logits")) < bound);
  const double golden_loss = values_of<double>(expected, "loss")[0];
  CHECK(difference(loss, golden_loss, golden_loss) < bound);
  CHECK(gradients.size() == 34);
  for (const auto& parameter : gradients) {
    const std::string& ours = parameter.first;
    const std::vector<double>& gradient = parameter.second;
    CAPTURE(ours);
    std::vector<double> theirs;
    for (const std::string& name : hub::hugging_face_parts(config, ours).tensors) {
      const auto part = values_of<double>(expected, "grad." + name);
      theirs.insert(theirs.end(), part.begin(), part.end());
    }
    REQUIRE(gradient.size() == theirs.size());
    CHECK(difference_to_largest(gradient, theirs) < bound);
  }
  const io::SafetensorsReader theirs(golden + "/model.safetensors"), ours(saved.file("again/model.safetensors"));
  REQUIRE(ours.tensors().size() == theirs.tensors().size());
  for (const io::TensorEntry& tensor : theirs.tensors()) {
    CHECK(ours.tensor(tensor.name).shape == tensor.shape);
    CHECK(values_of<double>(ours, tensor.name) == values_of<double>(theirs, tensor.name));
  }
  const JsonTree config_of_theirs = json_tree(read_file(golden + "/config.json"), "a golden config");
  const JsonTree config_of_ours = json_tree(saved.read("again/config.json"), "a saved config");
  for (std::size_t i = 0; i < config_of_theirs.keys.size(); ++i) {
    const std::string& key = config_of_theirs.keys[i];
    if (key == "transformers_version" || key == "classifier_dropout") continue;
    CAPTURE(key);
    const JsonTree* found = config_of_ours.find(key);
    REQUIRE(found != nullptr);
    CHECK(found->string == config_of_theirs.items[i].string);
    CHECK(found->real == config_of_theirs.items[i].real);
    CHECK(found->boolean == config_of_theirs.items[i].boolean);
  }
}

}  // namespace

TEST_CASE("a BERT's folder gives its logits, loss and gradients, and is saved as it was") {
  check_folder<Policy<F64>>(1);
  check_folder<Policy<F64, Zero<3>, Tp<2>>>(2);
}

TEST_CASE("a BERT's configuration has transformers' defaults, reads back, and what is not there is refused") {
  const BertConfig usual = hub::parse_bert_config("{}", "a config");
  CHECK(usual.layers == 12);
  CHECK(usual.width == 768);
  CHECK(usual.heads == 12);
  CHECK(usual.ffn_width == 0);
  CHECK(usual.vocabulary == 30522);
  CHECK(usual.sequence == 512);
  CHECK(usual.epsilon == 1e-12);
  const BertConfig again = hub::parse_bert_config(
      hub::hugging_face_config({.layers = 3, .width = 8, .heads = 2, .ffn_width = 9, .token_types = 4}), "a config");
  CHECK(again.layers == 3);
  CHECK(again.ffn_width == 9);
  CHECK(again.token_types == 4);
  const std::string end = ". Name the configuration of a model that dspp has.";
  CHECK(refused(R"("position_embedding_type":"relative_key")") ==
        R"(dspp: a config needs "position_embedding_type" that is "absolute", but it is "relative_key")" + end);
  CHECK(refused(R"("hidden_act":"relu")") ==
        R"(dspp: a config needs "hidden_act" that is "gelu" or "gelu_python", but it is "relu")" + end);
  CHECK(refused(R"("model_type":"roberta")") ==
        R"(dspp: a config needs "model_type" that is "bert", but it is "roberta")" + end);
  CHECK(refused(R"("is_decoder":true)") == R"(dspp: a config needs "is_decoder" that is false, but it is true)" + end);
}
