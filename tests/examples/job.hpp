// SPDX-License-Identifier: Apache-2.0
/// A folder to train in, and the files of train_gpt.
#pragma once

#include <examples/program.hpp>

#include <dspp/io/json.hpp>
#include <laws/json_tree.hpp>

namespace dspp::examples {

using laws::json_tree, laws::JsonTree;

/// 40,000 bytes that a small model can learn.
inline std::string some_text() {
  std::string text;
  for (unsigned i = 0; text.size() < 40000; ++i) text += "line " + std::to_string(i * i % 97) + " of the text\n";
  return text;
}

inline const std::string small_model = " --layers 1 --width 32 --heads 2 --sequence 16 --micro-batch 2 --sample 0";

/// A folder with a text, and train_gpt in it.
struct Job {
  std::string program;
  Folder folder;
  explicit Job(std::string program_path = DSPP_TRAIN_GPT) : program(std::move(program_path)) {
    folder.write("text.txt", some_text());
  }

  Result run(const std::string& options) const { return Process(program, words(options), folder).wait(); }
  Result train(const std::string& options) const { return run("--data text.txt" + small_model + " " + options); }
};

/// The lines of the only run in a folder.
inline std::vector<JsonTree> metrics_of(const Folder& folder) {
  std::vector<JsonTree> steps;
  for (const std::string& line : lines_of(metrics_in(folder))) steps.push_back(json_tree(line, "a line of metrics"));
  return steps;
}

/// The lines of its steps.
inline std::vector<double> losses_of(const Folder& folder) {
  std::vector<double> losses;
  for (const JsonTree& step : metrics_of(folder)) losses.push_back(step.find("loss")->real);
  return losses;
}

/// The object of result.json.
inline double validation_loss(const Folder& folder) {
  return json_tree(folder.read("result.json"), "a result").find("val_loss")->real;
}

/// The content of the folder without `.verified` of token files.
inline std::vector<std::string> contents(const Job& job) {
  auto names = job.folder.list();
  std::erase_if(names, [](const std::string& name) { return name.ends_with(".verified"); });
  return names;
}

/// Expects status 2, one sentence with `expected`, and an unchanged folder.
inline void check_refused(const Job& job, const std::string& options, const std::string& expected) {
  const auto before = contents(job);
  const Result result = job.run(options);
  CAPTURE(options);
  CAPTURE(result.err);
  CHECK(result.status == 2);
  CHECK(lines_of(result.err).size() == 1);
  CHECK(result.err.substr(0, 6) == "dspp: ");
  CHECK(result.err.find(expected) != std::string::npos);
  CHECK(contents(job) == before);
}

/// Weights with NaN in their last element end the run in its first step, on all ranks, with one sentence and status 1;
/// earlier checkpoints stay unchanged, and no other is saved.
inline void check_ends_at_nan(const Job& job, const std::string& options) {
  REQUIRE(job.train("--steps 2 --save states " + options).status == 0);
  std::string weights = job.folder.read("states/step_00000002/model.safetensors");
  weights.replace(weights.size() - 4, 4, "\xff\xff\xff\x7f");
  job.folder.write("nonfinite/model.safetensors", weights);
  fs::remove_all(job.folder.path / "runs");
  const auto before = job.folder.list();
  const Result result = job.train("--seconds 60 --load nonfinite --save new --save-every 1 " + options);
  CAPTURE(result.err);
  CHECK(result.status == 1);
  CHECK(
      lines_of(result.err) ==
      std::vector<std::string>{
          "dspp: training needs parameters that are finite, but in step 3 'tokens.weight' holds a value that is not. "
          "No rank has updated anything. Go on from a checkpoint that was saved before, with a lower learning rate."});
  CHECK(lines_of(metrics_in(job.folder)).empty());
  fs::remove_all(job.folder.path / "runs");
  CHECK(job.folder.list() == before);
}

/// Expects measured to equal planned in every category of memory, at the peak and in every collective.
inline void check_as_planned(const JsonTree& result) {
  for (const char* table : {"bytes", "traffic"})
    for (std::size_t i = 0; i < result.find(table)->items.size(); ++i) {
      CAPTURE(result.find(table)->keys[i]);
      const JsonTree& row = result.find(table)->items[i];
      CHECK(row.keys == std::vector<std::string>{"planned", "measured"});
      CHECK(row.find("planned")->real == row.find("measured")->real);
    }
  CHECK(result.find("traffic")->items.size() > 0);
  const JsonTree* peak = result.find("peak_bytes");
  CHECK(peak->find("planned")->integer == peak->find("measured")->integer);
  CHECK(peak->find("measured")->integer > 0);
  const JsonTree* reserved = result.find("reserved_bytes");
  CHECK(reserved->find("measured")->integer >= peak->find("measured")->integer);
  CHECK(reserved->find("measured")->integer <= reserved->find("at_most")->integer);
}

}  // namespace dspp::examples
