// SPDX-License-Identifier: Apache-2.0
// recompute_segments: the bits of a stack that keeps everything, at the cost of the plan, and no block gathered more
// often than it runs; the least number that fits a limit.
// labels: engine thread
#include <algorithm>
#include <string>
#include <vector>

#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>
#include <laws/small_llama.hpp>

#include <dspp/models/bert.hpp>
#include <dspp/optim/sgd.hpp>
#include <dspp/plan/segments_that_fit.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr int layers = 5;

/// One engine for all stages, which it is given as values.
template <template <class...> class M, int Stage, class... More>
Trained train_in_segments(Cell cell, int segments) {
  using Model = M<Policy<Zero<Stage>, More...>>;
  cell.layers = layers, cell.segments = segments;
  const Trained trained = laws::detail::train_as<typename Model::policy, M<Policy<More...>>, AdamW>(cell);
  for (int r = 0; r < cell.ranks; ++r)
    check_plan(plan_of<Model>(cell, r), trained.ranks[static_cast<std::size_t>(r)], r);
  return trained;
}

/// The bytes that a step gathers of one block in one pass over it, from plans of one block more and less.
template <class Model>
Size gathered_in_a_pass(Cell cell) {
  const auto gathered = [&](int blocks) {
    cell.layers = blocks, cell.segments = 1;
    return plan_of<Model>(cell, 0).replica_traffic.bytes(Collective::all_gather, Purpose::parameter);
  };
  return (gathered(layers + 1) - gathered(layers)) / 2;
}

/// By default numbers that split `layers` in different ways, and one that is more than there are.
template <template <class...> class M, int Stage, class... More>
void check_segments(const Cell& cell, const std::vector<int>& numbers = {2, 3, layers + 1}) {
  CAPTURE(Stage);
  CAPTURE(cell.ranks);
  const Trained kept = train_in_segments<M, Stage, More...>(cell, 1);
  const Size pass = Stage < 3 ? 0 : gathered_in_a_pass<M<Policy<Zero<Stage>, More...>>>(cell);
  CHECK((pass > 0) == (Stage == 3 && kept.ranks[0].replicas.total() > 0));
  for (const int segments : numbers) {
    CAPTURE(segments);
    const Trained again = train_in_segments<M, Stage, More...>(cell, segments);
    check_same_bits(again, kept);
    const int parts = std::min(segments, layers), blocks_again = layers * (parts - 1) / parts;
    for (std::size_t r = 0; r < kept.ranks.size(); ++r) {
      const RankRecord &now = again.ranks[r], &before = kept.ranks[r];
      CHECK(now.values_print == before.values_print);
      CHECK(now.by_category[Category::activations] < before.by_category[Category::activations]);
      const auto gathered = [](const RankRecord& record) {
        return record.replicas.bytes(Collective::all_gather, Purpose::parameter);
      };
      CHECK(gathered(now) - gathered(before) == blocks_again * pass);
    }
  }
}

template <class... P>
using SmallGpt = Gpt<P...>;
template <class... P>
using SmallLlama = Llama<P...>;

}  // namespace

namespace {

/// M in three segments under P and under Q, which differs in where inputs are kept. `saved`: of the bytes of an input
/// what the device no longer keeps, if they are not on a disk, whose windows are larger than these inputs.
template <template <class...> class M, class P, class Q, class... More>
void check_kept(const Cell& given, double saved, const OffloadPart& part_on_host = {}) {
  Cell cell = given;
  cell.layers = layers, cell.segments = 3;
  CAPTURE(cell.ranks);
  const auto train = [&]<class X>(X) {
    Trained trained = laws::detail::train_as<X, M<Policy<F64, More...>>, AdamW>(cell);
    check_run(trained);
    for (int r = 0; r < cell.ranks; ++r)
      check_plan(plan_of<M<X>>(cell, r), trained.ranks[static_cast<std::size_t>(r)], r);
    return trained;
  };
  const Folder folder;
  const std::string path = folder.path.string();
  cell.offload.folder = path;
  const Trained here = train(P{});
  cell.offload.activations = part_on_host;
  const Trained there = train(Q{});
  check_same_bits(there, here);
  const Size inputs = 2, tp = here.facts.tp;
  const Size elements = cell.samples / cell.accumulate / (cell.ranks / tp) * cell.sequence * 24;
  const Size own = here.facts.sequence_parallel ? elements / tp : elements;
  for (std::size_t r = 0; r < here.ranks.size(); ++r) {
    CAPTURE(r);
    const bool on_host = std::is_same_v<typename Q::ActivationOffloadChoice, Offload<Activations, Host>>;
    const Size part = Q::partitions_activations ? (own + tp - 1) / tp : own;
    Size moved = on_host ? inputs : 0;
    if (part_on_host.share == 0.5) moved = 1;
    if (part_on_host.most_bytes == 0) moved = 0;
    const Size on_host_now = moved * round_up(part * 8, Size{64});
    if (Q::parameter_tier == Tier::device) CHECK(there.ranks[r].host == on_host_now);
    CHECK(there.ranks[r].host >= on_host_now);
    const auto over_tp = [&](const Trained& trained) { return trained.ranks[r].tp.bytes(Purpose::activation); };
    CHECK(over_tp(there) - over_tp(here) ==
          (Q::partitions_activations ? cell.accumulate * inputs * part * 8 * (tp - 1) : 0));
    if (Q::activation_tier == Tier::disk) {
      CHECK(there.ranks[r].disk - here.ranks[r].disk == inputs * io::BlockFile::bytes_of(part * 8));
      continue;
    }
    const Size before = here.ranks[r].by_category[Category::activations];
    const Size now = there.ranks[r].by_category[Category::activations];
    CHECK((now < before || moved == 0));
    CHECK(static_cast<double>(before - now) <= saved * static_cast<double>(inputs * own * 8) + 64);
  }
}

}  // namespace

namespace {

/// 5 inputs of 1 MiB, beside which windows and gradients are small.
constexpr GptConfig six_blocks{
    .layers = 6, .width = 64, .heads = 4, .vocabulary = 17, .sequence = 64, .recompute_segments = 6};
template <class... Members>
constexpr Plan plan_of_six = plan<Gpt<Policy<F32, Members...>>>(six_blocks, {.micro_batch = 64, .sequence = 64});
constexpr Size input_bytes = 64 * 64 * 64 * 4, most_of_window = 12 * 1024;

}  // namespace

static_assert(plan_of_six<Offload<Activations, Host>>.peak <= plan_of_six<>.peak - 4 * input_bytes);
static_assert(plan_of_six<Offload<Activations, Disk>>.peak <=
              plan_of_six<Offload<Activations, Host>>.peak + input_bytes + most_of_window);
static_assert(plan_of_six<Offload<Activations, Disk>>.disk == 5 * io::BlockFile::bytes_of(input_bytes));

TEST_CASE("inputs that blocks keep on a disk change no bit, and cost what is planned, beside other members") {
  using OnDisk = Offload<Activations, Disk>;
  check_kept<Gpt, Policy<F64>, Policy<F64, OnDisk>>({.ranks = 1, .accumulate = 2, .steps = 2, .dropout = 0.1}, 0);
  check_kept<Gpt, Policy<F64, Zero<3>>, Policy<F64, Zero<3>, OnDisk>>({.ranks = 3, .steps = 2}, 0);
  using StateOnDisk = Policy<F64, Zero<3>, Offload<Optimizer, Disk>, Offload<Parameters, Disk>>;
  check_kept<Gpt, StateOnDisk,
             Policy<F64, Zero<3>, Offload<Optimizer, Disk>, Offload<Parameters, Disk>, Offload<Activations, Disk>>>(
      {.ranks = 2, .accumulate = 2, .steps = 2}, 0);
  check_kept<Gpt, Policy<F64, Tp<2>>, Policy<F64, Tp<2>, PartitionActivations, OnDisk>, Tp<2>>(
      {.ranks = 4, .accumulate = 2, .steps = 2}, 0);
  check_kept<Gpt, Policy<F64, Tp<2>, SequenceParallel>, Policy<F64, Tp<2>, SequenceParallel, OnDisk>, Tp<2>,
             SequenceParallel>({.ranks = 2, .steps = 2}, 0);
}

TEST_CASE("inputs that blocks keep in the host's memory or in parts over Tp change no bit, and cost what is planned") {
  using OnHost = Offload<Activations, Host>;
  check_kept<Gpt, Policy<F64>, Policy<F64, OnHost>>({.ranks = 1, .accumulate = 2, .steps = 2, .dropout = 0.1}, 1);
  for (const OffloadPart& part : {OffloadPart{.share = 0.5}, OffloadPart{.most_bytes = 0}})
    check_kept<Gpt, Policy<F64>, Policy<F64, OnHost>>({.ranks = 2, .accumulate = 2, .steps = 2}, part.share, part);
  check_kept<Gpt, Policy<F64, Zero<3>>, Policy<F64, Zero<3>, OnHost, Offload<Parameters, Host>>>(
      {.ranks = 2, .steps = 2}, 1);
  check_kept<Gpt, Policy<F64, Tp<2>>, Policy<F64, Tp<2>, PartitionActivations>, Tp<2>>({.ranks = 2, .steps = 2}, 0.5);
  check_kept<Gpt, Policy<F64, Tp<2>>, Policy<F64, Tp<2>, PartitionActivations, OnHost>, Tp<2>>(
      {.ranks = 4, .accumulate = 2, .steps = 2}, 1);
  check_kept<Gpt, Policy<F64, Tp<2>, SequenceParallel>, Policy<F64, Tp<2>, SequenceParallel, OnHost>, Tp<2>,
             SequenceParallel>({.ranks = 2, .steps = 2}, 1);
}

TEST_CASE("segments train to the bits of one, at the planned cost, under every stage") {
  check_segments<SmallGpt, 0, F64>({.ranks = 1, .steps = 2});
  check_segments<SmallGpt, 1, F64>({.ranks = 2, .accumulate = 2, .steps = 2});
  check_segments<SmallGpt, 2, F64>({.ranks = 3, .steps = 2});
  check_segments<SmallGpt, 3, F64>({.ranks = 1, .steps = 2});
  check_segments<SmallGpt, 3, F64>({.ranks = 2, .steps = 2, .dropout = 0.2}, {2, 3, 4, 5, 6});
  check_segments<SmallGpt, 3, F64>({.ranks = 3, .accumulate = 2, .steps = 2});
}

TEST_CASE("segments in bf16, over Tp and Cp, and of layers that are not alike") {
  check_segments<SmallGpt, 3, Bf16>({.ranks = 2, .steps = 2, .dropout = 0.1});
  check_segments<SmallGpt, 3, F64, Tp<2>, SequenceParallel>({.ranks = 4, .steps = 2});
  check_segments<SmallLlama, 3, F64, Cp<2>>({.ranks = 2, .steps = 2, .llama_options = true});
}

namespace {

/// A BERT's parameters after a step; its blocks are given the lengths beside their input.
std::vector<std::vector<double>> trained_bert(int segments) {
  using P = Policy<F64>;
  std::vector<std::vector<double>> parameters;
  const BertConfig config{
      .layers = 3, .width = 12, .heads = 2, .vocabulary = 17, .sequence = 8, .recompute_segments = segments};
  const BatchSizes sizes{.micro_batch = 2, .sequence = 8};
  run<P>({}, [&](World<P>& world) {
    Engine engine{world, Bert<P>(config), Sgd{.lr = 1.0}, sizes};
    auto batch = engine.model().new_batch(sizes, world.memory());
    const auto fill = [](auto& field, auto value) {
      for (Size i = 0; i < field.value().count(); ++i) field.value().data()[i] = static_cast<std::int32_t>(value(i));
    };
    fill(batch.tokens, [](Size i) { return i * 3 % 17; });
    fill(batch.token_types, [](Size i) { return i % 2; });
    fill(batch.lengths, [](Size i) { return 5 + 3 * i; });
    fill(batch.labels, [](Size i) { return i * 5 % 17; });
    engine.train_batch(batch);
    for (const auto& named : engine.inventory().parameters) {
      const auto whole = engine.gather_parameter(named.name->text);
      parameters.emplace_back(whole.data(), whole.data() + whole.count());
    }
  });
  return parameters;
}

}  // namespace

TEST_CASE("what follows the input of a stack is kept for the second run of its segments") {
  const auto once = trained_bert(1);
  CHECK(once.size() > 30);
  for (const int segments : {2, 3}) CHECK(trained_bert(segments) == once);
}

TEST_CASE("segments_that_fit is the least number whose plan is within the limit, or says what the least peak is") {
  using P = Policy<Zero<1>, F32>;
  constexpr GptConfig config{.layers = 9, .width = 12, .heads = 2, .vocabulary = 17, .sequence = 64};
  constexpr BatchSizes sizes{.micro_batch = 4, .sequence = 64};
  const PlanOptions options{.data = 2};
  std::vector<Size> peaks;
  for (int segments = 1; segments <= config.layers; ++segments) {
    GptConfig now = config;
    now.recompute_segments = segments;
    peaks.push_back(plan<Gpt<P>>(now, sizes, options).peak);
  }
  const auto least = std::min_element(peaks.begin(), peaks.end());
  CHECK(*least * 2 < peaks[0]);
  for (const Size limit : peaks)
    for (const Size bytes : {limit, limit + 1, limit - 1}) {
      CAPTURE(bytes);
      const auto fits = std::find_if(peaks.begin(), peaks.end(), [&](Size peak) { return peak <= bytes; });
      if (fits != peaks.end()) {
        CHECK(segments_that_fit<Gpt<P>>(config, sizes, bytes, options) == fits - peaks.begin() + 1);
        continue;
      }
      const std::string sentence = sentence_of([&] { segments_that_fit<Gpt<P>>(config, sizes, bytes, options); });
      CHECK(sentence.find("needs a number of segments whose step is within the limit") != std::string::npos);
      CHECK(sentence.find("least peak " + std::to_string(*least)) != std::string::npos);
    }
  constexpr GptConfig tiny{.layers = 3, .width = 4, .heads = 1, .vocabulary = 5, .sequence = 16};
  constexpr BatchSizes one{.micro_batch = 1, .sequence = 16};
  constexpr Size whole = plan<Gpt<P>>(tiny, one).peak;
  static_assert(segments_that_fit<Gpt<P>>(tiny, one, whole) == 1);
  static_assert(segments_that_fit<Gpt<P>>(tiny, one, whole - 1) > 1);
}

TEST_CASE("another number of segments on one rank is a sentence before the first step") {
  using P = Policy<Zero<3>, F32>;
  const auto sentence = sentence_of([] {
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 30}, [](World<P>& world) {
      GptConfig config{.layers = 3, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4};
      config.recompute_segments = 2 + world.rank();
      Engine engine{world, Gpt<P>(config), AdamW{}, {.micro_batch = 1, .sequence = 4}};
    });
  });
  CHECK(sentence.find("blocks recompute_segments") != std::string::npos);
}

TEST_CASE("no segment at all is a sentence") {
  using P = Policy<F32>;
  const GptConfig config{.layers = 2, .width = 4, .heads = 1, .vocabulary = 5, .sequence = 4, .recompute_segments = 0};
  CHECK(sentence_of([&] {
          plan<Gpt<P>>(config, {.micro_batch = 1, .sequence = 4});
        }).find("Stack needs at least 1 segment, but got fewer") != std::string::npos);
}
