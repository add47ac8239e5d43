// SPDX-License-Identifier: Apache-2.0
/// The options of the examples that train on a text, and their main().
#pragma once

#include <cstdio>
#include <string>

#include <dspp/app/options.hpp>
#include <dspp/app/output.hpp>
#include <dspp/data/text.hpp>
#include <dspp/launch/run.hpp>

namespace text_job {

struct Job {
  std::string text;
  dspp::Size steps = 0;
  dspp::RunOptions run{};
};

/// Reads the options and runs `train(job)`, which returns an exit status.
template <class Train>
int main_of(const char* name, const char* purpose, dspp::Size steps, int argc, char** argv, Train train) {
  using namespace dspp;
  hold_standard_streams();
  try {
    Job job{.text = {}, .steps = steps};
    Size ranks = 1, seed = 0;  // read_run_options reads these, too, and what launchers add
    std::string local_rank;
    Options options(name, purpose);
    options.add("--text", job.text, TextKind::path, "a text file, or a folder whose text files are read: of bytes");
    options.add("--steps", job.steps, WholeRange{1, 1'000'000'000}, "of training");
    options.add("--ranks", ranks, WholeRange{1, 1024}, "in all, threads of this process");
    options.add("--seed", seed, WholeRange{0, 999'999'999'999'999'999}, "of the initial weights");
    for (const char* launcher : {"--local_rank", "--local-rank"}) options.accept(launcher, local_rank);
    if (!options.read(argc, argv)) {
      std::fputs(options.help().c_str(), stdout);
      return output_status(name);
    }
    if (job.text.empty())
      fail(ErrorCode::usage,
           std::string("dspp: ") + name + " needs --text, but it is not given. Write for example --text a/path.");
    job.run = read_run_options(argc, argv);
    const int status = train(job);
    return status != 0 ? status : output_status(name);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}

}  // namespace text_job
