// SPDX-License-Identifier: Apache-2.0
// examples/train_gpt.cpp built with Policy<Zero<3>, F16, Tp<2>>: cases that need tensor parallelism or a loss scale.
#include <examples/job.hpp>

using namespace dspp;
using namespace dspp::laws;
using namespace dspp::examples;

TEST_CASE("ranks and heads that the tensor degree does not divide are refused, and nothing is written") {
  const Job job(DSPP_TRAIN_GPT_TP);
  const std::string text = "--data text.txt ";
  check_refused(job, text + "--ranks 1", "--ranks that the policy's Tp degree divides, but 1 is not a multiple of 2");
  check_refused(job, text + "--ranks 3", "--ranks that the policy's Tp degree divides, but 3 is not a multiple of 2");
  check_refused(job, text + "--width 48 --heads 3",
                "--heads that the policy's Tp degree divides, but 3 is not a multiple of 2");
}

TEST_CASE("four ranks are two replicas of two, and measured equals planned") {
  const Job job(DSPP_TRAIN_GPT_TP);
  for (const char* options : {"--ranks 4", "--ranks 4 --accumulate 2", "--ranks 2"}) {
    CAPTURE(options);
    const Result run = job.train(std::string("--steps 3 --json result.json ") + options);
    CAPTURE(run.err);
    REQUIRE(run.status == 0);
    const JsonTree result = json_tree(job.folder.read("result.json"), "a result");
    CHECK(result.find("policy")->string == "Policy<Zero<3>, F16, Tp<2>>");
    CHECK(result.find("steps")->integer == 3);
    check_as_planned(result);
    // Tp sums activations between two ranks; Zero<3> scatters gradients only where there are replicas.
    const JsonTree* traffic = result.find("traffic");
    CHECK(traffic->find("all_reduce")->find("measured")->integer > 0);
    CHECK((traffic->find("reduce_scatter")->find("measured")->integer > 0) == (result.find("world")->integer == 4));
  }
}

TEST_CASE("in f16 the progress line and metrics.jsonl have the loss scale, and the model learns") {
  const Job job(DSPP_TRAIN_GPT_TP);
  const Result run = job.train("--steps 30 --lr 0.01 --ranks 2 --json result.json");
  CAPTURE(run.err);
  REQUIRE(run.status == 0);
  CHECK(run.out.find("  scale 65536  ") != std::string::npos);
  std::vector<JsonTree> steps;
  for (const std::string& line : lines_of(metrics_in(job.folder))) steps.push_back(json_tree(line, "a line"));
  REQUIRE(steps.size() == 30);
  for (const JsonTree& step : steps) {
    CHECK(step.find("loss_scale")->real == 65536);
    REQUIRE(step.find("skipped")->is(io::Json::Kind::boolean));
    CHECK(!step.find("skipped")->boolean);
  }
  CHECK(steps.back().find("loss")->real < steps.front().find("loss")->real - 1);
}

TEST_CASE("weights that are not finite end a run in f16, too, where every step would be skipped") {
  check_ends_at_nan(Job(DSPP_TRAIN_GPT_TP), "--ranks 4");
}
