// SPDX-License-Identifier: Apache-2.0
/// A GPT whose training state is thirty times as large as the memory that its rank may take trains all the same: slices
/// of parameters and gradients rest in the host's memory, moments in a file. The bits are those of a training without a
/// limit, and every tier holds what the plan says.
#include <cstdio>
#include <cstring>
#include <vector>

#include <dspp/app/output.hpp>
#include <dspp/base/out_of_memory.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;

using Resident = Policy<Zero<3>>;
using Offloaded = Policy<Zero<3>, Offload<Parameters, Host>, Offload<Optimizer, Disk>>;

constexpr GptConfig model{.layers = 32, .width = 128, .heads = 4, .sequence = 32, .recompute_segments = 8};
constexpr BatchSizes sizes{.micro_batch = 1, .sequence = 32};
constexpr PlanOptions options{.bucket_bytes = 256_KiB};
constexpr int steps = 2;

/// What a training leaves.
struct Outcome {
  std::vector<double> losses;
  std::vector<float> parameters;  ///< one after the other
  Size device = 0, host = 0, disk = 0;
};

/// Each token determines the next one.
template <class P>
static Batch<Cpu> batch_of(World<P>& world, int step) {
  const auto ids = [&](const char* label, Size shift) {
    const auto tokens = Tensor<std::int32_t, 2, Cpu>::uninitialized(shape(sizes.micro_batch, sizes.sequence),
                                                                    world.memory(), Category::data, label);
    for (Size i = 0; i < tokens.count(); ++i)
      tokens.data()[i] = static_cast<std::int32_t>(17 * (i + shift + step) % model.vocabulary);
    return tokens;
  };
  return {ids("tokens", 0), ids("targets", 1)};
}

/// Trains under P; `limit` bytes for the rank's Pool, 0: any.
template <class P>
static Outcome train(Size limit) {
  Outcome outcome;
  run_ranks_of<P>({.memory_limit_bytes = limit}, [&](World<P>& world) {
    Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(model), AdamW{}, sizes,
                                 {.bucket_bytes = options.bucket_bytes, .offload = {.folder = "."}});
    for (int step = 0; step < steps; ++step) {
      const auto batch = batch_of(world, step);
      const auto loss = engine.forward(batch);
      engine.backward(loss);
      outcome.losses.push_back(engine.step()->loss);
    }
    outcome.device = world.memory().peak();
    outcome.host = engine.replicas().host_bytes();
    outcome.disk = engine.state().disk_bytes();
    for (const auto& named : engine.inventory().parameters)
      engine.gather_parameter(named.name->text).read([&](const float* values) {
        outcome.parameters.insert(outcome.parameters.end(), values, values + named.parameter->geometry.global_count());
      });
  });
  return outcome;
}

static double mebibytes(Size bytes) {
  return static_cast<double>(bytes) / static_cast<double>(1_MiB);
}

static int compare() {
  const Plan whole = plan<Gpt<Resident>>(model, sizes, options), paper = plan<Gpt<Offloaded>>(model, sizes, options);
  const Size states = whole.states_and_gradients(), limit = states / 30;
  std::printf("%.2f M parameters: values, gradients and moments take %.1f MiB, the rank may take %.1f MiB\n",
              static_cast<double>(whole.parameters) / 1e6, mebibytes(states), mebibytes(limit));
  if (!paper.fits(limit) || whole.fits(limit)) return std::puts("the limit is not between the two plans"), 1;
  const Outcome resident = train<Resident>(0), offloaded = train<Offloaded>(limit);
  const auto tier = [](const char* name, Size planned, Size measured) {
    std::printf("  %-17s planned %9lld bytes, measured %9lld\n", name, static_cast<long long>(planned),
                static_cast<long long>(measured));
    return planned == measured;
  };
  const bool as_planned = static_cast<int>(tier("the Pool", paper.peak, offloaded.device)) +
                              static_cast<int>(tier("the host's memory", paper.host, offloaded.host)) +
                              static_cast<int>(tier("a file", paper.disk, offloaded.disk)) ==
                          3;
  const bool same = resident.losses == offloaded.losses && resident.parameters == offloaded.parameters;
  std::printf("  losses and parameters %s a training without a limit\n", same ? "have the bits of" : "DIFFER FROM");
  return as_planned && same ? 0 : 1;
}

int main() {
  hold_standard_streams();
  try {
    int status = 1;
    or_out_of_memory("train_larger_than_memory", [&] { status = compare(); });
    return status != 0 ? status : output_status("train_larger_than_memory");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
