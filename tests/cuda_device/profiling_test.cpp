// SPDX-License-Identifier: Apache-2.0
// Engine::profile on a GPU: what it counts, the times that its streams keep, and that it changes nothing.
// labels: cuda
#include <kernels/nccl.cuh>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include <dspp/engine/profiling.hpp>
#include <dspp/launch/cuda_rank.hpp>
#include <dspp/observe/overlap.hpp>

#include <laws/device_communicator.hpp>
#include <laws/folder.hpp>
#include <laws/json_tree.hpp>
#include <laws/nccl_training.hpp>
#include <laws/sentence_of.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

#if !DSPP_HAS_NVCC()
namespace {

constexpr GptConfig tiny{.layers = 2, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4};
constexpr BatchSizes sizes{.micro_batch = 1, .sequence = 4};
constexpr EngineConfig settings{.bucket_bytes = 512};

/// The same steps, with a profile of the middle one.
template <class P>
void profiled_steps(int ranks) {
  CAPTURE(ranks);
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(ranks)), profiled = bits;
  for (const bool takes_profile : {false, true})
    run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
      Engine engine(world, Gpt<P>(tiny), AdamW{.lr = 1e-2}, sizes, settings);
      Size begun = 0;
      const auto step = [&] {
        const auto batch = batch_of<Cuda>(world.memory(), 24 * begun++, world.data_rank(), 1, 4, 13);
        return engine.train_batch(batch);
      };
      const double before = step().get().loss;
      CHECK(before > 0);
      if (takes_profile) {
        auto profiling = engine.profile(10'000);
        const Traffic until = world.traffic();
        static_cast<void>(step().get());
        const Profile profile = profiling.profile();
        const Traffic moved = world.traffic() - until;
        const Plan paper = plan<Gpt<P>>(
            tiny, sizes, {.data = world.data_size(), .bucket_bytes = settings.bucket_bytes, .rank = world.place()});
        double flops = 0;
        Size bytes = 0, transferred = 0, transfers = 0, updates = 0;
        for (const ProfileRow& row : profile.rows) {
          flops += row.flops;
          if (row.collective) bytes += row.bytes;
          if (row.operation == "update") updates += row.calls;
        }
        for (const ProfileRow& row : profile.transfers) transferred += row.bytes, transfers += row.calls;
        CHECK(profile.steps == 1);
        CHECK(flops == paper.forward_flops + paper.backward_flops);
        CHECK(bytes == moved.total());
        CHECK(profile.transfers.empty() == (ranks == 1));
        CHECK(transferred <= bytes);  // but for what only this rank's host exchanges
        const auto has = [&](const std::string& pass, const std::string& layer, const std::string& operation) {
          for (const ProfileRow& row : profile.rows)
            if (row.pass == pass && row.layer == layer && row.operation == operation) return true;
          return false;
        };
        CHECK(has("forward", "blocks.1.attention.qkv", "matmul"));
        CHECK(has("backward", "blocks.0", "attention_vjp"));
        CHECK(updates > 0);
        if (ranks > 1) CHECK(profile.table().find("moving ") != std::string::npos);
      } else {
        step();
      }
      CHECK(step().get().loss > 0);
      (takes_profile ? profiled : bits)[static_cast<std::size_t>(world.rank())] = print_of_state(engine);
    });
  CHECK(bits == profiled);
}

}  // namespace

TEST_CASE(
    "on a GPU, too, a profile has the plan's operations and the bytes that were read, and steps keep their bits") {
  profiled_steps<Policy<F32, Cuda>>(1);
  profiled_steps<Policy<Zero<2>, Bf16, Cuda>>(2);
  profiled_steps<Policy<Zero<3>, F32, Tp<2>, SequenceParallel, Cuda>>(4);
  profiled_steps<Policy<Zero<2>, F32, Speculative, Cuda>>(2);  // streams of updates, too
  profiled_steps<Policy<Zero<1>, F32, Delayed<1>, Offload<Optimizer, Host>, Cuda>>(2);
  profiled_steps<Policy<Zero<3>, F32, Offload<Activations, Host>, Offload<Parameters, Host>, Cuda>>(2);
}

TEST_CASE(
    "over NCCL a profile has the times of the streams, the plan's share of what is hidden, and a lane of messages") {
  constexpr Size steps = 2;
  const Folder folder;
  const std::string path = (folder.path / "trace.json").string();
  Profile profile;
  software_gpu::Times before, after;
  double hidden = 0;
  TimedTraining::run<Policy<Zero<3>, F32>>([&](auto& engine, auto step) {
    const bool is_first = engine.world().rank() == 0;
    auto profiling = engine.profile(100'000);
    if (is_first) before = software_gpu::times_of(0);
    for (Size i = 0; i < steps; ++i) step();
    const Profile own = profiling.profile();
    const Rates found = rates_of(own);
    const double planned = TimedTraining::plan_at(found).seconds.hidden();
    engine.world().host().barrier();
    if (is_first) {
      after = software_gpu::times_of(0), profile = own, hidden = planned;
      CHECK(found.bytes_per_second == doctest::Approx(TimedTraining::rates().bytes_per_second).epsilon(0.01));
    }
    profiling.set_planned_hidden(planned);
    profiling.write_trace(path);
  });
  REQUIRE(profile.steps == steps);
  double computing = 0, moving = 0;
  for (const ProfileRow& row : profile.rows) computing += row.collective ? 0 : row.seconds;
  for (const ProfileRow& row : profile.transfers) moving += row.seconds;
  CHECK(computing == doctest::Approx(after.computing - before.computing).epsilon(1e-4));
  CHECK(moving == doctest::Approx(after.moving - before.moving).epsilon(1e-4));
  const auto since = [](std::vector<Interval> all, std::size_t first) {
    return std::vector<Interval>(all.begin() + static_cast<std::ptrdiff_t>(first), all.end());
  };
  const OverlapTime measured =
      overlap_of(since(after.messages, before.messages.size()), since(after.products, before.products.size()));
  const CommunicationTime& communication = profile.communication;
  CHECK(communication.under_way == doctest::Approx(measured.under_way).epsilon(1e-4));
  CHECK(communication.hidden == doctest::Approx(measured.hidden).epsilon(1e-4));
  CHECK(communication.exposed == doctest::Approx(measured.exposed()).epsilon(1e-3));
  CHECK(std::abs(hidden - communication.hidden_share()) < 0.02);
  CHECK(communication.hidden_share() > 0.8);

  const JsonTree trace = json_tree(read_file(path), path);
  std::array<Size, 2> begun{}, ended{};
  double last_of_message = 0, last = 0;
  for (const JsonTree& event : trace.find("traceEvents")->items) {
    const std::string kind = event.find("ph")->string;
    if (kind == "X") last = std::max(last, event.find("ts")->real + event.find("dur")->real);
    if (kind != "b" && kind != "e") continue;
    const std::size_t rank = event.find("tid")->text == "0" ? 0 : 1;
    ++(kind == "b" ? begun : ended)[rank];
    last_of_message = std::max(last_of_message, event.find("ts")->real);
    CHECK(event.find("cat")->string == "under way");
  }
  Size messages = 0;
  for (const ProfileRow& row : profile.transfers) messages += row.calls;
  CHECK(begun[0] == messages);
  CHECK(begun == ended);
  CHECK(last_of_message > 0);
  CHECK(last_of_message <= last);
}

TEST_CASE("what a step did wrong is the engine's to say, not the end's of a profile") {
  using P = Policy<F32, Cuda>;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine(world, Gpt<P>(tiny), AdamW{.lr = 1e-2}, sizes, settings);
    const auto step = [&](std::int32_t id) {
      const auto batch = batch_of<Cuda>(world.memory(), 0, 0, 1, 4, 13);
      Cuda::write(world.memory(), batch.tokens.data(), 4, [&](std::int32_t* ids) { std::fill_n(ids, 4, id); });
      return engine.train_batch(batch);
    };
    static_cast<void>(step(3).get());
    {
      auto profiling = engine.profile();
      static_cast<void>(step(99));  // of 13
    }
    CHECK(Cuda::memory_of(world.memory()).clock() == nullptr);
    CHECK(sentence_of([&] { engine.steps(); }).find("99") != std::string::npos);
  });
}

TEST_CASE("a clock waits for streams that nobody else waits for") {
  using P = Policy<F32, Cuda>;
  for (unsigned seed = 1; seed <= 20; ++seed)
    run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
      CudaClock clock(Cuda::memory_of(world.memory()));
      auto x = Tensor<float, 1, Cuda>::zeros(shape(100), world.memory(), Category::workspace, "x");
      std::uint64_t last = clock.mark();
      CudaLane lane;
      lane.start(world.memory(), [&](Pool& memory) {
        for (unsigned i = 0; i < seed; ++i) Cuda::zero(memory, reinterpret_cast<std::byte*>(x.data()), 400);
        last = clock.mark();
      });
      last = clock.mark();
      clock.wait();
      std::uint64_t read = 0;
      while (const auto moment = clock.read()) read = moment->number;
      CHECK(read == last);
      lane.wait();
    });
}

TEST_CASE("a clock of which CUDA refuses events still ends, and what fails is said by the device's next call") {
  using P = Policy<F32, Cuda>;
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    CudaMemory& memory = Cuda::memory_of(world.memory());
    const software_gpu::Live before = software_gpu::live();
    {
      CudaClock clock(memory);
      CHECK(memory.clock() == &clock);
      { const CudaClock other(memory); }
      CHECK(memory.clock() == &clock);
      software_gpu::fail_call(1);
      CHECK(clock.mark() == 0);
      CHECK(clock.mark() == 1);
      clock.wait();
      REQUIRE(clock.read());
      const auto second = clock.read();
      REQUIRE(second);
      CHECK(second->number == 1);
      CHECK(!clock.read());
      software_gpu::fail_call(0);
    }
    CHECK(memory.clock() == nullptr);
    CHECK(software_gpu::live() == before);
  });
}
#endif
