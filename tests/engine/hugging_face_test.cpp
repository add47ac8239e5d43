// SPDX-License-Identifier: Apache-2.0
// Files of transformers' GPT-2 and Llama (tests/golden/README.md) are read by name, under any strategy.
// labels: thread golden
#include <dspp/engine/checkpoint.hpp>
#include <dspp/engine/hugging_face.hpp>

#include <laws/folder.hpp>
#include <laws/golden_model.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig gpt2{.layers = 2, .width = 24, .heads = 12, .vocabulary = 61, .sequence = 16};
constexpr LlamaConfig llama{.layers = 2,
                            .width = 24,
                            .heads = 12,
                            .kv_heads = 6,
                            .head_dim = 4,
                            .inner = 48,
                            .vocabulary = 61,
                            .theta = 100,
                            .epsilon = 1e-5};

/// A folder with one of the golden files as model.safetensors.
struct Downloaded : Folder {
  explicit Downloaded(const std::string& file) {
    fs::copy_file(std::string(DSPP_TESTS_DIRECTORY) + "/golden/" + file, path / "model.safetensors");
  }
};

template <class Model>
void with_engine(int ranks, const auto& config, const auto& program) {
  using P = typename Model::policy;
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine<Model, AdamW> engine(world, Model(config), AdamW{}, {.bucket_bytes = 3000});  // that cut parameters
    program(world, engine);
  });
}

/// The golden loss of `prefix`, after loading under a strategy.
template <class Model>
void check_loaded(int ranks, const auto& config, const std::string& prefix, double bound) {
  const Downloaded folder(prefix + "_weights.safetensors");
  const SafetensorsReader expected = open_golden(prefix + "_expected.safetensors");
  with_engine<Model>(ranks, config, [&](auto& world, auto& engine) {
    load_hugging_face(engine, folder.path.string());
    const Size own = golden_batch / world.data_size(), first = own * world.data_rank();
    Batch<Cpu> mine{Tensor<std::int32_t, 2>::zeros(shape(own, golden_sequence), world.memory()),
                    Tensor<std::int32_t, 2>::zeros(shape(own, golden_sequence), world.memory()), first};
    expected.read(expected.tensor("input_ids"), first * golden_sequence, own * golden_sequence, mine.tokens.data());
    expected.read(expected.tensor("targets"), first * golden_sequence, own * golden_sequence, mine.targets.data());
    const double loss = values_of<double>(expected, "loss")[0];
    CHECK(std::abs(engine.mean(engine.eval(mine)) - loss) < bound * loss);
  });
}

/// What a sentence of load_hugging_face says of a file with these tensors, all zero.
template <class Model>
void check_refused(const auto& config, std::vector<TensorSpec> tensors, const std::string& why) {
  const Folder folder;
  {
    SafetensorsWriter writer(folder.file("model.safetensors"), tensors);
    writer.create();
    writer.flush();
    writer.commit();
  }
  with_engine<Model>(1, config, [&](auto&, auto& engine) {
    const auto before = engine.full_parameter("tokens.weight");
    CHECK_THROWS_WITH_AS(
        load_hugging_face(engine, folder.path.string()),
        ("dspp: load_hugging_face needs the weights of this model, but '" + folder.file("model.safetensors") + "' " +
         why + ". Load a checkpoint of the same configuration.")
            .c_str(),
        Error);
    const auto after = engine.full_parameter("tokens.weight");
    CHECK(std::equal(before.data(), before.data() + before.count(), after.data()));
  });
}

/// The tensors of the golden Llama.
std::vector<TensorSpec> llama_tensors() {
  std::vector<TensorSpec> tensors;
  const SafetensorsReader file = open_golden("llama_weights.safetensors");
  for (const TensorEntry& tensor : file.tensors()) tensors.push_back({tensor.name, ElementType::f32, tensor.shape});
  return tensors;
}

}  // namespace

TEST_CASE("a GPT-2 of transformers gives its loss under every strategy that reads its file") {
  check_loaded<Gpt<Policy<F64>>>(1, gpt2, "gpt2", 1e-12);
  check_loaded<Gpt<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>(4, gpt2, "gpt2", 1e-12);
  check_loaded<Gpt<Policy<F64, Zero<1>, Tp<3>>>>(3, gpt2, "gpt2", 1e-12);
  check_loaded<Gpt<Policy<Bf16, Zero<3>>>>(2, gpt2, "gpt2", 2e-2);
}

TEST_CASE("a Llama of transformers gives its loss under every strategy that reads its file") {
  check_loaded<Llama<Policy<F64>>>(1, llama, "llama", 1e-12);
  check_loaded<Llama<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>(4, llama, "llama", 1e-12);
  check_loaded<Llama<Policy<F64, Zero<1>, Tp<3>>>>(3, llama, "llama", 1e-12);
  check_loaded<Llama<Policy<Bf16, Zero<3>>>>(2, llama, "llama", 2e-2);
}

TEST_CASE("every element lies where transformers says: transposed, and group after group") {
  const SafetensorsReader theirs = open_golden("gpt2_weights.safetensors");
  const Downloaded folder("gpt2_weights.safetensors");
  with_engine<Gpt<Policy<F64, Zero<3>>>>(3, gpt2, [&](auto&, auto& engine) {
    load_hugging_face(engine, folder.path.string());
    const auto ours = engine.full_parameter("blocks.1.mlp.up.weight");
    const auto conv1d = values_of<double>(theirs, "transformer.h.1.mlp.c_fc.weight");
    for (std::size_t o = 0; o < 96; ++o)
      for (std::size_t i = 0; i < 24; ++i) REQUIRE(ours.data()[o * 24 + i] == conv1d[i * 96 + o]);
  });
  const SafetensorsReader llama_file = open_golden("llama_weights.safetensors");
  const Downloaded llama_folder("llama_weights.safetensors");
  with_engine<Llama<Policy<F64, Tp<2>>>>(2, llama, [&](auto&, auto& engine) {
    load_hugging_face(engine, llama_folder.path.string());
    const auto ours = engine.full_parameter("blocks.1.attention.kv.weight");
    auto expected = values_of<double>(llama_file, "model.layers.1.self_attn.k_proj.weight");
    const auto v = values_of<double>(llama_file, "model.layers.1.self_attn.v_proj.weight");
    expected.insert(expected.end(), v.begin(), v.end());
    CHECK(std::equal(expected.begin(), expected.end(), ours.data()));
  });
}

TEST_CASE("what was read is written again bit for bit, under any strategy") {
  const auto check = [&]<class Model>(int ranks, const auto& config, const std::string& prefix, Model*) {
    const Downloaded folder(prefix + "_weights.safetensors");
    const Folder saved;
    with_engine<Model>(ranks, config, [&](auto&, auto& engine) {
      load_hugging_face(engine, folder.path.string());
      save_hugging_face(engine, saved.file("again"));
    });
    const SafetensorsReader theirs = open_golden(prefix + "_weights.safetensors"),
                            ours(saved.file("again/model.safetensors"));
    REQUIRE(ours.tensors().size() == theirs.tensors().size());
    for (const TensorEntry& tensor : theirs.tensors()) {
      CAPTURE(tensor.name);
      CHECK(ours.tensor(tensor.name).shape == tensor.shape);
      CHECK(values_of<double>(ours, tensor.name) == values_of<double>(theirs, tensor.name));
    }
  };
  using Split = Policy<F64, Zero<3>, Tp<2>, SequenceParallel>;
  check(1, gpt2, "gpt2", static_cast<Gpt<Policy<F64>>*>(nullptr));
  check(4, gpt2, "gpt2", static_cast<Gpt<Split>*>(nullptr));
  check(3, gpt2, "gpt2", static_cast<Gpt<Policy<F64, Zero<1>, Tp<3>>>*>(nullptr));
  check(1, llama, "llama", static_cast<Llama<Policy<F64>>*>(nullptr));
  check(4, llama, "llama", static_cast<Llama<Split>*>(nullptr));
  check(3, llama, "llama", static_cast<Llama<Policy<F64, Zero<1>, Tp<3>>>*>(nullptr));
}

TEST_CASE("files without the first word, and with tensors that hold no parameter, are read") {
  std::vector<TensorSpec> tensors;
  const SafetensorsReader file = open_golden("gpt2_weights.safetensors");
  for (const TensorEntry& tensor : file.tensors())
    tensors.push_back({tensor.name.substr(12), ElementType::f32, tensor.shape});
  tensors.push_back({"h.0.attn.bias", ElementType::f32, {1, 1, 16, 16}});
  tensors.push_back({"lm_head.weight", ElementType::f32, {61, 24}});
  const Folder folder;
  {
    SafetensorsWriter writer(folder.file("model.safetensors"), tensors);
    writer.create();
    writer.flush();
    writer.commit();
  }
  with_engine<Gpt<Policy<F32>>>(1, gpt2, [&](auto&, auto& engine) {
    load_hugging_face(engine, folder.path.string());
    const auto zeros = engine.full_parameter("tokens.weight");
    CHECK(std::all_of(zeros.data(), zeros.data() + zeros.count(), [](float value) { return value == 0; }));
  });
}

TEST_CASE("a file of another model is refused in a sentence, and changes nothing") {
  using Model = Llama<Policy<F32>>;
  auto tensors = llama_tensors();
  std::erase_if(tensors, [](const TensorSpec& t) { return t.name == "model.layers.1.self_attn.v_proj.weight"; });
  check_refused<Model>(llama, tensors, "has no tensor 'model.layers.1.self_attn.v_proj.weight'");

  tensors = llama_tensors();
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", ElementType::f32, {48}});
  check_refused<Model>(llama, tensors, "has a tensor 'model.layers.0.self_attn.q_proj.bias' that the model has not");

  LlamaConfig wider = llama;
  wider.inner = 60;
  check_refused<Model>(wider, llama_tensors(), "has another shape for 'model.layers.0.mlp.gate_proj.weight'");

  check_refused<Llama<Policy<F32>, LlamaBlock<Policy<F32>>, TiedHead<Policy<F32>>>>(
      llama, llama_tensors(), "has a tensor 'lm_head.weight' that the model has not");
}
