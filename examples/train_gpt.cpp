// SPDX-License-Identifier: Apache-2.0
/// Trains a GPT on the bytes of any text, or on token files: ./dspp train [--data PATH | --tokens FOLDER] [--layers N]
/// ..., --help lists all options.
#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <type_traits>

#include <dspp/app/output.hpp>
#include <dspp/base/out_of_memory.hpp>
#include <dspp/engine/batches.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/engine/evaluate.hpp>
#include <dspp/engine/generate.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

#include "train_gpt/begin.hpp"
#include "train_gpt/gemm_limit.hpp"
#include "train_gpt/job.hpp"
#include "train_gpt/machine.hpp"
#include "train_gpt/pace.hpp"
#include "train_gpt/policy_name.hpp"
#include "train_gpt/report.hpp"
#include "train_gpt/source.hpp"
#include "train_gpt/step_memory.hpp"
#include "train_gpt/step_profile.hpp"

using namespace dspp;
using namespace train_gpt;

// The strategy. Change it here, or build with another: ./dspp train --policy "Policy<Zero<3>, Bf16, Tp<2>>"
#ifdef DSPP_TRAIN_POLICY_HEADER
#include DSPP_TRAIN_POLICY_HEADER
#else
using TrainPolicy = Policy<Zero<2>, FastPrecision>;
#endif

using Model = Gpt<TrainPolicy>;

/// Generated text, the prompt included.
static std::string sample_text(auto& engine, const Job& job, const Source& source) {
  if (job.sample == 0) return {};
  const auto seed = static_cast<std::uint64_t>(job.seed);
  const std::vector<std::int32_t> prompt = source.encode(job.prompt);
  auto text = generate(engine, prompt, {.tokens = job.sample, .sequence = job.model.sequence, .seed = seed});
  text.insert(text.begin(), prompt.begin(), prompt.end());
  return as_ascii(source.decode(text));
}

static OffloadConfig offload_of(const Job& job) {
  constexpr bool to_host = TrainPolicy::optimizer_tier == Tier::host || TrainPolicy::parameter_tier == Tier::host ||
                           TrainPolicy::activation_tier == Tier::host;
  const auto part = [&](Tier tier) {  // where nothing is moved to the host, the engine says so
    return OffloadPart{.share = !to_host || tier == Tier::host ? job.offload_share : 1};
  };
  return {.folder = job.offload_folder,
          .optimizer = part(TrainPolicy::optimizer_tier),
          .parameters = part(TrainPolicy::parameter_tier),
          .activations = part(TrainPolicy::activation_tier)};
}

static PlanOptions plan_options(const Job& job) {
  const Launch launch = this_launch();
  return {.data = static_cast<int>(job.ranks) / (TrainPolicy::cp * TrainPolicy::tp),
          .ranks_per_node =
              launch.size > 1 ? std::min(launch.local_size, launch.size) : static_cast<int>(job.ranks_per_node),
          .prefetch_bytes = job.prefetch_bytes,
          .live_bytes = job.live_bytes,
          .offload = offload_of(job),
          .zenflow = job.zenflow,
          .sum_order = job.sum_order};
}

/// The program of each rank.
static void train(World<TrainPolicy>& world, const Job& job, const std::shared_ptr<const Source>& source,
                  const Plan& paper, const Interrupt& interrupt) {
  require_same_on_all_ranks(world.host(), "train_gpt", job.options);
  world.memory().set_remedies(&job, plan_remedies<Model>(job.model, job.sizes(), plan_options(job)));
  Engine engine{world, Model(job.model), AdamW{.lr = job.lr, .beta2 = 0.99, .weight_decay = 0.1}, job.sizes(),
                EngineConfig{.clip_norm = 1,
                             .prefetch_bytes = job.prefetch_bytes,
                             .live_bytes = job.live_bytes,
                             .offload = offload_of(job),
                             .zenflow = job.zenflow}};
  const Start start = begin(engine, job, *source);
  const double limit = gemm_limit(world, job);
  std::optional<Report> report;
  if (world.is_first()) report.emplace(job, PolicyName<TrainPolicy>::text(), paper, limit);

  const auto data = batches(world, source, job.sizes(), batches_from(job, start));
  const Size tokens_per_step = job.micro_batch * job.accumulate * job.model.sequence * world.data_size();
  world.memory().reset_peak();
  const Traffic before = world.traffic();
  const Size checked_before = engine.rank_check().count();
  Traffic of_saving;
  StepProfile profile(engine, job);
  PlanOptions of_rank = plan_options(job);
  of_rank.rank = world.place();
  world.memory().lay_out_next(plan_timeline<Model>(job.model, job.sizes(), of_rank, 0));
  StepMemory<Model> memory(world.memory(), job, world.is_first());
  Pace pace(job, interrupt, world.host(), start.taken, start.skipped);
  Size saved = job.resume == job.save ? start.taken : -1;  // the step of the last checkpoint
  const auto save_now = [&] {
    if (saved == pace.step()) return;
    saved = pace.step();
    const Size next_sample = source->is_stream() ? data.next_sample(pace.step() - start.taken) : 0;
    save(engine, job, start, pace.step(), next_sample);
  };
  while (!pace.over()) {
    engine.set_learning_rate(pace.learning_rate());
    memory.begin_step();
    const StepReport done = engine.train_batch(data.step(pace.step() - start.taken));
    memory.end_step();
    pace.end_step(done.loss, done.skipped, world.host());
    if (report) report->step(pace, done, engine.learning_rate(), tokens_per_step);
    if (job.save_every == 0 || pace.step() % job.save_every != 0 || pace.over()) continue;
    engine.replicas().complete_all();
    const Traffic without = world.traffic();
    save_now();
    of_saving = of_saving + (world.traffic() - without);
  }
  engine.replicas().complete_all();  // what the last step gathers counts, too
  const Size steps = pace.step() - start.taken;
  Outcome outcome{.train_seconds = pace.seconds(),
                  .before = start.taken,
                  .steps = steps,
                  .skipped = engine.skipped_steps() - start.skipped,
                  .tokens = steps * tokens_per_step,
                  .interrupted = pace.interrupted(),
                  .peak_by_category = world.memory().peak_by_category(),
                  .peak = world.memory().peak(),
                  .peak_reserved = world.memory().peak_reserved(),
                  .host = engine.replicas().host_bytes(),
                  .disk = engine.state().disk_bytes(),
                  .traffic = world.traffic() - before - of_saving,
                  // ZenFlow's selections are counted with them
                  .checks = TrainPolicy::selects_rows ? 0 : engine.rank_check().count() - checked_before};
  outcome.profile = profile.finish([&](const Rates& rates) {
    PlanOptions options = of_rank;
    options.rates = rates;
    return plan<Model>(job.model, job.sizes(), options).seconds;
  });
  engine.end_update();  // what is evaluated is what a save would hold
  require_finite_parameters(engine, "a trained model");
  if (!job.save.empty()) save_now();
  const Evaluation held_out = evaluate(engine, source, held_out_sizes(job), held_out_windows(pace.interrupted()));
  outcome.validation_loss = held_out.loss;
  outcome.validation_tokens = held_out.tokens;
  outcome.sample = sample_text(engine, job, *source);
  outcome.resident = peak_resident_bytes();
  if (report) report->finish(outcome);
  memory.write(plan_options(job), start.taken);
  profile.write_trace(world.is_first());
}

/// Checks the job, then starts the ranks.
static int start(int argc, char** argv, const Launch& launch) {
  const Interrupt interrupt;
  using D = DeviceOf<TrainPolicy>;
  Job job = read_job(argc, argv, std::is_same_v<D, Cpu> ? "cpu" : "cuda", launch);
  if (job.help) return launch.is_first() ? output_status("train_gpt") : 0;
  if (job.ranks == 0) job.ranks = default_ranks<D>(TrainPolicy::cp * TrainPolicy::tp);
  check_extents<TrainPolicy>(job);
  require(
      TrainPolicy::selects_rows || job.zenflow == ZenFlowConfig{},
      "dspp: --topk-ratio, --update-interval and --select-interval need a policy with ZenFlow, but this one has none. "
      "Add it by --policy, or leave them out.");
  check_paths(job);
  check_save(job);
  if (!job.resume.empty()) job.split = split_of_resumed(job.resume);
  const auto source = read_source(job);
  job.model.vocabulary = source->vocabulary();
  const auto paper = plan<Model>(job.model, job.sizes(), plan_options(job));
  check_pool_limit(job.pool_limit, paper.peak);
  check_memory<D>(job.ranks, launch, paper.peak + paper.host);
  const RunOptions options{.ranks = static_cast<int>(job.ranks),
                           .seed = static_cast<std::uint64_t>(job.seed),
                           .memory_limit_bytes = job.pool_limit,
                           .timeout_seconds = job.timeout,
                           .ranks_per_node = static_cast<int>(job.ranks_per_node),
                           .sum_order = job.sum_order,
                           .async_progress = job.async_progress};
  if (launch.is_first())
    std::printf("%s, %lld %s%s, %.2f M parameters; %s of %s\n", PolicyName<TrainPolicy>::text().c_str(),
                static_cast<long long>(job.ranks),
                launch.size > 1 ? "ranks as processes"
                : job.ranks > 1 ? "ranks as threads"
                                : "rank as a thread",
                std::is_same_v<D, Cpu> && has_progress_thread(options, launch) ? ", each with a progress thread" : "",
                static_cast<double>(paper.parameters) / 1e6, source->summary().c_str(),
                printable(job.tokens.empty() ? job.data : job.tokens).c_str());
  if (const int failed = launch.is_first() ? output_status("train_gpt") : 0) return failed;
  const int status =
      run<TrainPolicy>(options, [&](World<TrainPolicy>& world) { train(world, job, source, paper, interrupt); });
  return status != 0 || !launch.is_first() ? status : output_status("train_gpt");
}

int main(int argc, char** argv) {
  Launch launch;
  hold_standard_streams();
  try {
    launch = this_launch();
    return start(argc, argv, launch);
  } catch (const Error& error) {
    report_final_error(launch, error.what());
  } catch (const std::bad_alloc&) {
    report_final_error(launch, std::string("dspp: train_gpt") + out_of_memory_words);
  } catch (const std::exception& error) {
    report_final_error(launch, "dspp: train_gpt could not begin: " + printable(error.what()));
  }
  return 2;
}
