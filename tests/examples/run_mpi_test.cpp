// SPDX-License-Identifier: Apache-2.0
// run() under mpirun: the number of ranks, which rank prints, and how the job ends when a rank fails.
#include <unistd.h>

#include <examples/mpi.hpp>
#include <laws/without_sites.hpp>

using namespace dspp::examples;

namespace {

using Sentences = std::vector<std::string>;

/// The program of tests/support, without variables of a launcher that started the tests.
Result run_program(int ranks, const std::string& options, const char* program = DSPP_MPI_PROGRAM) {
  const Folder folder;
  return mpirun(ranks, program, options, folder);
}

void check_fails(int ranks, const std::string& options, int status, const Sentences& sentences) {
  CAPTURE(options);
  CAPTURE(ranks);
  const auto start = Clock::now();
  const Result result = run_program(ranks, options);
  CAPTURE(result.err);
  CHECK(result.status == status);
  Sentences said = sentences_of(result.err);
  for (std::string& sentence : said) sentence = dspp::laws::without_sites(sentence);
  CHECK(said == sentences);
  CHECK(seconds_since(start) < 20);
}

}  // namespace

TEST_CASE("run takes the ranks that mpirun started, and only rank 0 prints") {
  for (int ranks : {1, 2, 3, 4}) {
    const Result result = run_program(ranks, "");
    CAPTURE(result.err);
    CHECK(result.status == 0);
    CHECK(result.out == "sum " + std::to_string(ranks * (ranks - 1) / 2) + " of " + std::to_string(ranks) + "\n");
    CHECK(result.err.empty());
  }
}

TEST_CASE(
    "sequences that MPI ranks share are trained on with the losses, norms and parameters of thread ranks, bit for "
    "bit") {
  for (int ranks : {2, 4}) {
    CAPTURE(ranks);
    const Folder folder;
    const Result threads = Process(DSPP_MPI_TRAINING, {std::to_string(ranks)}, folder).wait();
    const Result processes = run_program(ranks, "", DSPP_MPI_TRAINING);
    CAPTURE(threads.err);
    CAPTURE(processes.err);
    REQUIRE(threads.status == 0);
    REQUIRE(processes.status == 0);
    CHECK(threads.out.find("step 9: ") != std::string::npos);
    CHECK(threads.out.find("norm.weight ") != std::string::npos);
    CHECK(processes.out == threads.out);
  }
}

TEST_CASE("by MPI's own collectives the four stages train with the same losses, norms and parameters, bit for bit") {
  for (int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    const Result result = run_program(ranks, "", DSPP_MPI_STAGES);
    CAPTURE(result.err);
    REQUIRE(result.status == 0);
    std::vector<std::string> stages;
    for (const std::string& line : lines_of(result.out)) {
      if (line == "stage")
        stages.emplace_back();
      else
        stages.back() += line + "\n";
    }
    REQUIRE(stages.size() == 4);
    CHECK(stages[0].find("norm.weight ") != std::string::npos);
    for (int stage : {1, 2, 3}) CHECK(stages[static_cast<std::size_t>(stage)] == stages[0]);
  }
}

TEST_CASE("ranks that mpirun started on one machine are on one node, and refuse to be placed otherwise") {
  const Result three = run_program(3, "nodes");
  CHECK(three.status == 0);
  CHECK(lines_of(three.out) == Sentences{"3 ranks on 1 node", "sum 3 of 3"});
  check_fails(2, "ranks_per_node 1", 2,
              {"dspp: run needs the nodes that mpirun placed the ranks on, but is asked for 1 ranks per node. Leave "
               "RunOptions::ranks_per_node, or --ranks-per-node, out."});
}

TEST_CASE("an error of any rank is printed once, and is the status of the job") {
  for (int culprit : {0, 1, 2}) {
    const std::string of = " " + std::to_string(culprit);
    check_fails(3, "throws" + of, 2, {"dspp: a file is gone."});
    check_fails(3, "throws_other" + of, 1,
                {"dspp: rank" + of + " stopped with an error of its own: the cat sat on it"});
  }
}

TEST_CASE("ranks that call different collectives end the job with the sentence that names both") {
  check_fails(3, "differs 2", 1,
              {"dspp: the ranks of the world call different collectives, the 2nd of this group: rank 0 calls "
               "all_reduce(f32 x 1), but rank 2 calls barrier. Make every rank call the same operations in the same "
               "order."});
}

TEST_CASE("a rank that ends early ends the job, and is named") {
  check_fails(
      2, "ends 1", 1,
      {"dspp: rank 0 needs rank 1 in all_reduce(f32 x 1), the 2nd operation of the world, but rank 1 has ended. "
       "Make every rank call the same operations."});
}

TEST_CASE("a rank that does not call is named after the timeout, once, and the job is ended, whichever rank it is") {
  for (int i = 0; i < 2; ++i) {
    const Result result = run_program(4, "stays_away 0");
    CAPTURE(result.err);
    CHECK(result.status == 1);
    REQUIRE(sentences_of(result.err).size() == 1);
    CHECK(sentences_of(result.err)[0].find(" needs rank 0 in all_reduce(f32 x 1), the 2nd operation of the world, but "
                                           "waited 3 s and it did not come.") != std::string::npos);
  }
  check_fails(2, "stays_away 1", 1,
              {"dspp: rank 0 needs rank 1 in all_reduce(f32 x 1), the 2nd operation of the world, but waited 3 s and "
               "it did not come. Look for what keeps them, or raise timeout_seconds."});
}

TEST_CASE("a rank whose process is gone is named at once, with its process, its host and the operation") {
  char host[64] = {};
  REQUIRE(gethostname(host, sizeof host - 1) == 0);
  for (const char* how : {"exits", "exits_well", "killed", "killed_hard"})
    for (int ranks : {2, 4})
      for (int culprit = 0; culprit < ranks; culprit += ranks - 1) {
        const std::string other = "rank " + std::to_string(culprit);
        CAPTURE(how);
        CAPTURE(ranks);
        CAPTURE(culprit);
        const auto start = Clock::now();
        const Result result = run_program(ranks, how + (" " + std::to_string(culprit)));
        CAPTURE(result.err);
        CHECK(result.status != 0);
        const Sentences said = sentences_of(result.err);
        // Open MPI 5 prints nothing more of the others after an exit status that is not 0, but names the rank itself.
        if (how == std::string("exits") && said.empty() && result.err.find("prterun detected") != std::string::npos) {
          CHECK(result.err.find("@1," + std::to_string(culprit) + "]") != std::string::npos);
          continue;
        }
        REQUIRE(said.size() == 1);
        CHECK(said[0].find(" needs " + other + " in all_reduce(f32 x 1), the ") != std::string::npos);
        CHECK(said[0].find(" operation of the world, but process ") != std::string::npos);
        CHECK(said[0].find(" of " + other + " on " + host + " is gone. ") != std::string::npos);
        CHECK(seconds_since(start) < 20);
      }
}

TEST_CASE("a number of ranks that mpirun did not start is refused") {
  check_fails(2, "three", 2,
              {"dspp: run needs as many ranks as were started, but is asked for 3 and OMPI_COMM_WORLD_RANK says rank 0 "
               "of 2. Leave RunOptions::ranks, or --ranks, out under mpirun."});
}

TEST_CASE("a program built without MPI refuses to be several ranks, and runs alone") {
  const Result two = run_program(2, "", DSPP_MPI_PROGRAM_WITHOUT);
  CAPTURE(two.err);
  CHECK(two.status == 2);
  CHECK(sentences_of(two.err) ==
        Sentences{"dspp: run needs a program built with MPI for the 2 ranks that OMPI_COMM_WORLD_RANK names, but this "
                  "one was built without. Link dspp::mpi, or set MASTER_ADDR and MASTER_PORT, or start it without "
                  "mpirun."});
  CHECK(run_program(1, "", DSPP_MPI_PROGRAM_WITHOUT).out == "sum 0 of 1\n");
}

TEST_CASE("a launcher that disagrees with mpirun is named, and so is mpirun") {
  setenv("SLURM_PROCID", "7", 1);
  setenv("SLURM_NTASKS", "9", 1);
  const Result result = run_program(2, "");
  unsetenv("SLURM_PROCID");
  unsetenv("SLURM_NTASKS");
  CAPTURE(result.err);
  CHECK(result.status == 2);
  const auto says = [&](const std::string& rank) {  // which of them is first is mpirun's affair
    return result.err.find("OMPI_COMM_WORLD_RANK says rank " + rank + " of 2 and SLURM_PROCID says rank 7 of 9") !=
           std::string::npos;
  };
  CHECK((says("0") || says("1")));
}
