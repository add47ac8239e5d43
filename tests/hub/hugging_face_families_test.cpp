// SPDX-License-Identifier: Apache-2.0
// Folders of transformers' Llama 3, Mistral, Qwen2 and Qwen3 (tests/golden/README.md) give their logits, losses and
// gradients, and are saved as they were. labels: golden
#include <laws/hugging_face_folders.hpp>
#include <laws/json_tree.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

std::string folder_of(const std::string& name) {
  return std::string(DSPP_TESTS_DIRECTORY) + "/golden/hub/" + name;
}

struct Seen {
  GoldenLogits logits{};
  double loss = 0;
  std::map<std::string, std::vector<double>> gradients;
};

/// Logits, loss and gradients of the golden batch.
template <class P>
void fill(World<P>& world, auto& engine, const io::SafetensorsReader& expected, Seen& seen) {
  fill_logits(world, engine, expected, seen.logits);
  const Size own = golden_batch / world.data_size(), first = own * world.data_rank();
  Batch<Cpu> mine{Tensor<std::int32_t, 2>::zeros(shape(own, golden_sequence), world.memory()),
                  Tensor<std::int32_t, 2>::zeros(shape(own, golden_sequence), world.memory()), first};
  expected.read(expected.tensor("input_ids"), first * golden_sequence, own * golden_sequence, mine.tokens.data());
  expected.read(expected.tensor("targets"), first * golden_sequence, own * golden_sequence, mine.targets.data());
  auto loss = engine.forward(mine);
  const double mean = engine.all_reduce_mean(loss);
  engine.backward(loss);
  for (const auto& named : engine.inventory().parameters) {
    const auto gradient = engine.gather_gradient(named.name->text);
    if (world.is_first()) seen.gradients[named.name->text].assign(gradient.data(), gradient.data() + gradient.count());
  }
  if (world.is_first()) seen.loss = mean;
  engine.step();
}

/// The members of a file of transformers have the same values in ours.
void check_same_config(const std::string& theirs, const std::string& ours) {
  const JsonTree golden = json_tree(theirs, "a golden config"), saved = json_tree(ours, "a saved config");
  const auto check = [](const auto& self, const JsonTree& a, const JsonTree* b, const std::string& name) -> void {
    CAPTURE(name);
    if (a.kind == io::Json::Kind::null && !b) return;  // what is missing is null
    REQUIRE(b != nullptr);
    CHECK(a.kind == b->kind);
    CHECK(a.string == b->string);
    CHECK(a.real == b->real);
    CHECK(a.boolean == b->boolean);
    for (std::size_t i = 0; i < a.keys.size(); ++i) self(self, a.items[i], b->find(a.keys[i]), name + "." + a.keys[i]);
    if (!a.keys.empty()) return;
    REQUIRE(a.items.size() == b->items.size());
    for (std::size_t i = 0; i < a.items.size(); ++i) self(self, a.items[i], &b->items[i], name);
  };
  for (std::size_t i = 0; i < golden.keys.size(); ++i)
    if (const std::string& key = golden.keys[i]; key != "transformers_version" && key != "pretraining_tp")
      check(check, golden.items[i], saved.find(key), key);
}

/// Everything within 1e-12 of the golden values, relative to the largest of each tensor; and the folder saved again.
template <class Model>
void check_folder(int ranks, const std::string& name, hub::HeadTable head, std::size_t parameters) {
  CAPTURE(name);
  CAPTURE(ranks);
  constexpr double bound = 1e-12;
  const io::SafetensorsReader expected = open_golden("hub/" + name + "_expected.safetensors");
  const LlamaConfig config = hub::read_llama_config(folder_of(name), head);
  const Folder saved;
  Seen seen;
  with_engine<Model>(ranks, config, [&](auto& world, auto& engine) {
    hub::load_hugging_face(engine, folder_of(name));
    hub::save_hugging_face(engine, saved.file("again"),
                           {.tokens = hub::read_hugging_face_tokens(folder_of(name)),
                            .model_type = hub::read_hugging_face_model_type(folder_of(name))});
    fill(world, engine, expected, seen);
  });
  CHECK(difference_to_largest(seen.logits, values_of<double>(expected, "logits")) < bound);
  const double loss = values_of<double>(expected, "loss")[0];
  CHECK(difference(seen.loss, loss, loss) < bound);
  CHECK(seen.gradients.size() == parameters);
  for (const auto& parameter : seen.gradients) {
    const std::string& ours = parameter.first;
    const std::vector<double>& gradient = parameter.second;
    CAPTURE(ours);
    std::vector<double> golden;
    for (const std::string& theirs : hub::hugging_face_parts(config, ours).tensors) {
      const auto part = values_of<double>(expected, "grad." + theirs);
      golden.insert(golden.end(), part.begin(), part.end());
    }
    REQUIRE(gradient.size() == golden.size());
    CHECK(difference_to_largest(gradient, golden) < bound);
  }
  const io::SafetensorsReader theirs(folder_of(name) + "/model.safetensors"),
      ours(saved.file("again/model.safetensors"));
  REQUIRE(ours.tensors().size() == theirs.tensors().size());
  for (const io::TensorEntry& tensor : theirs.tensors()) {
    CHECK(ours.tensor(tensor.name).shape == tensor.shape);
    CHECK(values_of<double>(ours, tensor.name) == values_of<double>(theirs, tensor.name));
  }
  check_same_config(read_file(folder_of(name) + "/config.json"), saved.read("again/config.json"));
}

using One = Policy<F64>;
using Split = Policy<F64, Zero<3>, Tp<2>>;

}  // namespace

TEST_CASE("a Llama 3's scaled angles: its folder gives its logits, loss and gradients, and is saved as it was") {
  check_folder<Llama<One>>(1, "llama3", hub::HeadTable::own, 17);
  check_folder<Llama<Split>>(4, "llama3", hub::HeadTable::own, 17);
}

TEST_CASE("a Mistral's windows and linear angles: the same") {
  check_folder<Llama<One>>(1, "mistral", hub::HeadTable::own, 17);
  check_folder<Llama<Split>>(4, "mistral", hub::HeadTable::own, 17);
}

TEST_CASE("a Qwen2's biases, windows of the last layers and yarn's angles: the same") {
  check_folder<Llama<One>>(1, "qwen2", hub::HeadTable::own, 21);
  check_folder<Llama<Split>>(4, "qwen2", hub::HeadTable::own, 21);
}

TEST_CASE("a Qwen3's norms of queries and keys, dynamic angles and tied embeddings: the same") {
  check_folder<TiedGoldenLlama<One>>(1, "qwen3", hub::HeadTable::tied, 20);
  check_folder<TiedGoldenLlama<Split>>(4, "qwen3", hub::HeadTable::tied, 20);
}
