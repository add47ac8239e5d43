// SPDX-License-Identifier: Apache-2.0
// The strategy matrix with Policy<..., Cuda>: ranks are threads that share the GPU in software. Kernels are linked, as
// in a program that links dspp::cuda.
// labels: cuda
#include <dspp/launch/cuda_rank.hpp>

#include <dspp/optim/lamb.hpp>
#include <dspp/optim/muon.hpp>

#include <laws/device_schedules.hpp>
#include <laws/one_rank_curves.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Trains on a GPU, and compares the run with the Cpu's curve, its plan for a GPU and the formulas.
template <class Model>
Trained check_on_cuda(const Cell& cell, const Trained& one_rank, double tolerance) {
  using OnCuda = rebind<Model, Cuda>;
  const Trained trained = train_on<Cuda, Model>(cell);
  std::vector<Plan> plans;
  for (int r = 0; r < cell.ranks; ++r) plans.push_back(plan_of<OnCuda>(cell, r));
  laws::detail::check_outcome(trained, plans, one_rank, tolerance);
  return trained;
}

/// The same with another optimizer, beside the Cpu in the same precision.
template <class Model, class Optimizer>
void check_optimizer(const Cell& cell) {
  const Trained on_cpu = laws::detail::train_as<typename Model::policy, Model, Optimizer>(cell);
  const Trained on_gpu = train_on<Cuda, Model, Optimizer>(cell);
  CHECK(relative_gap(on_gpu.losses, on_cpu.losses) <= 1e-4);
  CHECK(relative_gap(on_gpu.norms, on_cpu.norms) <= 1e-3);
  for (int r = 0; r < cell.ranks; ++r) {
    const auto& record = on_gpu.ranks[static_cast<std::size_t>(r)];
    CHECK(record.values_follow_masters);
    CHECK(plan_of<rebind<Model, Cuda>, Optimizer>(cell, r).peak == record.peak);
  }
}

template <class... P>
using ModelOn = Gpt<Policy<F32, P...>>;

}  // namespace

TEST_CASE("on a GPU every stage follows the Cpu's curve, in the same bits, with the planned bytes and traffic") {
  const Trained one = train<Gpt<Policy<F64>>>({.steps = 3});
  check_on_cuda<ModelOn<>>({.steps = 3}, one, 1e-5);
  const Trained all = check_on_cuda<ModelOn<>>({.ranks = 2, .steps = 3}, one, 1e-5);
  check_on_cuda<ModelOn<>>({.ranks = 2, .steps = 3, .sum_order = SumOrder::transport}, one, 1e-5);
  check_same_bits(check_on_cuda<ModelOn<Zero<1>>>({.ranks = 2, .steps = 3}, one, 1e-5), all);
  check_same_bits(check_on_cuda<ModelOn<Zero<2>>>({.ranks = 2, .steps = 3}, one, 1e-5), all);
  check_same_bits(check_on_cuda<ModelOn<Zero<3>>>({.ranks = 2, .steps = 3}, one, 1e-5), all);
}

TEST_CASE("on a GPU tensors, sequences and contexts that are split follow the Cpu's curve") {
  const Trained one = train<Gpt<Policy<F64>>>({.steps = 3, .dropout = 0.1});
  check_on_cuda<ModelOn<Zero<1>, Tp<2>, SequenceParallel>>({.ranks = 2, .steps = 3, .dropout = 0.1}, one, 1e-5);
  check_on_cuda<ModelOn<Zero<2>, Cp<2>>>({.ranks = 2, .steps = 3, .dropout = 0.1}, one, 1e-5);
}

TEST_CASE("on a GPU bf16 with f32 masters follows the curve, by flash attention as its heads have 8 columns") {
  const Trained one = train<Gpt<Policy<F64>>>({.steps = 3, .heads = 3});
  check_on_cuda<Gpt<Policy<Bf16, Zero<2>>>>({.ranks = 2, .accumulate = 2, .steps = 3, .heads = 3}, one, 2e-2);
}

TEST_CASE("on a GPU twenty steps with dropout stay as near to f64's curve as on the Cpu, in f32 and in bf16") {
  const Cell cell{.steps = 20, .dropout = 0.1, .samples = 4, .sequence = 6};
  const Trained one = train<Gpt<Policy<F64>>>(cell), f32 = train<Gpt<Policy<F32>>>(cell);
  // The Cpu's f32 is one draw of what twenty steps make of roundings of 2^-24; a GPU, whose sums have other orders, is
  // another: at most four times as far, and four times 1e-6, which oneDNN's sums for AVX2 pass on the Cpu. Roundings to
  // bf16 are 2^15 times as large.
  const double gap = std::max(relative_gap(f32.losses, one.losses), relative_gap(f32.norms, one.norms) / 10);
  const double off = std::min(gap, 1e-6);
  CHECK(off > 0);
  check_on_cuda<ModelOn<>>(cell, one, 4 * off);
  check_on_cuda<Gpt<Policy<Bf16, Zero<2>>>>(cell, one, 4 * 0x1p15 * off);
}

TEST_CASE("on a GPU Muon's matrices and its other parameters follow the Cpu's curve") {
  check_optimizer<Gpt<Policy<F32, Zero<1>>>, Muon>({.ranks = 2, .steps = 3});
}

TEST_CASE("on a GPU a Llama with all its options follows the Cpu's curve under LAMB") {
  check_optimizer<Llama<Policy<F32, Zero<3>>>, Lamb>({.ranks = 2, .steps = 3, .llama_options = true});
}

TEST_CASE("under random schedules two ranks on a GPU train to the same bits, with several buckets under way") {
  using P = Policy<F32, Cuda>;
  constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4};
  const auto trained = [&] {
    std::vector<std::uint64_t> prints(2);
    std::vector<double> losses;
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
      const EngineConfig config{.bucket_bytes = 400};
      Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(tiny), AdamW{}, {}, config,
                                   dspp::detail::replica_config<Policy<F32, Zero<3>>>({}, config));
      for (Size step = 0; step < 2; ++step) {
        auto loss = engine.forward(batch_of<Cuda>(world.memory(), 2 * step, world.data_rank(), 1, 4, 13));
        engine.backward(loss);
        const StepReport report = engine.step();
        if (world.is_first()) losses.push_back(report.loss);
      }
      prints[static_cast<std::size_t>(world.rank())] = print_of_state(engine);
    });
    return std::pair(prints, losses);
  };
  const auto expected = trained();
  CHECK(expected.first[0] != expected.first[1]);
  CHECK(expected.second[0] != expected.second[1]);
  under_schedules([&] { CHECK(trained() == expected); });
}

TEST_CASE("on a GPU shards by node and quantized traffic train as on the Cpu, with the planned bytes and traffic") {
  const Cell cell{.ranks = 4, .accumulate = 2, .steps = 3, .ranks_per_node = 2};
  const auto check = [&]<class P>(double tolerance, P) {
    using OnCuda = rebind<Gpt<P>, Cuda>;
    const Trained on_cpu = laws::detail::train_as<P, Gpt<Policy<F32>>>(cell);
    const Trained on_gpu = train_on<Cuda, Gpt<P>>(cell);
    CHECK(relative_gap(on_gpu.losses, on_cpu.losses) <= tolerance);
    check_run(on_gpu);
    for (int r = 0; r < cell.ranks; ++r)
      check_plan(plan_of<OnCuda>(cell, r), on_gpu.ranks[static_cast<std::size_t>(r)], r);
  };
  check(1e-5, Policy<F32, Zero<2>, Shards<Within<Node>>>{});
  check(1e-5, Policy<F32, Zero<3>, SecondaryShards<Node>>{});
  check(1e-2, Policy<F32, Zero<3>, SecondaryShards<Node>, GatherAs<Int8>, ReduceAs<Int4>>{});
}
