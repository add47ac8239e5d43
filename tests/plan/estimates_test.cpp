// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's and Megatron-LM's estimates: their published numbers, and beside dspp's exact bytes.
// labels: engine
#include <doctest/doctest.h>

#include <laws/sentence_of.hpp>

#include <dspp/models/gpt.hpp>
#include <dspp/plan/table.hpp>

using namespace dspp;
using dspp::laws::sentence_of;

namespace {

constexpr Size hundredths_of_gib(Size bytes) {
  return static_cast<Size>(static_cast<double>(bytes) / (1 << 30) * 100 + 0.5);
}
/// In hundredths of a GiB, as DeepSpeed prints them.
constexpr bool prints(EstimatedBytes bytes, Size host, Size device) {
  return hundredths_of_gib(bytes.host) == host && hundredths_of_gib(bytes.device) == device;
}

// T5-3B on a node of eight GPUs, the example of DeepSpeed's documents. Its page of ZeRO-2 without offload says 15.93
// GiB, of an older formula; the code says 11.28.
constexpr DeepSpeedEstimate t5(EstimatedOffload offload, bool zero_init = true) {
  return {.parameters = 2851000000,
          .largest_layer = 32000000,
          .gpus_per_node = 8,
          .offload = offload,
          .zero_init = zero_init};
}
using enum EstimatedOffload;
static_assert(prints(t5(optimizer).zero2(), 12745, 531));
static_assert(prints(t5(nothing).zero2(), 12745, 1128));
static_assert(prints(t5(optimizer_and_parameters).zero3(), 7169, 12));
static_assert(prints(t5(optimizer_and_parameters, false).zero3(), 12745, 12));
static_assert(prints(t5(optimizer).zero3(), 6372, 78));
static_assert(prints(t5(optimizer, false).zero3(), 12745, 78));
static_assert(prints(t5(nothing).zero3(), 143, 609));
static_assert(prints(t5(nothing, false).zero3(), 12745, 609));

// Several nodes, by the formulas: where the shards of states are the larger part, and where whole models are.
constexpr DeepSpeedEstimate on_nodes(EstimatedOffload offload, int gpus_per_node, int nodes) {
  return {.parameters = 1000,
          .largest_layer = 100,
          .gpus_per_node = gpus_per_node,
          .nodes = nodes,
          .offload = offload,
          .zero_init = false,
          .additional_buffer_factor = 2};
}
static_assert(on_nodes(optimizer, 1, 2).zero2() == EstimatedBytes{2000, 32000});
static_assert(on_nodes(optimizer, 4, 4).zero2() == EstimatedBytes{2000, 128000});
static_assert(on_nodes(nothing, 4, 4).zero2() == EstimatedBytes{3125, 32000});
static_assert(on_nodes(optimizer, 1, 2).zero3() == EstimatedBytes{1400, 16000});
static_assert(on_nodes(optimizer, 4, 2).zero3() == EstimatedBytes{650, 32000});
static_assert(on_nodes(optimizer_and_parameters, 1, 2).zero3() == EstimatedBytes{400, 18000});
static_assert(on_nodes(nothing, 4, 2).zero3() == EstimatedBytes{2650, 32000});

constexpr double bytes_per_parameter(MegatronTypes types, int data, bool distributed) {
  return MegatronEstimate{.parameters = 1, .types = types, .data = data, .distributed_optimizer = distributed}
      .bytes_per_parameter();
}
using enum MegatronTypes;
static_assert(bytes_per_parameter(fp16, 8, false) == 20);
static_assert(bytes_per_parameter(fp16, 8, true) == 4 + 16.0 / 8);
static_assert(bytes_per_parameter(bf16_with_fp32_gradients, 8, false) == 18);
static_assert(bytes_per_parameter(bf16_with_fp32_gradients, 8, true) == 6 + 12.0 / 8);
static_assert(bytes_per_parameter(fp32, 8, false) == 16);
static_assert(bytes_per_parameter(fp32, 8, true) == 8 + 8.0 / 8);
static_assert(bytes_per_parameter(fp16, 1, true) == 20 && bytes_per_parameter(fp32, 1, true) == 16);
static_assert(MegatronEstimate{.parameters = 10, .data = 7}.bytes() == 60 + 18);  // 120 / 7, rounded up

// Parameters of multiples of 128 elements, so that the buckets of up to four ranks have no padding.
constexpr GptConfig aligned{.layers = 2, .width = 128, .heads = 2, .vocabulary = 256, .sequence = 64};
constexpr BatchSizes one_sample{.micro_batch = 1, .sequence = 64};

template <class P>
constexpr Plan paper(int data) {
  return plan<Gpt<P>>(aligned, one_sample, {.data = data});
}

/// Beside values, masters and moments a rank keeps some numbers of its steps and checks.
constexpr Size few_bytes = 512;

/// dspp's parameters, masters and moments with whole gradients of `gradient_bytes` per parameter.
template <class P>
void check_states(int data, Size gradient_bytes) {
  CAPTURE(data);
  const Plan plan = paper<P>(data);
  const Size states = plan.resident + gradient_bytes * plan.facts.rank_parameters;
  const Size estimate = megatron_estimate(plan).bytes();
  CHECK(states >= estimate);
  CHECK(states <= estimate + few_bytes);
}

}  // namespace

TEST_CASE("dspp's states take Megatron-LM's bytes per parameter, up to padding") {
  check_states<Policy<F32>>(1, 4);
  check_states<Policy<F32>>(4, 4);
  check_states<Policy<Bf16, Gradients<F32>>>(1, 4);
  check_states<Policy<Bf16, Gradients<F32>>>(4, 4);
  for (int data : {1, 2, 4}) {
    check_states<Policy<F32, Zero<1>>>(data, 4);
    check_states<Policy<Bf16, Zero<1>, Gradients<F32>>>(data, 4);
  }
}

TEST_CASE("gradients of stage 0 are whole, and 16-bit ones take two bytes per parameter less than Megatron-LM's") {
  const Plan f32 = paper<Policy<F32>>(2), wide = paper<Policy<Bf16, Gradients<F32>>>(2),
             narrow = paper<Policy<Bf16>>(2);
  const Size parameters = f32.facts.rank_parameters;
  CHECK(f32.by_category[Category::gradients] == 4 * parameters);
  CHECK(wide.by_category[Category::gradients] == 4 * parameters);
  CHECK(narrow.by_category[Category::gradients] == 2 * parameters);
  CHECK(f32.states_and_gradients() <= megatron_estimate(f32).bytes() + few_bytes);
  CHECK(wide.states_and_gradients() <= megatron_estimate(wide).bytes() + few_bytes);
  CHECK(narrow.states_and_gradients() <= megatron_estimate(narrow).bytes() - 2 * parameters + few_bytes);
}

TEST_CASE("a plan knows what the estimates take, under Tp one rank's part of it") {
  constexpr Plan whole = paper<Policy<Bf16, Zero<2>>>(4);
  static_assert(whole.facts.rank_parameters == whole.parameters && whole.facts.largest_parameter == 128 * 512);
  static_assert(whole.facts.ranks == 4 && whole.facts.replicas == 4 && whole.facts.zero_stage == 2);
  static_assert(deepspeed_estimate(whole, {.nodes = 2}) ==
                DeepSpeedEstimate{.parameters = whole.parameters, .gpus_per_node = 2, .nodes = 2}.zero2());

  constexpr Plan split = paper<Policy<F16, Zero<3>, Tp<2>>>(4);
  static_assert(split.facts.ranks == 8 && split.facts.replicas == 4 && split.facts.zero_stage == 3);
  static_assert(split.facts.rank_parameters > whole.parameters / 2 && split.facts.rank_parameters < whole.parameters);
  static_assert(split.facts.largest_parameter == 128 * 512 / 2);
  constexpr EstimatedBytes part =
      DeepSpeedEstimate{.parameters = split.facts.rank_parameters, .largest_layer = 128 * 256, .gpus_per_node = 4}
          .zero3();
  static_assert(deepspeed_estimate(split) == EstimatedBytes{part.device, 2 * part.host});
  static_assert(megatron_estimate(split).types == fp16 && megatron_estimate(split).data == 4);

  constexpr Plan offloaded = paper<Policy<Bf16, Zero<2>, Offload<Optimizer, Host>>>(4);
  static_assert(deepspeed_estimate(offloaded).device == 2 * offloaded.parameters);
  static_assert(!has_megatron_estimate(paper<Policy<F64>>(1)) &&
                !has_deepspeed_estimate(paper<Policy<F32, Zero<1>>>(1)));
}

TEST_CASE("a plan's bytes are printed beside both estimates") {
  Plan plan;
  plan.peak = 3_MiB;
  plan.resident = 4096;
  plan.by_category[Category::gradients] = 2048;
  plan.host = 1000;
  plan.facts = {.ranks = 16,
                .replicas = 8,
                .shards = 8,
                .zero_stage = 3,
                .values = ElementType::bf16,
                .optimizer_tier = Tier::host,
                .rank_parameters = 1024,
                .largest_parameter = 512};
  CHECK(comparison_of(plan, {.nodes = 2}) ==
        "  bytes beside estimates                      of a device           of a node's host\n"
        "  dspp, at the peak                               3145728  3.0 MiB              8000   7.8 KiB\n"
        "  dspp, between steps                                4096  4.0 KiB\n"
        "  dspp, states and gradients                         6144  6.0 KiB\n"
        "  DeepSpeed's estimate for stage 3                   2304  2.2 KiB             24576  24.0 KiB\n"
        "  Megatron-LM's 6 + 12/8 bytes per parameter         7680  7.5 KiB\n");
  CHECK(table_of(plan, {.nodes = 2}).find(comparison_of(plan, {.nodes = 2})) != std::string::npos);

  plan.host = 0;
  plan.facts.zero_stage = 0;
  plan.facts.values = ElementType::f32;
  const std::string whole = comparison_of(plan);
  CHECK(whole.find("DeepSpeed") == std::string::npos);
  CHECK(whole.find("  Megatron-LM's 16 bytes per parameter        16384  16.0 KiB\n") != std::string::npos);
  plan.facts.values = ElementType::f64;
  CHECK(comparison_of(plan).find("Megatron") == std::string::npos);
  plan.facts.rank_parameters = 0;  // a plan that plan() did not make
  CHECK(table_of(plan).find("estimates") == std::string::npos);
}

TEST_CASE("an estimate of wrong numbers is an error") {
  CHECK(sentence_of([] { DeepSpeedEstimate{}.zero2(); }) ==
        "dspp: DeepSpeedEstimate needs at least one parameter, but got fewer (parameters 0). Set parameters.");
  CHECK(sentence_of([] { DeepSpeedEstimate{.parameters = 1, .gpus_per_node = 0}.zero2(); }) ==
        "dspp: DeepSpeedEstimate needs at least one GPU a node and one node, but got fewer (gpus_per_node 0, nodes 1). "
        "Set gpus_per_node and nodes.");
  CHECK(sentence_of([] { DeepSpeedEstimate{.parameters = 1, .additional_buffer_factor = 0}.zero2(); }) ==
        "dspp: DeepSpeedEstimate needs an additional_buffer_factor above 0, but got another. DeepSpeed's own is 1.5.");
  CHECK(sentence_of([] { DeepSpeedEstimate{.parameters = 1, .offload = optimizer_and_parameters}.zero2(); }) ==
        "dspp: DeepSpeedEstimate::zero2 needs an offload of nothing or of the optimizer, but parameters are offloaded, "
        "too. Ask zero3.");
  for (const Size largest : {0, 3})
    CHECK(sentence_of([&] { DeepSpeedEstimate{.parameters = 2, .largest_layer = largest}.zero3(); }) ==
          "dspp: DeepSpeedEstimate::zero3 needs a largest layer of one parameter up to all, but got another "
          "(largest_layer " +
              std::to_string(largest) + ", parameters 2). Set largest_layer.");
  const std::string too_many =
      "dspp: an estimate needs bytes that 63 bits can count, but it has more. Correct the numbers of parameters and "
      "GPUs.";
  CHECK(sentence_of([] { DeepSpeedEstimate{.parameters = Size{1} << 62}.zero2(); }) == too_many);
  CHECK(sentence_of([] { MegatronEstimate{.parameters = Size{1} << 62}.bytes(); }) == too_many);
  CHECK(sentence_of([] { MegatronEstimate{.parameters = 1, .data = 0}.bytes(); }) ==
        "dspp: MegatronEstimate needs at least one parameter and a data degree of at least 1, but got less (parameters "
        "1, data 0). Set parameters and data.");
}

TEST_CASE("an estimate that a plan does not have is an error") {
  Plan plan;
  plan.facts.zero_stage = 1;
  CHECK(sentence_of([&] { deepspeed_estimate(plan); }) ==
        "dspp: deepspeed_estimate needs a plan of ZeRO stage 2 or 3 and of tiers that it knows, but got another "
        "(stage 1). Ask has_deepspeed_estimate(plan).");
  plan.facts.zero_stage = 2;
  for (const int nodes : {0, 2}) {
    const std::string sentence =
        "dspp: an estimate needs nodes that divide the plan's replicas, but they do not (nodes " +
        std::to_string(nodes) + ", replicas 1). Set EstimateOptions::nodes.";
    CHECK(sentence_of([&] { deepspeed_estimate(plan, {.nodes = nodes}); }) == sentence);
    CHECK(sentence_of([&] { comparison_of(plan, {.nodes = nodes}); }) == sentence);
  }
  plan.facts.values = ElementType::f64;
  CHECK(sentence_of([&] { megatron_estimate(plan); }) ==
        "dspp: megatron_estimate needs a plan under F32, Bf16 or F16, but got another. Ask has_megatron_estimate(plan) "
        "before.");
}
