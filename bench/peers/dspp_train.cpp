// SPDX-License-Identifier: Apache-2.0
/// dspp's side of ./dspp bench peers: steps of a GPT, or with --update AdamW's update of its parameters alone.
///
/// Prints the line of JSON of measure.py, and with it the GEMM limit. The build names ZeRO stage and precision.
#include <chrono>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include <dspp/app/options.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/nn/walk.hpp>
#include <dspp/observe/resident.hpp>
#include <dspp/ops/update.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/plan/timeline.hpp>

#include "../../examples/train_gpt/gemm_limit.hpp"

namespace {

using namespace dspp;
using PeerPolicy = Policy<Zero<DSPP_PEER_STAGE>, DSPP_PEER_PRECISION>;
using Model = Gpt<PeerPolicy>;

constexpr Size uncounted_steps = 2;
constexpr double most_seconds = 30;  // after which no further step begins, if one counted

struct Sizes {
  GptConfig model{};
  Size layers = 6, batch = 8, steps = 10, ranks = 1;
  bool update = false;
};

Sizes read_sizes(int argc, char** argv) {
  Sizes s;
  Options options("dspp_train", "Times training steps of a GPT.");
  options.add("--layers", s.layers, WholeRange{1, 1024}, "blocks of the model");
  options.add("--width", s.model.width, WholeRange{1}, "of the residual stream");
  options.add("--heads", s.model.heads, WholeRange{1}, "of attention");
  options.add("--sequence", s.model.sequence, WholeRange{1}, "tokens of a row");
  options.add("--vocabulary", s.model.vocabulary, WholeRange{1}, "tokens that there are");
  options.add("--batch", s.batch, WholeRange{1}, "rows of a step, of all ranks");
  options.add("--steps", s.steps, WholeRange{1}, "counted steps");
  options.add("--ranks", s.ranks, WholeRange{1, 1024}, "ranks as threads");
  options.add("--update", s.update, "the update alone");
  options.read(argc, argv);
  s.model.layers = static_cast<int>(s.layers);
  return s;
}

/// This rank's rows, whose ids are drawn as in measure.py, and of the ids that follow them.
Batch<Cpu> draw_batch(const Sizes& s, World<PeerPolicy>& world, Size rows) {
  const auto ids = [&](const char* name) {
    return Tensor<std::int32_t, 2>::uninitialized(shape(rows, s.model.sequence), world.memory(), Category::data, name);
  };
  Batch<Cpu> batch{ids("tokens"), ids("targets")};
  std::uint32_t state = 1;
  const Size first = world.rank() * rows;
  for (Size row = 0; row < first + rows; ++row)
    for (Size i = 0; i <= s.model.sequence; ++i) {
      state = 1664525u * state + 1013904223u;
      const auto id = static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(s.model.vocabulary));
      const Size at = (row - first) * s.model.sequence + i;
      if (row >= first && i < s.model.sequence) batch.tokens.data()[at] = id;
      if (row >= first && i > 0) batch.targets.data()[at - 1] = id;
    }
  return batch;
}

struct Figures {
  std::vector<double> seconds;
  double loss = 0, limit = 0, resident_mib = 0;
};

/// Times `step`, and then takes this process' memory. Rank 0 says when the time is over.
Figures time_steps(Size steps, World<PeerPolicy>& world, auto&& step) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); };
  const auto begin = Clock::now();
  Figures figures;
  for (Size i = 0; i < uncounted_steps + steps; ++i) {
    double elapsed = since(begin);
    broadcast(world.host(), buffer(&elapsed, 1), 0, Purpose::scalar);
    if (elapsed > most_seconds && i > uncounted_steps) break;
    const auto start = Clock::now();
    const double loss = step();
    const double seconds = since(start);
    if (i == 0) figures.loss = loss;
    if (i >= uncounted_steps) figures.seconds.push_back(seconds);
  }
  figures.resident_mib = static_cast<double>(peak_resident_bytes()) / (1 << 20);
  return figures;
}

Figures train(const Sizes& s, World<PeerPolicy>& world) {
  const Size rows = s.batch / world.data_size();
  const Batch<Cpu> batch = draw_batch(s, world, rows);
  const BatchSizes sizes{.micro_batch = rows, .sequence = s.model.sequence};
  Engine engine{world, Model(s.model), AdamW{.lr = 3e-4}, sizes};
  world.memory().lay_out_next(
      plan_timeline<Model>(s.model, sizes, {.data = world.data_size(), .rank = world.place()}, 0));
  Figures figures = time_steps(s.steps, world, [&] {
    const StepReport report = engine.train_batch(batch);
    return static_cast<double>(report.loss);
  });
  if (this_launch().size > 1)
    all_reduce(world.host(), buffer(&figures.resident_mib, 1), Purpose::scalar);  // of all processes
  train_gpt::Job job;
  job.model = s.model;
  job.micro_batch = rows;
  figures.limit = train_gpt::gemm_limit(world, job);
  return figures;
}

/// The counts of a model's parameters, with the decay of each.
struct Parts {
  struct Part {
    Size count;
    RangeSettings settings;
  };
  std::vector<Part> list;
  void parameter(const auto&, auto& p) { list.push_back({p.count(), p.update_settings()}); }
  void site(const auto&, auto&) {}
  void begin_unit(const auto&, auto&) {}
  void end_unit(auto&) {}
};

/// On f32 parameters, their own masters, which lie in flat arrays and are updated one by one as those of an engine.
Figures update(const Sizes& s, World<PeerPolicy>& world, Size parameters) {
  const auto values = [&](float value) {
    auto x = Tensor<float, 1>::uninitialized(shape(parameters), world.memory(), Category::optimizer, "update");
    for (Size i = 0; i < parameters; ++i) x.data()[i] = value;
    return x;
  };
  auto parameter = values(0.02f), gradient = values(1e-3f), mean = values(0), square = values(0);
  Model model(s.model);
  Parts parts;
  walk(model, parts);
  Size step = 0;
  return time_steps(s.steps, world, [&] {
    const auto ranges = [&](auto&& f) {
      Size at = 0;
      for (const Parts::Part& part : parts.list) {
        float* moments[] = {mean.data() + at, square.data() + at};
        const float* const g = gradient.data() + at;
        f(FlatRange<float, float, float>{g, parameter.data() + at, nullptr, {moments[0], moments[1]}, part.count},
          part.settings);
        at += part.count;
      }
    };
    update_ranges<float, float, float, Cpu>(world.memory(), AdamW{}, ranges, {.step = ++step, .lr = 3e-4});
    return 0;
  });
}

void print(const Figures& figures, Size items, Size parameters) {
  std::printf("{\"items\": %lld, \"seconds\": [", static_cast<long long>(items));
  for (std::size_t i = 0; i < figures.seconds.size(); ++i) std::printf("%s%.6f", i ? ", " : "", figures.seconds[i]);
  std::printf("], \"resident_mib\": %.1f, \"loss\": %.4f, \"parameters\": %lld, \"limit\": %.1f}\n",
              figures.resident_mib, figures.loss, static_cast<long long>(parameters), figures.limit);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Sizes s = read_sizes(argc, argv);
    const Size parameters =
        plan<Model>(s.model, {.micro_batch = 1, .sequence = s.model.sequence}, {.data = 1}).parameters;
    return run<PeerPolicy>({.ranks = static_cast<int>(s.ranks)}, [&](World<PeerPolicy>& world) {
      const Figures figures = s.update ? update(s, world, parameters) : train(s, world);
      if (world.is_first()) print(figures, s.update ? parameters : s.batch * s.model.sequence, parameters);
    });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
