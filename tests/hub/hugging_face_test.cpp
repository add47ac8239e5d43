// SPDX-License-Identifier: Apache-2.0
// Files of transformers' GPT-2 and Llama (tests/golden/README.md) are read by name, under any strategy.
// labels: golden
#include <laws/hugging_face_folders.hpp>
#include <laws/json_tree.hpp>
#include <laws/written_folders.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig gpt2 = golden_gpt2;
constexpr LlamaConfig llama = golden_llama;

/// A folder with one of the golden files as model.safetensors.
struct Downloaded : Folder {
  explicit Downloaded(const std::string& file) {
    fs::copy_file(std::string(DSPP_TESTS_DIRECTORY) + "/golden/" + file, path / "model.safetensors");
  }
};

/// The golden loss of `prefix`, after loading under a strategy.
template <class Model>
void check_loaded(int ranks, const auto& config, const std::string& prefix, double bound) {
  const Downloaded folder(prefix + "_weights.safetensors");
  const io::SafetensorsReader expected = open_golden(prefix + "_expected.safetensors");
  with_engine<Model>(ranks, config, [&](auto& world, auto& engine) {
    hub::load_hugging_face(engine, folder.path.string());
    const Size own = golden_batch / world.data_size(), first = own * world.data_rank();
    Batch<Cpu> mine{Tensor<std::int32_t, 2>::zeros(shape(own, golden_sequence), world.memory()),
                    Tensor<std::int32_t, 2>::zeros(shape(own, golden_sequence), world.memory()), first};
    expected.read(expected.tensor("input_ids"), first * golden_sequence, own * golden_sequence, mine.tokens.data());
    expected.read(expected.tensor("targets"), first * golden_sequence, own * golden_sequence, mine.targets.data());
    const double loss = values_of<double>(expected, "loss")[0];
    CHECK(difference(engine.all_reduce_mean(engine.eval_batch(mine)), loss, loss) < bound);
  });
}

/// The golden folder of shards gives its logits under a strategy.
template <class Model>
void check_shards(int ranks, const auto& read_config, const std::string& prefix, double bound) {
  const std::string directory = std::string(DSPP_TESTS_DIRECTORY) + "/golden/" + prefix + "_sharded";
  const io::SafetensorsReader golden = open_golden(prefix + "_expected.safetensors");
  GoldenLogits logits{};
  with_engine<Model>(ranks, read_config(directory), [&](auto& world, auto& engine) {
    hub::load_hugging_face(engine, directory);
    fill_logits(world, engine, golden, logits);
  });
  CHECK(difference_to_largest(
            logits, values_of<double>(open_golden(prefix + "_sharded_expected.safetensors"), "logits")) < bound);
}

/// The bytes that each rank reads of a golden file with `whole` bytes of data.
template <class Model>
std::vector<Size> bytes_by_rank(int ranks, const auto& config, const std::string& file, Size& whole) {
  const Downloaded folder(file);
  std::vector<Size> bytes(static_cast<std::size_t>(ranks));
  with_engine<Model>(ranks, config, [&](auto& world, auto& engine) {
    bytes[static_cast<std::size_t>(world.rank())] = hub::load_hugging_face(engine, folder.path.string());
  });
  whole = 0;
  const io::SafetensorsReader reader(folder.file("model.safetensors"));
  for (const io::TensorEntry& tensor : reader.tensors()) whole += tensor.end - tensor.begin;
  return bytes;
}

/// Checks that loading the folder throws this sentence and changes nothing.
template <class Model>
void check_sentence(const auto& config, const Folder& folder, const std::string& sentence) {
  with_engine<Model>(1, config, [&](auto&, auto& engine) {
    const auto before = engine.gather_parameter("tokens.weight");
    CHECK_THROWS_WITH_AS(hub::load_hugging_face(engine, folder.path.string()), sentence.c_str(), Error);
    const auto after = engine.gather_parameter("tokens.weight");
    CHECK(std::equal(before.data(), before.data() + before.count(), after.data()));
  });
}

void put_zeros(const Folder& folder, const std::vector<io::TensorSpec>& tensors) {
  io::SafetensorsWriter writer(folder.file("model.safetensors"), tensors);
  writer.create();
  writer.flush();
  writer.commit();
}

/// The error of load_hugging_face for a file with these tensors, all zero.
template <class Model>
void check_refused(const auto& config, std::vector<io::TensorSpec> tensors, const std::string& why) {
  const Folder folder;
  put_zeros(folder, tensors);
  check_sentence<Model>(config, folder,
                        "dspp: load_hugging_face needs the weights of this model, but '" +
                            folder.file("model.safetensors") + "' " + why +
                            ". Load a checkpoint of the same configuration.");
}

/// The tensors of the golden Llama.
std::vector<io::TensorSpec> llama_tensors() {
  std::vector<io::TensorSpec> tensors;
  const io::SafetensorsReader file = open_golden("llama_weights.safetensors");
  for (const io::TensorEntry& tensor : file.tensors()) tensors.push_back({tensor.name, ElementType::f32, tensor.shape});
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

TEST_CASE("every element has its position in transformers: transposed, and group after group") {
  const io::SafetensorsReader theirs = open_golden("gpt2_weights.safetensors");
  const Downloaded folder("gpt2_weights.safetensors");
  with_engine<Gpt<Policy<F64, Zero<3>>>>(3, gpt2, [&](auto&, auto& engine) {
    hub::load_hugging_face(engine, folder.path.string());
    const auto ours = engine.gather_parameter("blocks.1.mlp.up.weight");
    const auto conv1d = values_of<double>(theirs, "transformer.h.1.mlp.c_fc.weight");
    for (std::size_t o = 0; o < 96; ++o)
      for (std::size_t i = 0; i < 24; ++i) REQUIRE(ours.data()[o * 24 + i] == conv1d[i * 96 + o]);
  });
  const io::SafetensorsReader llama_file = open_golden("llama_weights.safetensors");
  const Downloaded llama_folder("llama_weights.safetensors");
  with_engine<Llama<Policy<F64, Tp<2>>>>(2, llama, [&](auto&, auto& engine) {
    hub::load_hugging_face(engine, llama_folder.path.string());
    const auto ours = engine.gather_parameter("blocks.1.attention.kv.weight");
    auto expected = values_of<double>(llama_file, "model.layers.1.self_attn.k_proj.weight");
    const auto v = values_of<double>(llama_file, "model.layers.1.self_attn.v_proj.weight");
    expected.insert(expected.end(), v.begin(), v.end());
    CHECK(std::equal(expected.begin(), expected.end(), ours.data()));
  });
}

TEST_CASE("shards that transformers wrote in f16 and bf16 give their logits under every strategy") {
  const auto read_llama = [](const std::string& directory) { return hub::read_llama_config(directory); };
  check_shards<Gpt<Policy<F64>>>(1, hub::read_gpt2_config, "gpt2", 1e-12);
  check_shards<Gpt<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>(4, hub::read_gpt2_config, "gpt2", 1e-12);
  check_shards<Gpt<Policy<F32>>>(2, hub::read_gpt2_config, "gpt2", 1e-5);
  check_shards<Llama<Policy<F64>>>(2, read_llama, "llama", 1e-12);
  check_shards<Llama<Policy<F64, Zero<1>, Tp<3>>>>(3, read_llama, "llama", 1e-12);
  check_shards<Llama<Policy<F32>>>(1, read_llama, "llama", 1e-5);
}

TEST_CASE("a rank reads the bytes that it holds, and no others") {
  Size whole = 0;
  for (const int ranks : {1, 2, 3}) {  // the batch is not needed, only shards of any number
    CAPTURE(ranks);
    const auto bytes = bytes_by_rank<Gpt<Policy<F64, Zero<3>>>>(ranks, gpt2, "gpt2_weights.safetensors", whole);
    Size sum = 0;
    for (const Size own : bytes) {
      sum += own;
      CHECK(own * ranks < whole + whole / 5);  // buckets are padded: shares are not quite equal
    }
    CHECK(sum == whole);
  }
  // over two tensor ranks: what is split once, norms on both
  const auto split =
      bytes_by_rank<Llama<Policy<F64, Zero<3>, Tp<2>, SequenceParallel>>>(4, llama, "llama_weights.safetensors", whole);
  const Size norms = 5 * llama.width * Size{sizeof(double)};
  CHECK(split[0] + split[1] + split[2] + split[3] == whole + norms);
}

TEST_CASE("loaded weights are saved bit for bit, under any strategy, in one file and in shards") {
  const auto check = [&]<class Model>(int ranks, const auto& config, const std::string& prefix, Size max_shard_bytes,
                                      Model*) {
    const Downloaded folder(prefix + "_weights.safetensors");
    const Folder saved;
    with_engine<Model>(ranks, config, [&](auto&, auto& engine) {
      hub::load_hugging_face(engine, folder.path.string());
      hub::save_hugging_face(engine, saved.file("again"), {.max_shard_bytes = max_shard_bytes});
    });
    const io::SafetensorsReader theirs = open_golden(prefix + "_weights.safetensors");
    const io::SafetensorsFolder ours(saved.file("again"));
    CHECK(fs::exists(saved.file("again/model.safetensors")) == (max_shard_bytes > 1'000'000));
    CHECK(saved.list().size() == (max_shard_bytes > 1'000'000 ? 3 : 6));  // again, config.json, weights
    REQUIRE(ours.tensors().size() == theirs.tensors().size());
    for (const io::TensorEntry& tensor : theirs.tensors()) {
      CAPTURE(tensor.name);
      const io::StoredTensor found = ours.find(tensor.name);
      REQUIRE(found.entry != nullptr);
      CHECK(found.entry->shape == tensor.shape);
      CHECK(values_of<double>(*found.file, tensor.name) == values_of<double>(theirs, tensor.name));
    }
  };
  using Split = Policy<F64, Zero<3>, Tp<2>, SequenceParallel>;
  const Size one = 50'000'000, three = 60'000;
  check(1, gpt2, "gpt2", one, static_cast<Gpt<Policy<F64>>*>(nullptr));
  check(4, gpt2, "gpt2", three, static_cast<Gpt<Split>*>(nullptr));
  check(3, gpt2, "gpt2", one, static_cast<Gpt<Policy<F64, Zero<1>, Tp<3>>>*>(nullptr));
  check(1, llama, "llama", three, static_cast<Llama<Policy<F64>>*>(nullptr));
  check(4, llama, "llama", one, static_cast<Llama<Split>*>(nullptr));
  check(3, llama, "llama", three, static_cast<Llama<Policy<F64, Zero<1>, Tp<3>>>*>(nullptr));
}

TEST_CASE("the special tokens of a folder are copied to the folder written from it") {
  const Folder saved;
  for (const hub::HuggingFaceTokens& tokens :
       {hub::HuggingFaceTokens{.begin = 1, .end = {2, 3}, .pad = 0}, hub::HuggingFaceTokens{}}) {
    saved.write("config.json", hub::hugging_face_config(llama, {.tokens = tokens}));
    with_engine<Llama<Policy<F32, Zero<1>>>>(2, llama, [&](auto&, auto& engine) {
      hub::save_hugging_face(engine, saved.file("again"),
                             {.tokens = hub::read_hugging_face_tokens(saved.path.string())});
    });
    CHECK(hub::read_hugging_face_tokens(saved.file("again")) == tokens);
  }
}

TEST_CASE("folders equal, byte for byte, those that transformers has accepted") {
  const Folder folder;
  write_hugging_face_folders(folder.path.string());
  const std::string golden = std::string(DSPP_TESTS_DIRECTORY) + "/golden/hugging_face_verdicts.json";
  const JsonTree verdicts = json_tree(read_file(golden), golden);
  const JsonTree& accepted = *verdicts.find("accepted");
  REQUIRE(accepted.keys.size() == 10);
  for (std::size_t i = 0; i < accepted.keys.size(); ++i) {
    const std::string& name = accepted.keys[i];
    CAPTURE(name);
    const JsonTree& files = *accepted.items[i].find("files");
    CHECK(std::distance(fs::directory_iterator(folder.path / name), {}) == std::ssize(files.keys));
    for (std::size_t j = 0; j < files.keys.size(); ++j) {
      const std::string& file = files.keys[j];
      CAPTURE(file);
      CHECK(hash_of(folder.read(name + "/" + file)) == files.items[j].string);
    }
  }
}

TEST_CASE("files without the first word, and with tensors that hold no parameter, are read") {
  std::vector<io::TensorSpec> tensors;
  const io::SafetensorsReader file = open_golden("gpt2_weights.safetensors");
  for (const io::TensorEntry& tensor : file.tensors())
    tensors.push_back({tensor.name.substr(12), ElementType::f32, tensor.shape});
  tensors.push_back({"h.0.attn.bias", ElementType::f32, {1, 1, 16, 16}});
  tensors.push_back({"lm_head.weight", ElementType::f32, {61, 24}});
  const Folder folder;
  put_zeros(folder, tensors);
  with_engine<Gpt<Policy<F32>>>(1, gpt2, [&](auto&, auto& engine) {
    hub::load_hugging_face(engine, folder.path.string());
    const auto zeros = engine.gather_parameter("tokens.weight");
    CHECK(std::all_of(zeros.data(), zeros.data() + zeros.count(), [](float value) { return value == 0; }));
  });
}

TEST_CASE("a second copy of a head that config.json says is tied is left, as transformers leaves it") {
  const Folder folder;
  put_zeros(folder, llama_tensors());
  folder.write("config.json", hub::hugging_face_config(llama, {.head = hub::HeadTable::tied}));
  with_engine<TiedGoldenLlama<Policy<F32>>>(1, llama, [&](auto&, auto& engine) {
    hub::load_hugging_face(engine, folder.path.string());
    const auto zeros = engine.gather_parameter("tokens.weight");
    CHECK(std::all_of(zeros.data(), zeros.data() + zeros.count(), [](float value) { return value == 0; }));
  });
}

TEST_CASE("a file of another model is refused, and changes nothing") {
  using Model = Llama<Policy<F32>>;
  auto tensors = llama_tensors();
  std::erase_if(tensors, [](const io::TensorSpec& t) { return t.name == "model.layers.1.self_attn.v_proj.weight"; });
  check_refused<Model>(llama, tensors, "has no tensor 'model.layers.1.self_attn.v_proj.weight'");

  tensors = llama_tensors();
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", ElementType::f32, {48}});
  check_refused<Model>(llama, tensors, "has a tensor 'model.layers.0.self_attn.q_proj.bias' that the model has not");

  LlamaConfig wider = llama;
  wider.ffn_width = 60;
  check_refused<Model>(wider, llama_tensors(), "has another shape for 'model.layers.0.mlp.gate_proj.weight'");

  check_refused<TiedGoldenLlama<Policy<F32>>>(llama, llama_tensors(),
                                              "has a tensor 'lm_head.weight' that the model has not");
}

TEST_CASE("a folder with the config.json of another model is refused, and changes nothing") {
  const Folder folder;
  put_zeros(folder, llama_tensors());
  LlamaConfig other = llama;
  other.rope_theta = 10000;
  folder.write("config.json", hub::hugging_face_config(other));
  check_sentence<Llama<Policy<F32>>>(llama, folder,
                                     "dspp: load_hugging_face needs the configuration of this model, but '" +
                                         folder.file("config.json") +
                                         "' has rope_theta 10000 and the model 100. Make the model from "
                                         "read_gpt2_config, read_llama_config or read_bert_config.");
  folder.write("config.json", hub::hugging_face_config(llama));
  check_sentence<TiedGoldenLlama<Policy<F32>>>(
      llama, folder,
      "dspp: '" + folder.file("config.json") +
          "' needs \"tie_word_embeddings\" that is true, since the model's head is tied, but it is false. Name the "
          "configuration of a model that dspp has.");
  folder.write("config.json", "{\"hidden_size\":0}");
  check_sentence<Llama<Policy<F32>>>(llama, folder,
                                     "dspp: '" + folder.file("config.json") +
                                         "' needs \"hidden_size\" that is a whole number from 1 to 1048576, but it "
                                         "is 0. Name the configuration of a model that dspp has.");
}

TEST_CASE("a file that one rank cannot read is the same error on every rank, changes nothing, and all can continue") {
  using Model = Llama<Policy<F32, Zero<3>>>;
  const Downloaded whole("llama_weights.safetensors"), cut("llama_weights.safetensors");
  fs::resize_file(cut.path / "model.safetensors", fs::file_size(cut.path / "model.safetensors") - 1);
  std::array<std::string, 3> sentences;
  with_engine<Model>(3, llama, [&](auto& world, auto& engine) {
    const auto before = engine.gather_parameter("tokens.weight");
    try {
      hub::load_hugging_face(engine, (world.rank() == 1 ? cut : whole).path.string());
    } catch (const Error& error) {
      sentences[static_cast<std::size_t>(world.rank())] = error.what();
    }
    const auto after = engine.gather_parameter("tokens.weight");
    CHECK(std::equal(before.data(), before.data() + before.count(), after.data()));
    hub::load_hugging_face(engine, whole.path.string());
  });
  CHECK_MESSAGE(sentences[0].find("'" + cut.file("model.safetensors") + "'") != std::string::npos, sentences[0]);
  CHECK(sentences[0].ends_with(" (It was rank 1.)"));
  for (const std::string& sentence : sentences) CHECK(sentence == sentences[0]);
}

TEST_CASE("tensors of a type that is not floating-point are refused, and change nothing") {
  auto tensors = llama_tensors();
  tensors.back().type = ElementType::i32;
  const Folder folder;
  put_zeros(folder, tensors);
  check_sentence<Llama<Policy<F32>>>(llama, folder,
                                     "dspp: '" + folder.file("model.safetensors") + "' needs " +
                                         json_quoted(tensors.back().name) +
                                         " as F64, F32, BF16 or F16, but it is I32. Convert the file.");
}
