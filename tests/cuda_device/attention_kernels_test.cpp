// SPDX-License-Identifier: Apache-2.0
// The kinds of attention that a policy chooses from on a GPU, without cuDNN. With a twin of it:
// software_gpu/cudnn_program.cpp.
// labels: cuda
#include <dspp/launch/cuda_rank.hpp>

#include <laws/attended.hpp>
#include <laws/one_rank_curves.hpp>
#include <laws/rank_sentence.hpp>
#include <laws/sentence_of.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using enum AttentionKernels;

/// What an attention in bf16 on a GPU gives, by kernels of a kind.
Attended attended_by(AttentionKernels by, Size sequence, Size head_dim) {
  CudaMemory memory;
  Pool pool(0, &memory);
  AnyCommunicator alone(Recorder(0, 1));
  Context<Cuda> context{.memory = &pool, .along = {.tp = &alone}, .attention_by = by};
  auto results = attended<bf16>(context, sequence, head_dim);
  CHECK(pool.live() == 0);
  return results;
}

/// Whole trainings of the cell: under a policy on a GPU, with the planned bytes, beside f64 on the Cpu.
template <class... P>
Trained trained_with(const Cell& cell, const Trained& one_rank) {
  using Model = Gpt<Policy<Bf16, Zero<2>, P...>>;
  const Trained trained = train_on<Cuda, Model>(cell);
  std::vector<Plan> plans;
  for (int r = 0; r < cell.ranks; ++r) plans.push_back(plan_of<rebind<Model, Cuda>>(cell, r));
  laws::detail::check_outcome(trained, plans, one_rank, 2e-2);
  return trained;
}

}  // namespace

TEST_CASE(
    "on a GPU attention by each kind of kernels is the Cpu's, forward and backward, plain ones in bits of their own") {
  Context<Cpu> here{};
  Pool pool;
  AnyCommunicator alone(Recorder(0, 1));
  here.memory = &pool, here.along.tp = &alone;
  const Attended expected = attended<double>(here, 70, 16);
  const auto check = [&](AttentionKernels by) {
    Attended is = attended_by(by, 70, 16);
    REQUIRE(is.size() == expected.size());
    for (std::size_t i = 0; i < is.size(); ++i) {
      CAPTURE(i);
      CHECK(difference_to_largest(is[i], expected[i]) < 0x1p-6);
    }
    return is;
  };
  const Attended by_flash = check(flash);
  CHECK(check(fastest) == by_flash);
  CHECK(check(plain) != by_flash);
  check(by_warps);
}

TEST_CASE("on a GPU a policy's kind of attention trains a model, at the planned bytes") {
  const Cell cell{.ranks = 2, .steps = 2, .heads = 3};
  const Trained one = train<Gpt<Policy<F64>>>({.steps = 2, .heads = 3});
  const Trained flash = trained_with<AttentionBy<FlashKernels>>(cell, one);
  CHECK(trained_with<AttentionBy<PlainKernels>>(cell, one).losses != flash.losses);
}

TEST_CASE("a kind of attention changes nothing on the Cpu") {
  const Cell cell{.steps = 2};
  check_same_bits(train<Gpt<Policy<Bf16, AttentionBy<CuDnn>>>>(cell), train<Gpt<Policy<Bf16>>>(cell));
}

TEST_CASE(
    "AttentionBy<CuDnn> is an error of what cuDNN does not take, and of a program without it, that says what to do") {
  CHECK(sentence_of([] { attended_by(cudnn, 127, 32); }).find("dspp: AttentionBy<CuDnn> needs 128 tokens or more") ==
        0);
  CHECK(sentence_of([] { attended_by(cudnn, 128, 24); }).find("Change them, or take Fastest.") != std::string::npos);
#if !DSPP_HAS_CUDNN()
  CHECK(
      sentence_of([] { attended_by(cudnn, 128, 32); })
          .find("dspp: AttentionBy<CuDnn> needs cuDNN, but this program's kernels were compiled without it. Configure "
                "with -DDSPP_CUDNN=ON") == 0);
#endif
  CHECK(attended_by(cudnn, 0, 32).front().empty());  // nothing that cuDNN would be asked for
}

TEST_CASE("a plan for AttentionBy<CuDnn> counts cuDNN's workspace without it, and refuses what cuDNN does not take") {
  using P = Policy<Bf16, Cuda, AttentionBy<CuDnn>>;
  const auto planned = [](Size sequence, Size head_dim) {
    const GptConfig model{.layers = 1, .width = 2 * head_dim, .heads = 2, .vocabulary = 11, .sequence = sequence};
    return plan<Gpt<P>>(model, {.micro_batch = 1, .sequence = sequence});
  };
  const auto workspace = [](AttentionKernels by) {
    Ledger ledger;
    Recorder<> alone(0, 1);
    Context<PaperOf<Cuda>> paper{.memory = &ledger, .along = {.tp = &alone}, .attention_by = by};
    attended<bf16>(paper, 128, 32);
    return ledger.peak_by_category()[Category::workspace];
  };
  const Size grouped = gpu::cudnn_slices({2, 128, 4, 2, 32, {}}).workspace_bytes();
  CHECK(workspace(cudnn) == workspace(flash) + round_up(grouped, 64));
  CHECK(sentence_of([&] { planned(128, 32); }) == "no error");
  CHECK(sentence_of([&] { planned(120, 32); }).find("AttentionBy<CuDnn> needs 128 tokens or more") !=
        std::string::npos);
  CHECK(sentence_of([&] { planned(24576, 32); }).find("AttentionBy<CuDnn> needs at most 1088 MiB of workspace") !=
        std::string::npos);
}
