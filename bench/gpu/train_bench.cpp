// SPDX-License-Identifier: Apache-2.0
// Trains GPT-2 models on one GPU in bf16, as a program that links dspp::cuda, and prints for each a line as
// kernels_bench.cu does: dspp <name> <type> <shape> <peak bytes> <microseconds a step>, the median of steps whose loss
// the host reads. Fails unless the measured peaks, of the GPU's memory and of the host's, are the planned ones and the
// losses are finite. The last model's values, gradients and state rest in the host's memory, where the GPU updates
// them.
//
//   train_bench [--quick] [--only NAME] [--batch N]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <dspp/engine/engine.hpp>
#include <dspp/launch/cuda_rank.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/plan/plan.hpp>

namespace {

using namespace dspp;

struct Case {
  const char* name;
  GptConfig model;
  Size batch;
  bool is_offloaded = false;
};
using Resident = Policy<Bf16, Cuda>;
using Offloaded = Policy<Bf16, Cuda, Zero<3>, Offload<Parameters, Host>, Offload<Optimizer, Host>>;

constexpr GptConfig gpt2(int layers, Size width, Size heads) {
  return {.layers = layers, .width = width, .heads = heads, .vocabulary = 50304, .sequence = 1024};
}

constexpr Case cases[] = {{"train gpt2 124M", gpt2(12, 768, 12), 32},
                          {"train gpt2 355M", gpt2(24, 1024, 16), 16},
                          {"train gpt2 1.56B", gpt2(48, 1600, 25), 8},
                          {"train gpt2 1.56B offloaded", gpt2(48, 1600, 25), 8, true}};

Tensor<std::int32_t, 2, Cuda> random_tokens(const Case& of, Pool& pool, std::uint32_t seed) {
  auto ids =
      Tensor<std::int32_t, 2, Cuda>::uninitialized(shape(of.batch, of.model.sequence), pool, Category::data, "tokens");
  std::mt19937 random(seed);
  Cuda::write(pool, ids.data(), ids.count(), [&](std::int32_t* host) {
    for (Size i = 0; i < ids.count(); ++i) host[i] = static_cast<std::int32_t>(random() % 50257);
  });
  return ids;
}

struct Result {
  std::vector<double> seconds;
  double loss = 0;
  Size peak = 0, first_reserved = 0, reserved = 0, host = 0;
};

template <class P>
Result train(World<P>& world, const Case& of, int steps) {
  const BatchSizes sizes{.micro_batch = of.batch, .sequence = of.model.sequence};
  Engine engine{world, Gpt<P>(of.model), AdamW{.lr = 6e-4, .weight_decay = 0.1}, sizes, EngineConfig{.clip_norm = 1}};
  const Batch<Cuda> batch{random_tokens(of, world.memory(), 1), random_tokens(of, world.memory(), 2)};
  Result result;
  for (int s = 0; s < steps + 3; ++s) {
    const auto began = std::chrono::steady_clock::now();
    auto loss = engine.forward(batch);
    engine.backward(loss);
    const StepReport report = engine.step();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - began;
    result.loss = report.loss;
    if (s >= 3) result.seconds.push_back(taken.count());
  }
  std::sort(result.seconds.begin(), result.seconds.end());
  const Pool& pool = world.memory();
  result.peak = pool.peak(), result.first_reserved = pool.peak_reserved(), result.reserved = pool.reserved();
  result.host = engine.replicas().host_bytes();
  return result;
}

template <class P>
bool run(const Case& of, int steps) {
  const Plan paper = plan<Gpt<P>>(of.model, {.micro_batch = of.batch, .sequence = of.model.sequence}, {});
  Result result;
  run_ranks_of<P>({.ranks = 1}, [&](World<P>& world) { result = train(world, of, steps); });
  const double seconds = result.seconds[result.seconds.size() / 2];
  const std::string extents = std::to_string(of.batch) + "x" + std::to_string(of.model.sequence);
  std::printf("dspp\t%s\tbf16\t%s\t%lld\t%.2f\n", of.name, extents.c_str(), static_cast<long long>(result.peak),
              seconds * 1e6);
  std::fflush(stdout);
  std::fprintf(stderr,
               "%s: %.0f tokens/s (%.1f to %.1f ms a step), loss %.4f, peak %lld MiB, planned %lld MiB, reserved %lld "
               "MiB, in the "
               "first step %lld MiB, of the host %lld MiB, planned %lld MiB\n",
               of.name, static_cast<double>(of.batch * of.model.sequence) / seconds, result.seconds.front() * 1e3,
               result.seconds.back() * 1e3, result.loss, static_cast<long long>(result.peak >> 20),
               static_cast<long long>(paper.peak >> 20), static_cast<long long>(result.reserved >> 20),
               static_cast<long long>(result.first_reserved >> 20), static_cast<long long>(result.host >> 20),
               static_cast<long long>(paper.host >> 20));
  return std::isfinite(result.loss) && result.peak == paper.peak && result.host == paper.host;
}

}  // namespace

int main(int argc, char** argv) {
  int steps = 20;
  const char* only = nullptr;
  Size batch = 0;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      steps = 6;
    } else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
      only = argv[++i];
    } else if (std::strcmp(argv[i], "--batch") == 0 && i + 1 < argc && std::atoll(argv[i + 1]) > 0) {
      batch = std::atoll(argv[++i]);
    } else {
      std::fprintf(stderr, "train_bench needs --quick, --only NAME, --batch N or nothing, but got '%s'.\n", argv[i]);
      return 2;
    }
  }
  bool good = true, any = false;
  for (Case of : cases) {
    if (batch > 0) of.batch = batch;
    if (only && std::string(of.name).find(only) == std::string::npos) continue;
    any = true;
    try {
      good = (of.is_offloaded ? run<Offloaded>(of, steps) : run<Resident>(of, steps)) && good;
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s: %s\n", of.name, error.what());
      good = false;
    }
  }
  if (!any) std::fprintf(stderr, "train_bench needs a name that a model has, but none has '%s'.\n", only);
  return any ? (good ? 0 : 1) : 2;
}
