// SPDX-License-Identifier: Apache-2.0
/// Trains a Llama of parallel blocks on the bytes of a text and prints its loss on the part that is held out:
/// complete_text --text PATH, --help lists all options.
#include "models/parallel_llama.hpp"
#include "text_job.hpp"

using namespace dspp;

using P = Policy<Zero<2>>;
constexpr parallel_llama::Config config;
constexpr BatchSizes sizes{.micro_batch = 8, .sequence = 64};

static void train(World<P>& world, const text_job::Job& job, const std::shared_ptr<const data::Text>& text) {
  Engine engine{world, parallel_llama::ParallelLlama<P>(config), AdamW{.lr = 3e-3}, sizes};
  for (const auto& batch : batches(world, text, sizes, {.steps = job.steps})) {
    const StepReport report = engine.train_batch(batch);
    const Size step = engine.steps();
    if (world.is_first() && (step % 50 == 0 || step == job.steps))
      std::printf("step %3ld  loss %.3f\n", long(step), report.loss);
  }
  const Evaluation held_out = evaluate(engine, text, sizes, {.at_least_tokens = 4096});
  if (world.is_first()) std::printf("held out: loss %.3f\n", held_out.loss);
}

int main(int argc, char** argv) {
  return text_job::main_of("complete_text", "Trains a Llama of parallel blocks on the bytes of a text.", 300, argc,
                           argv, [](const text_job::Job& job) {
                             const auto text = data::open_data(data::TextFiles{job.text});
                             return run<P>(job.run, [&](World<P>& world) { train(world, job, text); });
                           });
}
