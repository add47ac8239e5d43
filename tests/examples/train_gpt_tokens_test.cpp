// SPDX-License-Identifier: Apache-2.0
// examples/tokenize.cpp, then examples/train_gpt.cpp: text, token files, a model, text.
#include <examples/job.hpp>

#include <cmath>

#include <dspp/io/checkpoint_folder.hpp>
#include <dspp/io/checkpoint_manifest.hpp>
#include <laws/json_tree.hpp>
#include <laws/small_tokenizer.hpp>

using namespace dspp;
using namespace dspp::laws;
using namespace dspp::examples;

namespace {

/// A vocabulary of 271, which Tp<2> does not divide, with 260 to 269 unused.
std::string tokenizer() {
  laws::SmallTokenizer file{.added = R"({"id":270,"content":"<end>","normalized":false,"special":true})"};
  file.vocabulary += R"(,"<end>":270)";
  return file.json();
}

/// A folder with train_gpt and with tokens/, made of some text, and bytes/, of the same without a tokenizer.
struct TokenJob : Job {
  explicit TokenJob(std::string program_path = DSPP_TRAIN_GPT) : Job(std::move(program_path)) {
    folder.write("tokenizer.json", tokenizer());
    tokenize("text.txt", "tokens --tokenizer tokenizer.json --tokens 5000");
    tokenize("text.txt", "bytes");
  }

  void tokenize(const std::string& input, const std::string& output) const {
    const Result result = Process(DSPP_TOKENIZE, words("--input " + input + " --output " + output), folder).wait();
    CAPTURE(result.err);
    REQUIRE(result.status == 0);
  }

  Result learn(const std::string& options) const { return run("--tokens tokens" + small_model + " " + options); }
};

/// The sample between its rulers.
std::string sample_of(const Result& result) {
  const std::string begin = "--- sample ---\n";
  const std::size_t at = result.out.find(begin) + begin.size();
  return result.out.substr(at, result.out.find("\n--------------", at) - at);
}

}  // namespace

TEST_CASE("a model learns token files, is planned with their vocabulary, and writes text") {
  for (const char* program : {DSPP_TRAIN_GPT, DSPP_TRAIN_GPT_TP}) {
    CAPTURE(program);
    const TokenJob job(program);
    const Result run = job.learn("--steps 30 --lr 0.01 --json result.json --prompt line --sample 12");
    CAPTURE(run.err);
    REQUIRE(run.status == 0);
    CHECK(run.out.find("; tokens: ") != std::string::npos);
    CHECK(run.out.find(" tokens of a vocabulary of 271 in ") != std::string::npos);
    CHECK(run.out.find(" of tokens\n") != std::string::npos);
    CHECK(run.out.find(" nats per token over ") != std::string::npos);
    CHECK(sample_of(run).starts_with("line"));
    CHECK(sample_of(run).size() > 8);
    const JsonTree result = json_tree(job.folder.read("result.json"), "a result");
    check_as_planned(result);
    CHECK(result.find("tokens")->string == "tokens");
    for (const JsonTree& step : metrics_of(job.folder)) CHECK(step.find("tokens")->string == "tokens");
    const auto losses = losses_of(job.folder);
    REQUIRE(losses.size() == 30);
    CHECK(losses.front() == doctest::Approx(std::log(271)).epsilon(0.02));
    CHECK(losses.back() < losses.front() - 1);
    CHECK(validation_loss(job.folder) < losses.front() - 1);
  }
}

TEST_CASE("an untrained model generates unused ids, and the sample leaves them out") {
  const TokenJob job;
  const Result run = job.learn("--steps 0 --sample 300 --prompt <end>the");
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  CHECK(sample_of(run).starts_with("<end>the"));
}

TEST_CASE("a run on token files that was saved and resumed ends as an uninterrupted one, bit for bit") {
  const std::string options = "--steps 40 --ranks 2 --accumulate 2 --json result.json ";
  const TokenJob whole, parts;
  REQUIRE(whole.learn(options + "--save checkpoints --save-every 15").status == 0);
  const std::vector<double> losses = losses_of(whole.folder);
  REQUIRE(losses.size() == 40);
  const std::string checkpoint = whole.folder.file("checkpoints");
  whole.folder.write("checkpoints/latest", io::sealed_text("step_00000030\n"));  // it was stopped after that one
  const Result resumed = parts.learn(options + "--seed 2 --resume " + checkpoint);
  CAPTURE(resumed.err);
  REQUIRE(resumed.status == 0);
  CHECK(losses_of(parts.folder) == std::vector<double>(losses.end() - 10, losses.end()));
  CHECK(validation_loss(parts.folder) == validation_loss(whole.folder));
  check_as_planned(json_tree(parts.folder.read("result.json"), "a result"));
}

TEST_CASE("a resumed run on token files takes the next samples, also with another global batch") {
  const TokenJob job;
  const auto next_sample = [&] {
    const std::string tag = io::CheckpointFolder{job.folder.file("checkpoints")}.read_latest();
    const io::CheckpointManifest checkpoint =
        io::read_checkpoint_manifest(job.folder.file("checkpoints/" + tag + "/state.json"));
    return checkpoint.training().find("position")->find("next_sample")->integer;
  };
  REQUIRE(job.learn("--steps 5 --ranks 2 --save checkpoints").status == 0);  // of 2 x 2 samples
  CHECK(next_sample() == 20);
  REQUIRE(job.learn("--steps 8 --ranks 1 --accumulate 3 --resume checkpoints --save checkpoints").status ==
          0);  // 3 of 2 x 3
  CHECK(next_sample() == 38);
}

TEST_CASE("a run is not resumed on other data") {
  const TokenJob job;
  const std::string go_on = small_model + " --steps 3 --resume ";
  job.folder.write("other.txt", "other: " + some_text());
  job.tokenize("other.txt", "other_tokens --tokenizer tokenizer.json");
  REQUIRE(job.learn("--steps 2 --save of_tokens").status == 0);
  REQUIRE(job.run("--tokens bytes --steps 2 --save of_bytes" + small_model).status == 0);
  REQUIRE(job.train("--steps 2 --save of_text").status == 0);
  check_refused(job, "--tokens other_tokens" + go_on + "of_tokens",
                "is on, the token files of 'tokens', but got the token files of 'other_tokens'");
  check_refused(job, "--data text.txt" + go_on + "of_bytes", "is on, the token files of 'bytes', but got a text");
  check_refused(job, "--tokens bytes" + go_on + "of_text", "is on, a text, but got the token files of 'bytes'");
  CHECK(job.run("--tokens bytes --load of_text --steps 1" + small_model).status == 0);
}

TEST_CASE("token files that cannot be trained on are refused in one sentence") {
  const TokenJob job;
  job.folder.write("short.txt", "only a few words");
  job.tokenize("short.txt", "short");
  job.tokenize("text.txt", "all --held-out 0");
  job.tokenize("text.txt", "foreign --tokenizer tokenizer.json");
  job.folder.write("foreign/tokenizer.json", laws::SmallTokenizer{}.json());
  const std::vector<std::pair<std::string, std::string>> mistakes = {
      {"--tokens", "nothing follows it"},
      {"--tokens absent", "'absent' does not exist"},
      {"--tokens text.txt", "'text.txt' is no folder"},
      {"--tokens tokens/train", "'tokens/train/train' does not exist"},
      {"--tokens tokens --data text.txt", "--data is given, too"},
      {"--tokens short", "at least 65 tokens"},
      {"--tokens all", "'all/held_out' holds none"},
      {"--tokens foreign", "'foreign/tokenizer.json' is another"},
      {"--tokens tokens --layers 1024 --width 16384 --heads 1", "of memory"},
  };
  for (const auto& [options, expected] : mistakes) check_refused(job, options, expected);
}
