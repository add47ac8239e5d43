// SPDX-License-Identifier: Apache-2.0
// A standard output that cannot be written is an error of every program; none opens a file in place of a closed one.
#include <examples/job.hpp>

using namespace dspp;
using namespace dspp::examples;

namespace {

struct Case {
  std::string who, command;
};

std::vector<Case> cases() {
  const std::string train = DSPP_TRAIN_GPT " --data text.txt --steps 2 --save states" + small_model;
  return {{"train_gpt", train},
          {"train_gpt", DSPP_TRAIN_GPT " --help"},
          {"tokenize", DSPP_TOKENIZE " --input text.txt --output out"},
          {"tokenize", DSPP_TOKENIZE " --help"},
          {"compare_strategies", DSPP_COMPARE_STRATEGIES},
          {"tiled_linear", DSPP_TILED_LINEAR},
          {"train_larger_than_memory", DSPP_TRAIN_LARGER},
          {"classify_images", DSPP_CLASSIFY_IMAGES},
          {"match_pairs", DSPP_MATCH_PAIRS},
          {"fill_masks", DSPP_FILL_MASKS " --text text.txt --steps 1"},
          {"complete_text", DSPP_COMPLETE_TEXT " --text text.txt --steps 1"}};
}

/// The file size limit: `full` is that long, and the programs' files are shorter.
constexpr rlim_t largest_file_bytes = 1 << 27;

Result in_shell(const Job& job, const std::string& line) {
  job.folder.write("full", "");
  fs::resize_file(job.folder.path / "full", largest_file_bytes);
  return Process("/bin/sh", {"-c", line}, job.folder, largest_file_bytes).wait();
}

}  // namespace

TEST_CASE("a standard output that is full, at its limit, closed or without a reader is one sentence and status 2") {
  for (const Case& c : cases())
    for (const char* where : {" >/dev/full", " >>full", " >&-", " | true"}) {
      const bool piped = where[1] == '|';
      CAPTURE(c.command + where);
      const Job job;
      // The shell ignores SIGPIPE, so that a pipe without a reader makes the write fail.
      const std::string with_status = "trap '' PIPE; { sleep 0.3; " + c.command + "; echo $? >status; }" + where;
      const Result result = in_shell(job, piped ? with_status + "; exit $(cat status)" : c.command + where);
      CAPTURE(result.err);
      CHECK(result.status == 2);
      CHECK(lines_of(result.err).size() == 1);
      CHECK(result.err.find("dspp: " + c.who + " needs a standard output that takes what it prints") == 0);
      CHECK_FALSE(job.folder.read("text.txt").empty());
    }
}
