// SPDX-License-Identifier: Apache-2.0
/// Text files to a folder of token files, which TokenFolder("tokens") and train_gpt --tokens read:
/// tokenize --input PATH --output tokens, --help lists all options.
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <dspp/app/options.hpp>
#include <dspp/app/output.hpp>
#include <dspp/base/out_of_memory.hpp>
#include <dspp/data/text_files.hpp>
#include <dspp/data/token_files_writer.hpp>
#include <dspp/data/tokenizer.hpp>
#include <dspp/io/mapped_file.hpp>
#include <dspp/io/text_file.hpp>

using namespace dspp;

struct Job {
  std::string input, output, tokenizer, end;
  double held_out = 0.1;
  Size each = 1'000'000'000;
};

/// False after --help.
static bool read_job(int argc, char** argv, Job& job) {
  Options options("tokenize",
                  "Turns text into files of tokens, OUTPUT/train/*.tokens and OUTPUT/held_out/*.tokens, beside\n"
                  "which it keeps the tokenizer.json. Train on them with train_gpt --tokens OUTPUT.");
  options.add("--input", job.input, TextKind::path, "a text file, or a folder whose text files are read");
  options.add("--output", job.output, TextKind::path, "folder for the token files");
  options.add("--tokenizer", job.tokenizer, TextKind::path, "a tokenizer.json, see docs/tokens.md", "bytes are tokens");
  options.add("--end", job.end, TextKind::any, "the token after each file", "<|endoftext|>, if there is one");
  options.add("--held-out", job.held_out, RealRange{0, 0.9}, "share at the end that is not for training");
  options.add("--tokens", job.each, WholeRange{1, Size{1} << 40}, "in each file");
  if (!options.read(argc, argv)) {
    std::fputs(options.help().c_str(), stdout);
    return false;
  }
  for (const auto& [name, value] : {std::pair("--input", job.input), std::pair("--output", job.output)})
    if (value.empty())
      fail(ErrorCode::usage, std::string("dspp: tokenize needs ") + name + ", but it is not given. Write for example " +
                                 name + " a/path.");
  return true;
}

/// Tokens of a text by a tokenizer, or its bytes.
class Encoder {
 public:
  explicit Encoder(const Job& job) {
    if (!job.tokenizer.empty()) {
      file_ = io::read_text_file(job.tokenizer);
      tokenizer_.emplace(data::Tokenizer::parse(file_, "the tokenizer '" + job.tokenizer + "'"));
    }
    const std::string end = job.end.empty() ? "<|endoftext|>" : job.end;
    if (tokenizer_) end_ = tokenizer_->id(end);
    if (!job.end.empty() && !end_)
      fail(ErrorCode::usage, "dspp: --end needs a token of the tokenizer, but '" + end + "' is none. Leave it out.");
  }

  data::TokenVocabulary vocabulary() const {
    return tokenizer_ ? data::TokenVocabulary{tokenizer_->vocabulary_size(), tokenizer_->fingerprint()}
                      : data::TokenVocabulary{};
  }

  /// Throws Error(file) if the folder has another tokenizer.
  void check_folder(const std::string& folder) const {
    const std::string path = folder + "/tokenizer.json";
    if (tokenizer_ && std::filesystem::exists(path) && io::read_text_file(path) != file_)
      fail(ErrorCode::file, "dspp: tokenize needs a folder for its own tokenizer.json, but '" + path +
                                "' is another than --tokenizer. Name another folder.");
  }
  /// Copies the tokenizer's file, if any, to the folder.
  void keep(const std::string& folder) const {
    if (tokenizer_) io::StagedText(folder + "/tokenizer.json", file_).commit();
  }

  void encode(std::string_view text, data::TokenFilesWriter& files) {
    if (tokenizer_) return tokenizer_->encode_each(text, scratch_, [&](auto tokens) { files.append(tokens); });
    for (; !text.empty(); text.remove_prefix(std::min(text.size(), block))) {
      const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
      bytes_.assign(bytes, bytes + std::min(text.size(), block));
      files.append(bytes_);
    }
  }

  void end(data::TokenFilesWriter& files) const {
    if (end_) files.append(std::span(&*end_, 1));
  }

 private:
  static constexpr std::size_t block = 1 << 16;
  std::string file_;  // the tokenizer's
  std::optional<data::Tokenizer> tokenizer_;
  std::optional<std::int32_t> end_;
  data::Tokenizer::Scratch scratch_;
  std::vector<std::int32_t> bytes_;
};

/// "120 of 800 MB, 21.5 MB/s", updated on a terminal.
class Pace {
 public:
  explicit Pace(Size bytes) : bytes_(bytes) {}
  void show(Size done) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (isatty(STDERR_FILENO) != 1 || seconds < 0.2 * static_cast<double>(shown_ + 1)) return;
    shown_ = static_cast<Size>(seconds / 0.2);
    std::fprintf(stderr, "\r%.0f of %.0f MB, %.1f MB/s ", static_cast<double>(done) / 1e6,
                 static_cast<double>(bytes_) / 1e6, static_cast<double>(done) / 1e6 / seconds);
  }
  ~Pace() {
    if (shown_ > 0) std::fputs("\n", stderr);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Size bytes_, shown_ = 0;
  Clock::time_point start_ = Clock::now();
};

/// The last position up to `at` that does not cut a UTF-8 character.
static Size character_begin(std::string_view text, Size at) {
  while (at > 0 && at < std::ssize(text) &&
         (static_cast<unsigned char>(text[static_cast<std::size_t>(at)]) & 0xc0) == 0x80)
    --at;
  return at;
}

static void tokenize(const Job& job) {
  Encoder encoder(job);
  encoder.check_folder(job.output);
  const data::TextFileList list = data::list_text_files(job.input);
  data::TokenFilesWriter train(job.output + "/train", encoder.vocabulary(), job.each);
  data::TokenFilesWriter held_out(job.output + "/held_out", encoder.vocabulary(), job.each);
  const Size for_training = list.bytes - static_cast<Size>(static_cast<double>(list.bytes) * job.held_out);
  Size done = 0;
  Pace pace(list.bytes);
  for (const auto& entry : list.files) {
    const io::MappedFile file(entry.path);
    if (file.size() == 0) continue;
    const std::string_view text(reinterpret_cast<const char*>(file.range(0, file.size())),
                                static_cast<std::size_t>(file.size()));
    const Size cut = character_begin(text, std::clamp<Size>(for_training - done, 0, file.size()));
    encoder.encode(text.substr(0, static_cast<std::size_t>(cut)), train);
    if (cut < file.size()) train.finish();  // first, so that an incomplete folder is detected
    encoder.encode(text.substr(static_cast<std::size_t>(cut)), held_out);
    encoder.end(cut < file.size() ? held_out : train);
    pace.show(done += file.size());
  }
  train.finish(), held_out.finish();
  encoder.keep(job.output);
  const Size tokens = train.tokens() + held_out.tokens();
  std::printf(
      "%lld tokens of a vocabulary of %lld from %lld bytes in %lld files (%lld binary files left out): "
      "%lld to train on in %lld files, %lld held out in %lld files, below %s\n",
      static_cast<long long>(tokens), static_cast<long long>(encoder.vocabulary().size), static_cast<long long>(done),
      static_cast<long long>(list.files.size()), static_cast<long long>(list.left_out),
      static_cast<long long>(train.tokens()), static_cast<long long>(train.files()),
      static_cast<long long>(held_out.tokens()), static_cast<long long>(held_out.files()),
      printable(job.output).c_str());
}

int main(int argc, char** argv) {
  hold_standard_streams();
  try {
    Job job;
    if (read_job(argc, argv, job)) or_out_of_memory("tokenize", [&] { tokenize(job); });
    return output_status("tokenize");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "dspp: tokenize could not go on: %s\n", printable(error.what()).c_str());
  }
  return 2;
}
