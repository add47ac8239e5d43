// SPDX-License-Identifier: Apache-2.0
// train_gpt as processes that RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT connect by TCP, without mpirun.
#include <cstdlib>
#include <memory>

#include <examples/job.hpp>
#include <laws/tcp_processes.hpp>

using namespace dspp;
using namespace dspp::examples;

namespace {

/// `ranks` processes of a program, started as torchrun does; each has the options in its folder.
class TcpJob {
 public:
  TcpJob(int ranks, const std::string& program, const std::string& options, const Folder& folder) {
    setenv("WORLD_SIZE", std::to_string(ranks).c_str(), 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", std::to_string(port_.port()).c_str(), 1);
    for (int r = 0; r < ranks; ++r) {
      setenv("RANK", std::to_string(r).c_str(), 1);
      setenv("LOCAL_RANK", std::to_string(r).c_str(), 1);
      processes_.push_back(std::make_unique<Process>(program, words(options), folder));
    }
    for (const char* name : {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) unsetenv(name);
  }

  const Process& operator[](int rank) const { return *processes_[static_cast<std::size_t>(rank)]; }
  std::vector<Result> wait() {
    std::vector<Result> all;
    for (const auto& process : processes_) all.push_back(process->wait());
    return all;
  }

 private:
  laws::HeldPort port_;
  std::vector<std::unique_ptr<Process>> processes_;
};

const std::string steps = "--data text.txt --steps 12 --json result.json" + small_model;

}  // namespace

TEST_CASE("processes that TCP connects train with the losses of thread ranks, bit for bit, and rank 0 prints") {
  for (const auto& run :
       std::vector<std::pair<std::string, int>>{{DSPP_TRAIN_GPT, 2}, {DSPP_TRAIN_GPT, 3}, {DSPP_TRAIN_GPT_TP, 4}}) {
    const std::string& program = run.first;
    const int ranks = run.second;
    CAPTURE(ranks);
    const Job threads(program), job(program);
    REQUIRE(threads.run(steps + " --ranks " + std::to_string(ranks)).status == 0);
    const auto all = TcpJob(ranks, program, steps, job.folder).wait();
    for (const Result& one : all) {
      CAPTURE(one.err);
      CHECK(one.status == 0);
    }
    CHECK(all[0].out.find(std::to_string(ranks) + " ranks as processes,") != std::string::npos);
    CHECK(all[1].out.empty());
    CHECK(losses_of(job.folder).size() == 12);
    CHECK(losses_of(job.folder) == losses_of(threads.folder));
    CHECK(validation_loss(job.folder) == validation_loss(threads.folder));
    CHECK(json_tree(job.folder.read("result.json"), "a result").find("world")->integer == ranks);
  }
}

TEST_CASE("a process that is killed in a training that TCP connects ends the others with a sentence that names it") {
  const Job job;
  TcpJob running(3, DSPP_TRAIN_GPT, "--data text.txt --steps 1000000" + small_model, job.folder);
  REQUIRE(wait_until([&] { return lines_of(metrics_in(job.folder)).size() > 5; }));
  running[1].signal(SIGKILL);
  const auto start = Clock::now();
  const auto all = running.wait();
  CHECK(seconds_since(start) < 10);
  CHECK(all[1].status == 128 + SIGKILL);
  for (const int r : {0, 2}) {
    const Result& one = all[static_cast<std::size_t>(r)];
    CAPTURE(one.err);
    CHECK(one.status == 1);
    CHECK(one.err.find("needs rank 1 in ") != std::string::npos);
    CHECK(one.err.find("but rank 1 closed its connection. Look for what ended it") != std::string::npos);
  }
}

TEST_CASE("bad input is refused by each process that TCP connects, in one sentence with status 2") {
  const Job job;
  for (const Result& one : TcpJob(2, DSPP_TRAIN_GPT, "--data absent.txt", job.folder).wait()) {
    CAPTURE(one.err);
    CHECK(one.status == 2);
    CHECK(one.err.find("dspp: ") == 0);
    CHECK(lines_of(one.err).size() == 1);
  }
}
