// SPDX-License-Identifier: Apache-2.0
/// GPT-2 XL under six strategies on 64 ranks, compared by their plans: nothing is trained, no rank is started. (It has
/// 32 heads instead of 25, so that eight tensor ranks divide them.)
#include <cstdio>
#include <string>

#include <dspp/app/output.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/observe/table.hpp>
#include <dspp/plan/estimates.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;

constexpr int ranks = 64;
constexpr GptConfig gpt2_xl{.layers = 48, .width = 1600, .heads = 32, .vocabulary = 50257, .sequence = 1024};

/// The plan of one rank, for a global batch of 512 sequences: at run time, or in a constant expression.
template <class P, class Block = GptBlock<P>>
constexpr Plan paper() {
  return plan<Gpt<P, Block>>(gpt2_xl, {.micro_batch = 512 / (ranks / P::tp), .sequence = 1024},
                             {.data = ranks / P::tp});
}

template <class P>
using Again = Recompute<GptBlock<P>>;

using Plain = Policy<Bf16>;
using Sharded = Policy<Bf16, Zero<2>>;
using FullySharded = Policy<Bf16, Zero<3>>;
using Split = Policy<Bf16, Zero<2>, Tp<8>, SequenceParallel>;

// The program compiles only if this plan fits an accelerator of 80 GB; the others are made when it runs.
constexpr Plan recomputed = paper<FullySharded, Again<FullySharded>>();
static_assert(must_fit<recomputed, 80'000'000'000>());

static std::string gigabytes(Size bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", static_cast<double>(bytes) / 1e9);
  return text;
}

static std::string teraflops(double operations) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", operations / 1e12);
  return text;
}

int main() {
  hold_standard_streams();
  Table table(
      {"GPT-2 XL on 64 ranks, GB of one rank", "state", "activations", "peak", "data axis", "tensor axis", "TFLOP"});
  Table estimates({"the same, GB of states and gradients", "dspp", "DeepSpeed's estimate", "Megatron-LM's formula"});
  const auto add = [&](const char* name, const Plan& plan) {
    table.add({name, gigabytes(plan.resident), gigabytes(plan.at_peak[Category::activations]), gigabytes(plan.peak),
               gigabytes(plan.replica_traffic.total()), gigabytes(plan.traffic_along.tp.total()),
               teraflops(plan.flops())});
    estimates.add({name, gigabytes(plan.states_and_gradients()),
                   has_deepspeed_estimate(plan) ? gigabytes(deepspeed_estimate(plan).device) : "none",
                   gigabytes(megatron_estimate(plan).bytes())});
  };
  add("Zero<0>", paper<Plain>());
  add("Zero<2>", paper<Sharded>());
  add("Zero<3>", paper<FullySharded>());
  add("Zero<3>, blocks recomputed", recomputed);
  add("Zero<2>, Tp<8>, SequenceParallel", paper<Split>());
  add("Zero<2>, Tp<8>, SequenceParallel, recomputed", paper<Split, Again<Split>>());
  std::printf("%s\n%s", table.text().c_str(), estimates.text().c_str());
  return output_status("compare_strategies");
}
