// SPDX-License-Identifier: Apache-2.0
// Engine::profile: what it names and counts, and that it changes nothing.
// labels: thread
#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include <dspp/engine/profiling.hpp>

#include <laws/folder.hpp>
#include <laws/json_tree.hpp>
#include <laws/sentence_of.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr Size rows = 2, sequence = 8, vocabulary = 61;

template <class P>
struct Job {
  using Model = RecomputedGpt<P>;
  using E = Engine<Model, AdamW>;
  World<P>& world;
  E engine;
  Size begun = 0;

  explicit Job(World<P>& of)
      : world(of), engine(of, Model(small_gpt(0.1)), AdamW{.lr = 1e-2}, sizes(), {.bucket_bytes = 8000}) {}

  static BatchSizes sizes() { return {.micro_batch = rows, .sequence = sequence}; }
  auto batch() {
    const Size first = world.data_rank() * rows;
    return batch_of(world.memory(), 24 * begun++, first, rows, sequence / P::cp, vocabulary,
                    sequence / P::cp * world.cp_rank());
  }
  double step() {
    const StepReport report = engine.train_batch(batch());
    return report.loss;
  }
};

/// The same steps, with a profile of the middle one.
template <class P>
void profiled_steps(int ranks) {
  CAPTURE(ranks);
  std::vector<std::uint64_t> bits(static_cast<std::size_t>(ranks)), profiled = bits;
  for (const bool takes_profile : {false, true})
    run_ranks_of<P>({.ranks = ranks, .threads_per_rank = 1}, [&](World<P>& world) {
      Job<P> job(world);
      job.step();
      if (takes_profile) {
        auto profiling = job.engine.profile();
        const Traffic before = world.traffic();
        job.step();
        const Profile profile = profiling.profile();
        const Traffic moved = world.traffic() - before;
        const Plan paper = plan<typename Job<P>::Model>(
            small_gpt(0.1), Job<P>::sizes(), {.data = world.data_size(), .bucket_bytes = 8000, .rank = world.place()});
        double flops = 0;
        Size bytes = 0;
        for (const ProfileRow& row : profile.rows) {
          flops += row.flops;
          if (row.collective) bytes += row.bytes;
        }
        CHECK(profile.steps == 1);
        CHECK(flops == paper.forward_flops + paper.backward_flops);
        CHECK(bytes == moved.total());
        CHECK(profile.seconds_in_work() <= profile.seconds);
        const CommunicationTime& communication = profile.communication;
        CHECK(communication.is_none() == (ranks == 1));
        CHECK(communication.hidden + communication.exposed <= communication.under_way + 1e-9);
        CHECK(profile.limits.flops > 0);
        CHECK(profile.limits.bytes > 0);
      } else {
        job.step();
      }
      job.step();
      (takes_profile ? profiled : bits)[static_cast<std::size_t>(world.rank())] = print_of_state(job.engine);
    });
  CHECK(bits == profiled);
}

}  // namespace

TEST_CASE("a profile has the plan's operations and the bytes that were read, and the steps keep their bits") {
  profiled_steps<Policy<>>(1);
  profiled_steps<Policy<Zero<2>, Bf16>>(2);
  profiled_steps<Policy<Zero<3>, Tp<2>, SequenceParallel>>(4);
  profiled_steps<Policy<Zero<1>, Cp<2>>>(2);
}

TEST_CASE("a row names pass, layer and operation; of the recomputed forward the pass is backward") {
  using P = Policy<Zero<3>, SelectiveRecompute<Norms>>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [](World<P>& world) {
    Job<P> job(world);
    auto profiling = job.engine.profile();
    job.step();
    job.step();
    const Profile profile = profiling.profile();
    CHECK(profile.steps == 2);
    const auto calls = [&](const std::string& pass, const std::string& layer, const std::string& operation) {
      for (const ProfileRow& row : profile.rows)
        if (row.pass == pass && row.layer == layer && row.operation == operation) return row.calls;
      return Size{0};
    };
    CHECK(calls("forward", "blocks.1.attention.qkv", "matmul") == 2);
    CHECK(calls("forward", "blocks.1", "attention") == 2);
    CHECK(calls("forward", "blocks.0.mlp.down", "matmul") == 2);
    CHECK(calls("forward", "tokens", "embedding") == 2);
    CHECK(calls("backward", "tokens", "embedding_vjp") == 2);
    CHECK(calls("backward", "blocks.1.attention.qkv", "matmul") == 6);  // once again, and for both operands
    CHECK(calls("backward", "blocks.1", "attention") == 2);
    CHECK(calls("backward", "blocks.1", "attention_vjp") == 2);
    CHECK(calls("step", "", "update") > 0);
    CHECK(calls("forward", "blocks.0", "all_gather parameter") > 0);
    CHECK(calls("step", "", "all_reduce scalar") > 0);
  });
}

TEST_CASE("of a segment that runs again, too, the pass is backward") {
  using P = Policy<Zero<3>>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [](World<P>& world) {
    GptConfig config = small_gpt(0.1);
    config.recompute_segments = config.layers;
    Engine engine{world, Gpt<P>(config), AdamW{.lr = 1e-2}, Job<P>::sizes()};
    auto profiling = engine.profile();
    engine.train_batch(batch_of(world.memory(), 0, world.data_rank() * rows, rows, sequence, vocabulary));
    const Profile profile = profiling.profile();
    Size forward = 0, backward = 0, last = 0;
    for (const ProfileRow& row : profile.rows) {
      const bool product = row.operation == "matmul" && row.layer == "blocks.0.attention.qkv";
      if (product) (row.pass == "forward" ? forward : backward) += row.calls;
      if (row.pass == "backward" && row.operation == "matmul" && row.layer == "blocks.1.attention.qkv")
        last += row.calls;
    }
    CHECK(config.layers == 2);
    CHECK(forward == 1);
    CHECK(backward == 3);  // once again, and for both operands
    CHECK(last == 2);
  });
}

TEST_CASE("a timeline has a lane for each rank, and a second profile of a rank is an error") {
  using P = Policy<Zero<2>>;
  const Folder folder;
  const std::string path = (folder.path / "trace.json").string();
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [&](World<P>& world) {
    Job<P> job(world);
    auto profiling = job.engine.profile(100'000);
    CHECK(sentence_of([&] { job.engine.profile(); }) ==
          "dspp: Engine::profile needs a rank of which no other profile is being taken, but one is. End that first.");
    job.step();
    profiling.write_trace(path);
  });
  const JsonTree trace = json_tree(read_file(path), path);
  std::set<std::string> lanes, names;
  int begun = 0, ended = 0;  // of what is under way
  for (const JsonTree& event : trace.find("traceEvents")->items) {
    if (const JsonTree* lane = event.find("tid")) lanes.insert(lane->text), names.insert(event.find("name")->string);
    begun += event.find("ph")->string == "b", ended += event.find("ph")->string == "e";
  }
  CHECK(begun > 0);
  CHECK(begun == ended);
  CHECK(lanes.size() == 2);
  for (const char* name : {"forward blocks.1", "backward blocks.0", "step", "matmul", "reduce_scatter gradient"})
    CHECK_MESSAGE(names.count(name) == 1, name);
}

TEST_CASE(
    "what is hidden of communication is that of the kept events, in the profile, in its trace and beside the plan") {
  using P = Policy<Zero<3>>;
  const Folder folder;
  const std::string path = (folder.path / "trace.json").string();
  constexpr double planned = 0.75;
  constexpr int steps = 3;
  std::array<CommunicationTime, 2> of_ranks;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [&](World<P>& world) {
    Job<P> job(world);
    job.step();
    auto profiling = job.engine.profile(100'000);
    for (int step = 0; step < steps; ++step) job.step();
    profiling.stop();
    profiling.set_planned_hidden(planned);
    const Profile profile = profiling.profile();
    of_ranks[static_cast<std::size_t>(world.rank())] = profile.communication;
    CHECK(profile.table().ends_with(profile.communication.line(steps)));
    const Rates rates = rates_of(profile);
    REQUIRE(rates.are_given());
    const Plan paper =
        plan<Job<P>::Model>(small_gpt(0.1), Job<P>::sizes(),
                            {.data = 2, .bucket_bytes = 8000, .check_ranks = 0, .rates = rates, .rank = world.place()});
    CHECK(paper.seconds.moving > 0);
    CHECK(paper.seconds.hidden() >= 0);
    CHECK(paper.seconds.hidden() <= 1);
    double in_kernels = 0;
    for (const ProfileRow& row : profile.rows) in_kernels += row.collective ? 0 : row.seconds;
    CHECK(steps * paper.seconds.computing == doctest::Approx(in_kernels));
    profiling.write_trace(path);
  });
  const JsonTree trace = json_tree(read_file(path), path);
  const auto& ranks = trace.find("otherData")->find("ranks")->items;
  REQUIRE(ranks.size() == 2);
  for (std::size_t r = 0; r < 2; ++r) {
    CAPTURE(r);
    const CommunicationTime& own = of_ranks[r];
    REQUIRE(!own.is_none());
    CHECK(own.hidden > 0);
    CHECK(own.exposed > 0);
    const JsonTree& of_rank = *ranks[r].find("communication");
    CHECK(of_rank.find("under_way_seconds")->real == doctest::Approx(own.under_way));
    CHECK(of_rank.find("hidden_share")->real == doctest::Approx(own.hidden_share()));
    CHECK(of_rank.find("exposed_share")->real == doctest::Approx(own.exposed_share()));
    CHECK(of_rank.find("planned_hidden_share")->real == planned);
    const std::string counter = "communication beside kernels, rank " + std::to_string(r);
    int counted = 0;
    for (const JsonTree& event : trace.find("traceEvents")->items)
      if (event.find("name")->string == counter) {
        ++counted;
        CHECK(event.find("ph")->string == "C");
        CHECK(event.find("args")->find("percent")->real >= 0);
        CHECK(event.find("args")->find("percent")->real <= 100);
      }
    CHECK(counted == steps);
  }
}

TEST_CASE("of one rank there is no communication, and no share of it") {
  using P = Policy<Zero<3>>;
  const Folder folder;
  const std::string path = (folder.path / "trace.json").string();
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1}, [&](World<P>& world) {
    Job<P> job(world);
    auto profiling = job.engine.profile(100'000);
    job.step();
    profiling.set_planned_hidden(1);
    const Profile profile = profiling.profile();
    CHECK(profile.communication.is_none());
    CHECK(profile.communication.hidden_share() == 0);
    CHECK(!profile.communication.planned_hidden);
    CHECK(profile.table().ends_with("\n  communication: none\n"));
    CHECK(!rates_of(profile).are_given());
    profiling.write_trace(path);
  });
  const std::string trace = read_file(path);
  CHECK(trace.find("_share") == std::string::npos);
  CHECK(trace.find("nan") == std::string::npos);
  CHECK(trace.find("communication beside kernels") == std::string::npos);
}

TEST_CASE("a profile ends with its scope, also by an exception, and with a collective under way") {
  using P = Policy<Zero<3>>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [](World<P>& world) {
    Job<P> job(world);
    const double first = job.step();
    try {
      auto profiling = job.engine.profile();
      const auto batch = batch_of(world.memory(), 0, 0, rows, sequence, vocabulary);
      job.engine.forward(batch);
      throw 1;
    } catch (int) {
    }
    CHECK(world.memory().profiler() == nullptr);
    CHECK(job.step() != first);
    auto again = job.engine.profile();
    job.step();
    CHECK(again.profile().steps == 1);
  });
}

TEST_CASE("stopped, a profile keeps what it timed, and its trace can be written later") {
  using P = Policy<Zero<2>>;
  const Folder folder;
  const std::string path = (folder.path / "trace.json").string();
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [&](World<P>& world) {
    Job<P> job(world);
    auto profiling = job.engine.profile(10);
    job.step();
    profiling.stop();
    const std::string table = profiling.profile().table();
    CHECK(world.memory().profiler() == nullptr);
    job.step();
    CHECK(profiling.profile().table() == table);
    CHECK(profiling.profile().rank == world.host().rank());
    profiling.stop();
    profiling.write_trace(path);
  });
  CHECK(read_file(path).find("rank 1, the first 10 events") != std::string::npos);
}

TEST_CASE("collectives that another engine of the world began under a profile end after it, with the same bits") {
  using P = Policy<Zero<2>>;
  std::array<double, 2> losses{};
  for (const bool profiled : {false, true})
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [&](World<P>& world) {
      Job<P> job(world), other(world);
      {
        std::optional<Profiling<Job<P>::E>> profiling;
        if (profiled) profiling.emplace(job.engine);
        other.engine.backward(other.engine.forward(other.batch()));
      }
      other.engine.step();
      const double loss = other.step();
      if (world.is_first()) losses[profiled] = loss;
    });
  CHECK(losses[0] == losses[1]);
}

TEST_CASE("a trace in a folder that does not exist is an error of all ranks") {
  using P = Policy<>;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1}, [](World<P>& world) {
    Job<P> job(world);
    auto profiling = job.engine.profile(10);
    CHECK_THROWS_AS(profiling.write_trace("/nowhere/at/all/trace.json"), Error);
  });
}
