// SPDX-License-Identifier: Apache-2.0
/// Two linear layers that exceed a rank's memory limit train when they are tiled: the same model, ranks and limit, with
/// whole weights and with sixteen tiles of each.
#include <cstdio>
#include <string>

#include <dspp/app/output.hpp>
#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/base/out_of_memory.hpp>
#include <dspp/launch/run.hpp>
#include <dspp/models/tiled.hpp>
#include <dspp/parallel/vocab.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;

constexpr int ranks = 2, steps = 8;
constexpr Size limit_bytes = 48_MiB;
constexpr Size vocabulary = 64, width = 256, ffn_width = 8192, batch_size = 2, sequence = 32;

using P = Policy<Zero<3>>;

/// x + down(relu(up(x))) between embedding and logits.       up [ffn_width, width], down [width, ffn_width]: 8 MiB each
template <class Q, class Up, class Down>
struct Wide : Layer<Q> {
  template <class R>
  using on = Wide<R, rebind_layer<Up, R>, rebind_layer<Down, R>>;

  VocabParallel<Embedding, Q> tokens{EmbeddingConfig{vocabulary, width, Initial::normal(0.05)}};
  Up up{width, ffn_width};
  Down down{ffn_width, width};

  constexpr explicit Wide(int) {}
  constexpr void visit(auto&& f) {
    f("tokens", tokens);
    f("up", up);
    f("down", down);
  }
  constexpr Loss<Q> loss(const Tokens<Q>& ids, const Tokens<Q>& targets) const {
    const auto x = tokens(ids);
    return cross_entropy<Q>(tokens.logits(x + down(relu(up(x)))), targets, vocabulary);
  }
};

using Whole = Wide<P, ColumnParallel<Linear, P>, RowParallel<Linear, P>>;
using InTiles = Wide<P, Tiled<ColumnParallel<Linear, P>, 1, 16>, Tiled<RowParallel<Linear, P>, 16, 1>>;

/// Each token determines the next one, so that the model can learn the sequence.
static Batch<DeviceOf<P>> batch_of(World<P>& world, int step) {
  const auto fill = [&](const char* label, auto id) {
    const auto ids = Tensor<std::int32_t, 2, DeviceOf<P>>::uninitialized(shape(batch_size, sequence), world.memory(),
                                                                         Category::data, label);
    ids.write([&](std::int32_t* out) {
      for (Size i = 0; i < ids.count(); ++i) out[i] = static_cast<std::int32_t>(id(i) % vocabulary);
    });
    return ids;
  };
  const auto token = [&](Size i) { return (i + 5 * step + 7 * world.data_rank()) % vocabulary; };
  return {fill("tokens", token), fill("targets", [&](Size i) { return 3 * token(i) + 1; }),
          batch_size * world.data_rank()};
}

static double mebibytes(Size bytes) {
  return static_cast<double>(bytes) / static_cast<double>(1_MiB);
}

/// Trains under the limit and prints the result.
template <class Model>
static void train(const char* name) {
  constexpr BatchSizes sizes{.micro_batch = batch_size, .sequence = sequence};
  constexpr Plan paper = plan<Model>(0, sizes, {.data = ranks});
  std::printf("%s: planned peak %.2f MiB\n", name, mebibytes(paper.peak));
  try {
    run_ranks_of<P>({.ranks = ranks, .memory_limit_bytes = limit_bytes}, [&](World<P>& world) {
      Engine engine{world, Model(0), AdamW{.lr = 5e-4f}, sizes};
      for (int step = 0; step < steps; ++step) {
        const auto loss = engine.forward(batch_of(world, step));
        engine.backward(loss);
        engine.step();
        const double mean = engine.all_reduce_mean(loss);
        if (world.is_first() && (step == 0 || step + 1 == steps)) std::printf("  step %d: loss %.1f\n", step + 1, mean);
      }
      if (world.is_first()) std::printf("  measured peak %.2f MiB\n", mebibytes(world.memory().peak()));
    });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::out_of_memory) throw;
    const std::string map = error.what();
    std::printf("  %s\n", map.substr(0, map.find('\n')).c_str());  // the sentence without the memory map after it
  }
}

int main() {
  hold_standard_streams();
  try {
    std::printf("two ranks, Zero<3>, a limit of %.0f MiB each\n", mebibytes(limit_bytes));
    or_out_of_memory("tiled_linear", [] {
      train<Whole>("whole weights");
      train<InTiles>("sixteen tiles each");
    });
    return output_status("tiled_linear");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
