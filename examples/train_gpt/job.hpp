// SPDX-License-Identifier: Apache-2.0
/// The options of train_gpt, and the checks that precede any writing.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <dspp/app/options.hpp>
#include <dspp/base/error.hpp>
#include <dspp/comm/async_progress.hpp>
#include <dspp/comm/sum_order.hpp>
#include <dspp/data/batches.hpp>
#include <dspp/data/text.hpp>
#include <dspp/io/checkpoint_names.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/models/gpt.hpp>

#ifndef DSPP_DEFAULT_TEXT
#define DSPP_DEFAULT_TEXT ""  // the build names the folder of Eigen's headers
#endif

namespace train_gpt {

using dspp::Size;

struct Job {
  std::string data = DSPP_DEFAULT_TEXT;
  std::string tokens;  ///< instead of data
  dspp::GptConfig model{.layers = 2, .width = 208, .heads = 8, .sequence = 64, .init_std = 0.06};
  Size micro_batch = 4;
  Size accumulate = 1;
  double lr = 2e-3;
  Size steps = 0;  ///< 0 with `by_time`: as many as fit
  double seconds = 55;
  bool by_time = true;
  Size ranks = 0;           ///< 0: default_ranks()
  Size ranks_per_node = 0;  ///< of ranks as threads; 0: all
  std::string device = "cpu";
  std::string offload_folder = ".";
  double offload_share = 1;
  dspp::ZenFlowConfig zenflow{};  ///< of a policy with ZenFlow
  Size pool_limit = 0;            ///< bytes of a rank's pool; 0: none
  Size prefetch_bytes = dspp::next_unit, live_bytes = 0;
  Size seed = 1;
  bool seed_given = false;
  double timeout = 600;
  dspp::SumOrder sum_order = dspp::SumOrder::rank;
  dspp::AsyncProgress async_progress = dspp::AsyncProgress::automatic;
  dspp::data::TextSplit split = dspp::data::TextSplit::blocks;  ///< of a resumed training, as it began
  std::string save, load, resume, json, trace, memory_map;
  bool profile = false;
  Size save_every = 0;  ///< 0: at the end only
  Size sample = 200;
  std::string prompt = "\n";
  bool help = false;
  dspp::Facts options{};  ///< must be equal on every rank

  dspp::BatchSizes sizes() const {
    return {.micro_batch = micro_batch, .sequence = model.sequence, .accumulate = accumulate};
  }
};

/// The job of a command line; with `help`, after printing the options. Under mpirun the ranks are those it started. The
/// program was built for `device`.
///
/// Throws   Error(usage)
inline Job read_job(int argc, char** argv, const std::string& device, const dspp::Launch& launch) {
  Job job;
  job.device = device;
  const bool launched = launch.size > 1;
  if (launched) job.ranks = launch.size;
  Size layers = job.model.layers, segments = job.model.recompute_segments;
  dspp::Options options("train_gpt",
                        "Trains a GPT on a text or on token files. Ctrl-C ends the step, saves and reports;\n"
                        "under an mpirun of your own, SIGUSR1 to that does.");
  using dspp::RealRange, dspp::TextKind, dspp::WholeRange;
  options.add("--data", job.data, TextKind::path, "a text file, or a folder whose text files are read: of bytes",
              job.data.empty() ? "none" : "the headers of Eigen");
  options.add("--tokens", job.tokens, TextKind::path, "in place of --data a folder that ./dspp tokenize wrote");
  options.add("--layers", layers, WholeRange{1, 1024}, "blocks of the model");
  options.add("--width", job.model.width, WholeRange{1, 16384}, "features of the residual stream");
  options.add("--heads", job.model.heads, WholeRange{1, 1024}, "of attention; they divide the width");
  options.add("--sequence", job.model.sequence, WholeRange{1, 65536}, "bytes or tokens that the model sees at once");
  options.add("--micro-batch", job.micro_batch, WholeRange{1, 4096}, "sequences per replica and micro-step");
  options.add("--accumulate", job.accumulate, WholeRange{1, 4096}, "micro-steps per step");
  options.add("--recompute-segments", segments, WholeRange{1, 1024},
              "of the blocks; all but the last keep their input and run again in backward");
  options.add("--lr", job.lr, RealRange{1e-8, 10}, "learning rate after the warm-up");
  options.add("--steps", job.steps, WholeRange{0, 1'000'000'000}, "in all, those before a --resume too",
              "as many as fit");
  options.add("--seconds", job.seconds, RealRange{0.1, 1e9}, "of this run, with which its learning rate ends",
              "55, or no limit with --steps");
  options.add("--ranks", job.ranks, WholeRange{1, 256}, "that train together: threads, or what mpirun started",
              "2, on cuda one a GPU, or as many as the policy needs");
  options.add("--ranks-per-node", job.ranks_per_node, WholeRange{0, 256},
              "of ranks as threads, for a policy that shards by node", "all");
  options.add("--device", job.device, TextKind::any, "cpu, or cuda: what the program was built for");
  options.add("--offload-folder", job.offload_folder, TextKind::path,
              "where what --offload moves to a disk is, in files without names", "the current one");
  options.add("--offload-share", job.offload_share, RealRange{0, 1}, "of what --offload moves to the host's memory");
  options.add("--topk-ratio", job.zenflow.topk_ratio, RealRange{0, 1}, "of rows that ZenFlow updates in each step");
  options.add("--update-interval", job.zenflow.update_interval, WholeRange{1, 1'000'000},
              "steps between ZenFlow's updates of the other rows");
  options.add("--select-interval", job.zenflow.select_interval, WholeRange{1, 1'000'000},
              "steps between ZenFlow's selections of rows");
  std::string pool_limit, prefetch, live;
  options.add("--pool-limit", pool_limit, TextKind::any, "of each rank's pool of memory, such as 64MiB or 2GiB",
              "the machine's memory");
  options.add("--prefetch-bytes", prefetch, TextKind::any, "of values gathered before they are used, under Zero<3>",
              "the next block's");
  options.add("--live-bytes", live, TextKind::any, "of values that stay gathered until backward, under Zero<3>", "0");
  options.add("--timeout", job.timeout, RealRange{0.1, 1e9}, "seconds that a rank waits for another before all stop");
  std::string sum_order = name_of(job.sum_order);
  options.add("--sum-order", sum_order, TextKind::any,
              "of gradients over the ranks: rank, or transport, in which MPI reduces");
  std::string async_progress = name_of(job.async_progress);
  options.add("--async-progress", async_progress, TextKind::any,
              "a thread of each rank on the Cpu for its collectives; auto: with a core");
  options.add("--seed", job.seed, WholeRange{}, "of initial values, batches and the sample");
  options.add("--save", job.save, TextKind::path, "folder of this training's checkpoints; the last two stay");
  options.add("--save-every", job.save_every, WholeRange{0, 1'000'000'000}, "steps between saves", "only at the end");
  options.add("--resume", job.resume, TextKind::path,
              "folder whose newest checkpoint to go on from, or one checkpoint in it");
  options.add("--load", job.load, TextKind::path, "folder of weights, or of checkpoints, to begin with");
  options.add("--json", job.json, TextKind::path, "file for the figures at the end");
  options.add("--profile", job.profile, "prints where the time of the steps went, by pass, layer and operation");
  options.add("--trace", job.trace, TextKind::path, "file for a timeline of the steps, which ui.perfetto.dev shows");
  options.add("--memory-map", job.memory_map, TextKind::path,
              "file for the blocks of a step, planned and measured, with times and places");
  options.add("--sample", job.sample, WholeRange{0, 1'000'000}, "bytes or tokens to generate at the end");
  options.add("--prompt", job.prompt, TextKind::any, "what the sample goes on from", "a new line");
  std::string local_rank;
  for (const char* name : {"--local_rank", "--local-rank"}) options.accept(name, local_rank);
  job.help = !options.read(argc, argv);
  job.sum_order = dspp::sum_order_named("--sum-order", sum_order);
  job.async_progress = dspp::async_progress_named("--async-progress", async_progress);
  if (options.given("--prefetch-bytes")) job.prefetch_bytes = dspp::bytes_named("--prefetch-bytes", prefetch, 0);
  if (options.given("--live-bytes")) job.live_bytes = dspp::bytes_named("--live-bytes", live, 0);
  if (options.given("--pool-limit")) job.pool_limit = dspp::bytes_named("--pool-limit", pool_limit);
  job.options = options.facts();
  if (job.help && launch.is_first()) std::fputs(options.help().c_str(), stdout);
  if (options.given("--local_rank") || options.given("--local-rank")) dspp::check_local_rank(launch, local_rank);
  if (job.device != device)
    dspp::fail(dspp::ErrorCode::usage, "dspp: --device needs to be what this train_gpt was built for, " + device +
                                           ", but got '" + dspp::printable(job.device) +
                                           "'. Start it by ./dspp train --device cuda or cpu, which builds it.");
  if (options.given("--data") && options.given("--tokens"))
    dspp::fail(dspp::ErrorCode::usage,
               "dspp: --tokens needs to be what the model learns, but --data is given, too. Leave one out.");
  if (launched && job.ranks != launch.size)
    dspp::fail(dspp::ErrorCode::usage, "dspp: --ranks needs to be the " + std::to_string(launch.size) +
                                           " ranks that mpirun started, but got " + std::to_string(job.ranks) +
                                           ". Leave it out.");
  if (job.save_every > 0 && job.save.empty())
    dspp::fail(dspp::ErrorCode::usage,
               "dspp: --save-every needs a folder to save in, but there is no --save. Give --save FOLDER.");
  if (!job.resume.empty() && !job.load.empty())
    dspp::fail(dspp::ErrorCode::usage,
               "dspp: --resume needs to be what the training begins with, but --load is given, too. Leave one out.");
  job.model.layers = static_cast<int>(layers);
  job.model.recompute_segments = static_cast<int>(segments);
  job.seed_given = options.given("--seed");
  job.by_time = options.given("--seconds") || !options.given("--steps");
  if (job.prompt.empty()) job.prompt = "\n";
  return job;
}

/// Checks that the policy's degrees and the heads divide their extents.
///
/// Throws   Error(usage) or Error(placement)
template <class P>
void check_extents(const Job& job) {
  const auto& m = job.model;
  const auto divides = [](const char* what, Size number, const char* by, Size divisor) {
    if (number % divisor != 0)
      dspp::fail(dspp::ErrorCode::placement, std::string("dspp: train_gpt needs ") + what + " that " + by +
                                                 " divides, but " + std::to_string(number) + " is not a multiple of " +
                                                 std::to_string(divisor) + ". Change one of them.");
  };
  const char* by = P::cp == 1 ? "the policy's Tp degree" : "the policy's Cp times Tp";
  divides("--ranks", job.ranks, by, P::cp * P::tp);
  divides("a --width", m.width, "the number of --heads", m.heads);
  divides("--heads", m.heads, by, P::cp * P::tp);
  divides("a --sequence", m.sequence, by, P::cp * (P::sequence_parallel ? P::tp : 1));
}

/// Checks that output paths can be written.
///
/// Throws   Error(file)
inline void check_paths(const Job& job) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto refuse = [](const std::string& option, const std::string& path, const std::string& got) {
    dspp::fail(dspp::ErrorCode::file, "dspp: " + option + " needs a path that can be written, but '" + path + "' " +
                                          got + ". Give another path.");
  };
  if (job.data.empty() && job.tokens.empty())
    dspp::fail(dspp::ErrorCode::usage,
               "dspp: train_gpt needs a text, but this build has no default one. Give --data PATH or --tokens FOLDER.");
  const std::vector<std::pair<std::string, std::string>> files = {
      {"--json", job.json}, {"--trace", job.trace}, {"--memory-map", job.memory_map}};
  for (const auto& [option, file] : files) {
    if (file.empty()) continue;
    const fs::path folder = fs::path(file).has_parent_path() ? fs::path(file).parent_path() : fs::path(".");
    if (fs::is_directory(file, error)) refuse(option, file, "is a folder");
    if (!fs::is_directory(folder, error)) refuse(option, file, "lies in a folder that does not exist");
    const bool exists = fs::exists(file, error);
    if (fs::is_fifo(file, error) || fs::is_socket(file, error) || fs::is_block_file(file, error))
      refuse(option, file, "is a pipe, a socket or a disk");
    if (access(exists ? file.c_str() : folder.c_str(), W_OK) != 0) refuse(option, file, "is protected");
    for (const auto& [other_option, other] : files) {
      if (other_option == option) break;
      if (!other.empty() &&
          (fs::absolute(file, error).lexically_normal() == fs::absolute(other, error).lexically_normal() ||
           fs::equivalent(file, other, error)))
        refuse(option, file, "is the file of " + other_option);
    }
  }
  if (!job.save.empty()) {
    fs::path nearest = fs::absolute(job.save, error);
    while (!fs::exists(nearest, error) && nearest.has_relative_path()) nearest = nearest.parent_path();
    if (!fs::is_directory(nearest, error)) refuse("--save", job.save, "leads through a file");
    std::string probe = (nearest / (".tmp-" + std::string(6, 'X'))).string();  // a save creates a folder there, too
    if (mkdtemp(probe.data()) == nullptr)
      refuse("--save", job.save, "takes no folder: " + std::error_code(errno, std::generic_category()).message());
    fs::remove(probe, error);
  }
  if (access(".", W_OK) != 0) refuse("train_gpt", "runs", "would lie in a protected folder");
}

/// Refuses to save into the checkpoints of another run than the resumed one.
///
/// Throws   Error(file)
inline void check_save(const Job& job) {
  if (job.save.empty()) return;
  if (dspp::io::is_checkpoint(job.save))
    dspp::fail(dspp::ErrorCode::file, "dspp: --save needs a folder of checkpoints, but '" + job.save +
                                          "' is a checkpoint. Give the folder that it lies in.");
  const auto there = dspp::io::checkpoints_newest_first(job.save);
  const auto is_saved_in = [&](const std::string& folder) {
    std::error_code error;
    return std::filesystem::equivalent(folder, job.save, error);
  };
  const bool goes_on =
      !job.resume.empty() &&
      (is_saved_in(job.resume) || (dspp::io::is_checkpoint(job.resume) && is_saved_in(job.resume + "/..")));
  // a kill in the first save can leave a checkpoint without `latest`
  const bool named = std::filesystem::exists(job.save + "/latest");
  if (!there.empty() && !goes_on)
    dspp::fail(dspp::ErrorCode::file, "dspp: --save needs a folder without the checkpoints of another training, but '" +
                                          job.save + "' holds '" + there[0] + "'. Go on with that one by --resume " +
                                          job.save + (named ? "" : "/" + there[0]) + ", or give another folder.");
}

/// The batch sizes of a job's evaluation: 4096 tokens, in a limited pool no more than a micro-batch's.
inline dspp::BatchSizes held_out_sizes(const Job& job) {
  const Size most = std::max<Size>(1, 4096 / job.model.sequence);
  return {.micro_batch = job.pool_limit > 0 ? std::min(most, job.micro_batch) : most, .sequence = job.model.sequence};
}

/// The held-out windows of a job: 131,072 tokens, or all; a quarter of that after an interrupt.
inline dspp::data::WindowConfig held_out_windows(bool interrupted = false) {
  return {.at_least_tokens = interrupted ? 32'768 : 131'072};
}

}  // namespace train_gpt
