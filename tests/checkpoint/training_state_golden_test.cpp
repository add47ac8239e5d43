// SPDX-License-Identifier: Apache-2.0
// Files of earlier versions are read by every later one, bit for bit: a checkpoint, weights and token files, committed
// under tests/golden/version_1 as the first wrote them, and the same under version_1_of_2026_11, with what came since:
// run, tag and model in a state, the index of tokens. Never write these again. labels: engine
#include <dspp/checkpoint/training_state.hpp>
#include <dspp/data/token_batches.hpp>
#include <dspp/optim/adamw.hpp>
#include <laws/folder.hpp>
#include <laws/tiny_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

const std::string versions[] = {std::string(DSPP_TESTS_DIRECTORY) + "/golden/version_1",
                                std::string(DSPP_TESTS_DIRECTORY) + "/golden/version_1_of_2026_11"};

/// The data after the header, which is 8 bytes of length and the JSON.
std::string data_of(const std::string& file) {
  const std::string bytes = read_file(file);
  REQUIRE(bytes.size() > 8);
  std::size_t header = 0;
  for (std::size_t i = 0; i < 8; ++i) header |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])) << 8 * i;
  REQUIRE(header < bytes.size() - 8);
  return bytes.substr(8 + header);
}

/// Compares the golden checkpoint and weights with those that an engine of that policy reads and writes again.
template <class P>
void check_reads(const std::string& golden, int ranks) {
  CAPTURE(golden);
  const Folder folder;
  run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .seed = 9, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine{world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 0.1}};
    const Resumed resumed = load_checkpoint(engine, golden + "/states");
    CHECK(resumed.tag == "step_00000002");
    CHECK(resumed.position.next_step == 12);
    CHECK(resumed.position.next_sample == 1'234'567'890'123);
    CHECK(resumed.position.seed == 0xfedcba9876543210u);
    CHECK(resumed.client_state == std::map<std::string, std::string>{{"epoch", "3"}});
    CHECK(engine.steps() == 2);
    CHECK(engine.skipped_steps() == 0);
    CHECK(engine.progress().moment_steps == 2);
    CHECK(engine.learning_rate() == 0.1 + 0.2);
    CHECK(engine.progress().seed == 5);
    const io::SafetensorsReader weights(golden + "/weights/model.safetensors");
    for (const auto& named : engine.inventory().parameters) {
      const auto whole = engine.gather_parameter(named.name->text);
      std::vector<float> expected(static_cast<std::size_t>(whole.count()));
      weights.read(weights.tensor(named.name->text), 0, whole.count(), expected.data());
      CHECK(std::equal(expected.begin(), expected.end(), whole.data()));
    }
    save_checkpoint(engine, folder.file("states"));
    Engine other{world, TinyModel<P>(TinyConfig{}), AdamW{.lr = 0.1}};
    load_weights(other, golden + "/weights");
    CHECK(other.steps() == 2);
    save_weights(other, folder.file("weights"));
    load_weights(other, golden + "/states/step_00000002");
  });
  for (const char* file : {"states/step_00000002/model.safetensors", "states/step_00000002/optimizer.safetensors",
                           "weights/model.safetensors"})
    CHECK(data_of(folder.file(file)) == data_of(golden + "/" + file));
}

}  // namespace

TEST_CASE("a checkpoint and weights of earlier versions are read bit for bit, under any strategy") {
  for (const std::string& golden : versions) {
    check_reads<Policy<F32, Zero<2>>>(golden, 1);
    check_reads<Policy<F32, Zero<3>, Tp<2>>>(golden, 4);
  }
}

TEST_CASE("token files of the first version are read token for token, and so are later ones with their index") {
  for (const std::string& golden : versions) {
    CAPTURE(golden);
    const Folder folder;  // what is verified is noted beside the files
    fs::copy(golden + "/tokens", folder.path / "tokens");
    const data::TokenShards shards(data::TokenFiles{folder.file("tokens")});
    CHECK(shards.size() == 100);
    CHECK(shards.vocabulary_size() == 1000);
    CHECK(shards.tokenizer() == 77);
    CHECK(shards.shards().size() == 3);
    std::vector<std::int32_t> tokens(100);
    shards.read(0, 100, tokens.data());
    for (std::int32_t i = 0; i < 100; ++i) CHECK(tokens[static_cast<std::size_t>(i)] == i * i % 1000);
  }
}
