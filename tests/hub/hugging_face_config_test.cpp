// SPDX-License-Identifier: Apache-2.0
// labels: golden
#include <doctest/doctest.h>

#include <dspp/hub/hugging_face_config.hpp>
#include <laws/folder.hpp>
#include <laws/json_tree.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const std::string begin = "dspp: a config needs ", end = ". Name the configuration of a model that dspp has.";

std::string sentence_from(const auto& parse) {
  try {
    parse();
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::file);
    const std::string sentence = error.what();
    REQUIRE(sentence.starts_with(begin));
    if (!sentence.ends_with(end)) return sentence.substr(begin.size());
    return sentence.substr(begin.size(), sentence.size() - begin.size() - end.size());
  }
  return "no error";
}

std::string gpt2(const std::string& members) {
  return sentence_from([&] { hub::parse_gpt2_config("{" + members + "}", "a config"); });
}
std::string llama(const std::string& members, hub::HeadTable head = hub::HeadTable::own) {
  return sentence_from([&] { hub::parse_llama_config("{" + members + "}", "a config", head); });
}

bool same(const GptConfig& a, const GptConfig& b) {
  return a.layers == b.layers && a.width == b.width && a.heads == b.heads && a.vocabulary == b.vocabulary &&
         a.sequence == b.sequence && a.ffn_width == b.ffn_width && a.dropout == b.dropout && a.epsilon == b.epsilon &&
         a.init_std == b.init_std;
}
bool same(const LlamaConfig& a, const LlamaConfig& b) {
  return a.layers == b.layers && a.width == b.width && a.heads == b.heads && a.kv_heads == b.kv_heads &&
         a.head_dim == b.head_dim && a.ffn_width == b.ffn_width && a.vocabulary == b.vocabulary &&
         a.sequence == b.sequence && a.rope_theta == b.rope_theta && a.rope_scaling == b.rope_scaling &&
         a.qkv_bias == b.qkv_bias && a.qk_norm == b.qk_norm && a.window == b.window && a.full_layers == b.full_layers &&
         a.epsilon == b.epsilon && a.init_std == b.init_std;
}

std::string golden(const std::string& folder) {
  return std::string(DSPP_TESTS_DIRECTORY) + "/golden/" + folder;
}

}  // namespace

TEST_CASE("configurations that transformers wrote are read") {
  CHECK(same(hub::read_gpt2_config(golden("gpt2_sharded")),
             {.layers = 2, .width = 24, .heads = 12, .vocabulary = 61, .sequence = 16}));
  CHECK(same(hub::read_llama_config(golden("llama_sharded")), {.layers = 2,
                                                               .width = 24,
                                                               .heads = 12,
                                                               .kv_heads = 6,
                                                               .head_dim = 4,
                                                               .ffn_width = 48,
                                                               .vocabulary = 61,
                                                               .rope_theta = 100,
                                                               .epsilon = 1e-5,
                                                               .sequence = 16}));
  const RopeScaling llama3{.kind = RopeKind::llama3, .factor = 4, .original_sequence = 16, .high_freq_factor = 3};
  const RopeScaling yarn{.kind = RopeKind::yarn, .factor = 4, .original_sequence = 8, .beta_fast = 2};
  const LlamaConfig small{.layers = 2,
                          .width = 16,
                          .heads = 4,
                          .kv_heads = 2,
                          .head_dim = 6,
                          .ffn_width = 24,
                          .vocabulary = 61,
                          .rope_theta = 100};
  LlamaConfig config = small;
  config.head_dim = 8, config.rope_theta = 50, config.rope_scaling = llama3, config.epsilon = 1e-5,
  config.sequence = 32;
  CHECK(same(hub::read_llama_config(golden("hub/llama3")), config));
  config = small;
  config.rope_scaling = {.kind = RopeKind::linear, .factor = 2.5}, config.window = 5, config.sequence = 24;
  CHECK(same(hub::read_llama_config(golden("hub/mistral")), config));
  config = small;
  config.width = 32, config.head_dim = 8, config.rope_scaling = yarn, config.sequence = 32;
  config.qkv_bias = true, config.window = 4, config.full_layers = 1;
  CHECK(same(hub::read_llama_config(golden("hub/qwen2")), config));
  config = small;
  config.rope_scaling = {.kind = RopeKind::dynamic, .factor = 2, .original_sequence = 8};
  config.qk_norm = true, config.sequence = 8;
  CHECK(same(hub::read_llama_config(golden("hub/qwen3"), hub::HeadTable::tied), config));
}

TEST_CASE("missing fields have transformers' defaults, and older names and forms are read") {
  CHECK(same(hub::parse_gpt2_config("{}", "a config"),
             {.layers = 12, .width = 768, .heads = 12, .vocabulary = 50257, .sequence = 1024, .dropout = 0.1}));
  CHECK(same(hub::parse_llama_config("{}", "a config"), {.layers = 32,
                                                         .width = 4096,
                                                         .heads = 32,
                                                         .kv_heads = 32,
                                                         .head_dim = 128,
                                                         .ffn_width = 11008,
                                                         .vocabulary = 32000,
                                                         .rope_theta = 10000,
                                                         .epsilon = 1e-6,
                                                         .sequence = 2048}));
  const GptConfig other = hub::parse_gpt2_config(
      R"({"num_hidden_layers":3,"hidden_size":30,"num_attention_heads":5,"max_position_embeddings":7,"n_inner":100,)"
      R"("activation_function":"gelu_pytorch_tanh","architectures":null,"torch_dtype":"float32","n_ctx":7,)"
      R"("layer_norm_epsilon":1e-6,"initializer_range":0,"resid_pdrop":0,"task_specific_params":{"x":[1]}})",
      "a config");
  CHECK(same(other, {.layers = 3,
                     .width = 30,
                     .heads = 5,
                     .vocabulary = 50257,
                     .sequence = 7,
                     .ffn_width = 100,
                     .epsilon = 1e-6,
                     .init_std = 0}));
  CHECK(hub::parse_gpt2_config(R"({"n_embd":24,"n_head":2,"n_inner":96})", "a config").ffn_width ==
        0);  // as it is by itself

  const auto theta = [](const std::string& members) {
    return hub::parse_llama_config("{" + members + "}", "a config").rope_theta;
  };
  CHECK(theta(R"("rope_theta":500000.0,"rope_scaling":null)") == 500000);
  CHECK(theta(R"("rope_theta":5e5,"rope_scaling":{"type":"default","rope_type":"default"})") == 500000);
  CHECK(theta(R"("rope_parameters":{"rope_type":"default","rope_theta":500000})") == 500000);
  CHECK(theta(R"("rope_theta":5e5,"rope_parameters":{"rope_theta":5e5,"partial_rotary_factor":1.0})") == 500000);
  CHECK(theta(R"("rope_theta":5e5,"rope_parameters":null)") == 500000);
  const LlamaConfig shared = hub::parse_llama_config(
      R"({"model_type":"llama","num_key_value_heads":null,"head_dim":null,"tie_word_embeddings":true,)"
      R"("hidden_act":"swish","pretraining_tp":2,"sliding_window":null,"quantization_config":null})",
      "a config", hub::HeadTable::tied);
  CHECK(shared.kv_heads == 32);
  CHECK(shared.head_dim == 128);
}

TEST_CASE("fields that are missing have the defaults of their model type") {
  const auto read = [](const std::string& members) { return hub::parse_llama_config("{" + members + "}", "a config"); };
  LlamaConfig config{.layers = 32,
                     .width = 4096,
                     .heads = 32,
                     .kv_heads = 8,
                     .head_dim = 128,
                     .ffn_width = 14336,
                     .vocabulary = 32000,
                     .window = 4096,
                     .sequence = 131072};
  CHECK(same(read(R"("model_type":"mistral")"), config));
  config.window = 0;
  CHECK(same(read(R"("model_type":"mistral","sliding_window":null)"), config));
  config.kv_heads = 32, config.ffn_width = 22016, config.vocabulary = 151936, config.sequence = 32768;
  config.qkv_bias = true;
  CHECK(same(read(R"("model_type":"qwen2")"), config));
  CHECK(same(read(R"("model_type":"qwen2","sliding_window":7,"max_window_layers":0)"), config));
  config.window = 4096, config.full_layers = 28;
  CHECK(same(read(R"("model_type":"qwen2","use_sliding_window":true)"), config));
  config.window = config.full_layers = 0;
  CHECK(same(read(R"("model_type":"qwen2","use_sliding_window":true,"max_window_layers":32)"), config));
  config.qkv_bias = false, config.qk_norm = true;
  CHECK(same(read(R"("model_type":"qwen3","attention_bias":false)"), config));
  config.head_dim = 64;
  CHECK(same(read(R"("model_type":"qwen3","hidden_size":2048,"num_key_value_heads":null,"head_dim":null)"), [&] {
    config.width = 2048;
    return config;
  }()));
}

TEST_CASE("the scalings of rotary positions are read as transformers reads them") {
  const auto scaling = [](const std::string& members) {
    return hub::parse_llama_config("{" + members + "}", "a config").rope_scaling;
  };
  CHECK(scaling(R"("rope_scaling":{"type":"linear","factor":2})") ==
        RopeScaling{.kind = RopeKind::linear, .factor = 2});
  CHECK(scaling(R"("rope_scaling":{"type":"dynamic","factor":3.0},"max_position_embeddings":77)") ==
        RopeScaling{.kind = RopeKind::dynamic, .factor = 3, .original_sequence = 77});
  // the original length is that of the object, or max_position_embeddings
  const std::string yarn = R"("rope_scaling":{"rope_type":"yarn","factor":3.0,"beta_fast":null)";
  CHECK(scaling(yarn + R"(,"original_max_position_embeddings":5})") ==
        RopeScaling{.kind = RopeKind::yarn, .factor = 3, .original_sequence = 5});
  CHECK(scaling(R"("rope_scaling":{"type":"dynamic","factor":3.0},"original_max_position_embeddings":6)")
            .original_sequence == 2048);
  CHECK(scaling(yarn + "}").original_sequence == 2048);
  CHECK(scaling(R"("rope_parameters":{"rope_type":"yarn","factor":40,"mscale":1,"mscale_all_dim":0.5,)"
                R"("truncate":false,"beta_slow":2,"attention_factor":1.5,"rope_theta":100})") ==
        RopeScaling{.kind = RopeKind::yarn,
                    .factor = 40,
                    .original_sequence = 2048,
                    .beta_slow = 2,
                    .attention_factor = 1.5,
                    .mscale = 1,
                    .mscale_all_dim = 0.5,
                    .truncate = false});
}

TEST_CASE("options of a Llama are written as the model type that has them, or as the one given") {
  const auto written = [](const LlamaConfig& config, const std::string& type = "") {
    const std::string text = hub::hugging_face_config(config, {.model_type = type});
    const LlamaConfig again = hub::parse_llama_config(text, "a config");
    LlamaConfig whole = config;  // with what the file must say
    whole.kv_heads = again.kv_heads, whole.head_dim = again.head_dim, whole.ffn_width = again.ffn_width;
    CHECK(same(again, whole));
    return json_tree(text, "a test").find("model_type")->string;
  };
  CHECK(written({}) == "llama");
  CHECK(written({.window = 7}) == "mistral");
  CHECK(written({}, "mistral") == "mistral");
  CHECK(written({.qkv_bias = true}) == "qwen2");
  CHECK(written({.qkv_bias = true, .window = 7}) == "qwen2");
  CHECK(written({.qk_norm = true, .window = 7, .full_layers = 3}) == "qwen3");
  for (const RopeScaling& scaling :
       {RopeScaling{.kind = RopeKind::linear, .factor = 2},
        RopeScaling{.kind = RopeKind::dynamic, .factor = 2, .original_sequence = 2048},
        RopeScaling{.kind = RopeKind::llama3, .factor = 2, .original_sequence = 9, .low_freq_factor = 2},
        RopeScaling{.kind = RopeKind::yarn, .factor = 2, .original_sequence = 9},
        RopeScaling{.kind = RopeKind::yarn,
        .factor = 2,
        .original_sequence = 9,
        .beta_fast = 3,
        .beta_slow = 2,
        .attention_factor = 4,
        .mscale = 5,
        .mscale_all_dim = 6,
        .truncate = false}})
    CHECK(written({.rope_theta = 5e5, .rope_scaling = scaling}) == "llama");
  const auto refused = [](const LlamaConfig& config, const std::string& type, const std::string& why) {
    CHECK_THROWS_WITH_AS(hub::hugging_face_config(config, {.model_type = type}),
                         ("dspp: save_hugging_face needs a model type of transformers with the options of this model, "
                          "but " +
                          why +
                          " these qkv_bias, qk_norm, window and full_layers. Save with save_weights, or "
                          "leave out model_type.")
                             .c_str(),
                         Error);
  };
  refused({.qkv_bias = true, .qk_norm = true}, "", "none has");
  refused({.window = 7, .full_layers = 1}, "", "none has");
  refused({.window = 7}, "llama", "\"llama\" has not");
  refused({}, "qwen2", "\"qwen2\" has not");
  refused({}, "gpt2", "\"gpt2\" has not");
}

TEST_CASE("a written configuration reads back unchanged") {
  const GptConfig gpt{.layers = 3,
                      .width = 10,
                      .heads = 5,
                      .vocabulary = 7,
                      .sequence = 9,
                      .ffn_width = 11,
                      .dropout = 0.3,
                      .epsilon = 1e-7,
                      .init_std = 1.0 / 3};
  CHECK(same(hub::parse_gpt2_config(hub::hugging_face_config(gpt), "a config"), gpt));
  CHECK(same(hub::parse_gpt2_config(hub::hugging_face_config(GptConfig{}), "a config"), GptConfig{}));
  const LlamaConfig llama{.layers = 3,
                          .width = 20,
                          .heads = 6,
                          .kv_heads = 2,
                          .head_dim = 8,
                          .ffn_width = 11,
                          .vocabulary = 7,
                          .rope_theta = 1e6,
                          .epsilon = 1e-7,
                          .init_std = 0.5,
                          .sequence = 9};
  const std::string text = hub::hugging_face_config(
      llama, {.type = ElementType::bf16, .head = hub::HeadTable::tied, .tokens = {.begin = 1, .end = {2}}});
  CHECK(same(hub::parse_llama_config(text, "a config", hub::HeadTable::tied), llama));
  const JsonTree json = json_tree(text, "a test");
  CHECK(json.find("dtype")->string == "bfloat16");
  CHECK(json.find("bos_token_id")->integer == 1);
  CHECK(json.find("eos_token_id")->integer == 2);
  for (const auto& [type, name] :
       {std::pair(ElementType::f64, "float64"), {ElementType::f16, "float16"}, {ElementType::f32, "float32"}})
    CHECK(json_tree(hub::hugging_face_config(gpt, {.type = type}), "a test").find("dtype")->string == name);
  // derived fields are written, too
  const LlamaConfig short_one = hub::parse_llama_config(hub::hugging_face_config(LlamaConfig{}), "a config");
  CHECK(short_one.kv_heads == 4);
  CHECK(short_one.head_dim == 64);
  CHECK(short_one.ffn_width == 704);
}

TEST_CASE("special tokens are copied, one, several or none, and missing ones have transformers' defaults") {
  const auto parse = [](const std::string& members) {
    return hub::parse_hugging_face_tokens("{" + members + "}", "a config");
  };
  CHECK(hub::read_hugging_face_tokens(golden("llama_sharded")) == hub::HuggingFaceTokens{.begin = 0, .end = {0}});
  for (const hub::HuggingFaceTokens& tokens :
       {hub::HuggingFaceTokens{}, hub::HuggingFaceTokens{.begin = 0, .end = {0}, .pad = 0},
        hub::HuggingFaceTokens{.begin = 128000, .end = {128001, 128008, 128009}, .pad = 128004}}) {
    CHECK(hub::parse_hugging_face_tokens(hub::hugging_face_config(LlamaConfig{}, {.tokens = tokens}), "a config") ==
          tokens);
    CHECK(hub::parse_hugging_face_tokens(hub::hugging_face_config(GptConfig{}, {.tokens = tokens}), "a config") ==
          tokens);
  }
  CHECK(parse(R"("model_type":"gpt2","bos_token_id":7)") == hub::HuggingFaceTokens{.begin = 7, .end = {50256}});
  CHECK(parse(R"("model_type":"llama","pad_token_id":-1)") == hub::HuggingFaceTokens{.begin = 1, .end = {2}});
  CHECK(parse(R"("model_type":"mine","eos_token_id":null)") == hub::HuggingFaceTokens{});
  CHECK(parse(R"("model_type":3)") == hub::HuggingFaceTokens{});
  CHECK(parse(R"("model_type":"mine","eos_token_id":[3])") == hub::HuggingFaceTokens{.end = {3}});

  const auto refused = [&](const std::string& members) { return sentence_from([&] { parse(members); }); };
  CHECK(parse(R"("model_type":"mine","eos_token_id":[0,1048576])") == hub::HuggingFaceTokens{.end = {0, 1048576}});
  CHECK(refused(R"("eos_token_id":1048577)") ==
        R"("eos_token_id" of whole numbers from 0 to 1048576, but it has 1048577)");
  CHECK(refused(R"("eos_token_id":[1,"</s>"])") ==
        R"("eos_token_id" of whole numbers from 0 to 1048576, but it has "</s>")");
  CHECK(refused(R"("pad_token_id":-2)") == R"("pad_token_id" of whole numbers from 0 to 1048576, but it has -2)");
  CHECK(refused(R"("bos_token_id":[1,2])") == R"("bos_token_id" that is one token or null, but it is a list)");
}

TEST_CASE("an unsupported GPT-2 is refused by an error that names the field") {
  CHECK(gpt2(R"("model_type":"llama")") == R"("model_type" that is "gpt2", but it is "llama")");
  CHECK(gpt2(R"("architectures":["GPT2ForSequenceClassification"])") ==
        R"("architectures" with "GPT2LMHeadModel", but it has "GPT2ForSequenceClassification")");
  CHECK(gpt2(R"("architectures":[3,"GPT2LMHeadModel"])") == "no error");
  CHECK(gpt2(R"("architectures":[3])") == R"("architectures" with "GPT2LMHeadModel", but it has 3)");
  for (const char* another : {"true", "3.5", "\"3\"", "[3]", "null"})
    CHECK(gpt2(R"("n_layer":3,"num_hidden_layers":)" + std::string(another)) ==
          R"(one value of "n_layer", but "num_hidden_layers" is another)");
  CHECK(gpt2(R"("activation_function":true)").ends_with("but it is true"));
  CHECK(gpt2(R"("architectures":[])") == R"("architectures" with "GPT2LMHeadModel", but it has none)");
  CHECK(gpt2(R"("activation_function":"relu")") ==
        R"("activation_function" that is "gelu_new" or "gelu_pytorch_tanh" or "gelu_fast", but it is "relu")");
  CHECK(gpt2(R"("activation_function":null)").ends_with("but it is null"));
  CHECK(gpt2(R"("tie_word_embeddings":false)") == R"("tie_word_embeddings" that is true, but it is false)");
  CHECK(gpt2(R"("scale_attn_weights":false)") == R"("scale_attn_weights" that is true, but it is false)");
  CHECK(gpt2(R"("scale_attn_by_inverse_layer_idx":true)") ==
        R"("scale_attn_by_inverse_layer_idx" that is false, but it is true)");
  CHECK(gpt2(R"("add_cross_attention":true)") == R"("add_cross_attention" that is false, but it is true)");
  CHECK(gpt2(R"("quantization_config":{"bits":4})") ==
        R"(weights that are not quantized, "quantization_config" null, but it is an object)");
  CHECK(gpt2(R"("n_embd":24,"n_head":5)") == R"(an "n_embd" that "n_head" divides, but they are 24 and 5)");
  CHECK(gpt2(R"("n_embd":24,"hidden_size":36)") == R"(one value of "n_embd", but "hidden_size" is another)");
  CHECK(gpt2(R"("n_embd":24,"hidden_size":24)") == "no error");
}

TEST_CASE("an unsupported Llama is refused by an error that names the field") {
  for (const char* type : {"mixtral", "qwen2_moe", "qwen3_moe", "gemma", "bert", "gpt2", "phi3", "llama4"})
    CHECK(llama(R"("model_type":")" + std::string(type) + "\"") ==
          R"("model_type" that is "llama" or "mistral" or "qwen2" or "qwen3", but it is ")" + std::string(type) + "\"");
  CHECK(llama(R"("model_type":"qwen3","attention_bias":true)") == R"("attention_bias" that is false, but it is true)");
  CHECK(llama(R"("model_type":"qwen2","architectures":["LlamaForCausalLM"])") ==
        R"("architectures" with "Qwen2ForCausalLM", but it has "LlamaForCausalLM")");
  const std::string three = R"("model_type":"qwen2","use_sliding_window":true,"num_hidden_layers":3,"layer_types":)";
  CHECK(llama(three + R"(["full_attention","sliding_attention","sliding_attention"],"max_window_layers":2)") ==
        "no error");
  CHECK(
      llama(three + R"(["sliding_attention","full_attention","sliding_attention"])") ==
      R"("layer_types" with every "full_attention" before every "sliding_attention", but layer 1 is "full_attention" )"
      R"(after a "sliding_attention")");
  CHECK(llama(three + R"(["full_attention","chunked_attention","full_attention"])") ==
        R"("layer_types" of "full_attention" and "sliding_attention", but it has "chunked_attention")");
  CHECK(llama(three + R"(["full_attention"])") == R"("layer_types" with a word for each of 3 layers, but it has 1)");
  CHECK(llama(three + "3") == R"("layer_types" that is a list, but it is 3)");
  CHECK(llama(three + "[3,3,3]") == R"("layer_types" of words, but it has 3)");
  CHECK(llama(R"("model_type":"qwen3","num_hidden_layers":1,"layer_types":["sliding_attention"])") ==
        R"("layer_types" of "full_attention", since there is no "sliding_window" in use, but it has )"
        R"("sliding_attention")");
  CHECK(llama(R"("model_type":"mistral","layer_types":[])") ==
        R"(one kind of attention, "layer_types" null, but it is a list)");
  CHECK(llama(R"("architectures":["LlamaModel"])") ==
        R"("architectures" with "LlamaForCausalLM", but it has "LlamaModel")");
  CHECK(llama(R"("architectures":3)") == R"("architectures" with "LlamaForCausalLM", but it is 3)");
  CHECK(llama(R"("hidden_act":"gelu")") == R"("hidden_act" that is "silu" or "swish", but it is "gelu")");
  CHECK(llama(R"("attention_bias":true)") == R"("attention_bias" that is false, but it is true)");
  CHECK(llama(R"("mlp_bias":true)") == R"("mlp_bias" that is false, but it is true)");
  CHECK(llama(R"("sliding_window":4096)") ==
        R"(attention to the whole sequence, "sliding_window" null, but it is 4096)");
  CHECK(llama(R"("tie_word_embeddings":true)") ==
        R"("tie_word_embeddings" that is false, since the model has a head of its own, but it is true)");
  CHECK(llama("", hub::HeadTable::tied) ==
        R"("tie_word_embeddings" that is true, since the model's head is tied, but it is false)");
  const std::string kinds = R"( that is "default" or "linear" or "dynamic" or "llama3" or "yarn", but it is )";
  CHECK(llama(R"("rope_scaling":{"type":"su","factor":2.0})") == R"("type")" + kinds + R"("su")");
  CHECK(llama(R"("rope_parameters":{"rope_type":"longrope"})") == R"("rope_type")" + kinds + R"("longrope")");
  CHECK(llama(R"("rope_scaling":{"type":"linear"})") == R"("factor", but it has none)");
  CHECK(llama(R"("rope_scaling":{"type":"dynamic","factor":0.5})") ==
        R"("factor" from 1.0 to 1000000000.0, but it is 0.5)");
  CHECK(llama(R"("rope_scaling":{"type":"dynamic","factor":2},"head_dim":2)") ==
        R"(a "head_dim" above 2 for "dynamic" angles, but it is 2)");
  CHECK(llama(R"("rope_scaling":{"rope_type":"llama3","factor":8.0})") == R"("low_freq_factor", but it has none)");
  CHECK(llama(R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})") ==
        R"(a "high_freq_factor" above "low_freq_factor", but they are 4.0 and 4.0)");
  CHECK(llama(R"("rope_scaling":{"rope_type":"yarn","factor":8,"beta_fast":1,"beta_slow":2})") ==
        R"(a "beta_fast" of at least "beta_slow", but they are 1.0 and 2.0)");
  CHECK(llama(R"("rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"linear","factor":3})") ==
        R"(one scaling of rotary positions, but those of "rope_scaling" and "rope_parameters" differ)");
  CHECK(llama(R"("is_causal":false)") == R"("is_causal" that is true, but it is false)");
  CHECK(llama(R"("rope_scaling":{"factor":8.0})") == R"(a "rope_type" beside "factor", but there is none)");
  CHECK(llama(R"("rope_parameters":{"full_attention":{"rope_theta":5000}})") ==
        R"(rotary angles that all layers share, but there are those of "full_attention")");
  CHECK(llama(R"("rope_scaling":{"type":"yarn","factor":2.0},"original_max_position_embeddings":6)") ==
        R"("original_max_position_embeddings" in "rope_scaling", but it is 6 outside, and 2048 holds there)");
  CHECK(llama(R"("rope_parameters":{"partial_rotary_factor":0.5})") ==
        R"("partial_rotary_factor" that is 1.0, but it is 0.5)");
  CHECK(llama(R"("rope_theta":10000.0,"rope_parameters":{"rope_theta":5e5})") ==
        R"(one "rope_theta", but it is 10000.0, and 500000.0 in "rope_parameters")");
  CHECK(llama(R"("rope_scaling":2)") == R"("rope_scaling" that is an object, but it is 2)");
  CHECK(llama(R"("hidden_size":100)") ==
        R"(a "hidden_size" that "num_attention_heads" divides, but they are 100 and 32)");
  CHECK(llama(R"("num_key_value_heads":5)") ==
        R"("num_attention_heads" that "num_key_value_heads" divides, but they are 32 and 5)");
  CHECK(llama(R"("head_dim":3)") == R"(heads of an even number of features, which turn in pairs, but "head_dim" is 3)");
}

TEST_CASE("wrong types and impossible sizes are refused") {
  for (const char* size : {"0", "-1", "1.0", "\"12\"", "null", "true", "[1]", "268435457", "1e3"}) {
    CAPTURE(size);
    for (const char* field : {"n_layer", "n_embd", "n_head", "vocab_size", "n_positions"})
      CHECK(gpt2("\"" + std::string(field) + "\":" + size)
                .starts_with("\"" + std::string(field) + "\" that is a whole number from 1 to 1048576, but it is "));
    for (const char* field : {"num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size",
                              "vocab_size", "max_position_embeddings"})
      CHECK(llama("\"" + std::string(field) + "\":" + size)
                .starts_with("\"" + std::string(field) + "\" that is a whole number from 1 to 1048576, but it is "));
  }
  for (const char* field : {"num_key_value_heads", "head_dim"})
    CHECK(llama("\"" + std::string(field) + "\":0") ==
          "\"" + std::string(field) + "\" that is a whole number from 1 to 1048576, but it is 0");
  CHECK(gpt2(R"("n_inner":-4)") == R"("n_inner" that is a whole number from 1 to 1048576, but it is -4)");
  CHECK(gpt2(R"("layer_norm_epsilon":-1e-5)") == R"("layer_norm_epsilon" from 0.0 to 1.0, but it is -1e-05)");
  for (const char* good : {R"("layer_norm_epsilon":0)", R"("layer_norm_epsilon":1)", R"("resid_pdrop":0.999)",
                           R"("n_positions":1)", R"("n_positions":1048576)"})
    CHECK(gpt2(good) == "no error");
  for (const char* bad : {"0", "1048577"})
    CHECK(gpt2(R"("n_positions":)" + std::string(bad)) ==
          R"("n_positions" that is a whole number from 1 to 1048576, but it is )" + std::string(bad));
  CHECK(gpt2(R"("resid_pdrop":1)") == R"("resid_pdrop" from 0.0 to 0.999, but it is 1)");
  CHECK(llama(R"("rms_norm_eps":"1e-5")") == R"("rms_norm_eps" from 0.0 to 1.0, but it is "1e-5")");
  CHECK(llama(R"("rope_theta":0)") == R"("rope_theta" from 1.0 to 1000000000000.0, but it is 0)");
  CHECK(llama(R"("attention_bias":0)") == R"("attention_bias" that is true or false, but it is 0)");
  CHECK(llama(R"("hidden_act":["silu"])").ends_with("but it is a list"));
  CHECK(sentence_from([] { hub::parse_gpt2_config("[]", "a config"); }) == "an object, but it is a list");
  CHECK(gpt2("\"n_layer\":1,\"n_layer\":2") ==
        "valid JSON, but byte 0 opens an object that names \"n_layer\" twice. Write the file again.");
  CHECK(gpt2("\"x\":NaN").starts_with("valid JSON, but byte 5 begins no value"));
}

TEST_CASE("a folder without config.json, or with a huge one, is refused") {
  const laws::Folder folder;
  CHECK_THROWS_AS(hub::read_gpt2_config(folder.path.string()), Error);
  CHECK_NOTHROW(hub::require_hugging_face_config(GptConfig{}, hub::HeadTable::tied, folder.path.string()));
  CHECK_NOTHROW(hub::require_hugging_face_config(LlamaConfig{}, hub::HeadTable::tied, folder.path.string()));
  folder.write("config.json", "{}" + std::string(1'000'000, ' '));
  CHECK_THROWS_WITH_AS(hub::read_llama_config(folder.path.string()),
                       ("dspp: '" + folder.file("config.json") +
                        "' needs at most 1000000 bytes, but it has 1000002. Is it another file?")
                           .c_str(),
                       Error);
}

TEST_CASE("an error about another model's configuration names the first field that differs") {
  const laws::Folder folder;
  const auto check = [&](const auto& file, const auto& model, const std::string& what) {
    folder.write("config.json", hub::hugging_face_config(file));
    const auto demand = [&] { hub::require_hugging_face_config(model, hub::HeadTable::own, folder.path.string()); };
    if (what.empty()) {
      CHECK_NOTHROW(demand());
      return;
    }
    CHECK_THROWS_WITH_AS(
        demand(),
        ("dspp: load_hugging_face needs the configuration of this model, but '" + folder.file("config.json") +
         "' has " + what + ". Make the model from read_gpt2_config, read_llama_config or read_bert_config.")
            .c_str(),
        Error);
  };
  check(GptConfig{}, GptConfig{}, "");
  check(GptConfig{.dropout = 0.5, .init_std = 1}, GptConfig{}, "");
  check(GptConfig{.ffn_width = 1024}, GptConfig{}, "");
  check(GptConfig{.layers = 3}, GptConfig{}, "n_layer 3 and the model 4");
  check(GptConfig{.width = 128}, GptConfig{}, "n_embd 128 and the model 256");
  check(GptConfig{.heads = 8}, GptConfig{}, "n_head 8 and the model 4");
  check(GptConfig{.vocabulary = 7}, GptConfig{}, "vocab_size 7 and the model 256");
  check(GptConfig{.sequence = 7}, GptConfig{}, "n_positions 7 and the model 1024");
  check(GptConfig{.ffn_width = 7}, GptConfig{}, "n_inner 7 and the model 1024");
  check(GptConfig{.epsilon = 1e-6}, GptConfig{}, "layer_norm_epsilon 1e-06 and the model 1e-05");
  check(LlamaConfig{}, LlamaConfig{}, "");
  check(LlamaConfig{.kv_heads = 4, .head_dim = 64, .ffn_width = 704, .init_std = 1, .sequence = 7}, LlamaConfig{}, "");
  check(LlamaConfig{.kv_heads = 2, .head_dim = 32}, LlamaConfig{.kv_heads = 2, .head_dim = 32}, "");
  check(LlamaConfig{.layers = 3}, LlamaConfig{}, "num_hidden_layers 3 and the model 4");
  check(LlamaConfig{.width = 128}, LlamaConfig{}, "hidden_size 128 and the model 256");
  check(LlamaConfig{.heads = 8, .kv_heads = 4}, LlamaConfig{}, "num_attention_heads 8 and the model 4");
  check(LlamaConfig{.kv_heads = 2}, LlamaConfig{}, "num_key_value_heads 2 and the model 4");
  check(LlamaConfig{.head_dim = 32}, LlamaConfig{}, "head_dim 32 and the model 64");
  check(LlamaConfig{.ffn_width = 7}, LlamaConfig{}, "intermediate_size 7 and the model 704");
  check(LlamaConfig{.vocabulary = 7}, LlamaConfig{}, "vocab_size 7 and the model 256");
  check(LlamaConfig{.rope_theta = 500000}, LlamaConfig{}, "rope_theta 500000 and the model 10000");
  const RopeScaling twice{.kind = RopeKind::linear, .factor = 2}, thrice{.kind = RopeKind::linear, .factor = 3};
  check(LlamaConfig{.rope_scaling = twice}, LlamaConfig{.rope_scaling = twice}, "");
  check(LlamaConfig{.rope_scaling = twice}, LlamaConfig{}, "rope_type linear and the model default");
  check(LlamaConfig{.rope_scaling = twice}, LlamaConfig{.rope_scaling = thrice}, "rope_factor 2 and the model 3");
  check(LlamaConfig{.window = 7}, LlamaConfig{}, "sliding_window 7 and the model 0");
  check(LlamaConfig{.qkv_bias = true, .window = 7, .full_layers = 1}, LlamaConfig{.window = 7},
        "max_window_layers 1 and the model 0");
  check(LlamaConfig{.epsilon = 1e-5}, LlamaConfig{}, "rms_norm_eps 1e-05 and the model 1e-06");
}
