// SPDX-License-Identifier: Apache-2.0
// A program with cuDNN, of which a twin takes the place: trainings under each AttentionBy<...>, whose memory is the
// plan's. A test of its own, since units that differ in DSPP_WITH_CUDNN do not link.
#include <doctest/doctest.h>

#include <kernels/cuda_kernels.cuh>

#include <dspp/launch/cuda_rank.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

#include <laws/attended.hpp>
#include <laws/cudnn_twin.hpp>
#include <laws/difference.hpp>
#include <laws/rank_sentence.hpp>

using namespace dspp;

namespace {
laws::CudnnTwin<bf16> twin;
}  // namespace

namespace dspp::gpu {
struct CudnnAttention::Handle {};
struct CudnnAttention::Graph {};
CudnnAttention::CudnnAttention() = default;
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::takes(const CudnnCall& call) {
  if (twin.refuses) last_refusal_ = "the twin takes nothing";
  return twin.takes(call);
}
void CudnnAttention::run(cudaStream_t stream, const CudnnCall& call, const CudnnOperands& at, void* workspace) {
  twin.run(stream, call, at, workspace);
}
}  // namespace dspp::gpu

namespace {

template <class... P>
using Model = Gpt<Policy<Bf16, P...>>;
constexpr GptConfig model{.layers = 2, .width = 64, .heads = 2, .vocabulary = 11, .sequence = 128};
constexpr BatchSizes sizes{.micro_batch = 2, .sequence = 128};

struct Trained {
  std::vector<double> losses;
  int runs = 0;  ///< of cuDNN
  Size peak = 0;
};

/// Two steps of one rank.
template <class M>
Trained trained() {
  using P = typename M::policy;
  using D = typename P::DeviceType;
  twin = {.by = AttentionKernels::plain};
  Trained trained;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 300}, [&](World<P>& world) {
    Engine<M, AdamW> engine(world, M(model), AdamW{.lr = 1e-2}, sizes, EngineConfig{});
    const auto ids = [&](int first) {
      const auto x = Tensor<std::int32_t, 2, D>::uninitialized(shape(2, 128), world.memory(), Category::data);
      x.write([&](std::int32_t* out) {
        for (int i = 0; i < 256; ++i) out[i] = (3 * (first + i) + (first + i) * (first + i) / 7) % 11;
      });
      return x;
    };
    for (int step = 0; step < 2; ++step)
      trained.losses.push_back(engine.train_batch(std::vector{Batch<D>{ids(0), ids(1), 0}})->loss);
    trained.peak = world.memory().peak();
  });
  trained.runs = twin.runs;
  return trained;
}

const std::vector<double>& losses_of_cpu() {
  static const std::vector<double> losses = trained<Model<>>().losses;
  return losses;
}

/// The same beside the Cpu and the plan.
template <class By>
Trained check() {
  using M = Model<Cuda, AttentionBy<By>>;
  const Trained is = trained<M>();
  const Plan paper = plan<M>(model, sizes, {.data = 1});
  CHECK(is.peak == paper.peak);
  CHECK(laws::worst_difference(is.losses, losses_of_cpu()) < 2e-2);
  return is;
}

}  // namespace

TEST_CASE("a policy says whether cuDNN computes attention, and a training has the planned bytes and the Cpu's losses") {
  const Trained fastest = check<Fastest>(), cudnn = check<CuDnn>(), flash = check<FlashKernels>(),
                plain = check<PlainKernels>();
  CHECK(fastest.runs == 2 * 2 * 2);  // steps, layers and passes
  CHECK(cudnn.runs == fastest.runs);
  CHECK(flash.runs == 0);
  CHECK(plain.runs == 0);
  CHECK(fastest.losses == cudnn.losses);
  CHECK(plain.losses == cudnn.losses);  // the twin is by plain kernels
  CHECK(flash.losses != cudnn.losses);
}

TEST_CASE("attention alone has the planned bytes, too: cuDNN's workspace where it computes, else none of it") {
  AnyCommunicator alone(Recorder(0, 1));
  Recorder<> on_paper(0, 1);
  const auto workspace = [&](AttentionKernels by) {
    twin = {};
    CudaMemory memory;
    Pool pool(0, &memory);
    Context<Cuda> context{.memory = &pool, .along = {.tp = &alone}, .attention_by = by};
    laws::attended<bf16>(context, 128, 32);
    Ledger ledger;
    Context<PaperOf<Cuda>> paper{.memory = &ledger, .along = {.tp = &on_paper}, .attention_by = by};
    laws::attended<bf16>(paper, 128, 32);
    CHECK(pool.peak() == ledger.peak());
    CHECK(pool.peak_by_category()[Category::workspace] == ledger.peak_by_category()[Category::workspace]);
    return pool.peak_by_category()[Category::workspace];
  };
  const Size grouped = gpu::cudnn_slices({2, 128, 4, 2, 32, {}}).workspace_bytes();
  CHECK(workspace(AttentionKernels::cudnn) == workspace(AttentionKernels::flash) + round_up(grouped, 64));
  CHECK(workspace(AttentionKernels::fastest) == workspace(AttentionKernels::cudnn));
  CHECK(workspace(AttentionKernels::plain) == workspace(AttentionKernels::flash));
}

TEST_CASE("what cuDNN refuses is computed by dspp's kernels, or under AttentionBy<CuDnn> an error with its reason") {
  const auto refused = []<class P>(P) {
    return laws::sentence_of<P>(1, [](World<P>& world) {
      twin = {.refuses = true};
      Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(model), AdamW{}, sizes, EngineConfig{});
      const auto ids = Tensor<std::int32_t, 2, Cuda>::zeros(shape(2, 128), world.memory(), Category::data);
      CHECK(engine.train_batch(std::vector{Batch<Cuda>{ids, ids, 0}})->loss > 0);
    });
  };
  CHECK(refused(Policy<Bf16, Cuda>()) == "");
  const std::string sentence = refused(Policy<Bf16, Cuda, AttentionBy<CuDnn>>());
  CHECK(sentence.find("dspp: AttentionBy<CuDnn> needs cuDNN to take this attention (sequence 128, heads 2 of 32; rank "
                      "0 on GPU 0), but it does not: 'the twin takes nothing'. Change it, or take "
                      "AttentionBy<Fastest>.") != std::string::npos);
}
