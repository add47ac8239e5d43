// SPDX-License-Identifier: Apache-2.0
/// The property of a parser on any bytes: an error in a sentence, or a value that survives a round trip.
#pragma once

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/app/options.hpp>
#include <dspp/checkpoint/training_facts.hpp>
#include <dspp/data/token_shards.hpp>
#include <dspp/data/tokenizer.hpp>
#include <dspp/hub/hugging_face_bert.hpp>
#include <dspp/hub/hugging_face_config.hpp>
#include <dspp/hub/hugging_face_tokens.hpp>
#include <dspp/io/checkpoint_folder.hpp>
#include <dspp/io/checkpoint_lock.hpp>
#include <dspp/io/safetensors.hpp>
#include <dspp/io/safetensors_index.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/launch/run_options.hpp>
#include <dspp/optim/adamw.hpp>

#include <laws/json_tree.hpp>
#include <laws/small_tokenizer.hpp>

namespace dspp::fuzz {

using laws::json_tree, laws::JsonTree;

/// The first byte says which parser gets the rest: j JSON, h the header of a safetensors file (the bytes of data in
/// decimal digits, then JSON), f a safetensors file, i an index, g, l and b a config.json of GPT-2, of Llama and of
/// BERT, t of a Llama with a tied head, n its ids of tokens, k a tokenizer.json, K one whose fields are lines, s a file
/// of tokens, x the index of a folder of them and v its `.verified`, m a state.json, p what it says of the training, a
/// `latest`, c a `.lock` (these without their seal), o options and e variables of launchers and --local_rank, a line
/// each. Ends the program if something does not hold. True if the parser accepted.
inline bool check_parsers(std::string_view input);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

inline void demand(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "dspp: the parsers need that %s, but it does not hold. See tests/fuzz/parsers.hpp.\n", what);
  std::abort();
}

inline bool same(const JsonTree& a, const JsonTree& b) {
  return a.kind == b.kind && a.boolean == b.boolean && a.integer == b.integer && a.real == b.real &&
         a.string == b.string && a.keys == b.keys &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), same);
}

inline std::string text_of(const JsonTree& value) {
  switch (value.kind) {
    case io::Json::Kind::null: return "null";
    case io::Json::Kind::boolean: return value.boolean ? "true" : "false";
    case io::Json::Kind::integer: return std::to_string(value.integer);
    case io::Json::Kind::real: return json_real(value.real);
    case io::Json::Kind::string: return json_quoted(value.string);
    case io::Json::Kind::array:
    case io::Json::Kind::object: break;
  }
  const bool object = value.is(io::Json::Kind::object);
  std::string text;
  for (std::size_t i = 0; i < value.items.size(); ++i)
    text += (i ? ", " : "") + (object ? json_quoted(value.keys[i]) + ": " : "") + text_of(value.items[i]);
  return object ? "{" + text + "}" : "[" + text + "]";
}

inline void check_json(std::string_view text) {
  const JsonTree value = json_tree(text, "a text");
  const JsonTree again = json_tree(text_of(value), "a text");
  demand(same(value, again), "JSON that is written is read again the same");
  demand(!io::json_in_words(io::Json(value.text)).empty() &&
             io::first_bad_utf8(io::json_in_words(io::Json(value.text))) < 0,
         "a value has words in UTF-8");
}

inline void check_header(std::string_view text) {
  Size bytes = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9' && bytes < Size{1} << 58) {
    bytes = 10 * bytes + (text[0] - '0');
    text.remove_prefix(1);
  }
  const io::SafetensorsHeader header = io::parse_safetensors_header(text, bytes, "a header");
  demand(header.data_bytes() == bytes, "tensors fill the data");
  Size end = 0;
  for (const io::TensorEntry& tensor : header.tensors) {
    demand(tensor.begin == end && tensor.end >= tensor.begin && tensor.count() >= 0, "tensors lie one after another");
    end = tensor.end;
  }
  const std::string prefix = io::safetensors_prefix(header);
  demand(prefix.size() % 8 == 0, "data begin at a multiple of 8");
  const io::SafetensorsHeader again =
      io::parse_safetensors_header(std::string_view(prefix).substr(8), bytes, "a header");
  demand(header.metadata == again.metadata && header.tensors.size() == again.tensors.size(),
         "a header is written again");
  for (std::size_t i = 0; i < header.tensors.size(); ++i) {
    const io::TensorEntry &a = header.tensors[i], &b = again.tensors[i];
    demand(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape && a.begin == b.begin && a.end == b.end,
           "a tensor is written again");
  }
}

inline void check_index(std::string_view text) {
  const io::SafetensorsIndex index = io::parse_safetensors_index(text, "an index");
  for (const auto& [tensor, file] : index.file_of)
    demand(file.find('/') == std::string::npos && file != "..", "files stay in the folder");
  demand(io::parse_safetensors_index(io::safetensors_index_text(index, 0), "an index") == index,
         "an index is written again");
}

inline void check_gpt2(std::string_view text) {
  const GptConfig a = hub::parse_gpt2_config(text, "a config");
  demand(a.layers > 0 && a.width > 0 && a.heads > 0 && a.vocabulary > 0 && a.sequence > 0 && a.ffn_width >= 0 &&
             a.width % a.heads == 0 && a.epsilon >= 0 && a.dropout < 1,
         "a GPT-2 can be made");
  const GptConfig b = hub::parse_gpt2_config(hub::hugging_face_config(a), "a config");
  demand(a.layers == b.layers && a.width == b.width && a.heads == b.heads && a.vocabulary == b.vocabulary &&
             a.sequence == b.sequence && a.ffn_width == b.ffn_width && a.dropout == b.dropout &&
             a.epsilon == b.epsilon && a.init_std == b.init_std,
         "a GPT-2's configuration is written again");
}

inline void check_llama(std::string_view text, hub::HeadTable head) {
  const LlamaConfig a = hub::parse_llama_config(text, "a config", head);
  demand(a.layers > 0 && a.width > 0 && a.heads > 0 && a.kv_heads > 0 && a.head_dim > 0 && a.ffn_width > 0 &&
             a.vocabulary > 0 && a.sequence > 0 && a.heads % a.kv_heads == 0 && a.head_dim % 2 == 0 &&
             a.rope_theta >= 1 && a.window >= 0 && a.full_layers < a.layers,
         "a Llama can be made");
  require_rope_scaling(a.rope_scaling, a.head_dim);
  const LlamaConfig b = hub::parse_llama_config(hub::hugging_face_config(a, {.head = head}), "a config", head);
  demand(a.layers == b.layers && a.width == b.width && a.heads == b.heads && a.kv_heads == b.kv_heads &&
             a.head_dim == b.head_dim && a.ffn_width == b.ffn_width && a.vocabulary == b.vocabulary &&
             a.rope_theta == b.rope_theta && a.sequence == b.sequence && a.epsilon == b.epsilon &&
             a.init_std == b.init_std && a.rope_scaling == b.rope_scaling && a.qkv_bias == b.qkv_bias &&
             a.qk_norm == b.qk_norm && a.window == b.window && a.full_layers == b.full_layers,
         "a Llama's configuration is written again");
}

inline void check_bert(std::string_view text) {
  const BertConfig a = hub::parse_bert_config(text, "a config");
  demand(a.layers > 0 && a.width > 0 && a.heads > 0 && a.vocabulary > 0 && a.sequence > 0 && a.token_types > 0 &&
             a.ffn_width >= 0 && a.width % a.heads == 0 && a.epsilon >= 0 && a.init_std >= 0,
         "a BERT can be made");
  const BertConfig b = hub::parse_bert_config(hub::hugging_face_config(a), "a config");
  demand(a.layers == b.layers && a.width == b.width && a.heads == b.heads && a.vocabulary == b.vocabulary &&
             a.sequence == b.sequence && a.token_types == b.token_types && a.ffn_width == b.ffn_width &&
             a.epsilon == b.epsilon && a.init_std == b.init_std,
         "a BERT's configuration is written again");
}

inline std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// A folder of this process with one file, for parsers that need a path.
class OneFile {
 public:
  OneFile() {
    std::string name =
        (access("/dev/shm", W_OK) == 0 ? "/dev/shm/dspp_fuzz_" : "/tmp/dspp_fuzz_") + std::string(6, 'X');
    demand(mkdtemp(name.data()) != nullptr, "a folder can be made");
    folder = name;
  }
  ~OneFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  OneFile(const OneFile&) = delete;
  OneFile& operator=(const OneFile&) = delete;
  std::string write(const std::string& name, std::string_view bytes) const {
    const std::string path = folder + "/" + name;
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    return path;
  }
  std::string folder;
};

inline const OneFile& one_file() {
  static const OneFile file;
  return file;
}

inline void check_safetensors(std::string_view bytes) {
  const io::SafetensorsReader file(one_file().write("x.safetensors", bytes));
  for (const io::TensorEntry& tensor : file.tensors())
    if (tensor.dtype == "F32" && tensor.count() > 0) {
      float last = 0;
      file.read(tensor, tensor.count() - 1, 1, &last);
    }
}

inline void check_tokenizer(std::string_view json) {
  const data::Tokenizer tokenizer = data::Tokenizer::parse(json, "a tokenizer");
  // letters of other scripts, a ligature, accents apart and composed, signs, spaces of other kinds, bytes that are no
  // UTF-8, and a long word
  const std::string text =
      "the end of <end> the\n\xc3\xa9 Isn't \xef\xac\x81 e\xcc\x81 \xe4\xb8\xad\xe6\x96\x87 [MASK]\xe3\x80\x80"
      "\xe2\x96\x81x \xf0\x9f\x98\x80 \xff\xc3 " +
      std::string(300, 'a');
  const auto ids = tokenizer.encode(text);
  for (const std::int32_t id : ids) demand(tokenizer.is_token(id), "a text is made tokens of the vocabulary");
  const std::string again = tokenizer.decode(ids);
  demand(again == text || !tokenizer.is_lossless(), "a text that is made tokens is the text again");
  for (const auto* around : {&tokenizer.text_template().before, &tokenizer.text_template().after})
    for (const std::int32_t id : *around) demand(tokenizer.is_token(id), "a template is of tokens of the vocabulary");
}

inline void check_tokenizer_fields(std::string_view text) {
  laws::SmallTokenizer small;
  const auto lines = lines_of(text);
  std::string* const fields[] = {&small.vocabulary, &small.merges, &small.added, &small.words,
                                 &small.decoder,    &small.model,  &small.more};
  for (std::size_t i = 0; i < lines.size() && i < std::size(fields); ++i)
    if (!lines[i].empty()) *fields[i] = lines[i];
  check_tokenizer(small.json());
}

inline void check_shard(std::string_view bytes) {
  const data::TokenShard shard(one_file().write("x.tokens", bytes));
  std::int32_t last = 0;
  if (shard.size() > 0) shard.read(shard.size() - 1, 1, &last);
  shard.verify();
}

inline void check_token_index(std::string_view text) {
  const data::ShardHeader header{.token_bytes = 2, .count = 3, .vocabulary_size = 9, .tokens_sum = 1, .tokenizer = 2};
  one_file().write(data::TokenIndex::name, io::sealed_text(std::string(text)));
  data::require_indexed(one_file().folder, {{"a.tokens", header}, {"b.tokens", header}});
}

/// Only a line with the file's exact identity skips its verification; the fuzzer does not guess its times.
inline void check_verified(std::string_view text) {
  const std::string path = one_file().write("x.tokens", "some bytes");
  one_file().write(".verified", io::sealed_text(std::string(text)));
  const io::File file = io::File::to_read(path);
  bool verified = false;
  data::VerifiedFiles(one_file().folder).once(path, file.descriptor(), {.count = 3}, [&] { verified = true; });
  demand(verified, "a file that is not noted is verified");
}

inline void check_training(std::string_view text) {
  const io::Json training = io::parse_json(text, "a state");
  const dspp::detail::TrainingFacts a = read_training_facts<float, AdamW>(training, "a state");
  demand(a.progress.steps >= 0 && a.progress.moment_steps <= a.progress.steps && a.progress.skipped_steps >= 0 &&
             a.progress.learning_rate >= 0 && std::isfinite(a.progress.learning_rate) &&
             a.progress.loss_scale.value > 0 && a.position.next_step >= 0 && a.position.next_sample >= 0,
         "a training can go on");
  const std::string again =
      training_facts_text(a.progress, AdamW{}, a.position, a.client_state, element_type<float>, a.tag);
  const dspp::detail::TrainingFacts b = read_training_facts<float, AdamW>(io::parse_json(again, "a state"), "a state");
  demand(a.client_state == b.client_state && a.tag == b.tag && a.position.next_step == b.position.next_step &&
             a.position.next_sample == b.position.next_sample && a.position.seed == b.position.seed &&
             training_facts_text(b.progress, AdamW{}, b.position, b.client_state, element_type<float>, b.tag) == again,
         "a training is written again");
}

inline void check_lock(std::string_view text) {
  for (const char* key : {"pid", "host", "start"})
    for (const char c : dspp::io::detail::lock_fact(text, key))
      demand(c >= 0x20 && c <= 0x7e && c != '\'', "whose a lock is can be shown");
}

inline void check_manifest(std::string_view text) {
  const io::CheckpointManifest read =
      io::read_checkpoint_manifest(one_file().write("state.json", io::sealed_text(std::string(text))));
  for (const io::CheckpointFile& file : read.files)
    demand(file.bytes >= 0 && std::ssize(file.checksums) == io::CheckpointFile::chunks_of(file.bytes),
           "chunks have checksums");
}

inline void check_latest(std::string_view text) {
  one_file().write("latest", io::sealed_text(std::string(text)));
  const std::string tag = io::CheckpointFolder{one_file().folder}.read_latest();
  demand(tag.find('/') == std::string::npos && tag != "..", "a state lies in its folder");
}

inline void check_options(std::string_view text) {
  Size whole = 3;
  double real = 0.5;
  std::string path, any;
  Options options("a program", "is tried.");
  options.add("--whole", whole, WholeRange{0, 1000}, "a number");
  options.add("--real", real, RealRange{1e-8, 10}, "a number");
  options.add("--path", path, TextKind::path, "a path");
  options.add("--any", any, TextKind::any, "words");
  const auto lines = lines_of(text);
  std::vector<const char*> words{"program"};
  for (const std::string& line : lines) words.push_back(line.c_str());
  options.read(static_cast<int>(words.size()), words.data());
  demand(whole >= 0 && whole <= 1000 && real >= 1e-8 && real <= 10, "options are in their ranges");
}

inline RunOptions run_options_of(std::vector<std::string> words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  return read_run_options(static_cast<int>(pointers.size()), pointers.data());
}

inline void check_run_options(std::string_view text) {
  std::vector<std::string> words = lines_of(text);
  words.insert(words.begin(), "program");
  const RunOptions a = run_options_of(words);
  demand(a.ranks >= 0 && a.ranks <= 1024 && a.ranks_per_node >= 0 && a.ranks_per_node <= 1024 &&
             a.timeout_seconds > 0 && std::isfinite(a.timeout_seconds),
         "options of run() are in their ranges");
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.17g", a.timeout_seconds);
  const RunOptions b =
      run_options_of({"program", "--ranks=" + std::to_string(a.ranks), "--seed", std::to_string(a.seed),
                      std::string("--timeout=") + seconds, "--ranks-per-node", std::to_string(a.ranks_per_node),
                      std::string("--sum-order=") + name_of(a.sum_order)});
  demand(a.ranks == b.ranks && a.seed == b.seed && a.timeout_seconds == b.timeout_seconds &&
             a.ranks_per_node == b.ranks_per_node && a.sum_order == b.sum_order,
         "options of run() can be written again");
}

inline void check_launch(std::string_view text) {
  std::map<std::string, std::string> variables;
  for (const std::string& line : lines_of(text))
    variables[line.substr(0, line.find('='))] =
        line.find('=') == std::string::npos ? "" : line.substr(line.find('=') + 1);
  const Launch launch = read_launch([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
  demand(launch.rank >= 0 && launch.rank < launch.size && launch.local_size >= 1 && launch.local_rank < launch.size,
         "a rank is below the number of ranks");
  if (const auto option = variables.find("--local_rank"); option != variables.end())
    check_local_rank(launch, option->second);
}

inline void check_by(char parser, std::string_view text) {
  switch (parser) {
    case 'f': return check_safetensors(text);
    case 'n': return void(hub::parse_hugging_face_tokens(text, "a config"));
    case 'k': return check_tokenizer(text);
    case 'K': return check_tokenizer_fields(text);
    case 's': return check_shard(text);
    case 'x': return check_token_index(text);
    case 'v': return check_verified(text);
    case 'm': return check_manifest(text);
    case 'p': return check_training(text);
    case 'c': return check_lock(text);
    case 'a': return check_latest(text);
    case 'o': return check_options(text);
    case 'r': return check_run_options(text);
    case 'e': return check_launch(text);
    case 'h': return check_header(text);
    case 'i': return check_index(text);
    case 'g': return check_gpt2(text);
    case 'b': return check_bert(text);
    case 'l': return check_llama(text, hub::HeadTable::own);
    case 't': return check_llama(text, hub::HeadTable::tied);
    default: return check_json(text);
  }
}

/// Checks for one printable sentence on one line.
inline void check_sentence(std::string_view sentence) {
  demand(sentence.starts_with("dspp: ") && sentence.ends_with("."), "an error is a sentence");
  demand(sentence.find(" needs ") != std::string_view::npos && sentence.find(", but ") != std::string_view::npos,
         "an error says what is needed and what there is");
  demand(io::first_bad_utf8(sentence) < 0, "an error is UTF-8");
  for (const char c : sentence) demand(static_cast<unsigned char>(c) >= 0x20, "an error is a line");
}

}  // namespace detail

inline bool check_parsers(std::string_view input) {
  if (input.empty()) return false;
  try {
    detail::check_by(input[0], input.substr(1));
    return true;
  } catch (const Error& error) {
    const bool typed = input[0] == 'o' || input[0] == 'r' || input[0] == 'e';
    if (error.code() != (typed ? ErrorCode::usage : ErrorCode::file)) std::fprintf(stderr, "%s\n", error.what());
    detail::demand(error.code() == (typed ? ErrorCode::usage : ErrorCode::file), "what is wrong is what was read");
    detail::check_sentence(error.what());
    return false;
  }
}

}  // namespace dspp::fuzz
