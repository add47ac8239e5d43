// SPDX-License-Identifier: Apache-2.0
// examples/train_gpt.cpp on MPI ranks: the losses of thread ranks, bit for bit.
#include <examples/job.hpp>
#include <examples/mpi.hpp>

#include <dspp/io/checkpoint_folder.hpp>
#include <laws/json_tree.hpp>

using namespace dspp;
using namespace dspp::laws;
using namespace dspp::examples;

namespace {

/// The losses of a job as written: 17 digits determine a double.
std::vector<std::string> losses_in(const Folder& folder) {
  std::vector<std::string> losses;
  for (const std::string& line : lines_of(metrics_in(folder))) {
    const auto begin = line.find("\"loss\":"), norm = line.find("\"gradient_norm\":");
    losses.push_back(line.substr(begin, line.find(',', begin) - begin) +
                     line.substr(norm, line.find(',', norm) - norm));
  }
  return losses;
}

/// `./dspp train --mpi 2 options` after its build, leader of a process group as a shell's job is.
class JobOfScript {
 public:
  JobOfScript(const std::string& options, const Folder& folder)
      : process_("/usr/bin/env", arguments(words(options)), folder) {}

  /// To the whole group, as a terminal does.
  void signal_all(int signal) const { kill(-process_.id(), signal); }
  void press_ctrl_c() const { signal_all(SIGINT); }
  void kill_the_shell() const { process_.signal(SIGKILL); }
  Result wait() { return process_.wait(); }

 private:
  static std::vector<std::string> arguments(const std::vector<std::string>& options) {
    std::vector<std::string> all = {"setsid",      "sh",
                                    "-c",          ". \"$1\"; shift; start_processes 2 \"$@\"",
                                    "sh",          DSPP_TESTS_DIRECTORY "/../scripts/build.sh",
                                    DSPP_TRAIN_GPT};
    all.insert(all.end(), options.begin(), options.end());
    return all;
  }

  Process process_;
};

/// Processes that run in a folder.
int processes_in(const Folder& folder) {
  int count = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const fs::path where = fs::read_symlink(entry.path() / "cwd", error);
    if (!error && where == fs::canonical(folder.path)) ++count;
  }
  return count;
}

const std::string steps = "--data text.txt --steps 12 --json result.json" + small_model;

void check_same_losses(const std::string& program, int ranks, const std::string& options) {
  CAPTURE(options);
  CAPTURE(ranks);
  const Job threads(program), processes(program);
  const Result a = threads.run(steps + " --ranks " + std::to_string(ranks) + options);
  const Result b = mpirun(ranks, program, steps + options, processes.folder);
  CAPTURE(a.err);
  CAPTURE(b.err);
  REQUIRE(a.status == 0);
  REQUIRE(b.status == 0);
  const auto losses = losses_in(threads.folder);
  CHECK(losses.size() == 12);
  CHECK(losses_in(processes.folder) == losses);
  const JsonTree one = json_tree(threads.folder.read("result.json"), "a result");
  const JsonTree other = json_tree(processes.folder.read("result.json"), "a result");
  CHECK(one.find("val_loss")->real == other.find("val_loss")->real);
  CHECK(other.find("world")->integer == ranks);
  check_as_planned(other);
}

const std::string scripts =
    ". " DSPP_TESTS_DIRECTORY "/../scripts/sentences.sh; . " DSPP_TESTS_DIRECTORY "/../scripts/build.sh; ";

void check_ends_well(int signal) {
  CAPTURE(signal);
  const Job job;
  JobOfScript running("--data text.txt --seconds 60 --save checkpoints --json result.json" + small_model, job.folder);
  REQUIRE(wait_until([&] { return lines_of(metrics_in(job.folder)).size() > 3; }));
  running.signal_all(signal);
  const auto start = Clock::now();
  const Result result = running.wait();
  CAPTURE(result.err);
  CHECK(seconds_since(start) < 20);
  CHECK(result.status == 0);
  CHECK(result.out.find("stopped after ") != std::string::npos);
  CHECK(result.out.find("every step is in ") != std::string::npos);
  const Size taken = json_tree(job.folder.read("result.json"), "a result").find("steps")->integer;
  CHECK(taken == static_cast<Size>(lines_of(metrics_in(job.folder)).size()));
  const Result resumed = Job().run("--data text.txt --resume " + job.folder.file("checkpoints") + " --steps " +
                                   std::to_string(taken + 1) + small_model);
  CHECK(resumed.out.find("resumed after " + std::to_string(taken) + " steps\n") != std::string::npos);
}

}  // namespace

TEST_CASE("mpirun trains with the losses of thread ranks, bit for bit, and moves the planned bytes") {
  check_same_losses(DSPP_TRAIN_GPT, 2, "");
  check_same_losses(DSPP_TRAIN_GPT, 2, " --accumulate 2");
  check_same_losses(DSPP_TRAIN_GPT, 3, "");
  check_same_losses(DSPP_TRAIN_GPT_TP, 2, "");
  check_same_losses(DSPP_TRAIN_GPT_TP, 4, "");
}

TEST_CASE("only rank 0 of a job under mpirun prints, and there is one run folder") {
  const Job job;
  const Result result = mpirun(2, DSPP_TRAIN_GPT, steps, job.folder);
  REQUIRE(result.status == 0);
  CHECK(result.out.find("2 ranks as processes") != std::string::npos);
  CHECK(result.out.find("validation loss") == result.out.rfind("validation loss"));
  CHECK(result.out.find("M parameters") == result.out.rfind("M parameters"));
  CHECK(result.out.find('\033') == std::string::npos);
  std::size_t files = 0;
  for (const std::string& name : job.folder.list()) files += name.find("metrics.jsonl") != std::string::npos ? 1 : 0;
  CHECK(files == 1);
}

TEST_CASE(
    "a training goes on from threads to MPI ranks and back, with the losses of the one that was not interrupted") {
  const Job whole, threads, processes, again;
  REQUIRE(whole.run(steps + " --ranks 2").status == 0);
  const auto losses = losses_in(whole.folder);
  REQUIRE(losses.size() == 12);
  const std::string checkpoints = threads.folder.file("checkpoints");
  REQUIRE(threads.run(steps + " --ranks 2 --save checkpoints --save-every 5").status == 0);
  REQUIRE(fs::exists(checkpoints + "/step_00000010"));
  std::ofstream(checkpoints + "/latest") << io::sealed_text("step_00000010\n");
  const Result moved =
      mpirun(2, DSPP_TRAIN_GPT, steps + " --save checkpoints --resume " + checkpoints, processes.folder);
  CAPTURE(moved.err);
  REQUIRE(moved.status == 0);
  CHECK(losses_in(processes.folder) == std::vector<std::string>(losses.end() - 2, losses.end()));
  for (const char* file : {"model.safetensors", "optimizer.safetensors", "state.json"})
    CHECK(processes.folder.read(std::string("checkpoints/step_00000012/") + file) ==
          threads.folder.read(std::string("checkpoints/step_00000012/") + file));
  REQUIRE(again.run(steps + " --ranks 2 --resume " + processes.folder.file("checkpoints")).status == 0);
  CHECK(losses_in(again.folder).empty());
  const auto validation = [](const Job& job) {
    return json_tree(job.folder.read("result.json"), "a result").find("val_loss")->real;
  };
  CHECK(validation(again) == validation(whole));
}

TEST_CASE("bad input under mpirun is refused in one sentence with status 2") {
  for (const char* options :
       {"--data absent.txt", "--layers four", "--data text.txt --ranks 3", "--data text.txt --save checkpoints"}) {
    CAPTURE(options);
    const Job job;
    job.folder.write("checkpoints/step_00000001/state.json", "{}");
    const Result result = mpirun(2, DSPP_TRAIN_GPT, options, job.folder);
    CAPTURE(result.err);
    CHECK(result.status == 2);
    CHECK(sentences_of(result.err).size() == 1);
  }
}

TEST_CASE("options, data and programs that differ between MPI ranks end the job with the difference and the rank") {
  struct Difference {
    std::string options, sentence, program = DSPP_TRAIN_GPT;
  };
  const std::string who = "dspp: train_gpt needs the same on every rank, but ";
  const std::vector<Difference> differences{
      {"--lr 0.5", who + "'--lr' is 0.5 on rank 1 and 0.002 on rank 0"},
      {"--micro-batch 3", who + "'--micro-batch' is 3 on rank 1 and 2 on rank 0"},
      {"--heads 4", who + "'--heads' is 4 on rank 1 and 2 on rank 0"},
      {"--seed 7", "dspp: run needs the same on every rank, but 'seed' is 7 on rank 1 and 1 on rank 0"},
      {"--data other.txt", "dspp: batches() needs the same on every rank, but 'digest of the data' is "},
      {"", "dspp: run needs the same on every rank, but 'ZeRO stage' is ", DSPP_TRAIN_GPT_TP},
  };
  for (const Difference& difference : differences) {
    const Job job;
    std::string other = some_text();
    other[7] = '#';
    job.folder.write("other.txt", other);
    const Result result =
        mpirun_each({{DSPP_TRAIN_GPT, steps}, {difference.program, steps + " " + difference.options}}, job.folder);
    CAPTURE(difference.options);
    CAPTURE(result.err);
    CHECK(result.status == 2);
    const auto sentences = sentences_of(result.err);
    REQUIRE(sentences.size() == 1);
    CHECK(sentences[0].find(difference.sentence) != std::string::npos);
  }
}

TEST_CASE("a job with a killed rank ends with an error that names the rank, and its metrics can be read") {
  const Job job;
  Process process(DSPP_MPIRUN, words("-n 2 " DSPP_TRAIN_GPT " --data text.txt --steps 1000000" + small_model),
                  job.folder);
  REQUIRE(wait_until([&] { return lines_of(metrics_in(job.folder)).size() > 5; }));
  // The second process of this program: the one of mpirun's children with the higher number.
  REQUIRE(std::system(("kill -9 $(pgrep -P " + std::to_string(process.id()) + " -x train_gpt | sort -n | tail -n 1)")
                          .c_str()) == 0);
  const Result result = process.wait();
  CAPTURE(result.err);
  CHECK(result.status != 0);
  const auto said = sentences_of(result.err);
  REQUIRE(said.size() == 1);
  CHECK(said[0].find("dspp: rank 0 needs rank 1") == 0);
  CHECK(said[0].find(" is gone. ") != std::string::npos);
  const auto lines = lines_of(metrics_in(job.folder));
  CHECK(lines.size() > 5);
  for (const std::string& line : lines) CHECK(json_tree(line, "a line of metrics").find("loss") != nullptr);
}

TEST_CASE(
    "Ctrl-C under ./dspp train --mpi, or a terminal that hangs up, ends the step on every rank, saves and reports") {
  for (int signal : {SIGINT, SIGHUP}) check_ends_well(signal);
}

TEST_CASE(
    "a standard output that takes nothing is one sentence and status 2 of ./dspp train --mpi, and nothing is lost") {
  for (const char* where : {">/dev/full", ">&-", "| true"}) {
    CAPTURE(where);
    const Job job;
    const std::string line = scripts +
                             "{ (start_processes 2 " DSPP_TRAIN_GPT " --data text.txt --steps 3 --save checkpoints" +
                             small_model + "); echo $? >status; } " + where;
    const Result result = Process("/bin/sh", {"-c", line}, job.folder).wait();
    CAPTURE(result.err);
    CHECK(job.folder.read("status") == "2\n");
    CHECK(
        sentences_of(result.err) ==
        std::vector<std::string>{"dspp: train_gpt needs a standard output that takes what it prints, but it does not. "
                                 "Free space there, or send it elsewhere."});
    CHECK(fs::exists(job.folder.path / "checkpoints" / "step_00000003"));
  }
}

TEST_CASE("./dspp train --mpi ends if no process reads its output, on either stream") {
  const Job job;
  const std::string line = scripts + "{ (start_processes 2 " DSPP_TRAIN_GPT " --data text.txt --steps 3" + small_model +
                           "); echo $? >status; } 2>&1 | true";
  Process("/bin/sh", {"-c", line}, job.folder).wait();
  CHECK(job.folder.read("status") == "2\n");
  CHECK(lines_of(metrics_in(job.folder)).size() == 3);
}

TEST_CASE("a second Ctrl-C under ./dspp train --mpi ends the job") {
  const Job job;
  JobOfScript running("--data text.txt --seconds 60" + small_model + " --sample 1000000", job.folder);
  REQUIRE(wait_until([&] { return lines_of(metrics_in(job.folder)).size() > 3; }));
  running.press_ctrl_c();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // now it evaluates, or samples without end
  const auto start = Clock::now();
  running.press_ctrl_c();
  CHECK(running.wait().status == 128 + SIGINT);
  CHECK(seconds_since(start) < 10);
}

TEST_CASE("a kill -9 of ./dspp train --mpi leaves no process") {
  const Job job;
  JobOfScript running("--data text.txt --seconds 60 --save checkpoints" + small_model, job.folder);
  REQUIRE(wait_until([&] { return lines_of(metrics_in(job.folder)).size() > 3; }));
  CHECK(processes_in(job.folder) >= 4);  // a shell, mpirun and two ranks
  const auto start = Clock::now();
  running.kill_the_shell();
  running.wait();
  CHECK(wait_until([&] { return processes_in(job.folder) == 0; }));
  CHECK(seconds_since(start) < 10);
}
