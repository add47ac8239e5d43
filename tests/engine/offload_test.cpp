// SPDX-License-Identifier: Apache-2.0
// Offload<Optimizer, where>: the bits of the same policy without it, at the cost of the plan on every tier; a step that
// a disk refuses changes nothing, whichever of its reads and writes that is.
// labels: engine thread
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/weight_average.hpp>
#include <dspp/hub/hugging_face.hpp>
#include <dspp/optim.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// One engine for all stages and tiers, which it is given as values.
template <class O, int Stage, class Where, class... More>
Trained train_offloaded(const Cell& cell) {
  using Model = Gpt<Policy<Zero<Stage>, Offload<Optimizer, Where>, More...>>;
  Trained trained = laws::detail::train_as<typename Model::policy, Gpt<Policy<More...>>, O>(cell);
  CAPTURE(Stage);
  check_run(trained);
  for (int r = 0; r < cell.ranks; ++r)
    check_plan(plan_of<Model, O>(cell, r), trained.ranks[static_cast<std::size_t>(r)], r);
  return trained;
}

template <class O, int Stage, class... More>
void check_stage(Cell cell) {
  CAPTURE(cell.ranks);
  using Model = Gpt<Policy<Zero<Stage>, More...>>;
  const Folder folder;
  const std::string path = folder.path.string();
  const Trained resident = laws::detail::train_as<typename Model::policy, Gpt<Policy<More...>>, O>(cell);
  cell.offload.folder = path;
  const Trained host = train_offloaded<O, Stage, Host, More...>(cell);
  check_same_bits(host, resident);
  const Trained disk = train_offloaded<O, Stage, Disk, More...>(cell);
  check_same_bits(disk, resident);
  CHECK(fs::is_empty(folder.path));
  if (laws::detail::OptimizerOf<O>::averages) return;  // the average is the device's
  for (std::size_t r = 0; r < resident.ranks.size(); ++r) {
    const Size state = resident.ranks[r].state[Category::optimizer];
    CHECK(host.ranks[r].state[Category::optimizer] == 0);
    CHECK(host.ranks[r].host == state);
    CHECK(disk.ranks[r].state[Category::optimizer] == 0);
    CHECK(disk.ranks[r].disk >= 2 * state);
    CHECK(disk.ranks[r].values_print == resident.ranks[r].values_print);
  }
}

}  // namespace

namespace {

/// Zero<3> with its slices in the host's memory or on a disk, beside what `Members` offload or move otherwise, and
/// without. A disk has the optimizer's state, too.
template <class O, class P, class... Members>
void check_parameters(Cell cell) {
  CAPTURE(cell.ranks);
  const Folder folder;
  const std::string path = folder.path.string();
  cell.offload.folder = path;
  const auto train = [&]<class Q>(Q) { return train_as_values<O, Q, P>(cell); };
  const Trained resident = train(Policy<P, Zero<3>, Members...>{});
  const Trained offloaded = train(Policy<P, Zero<3>, Offload<Parameters, Host>, Members...>{});
  check_same_bits(offloaded, resident);
  for (std::size_t r = 0; r < resident.ranks.size(); ++r) {
    const RankRecord &there = offloaded.ranks[r], &here = resident.ranks[r];
    const Size values = here.state[Category::parameters];
    CHECK(there.state[Category::parameters] == 0);
    CHECK(there.resident == here.resident - values);
    const Size gradients = values / offloaded.facts.element * offloaded.facts.gradient;
    CHECK(there.host == here.host + values + gradients);
    CHECK(there.by_category[Category::gradients] < here.by_category[Category::gradients]);
    CHECK(there.values_print == here.values_print);
  }
}
template <class O, class P, class... Members>
void check_parameters_on_disk(Cell cell) {
  CAPTURE(cell.ranks);
  const Folder folder;
  const std::string path = folder.path.string();
  cell.offload.folder = path;
  const auto train = [&]<class Q>(Q) { return train_as_values<O, Q, P>(cell); };
  const Trained state = train(Policy<P, Zero<3>, Offload<Optimizer, Disk>, Members...>{});
  const Trained all = train(Policy<P, Zero<3>, Offload<Optimizer, Disk>, Offload<Parameters, Disk>, Members...>{});
  check_same_bits(all, state);
  for (std::size_t r = 0; r < state.ranks.size(); ++r) {
    const Size values = state.ranks[r].state[Category::parameters];
    CHECK(all.ranks[r].state[Category::parameters] == 0);
    CHECK(all.ranks[r].resident == state.ranks[r].resident - values);
    CHECK(all.ranks[r].disk >= state.ranks[r].disk + 2 * values);
    CHECK(all.ranks[r].host == values / state.facts.element * state.facts.gradient);  // gradients
    CHECK(all.ranks[r].values_print == state.ranks[r].values_print);
  }
  CHECK(fs::is_empty(folder.path));
}

}  // namespace

TEST_CASE(
    "slices of parameters and gradients in the host's memory give the bits of the device's, beside other members") {
  check_parameters<AdamW, F64>({.ranks = 1, .steps = 3});
  check_parameters<Averaged<AdamW>, F64>({.ranks = 3, .accumulate = 2, .steps = 3});
  check_parameters<Muon, F64>({.ranks = 2, .steps = 2});
  check_parameters<AdamW, F64, Offload<Optimizer, Host>>({.ranks = 2, .steps = 2});
  check_parameters<AdamW, Bf16, Offload<Optimizer, Disk>>({.ranks = 2, .accumulate = 3, .steps = 3});
  check_parameters<AdamW, F64, SecondaryShards<Node>>({.ranks = 4, .accumulate = 2, .steps = 2, .ranks_per_node = 2});
  check_parameters<AdamW, F64, Shards<Within<Node>>, GatherAs<Int8>>({.ranks = 4, .steps = 2, .ranks_per_node = 2});
  check_parameters<AdamW, F64, ReduceAs<Int4>>({.ranks = 3, .accumulate = 2, .steps = 2});
}

TEST_CASE("a share of state and values, or so many bytes, moves to the host's memory, in the same bits") {
  using P = Policy<Bf16, Zero<3>, Offload<Optimizer, Host>, Offload<Parameters, Host>>;
  const auto train = []<class Q>(Q, const Cell& cell) { return train_as_values<AdamW, Q, Bf16>(cell); };
  const Cell cell{.ranks = 2, .accumulate = 2, .steps = 3};
  const Trained resident = train(Policy<Bf16, Zero<3>>{}, cell), whole = train(P{}, cell);
  check_same_bits(whole, resident);
  const RankRecord& here = resident.ranks[0];
  const Size state = here.state[Category::optimizer], values = here.state[Category::parameters];
  const auto moved = [&](const OffloadPart& optimizer, const OffloadPart& parameters) {
    Cell divided = cell;
    divided.offload.optimizer = optimizer, divided.offload.parameters = parameters;
    const Trained trained = train(P{}, divided);
    check_same_bits(trained, resident);
    const RankRecord& there = trained.ranks[0];
    CHECK(there.resident + (state - there.state[Category::optimizer]) + (values - there.state[Category::parameters]) ==
          here.resident);
    return std::pair{state - there.state[Category::optimizer], values - there.state[Category::parameters]};
  };
  const auto is_about = [](Size part, double share, Size all) {
    return std::abs(static_cast<double>(part) - share * static_cast<double>(all)) < 0.1 * static_cast<double>(all);
  };
  for (const double share : {0.3, 0.7}) {
    CAPTURE(share);
    const auto [of_state, of_values] = moved({.share = share}, {.share = 1 - share});
    CHECK(is_about(of_state, share, state));
    CHECK(is_about(of_values, 1 - share, values));
  }
  CHECK(moved({.share = 0}, {.share = 0}) == std::pair{Size{0}, Size{0}});
  CHECK(moved({.share = 1}, {.most_bytes = 0}) == std::pair{state, Size{0}});
  const auto [of_state, of_values] = moved({.most_bytes = state / 3}, {.share = 0.5, .most_bytes = values / 4});
  CHECK(is_about(of_state, 1. / 3, state));
  CHECK(of_state <= state / 3);
  CHECK(is_about(of_values, 0.25, values));
  CHECK(of_values <= values / 4);
}

TEST_CASE("the share that is moved is within half a bucket of the one that is asked for, whatever the buckets") {
  std::uint64_t random = 1;
  for (const double share : {0., 0.01, 0.3, 0.5, 0.9, 0.99, 1.}) {
    CAPTURE(share);
    for (int run = 0; run < 50; ++run) {
      OffloadDivision division({.share = share});
      Size all = 0, moved = 0, largest = 0;
      for (int i = 0; i < 12; ++i) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const Size bytes = Size{1} << (random >> 59);
        all += bytes, largest = std::max(largest, bytes);
        if (division.moves(bytes)) moved += bytes;
        CHECK(std::abs(static_cast<double>(moved) - share * static_cast<double>(all)) <=
              static_cast<double>(largest) / 2);
      }
      if (share == 0) CHECK(moved == 0);
      if (share == 1) CHECK(moved == all);
    }
  }
}

TEST_CASE("a part that cannot be, or of what is not offloaded to the host's memory, is refused") {
  const auto construct = []<class P>(P, const OffloadConfig& offload) {
    return sentence_of([&] {
      run_ranks_of<P>({.ranks = 1}, [&](World<P>& world) {
        Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), AdamW{}, BatchSizes{}, {.offload = offload});
      });
    });
  };
  using Moves = Policy<F32, Zero<3>, Offload<Optimizer, Host>>;
  CHECK(construct(Moves{}, {.optimizer = {.share = 0.5}}) == "no error");
  for (const OffloadPart& part : {OffloadPart{.share = -0.1}, OffloadPart{.share = 1.1}, OffloadPart{.share = NAN},
                                  OffloadPart{.most_bytes = -2}})
    CHECK(construct(Moves{}, {.optimizer = part}).find("OffloadPart needs a share from 0 to 1") != std::string::npos);
  const char* const other = "needs Offload<what, Host> for a share or most_bytes";
  CHECK(construct(Moves{}, {.parameters = {.share = 0.5}}).find(other) != std::string::npos);
  CHECK(construct(Policy<F32>{}, {.optimizer = {.most_bytes = 10}}).find(other) != std::string::npos);
  const OffloadConfig on_disk{.folder = "/tmp", .optimizer = {.share = 0.5}};
  CHECK(construct(Policy<F32, Offload<Optimizer, Disk>>{}, on_disk).find(other) != std::string::npos);
}

TEST_CASE("values on a disk, too, give the bits of the device's, with every optimizer and beside other members") {
  check_parameters_on_disk<AdamW, F64>({.ranks = 1, .steps = 3});
  check_parameters_on_disk<AdamW, Bf16>({.ranks = 2, .accumulate = 3, .steps = 3});
  check_parameters_on_disk<Averaged<AdamW>, F64>({.ranks = 3, .accumulate = 2, .steps = 3});
  check_parameters_on_disk<Averaged<AdamW>, Bf16>({.ranks = 2, .steps = 3});
  check_parameters_on_disk<Lamb, F64>({.ranks = 3, .steps = 2});
  check_parameters_on_disk<Muon, F64>({.ranks = 2, .steps = 2, .prefetch_bytes = 100000});
  check_parameters_on_disk<AdamW, F64>({.ranks = 2, .steps = 2, .prefetch_bytes = 0, .live_bytes = 1 << 20});
  check_parameters_on_disk<AdamW, F64, SecondaryShards<Node>>({.ranks = 4, .steps = 2, .ranks_per_node = 2});
  check_parameters_on_disk<AdamW, F64, Shards<Within<Node>>, GatherAs<Int8>>(
      {.ranks = 4, .steps = 2, .ranks_per_node = 2});
  check_parameters_on_disk<AdamW, F64, ReduceAs<Int4>, Overlap<Off>>({.ranks = 3, .accumulate = 2, .steps = 2});
}

TEST_CASE("f64: the state of every optimizer in the host's memory or on a disk gives the bits of the device's") {
  check_stage<AdamW, 0, F64>({.ranks = 1, .steps = 3});
  check_stage<AdamW, 1, F64>({.ranks = 3, .accumulate = 2, .steps = 3});
  check_stage<Lion, 2, F64>({.ranks = 3, .steps = 2});
  check_stage<Adagrad, 3, F64>({.ranks = 2, .steps = 2});
  check_stage<MomentumSgd, 0, F64>({.ranks = 2, .steps = 2});
  check_stage<Lamb, 0, F64>({.ranks = 1, .steps = 2});
  check_stage<Lamb, 3, F64>({.ranks = 3, .steps = 2});
  check_stage<Muon, 0, F64>({.ranks = 1, .steps = 2});
  check_stage<Muon, 3, F64>({.ranks = 3, .steps = 2});
  check_stage<AdamW, 3, F64, Tp<2>, SequenceParallel>({.ranks = 4, .steps = 2});
}

TEST_CASE("f32: the same, also where an optimizer has no state") {
  check_stage<AdamW, 2, F32>({.ranks = 2, .steps = 2});
  check_stage<Sgd, 1, F32>({.ranks = 2, .steps = 2});
}

TEST_CASE("bf16 and f16: the same with masters, also of steps that are skipped, and of averages") {
  check_stage<AdamW, 0, Bf16>({.ranks = 1, .steps = 3});
  check_stage<AdamW, 3, Bf16>({.ranks = 2, .accumulate = 3, .steps = 3});
  check_stage<Averaged<AdamW>, 1, Bf16>({.ranks = 2, .steps = 3});
  check_stage<Muon, 2, F16>({.ranks = 2, .steps = 3});
  Cell overflows{.ranks = 2, .steps = 8, .loss_scale = {.initial = 0x1p24}};
  const Trained resident = train_on<Cpu, Gpt<Policy<F16>>, Lamb>(overflows);
  const Folder folder;
  const std::string path = folder.path.string();
  overflows.offload.folder = path;
  using Offloaded = Policy<F16, Offload<Optimizer, Disk>>;
  check_same_bits(laws::detail::train_as<Offloaded, Gpt<Policy<F16>>, Lamb>(overflows), resident);
  CHECK(resident.ranks[0].skipped > 2);
}

namespace {

/// Fails, shortens or changes the n-th call of a kind.
struct FaultyBlocks : io::BlockCalls {
  enum class Kind { read, write, extend, open };
  enum class What { error, fewer, none, other_bytes };
  Kind kind = Kind::read;
  What what = What::error;
  int error = EIO;
  Size at = 0, calls = 0;  ///< at 0: none
  bool uses_ring = true;
  std::atomic<io::BlockPiece*> changed{nullptr};  ///< whose bytes are to be others
  std::mutex mutex;

  bool is_due(Kind of) {
    const std::scoped_lock turn(mutex);
    return of == kind && ++calls == at;
  }
  int open(const std::string& folder, bool direct, int& descriptor) override {
    return is_due(Kind::open) ? error : BlockCalls::open(folder, direct, descriptor);
  }
  int extend(int descriptor, Size offset, Size bytes) override {
    return is_due(Kind::extend) ? error : BlockCalls::extend(descriptor, offset, bytes);
  }
  std::unique_ptr<io::BlockRing> make_ring(int descriptor, int depth, int& reason) override {
    reason = ENOSYS;
    return uses_ring ? BlockCalls::make_ring(descriptor, depth, reason) : nullptr;
  }
  void before(io::BlockPiece& piece) noexcept override {
    if (!is_due(piece.writes ? Kind::write : Kind::read)) return;
    if (what == What::error) piece.error = error;
    if (what == What::none) piece.bytes = 0;
    if (what == What::fewer) piece.bytes = 4096;
    if (what == What::other_bytes) changed = &piece;
  }
  void after(io::BlockPiece& piece) noexcept override {
    if (changed != &piece) return;
    piece.at[piece.done - 4096] ^= std::byte{1};
    changed = nullptr;
  }
};

/// Three steps on two ranks, of which a fault of the second rank's disk may refuse the second, which then is repeated.
/// Every step checks the ranks, which reads their state.
struct Repeated {
  std::vector<std::string> sentences = std::vector<std::string>(2);  ///< of the ranks
  std::map<std::string, std::vector<double>> parameters{};
  Size calls = 0;  ///< of the second step
};
template <class O, int Stage, class Precision, class... Members>
Repeated train_repeated(const std::string& folder, FaultyBlocks& calls) {
  using Model = Gpt<Policy<Precision>>;
  using P = typename Model::policy;
  Repeated result;
  const Size at = std::exchange(calls.at, 0);
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .seed = 4, .timeout_seconds = 20}, [&](World<P>& world) {
    const EngineConfig config{.bucket_bytes = 2500 * static_cast<Size>(sizeof(typename P::Element)),
                              .check_ranks = 1,
                              .offload = {folder, world.rank() == 1 ? &calls : nullptr}};
    using Offloaded = Policy<Precision, Zero<Stage>, Offload<Optimizer, Disk>, Members...>;
    Engine<Model, O> engine(world, Model(small_gpt()), O{.lr = 1e-2}, BatchSizes{}, config,
                            dspp::detail::replica_config<Offloaded>({}, config));
    const auto pass = [&](Size i) {
      engine.backward(engine.forward(batch_of(world.memory(), 4 * i, 2 * world.rank(), 2, 12, 61)));
    };
    const auto step = [&](Size i) { pass(i), engine.step(); };
    step(0);
    pass(1);
    if (world.rank() == 1) calls.calls = 0, calls.at = at;
    all_or_none(world.host(), [] {});
    const auto rank = static_cast<std::size_t>(world.rank());
    result.sentences[rank] = sentence_of([&] { engine.step(); });
    if (result.sentences[rank] != "no error") {
      CHECK(engine.steps() == 1);
      step(1);
    }
    if (world.rank() == 1) result.calls = calls.calls, calls.at = 0;
    all_or_none(world.host(), [] {});
    step(2);
    for (const auto& named : engine.inventory().parameters) {
      const auto whole = engine.gather_parameter(named.name->text);
      if (world.is_first()) result.parameters[named.name->text].assign(whole.data(), whole.data() + whole.count());
    }
  });
  return result;
}

/// Every call of a kind fails in turn, at most `most` of them, evenly.
template <class O, int Stage, class Precision, class... Members>
void check_refusals(Size most) {
  using Kind = FaultyBlocks::Kind;
  using What = FaultyBlocks::What;
  CAPTURE(Stage);
  const Folder folder(in_memory());
  const std::string path = folder.path.string();
  const auto train = [&](FaultyBlocks& calls) { return train_repeated<O, Stage, Precision, Members...>(path, calls); };
  FaultyBlocks none;
  const Repeated whole = train(none);
  CHECK(whole.sentences[0] == "no error");
  for (const Kind kind : {Kind::read, Kind::write}) {
    FaultyBlocks counter;
    counter.kind = kind;
    const Size calls = train(counter).calls;
    REQUIRE(calls > 4);
    for (const What what : {What::error, What::fewer, What::none, What::other_bytes}) {
      if (kind == Kind::write && what == What::other_bytes) continue;
      const Size times = what == What::error ? std::min(most, calls) : (most + 1) / 3;
      for (Size i = 0; i < times; ++i) {
        FaultyBlocks faulty;
        faulty.kind = kind, faulty.what = what, faulty.at = 1 + i * calls / times, faulty.error = i % 2 ? EIO : ENOSPC;
        faulty.uses_ring = i % 3 != 1;
        CAPTURE(faulty.at);
        CAPTURE(static_cast<int>(kind));
        CAPTURE(static_cast<int>(what));
        const Repeated repeated = train(faulty);
        CHECK(repeated.parameters == whole.parameters);
        const std::string& sentence = repeated.sentences[1];
        if (what == What::fewer) {
          CHECK(sentence == "no error");  // the rest is transferred
          continue;
        }
        CHECK(sentence.starts_with("dspp: BlockFile needs "));
        CHECK(sentence.find("'" + path + "'") != std::string::npos);
        CHECK(sentence.find(" at offset ") != std::string::npos);
        if (what == What::other_bytes) CHECK(sentence.find("but found other bytes") != std::string::npos);
        if (what == What::none)
          CHECK(sentence.find(kind == Kind::read ? "the file ends before" : "writes fewer") != std::string::npos);
        CHECK(repeated.sentences[0].starts_with("dspp: a step with state on disks needs every rank, but another one"));
      }
    }
  }
}

}  // namespace

TEST_CASE("a step with a refused read or write changes nothing on any rank, and its repetition has its bits") {
  const Size most = sanitizer == Sanitizer::none ? 5 : 2;
  check_refusals<AdamW, 2, Bf16>(most);
  check_refusals<Lamb, 3, F64>(std::min<Size>(most, 2));  // its ranks sum norms between the reads
  check_refusals<Muon, 1, F64>(std::min<Size>(most, 2));  // and gather matrices
  check_refusals<AdamW, 3, Bf16, Offload<Parameters, Disk>>(most);
  check_refusals<AdamW, 3, F64, Offload<Parameters, Disk>>(std::min<Size>(most, 2));  // which has no masters
}

namespace {

/// What a run of two ranks ends with if the second's disk refuses the `at`-th call of a kind in its forward, or
/// backward, before it begins a second pass without a fault.
template <class Offloaded>
std::string refused_in_pass(FaultyBlocks::Kind kind, Size at, bool forward, Size& calls_made) {
  using P = Policy<F64>;
  const Folder folder(in_memory());
  const std::string path = folder.path.string();
  GptConfig model = small_gpt();
  if (Offloaded::activation_tier == Tier::disk) model.layers = model.recompute_segments = 5;
  const std::string sentence = sentence_of([&] {
    run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 20}, [&](World<P>& world) {
      FaultyBlocks calls;
      calls.kind = kind;
      const EngineConfig config{.bucket_bytes = 20000, .offload = {path, world.rank() == 1 ? &calls : nullptr}};
      Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(model), AdamW{}, BatchSizes{}, config,
                                   dspp::detail::replica_config<Offloaded>({}, config));
      const auto batch = batch_of(world.memory(), 0, 2 * world.rank(), 2, 12, 61);
      const auto begin = [&] { calls.calls = 0, calls.at = at; };
      if (forward) begin();
      auto loss = engine.forward(batch);
      if (!forward) begin();
      engine.backward(loss);
      if (world.rank() == 1) calls_made = calls.calls;
      calls.at = 0;
      engine.step();
    });
  });
  CHECK(fs::is_empty(folder.path));
  return sentence;
}

}  // namespace

TEST_CASE("a refused transfer in a forward or backward ends the run on every rank with the disk's sentence") {
  using Kind = FaultyBlocks::Kind;
  const auto check = [](auto policy, Kind kind, bool forward, Size least) {
    using Offloaded = decltype(policy);
    CAPTURE(forward);
    Size calls = 0, none = 0;
    CHECK(refused_in_pass<Offloaded>(kind, 0, forward, calls) == "no error");
    REQUIRE(calls >= least);
    for (const Size at : {Size{1}, (calls + 1) / 2}) {
      CAPTURE(at);
      CHECK(refused_in_pass<Offloaded>(kind, at, forward, none).find("BlockFile needs ") != std::string::npos);
    }
  };
  using Values = Policy<F64, Zero<3>, Offload<Optimizer, Disk>, Offload<Parameters, Disk>>;
  using Inputs = Policy<F64, Offload<Activations, Disk>>;
  check(Values{}, Kind::read, true, 5);
  check(Values{}, Kind::read, false, 5);
  check(Inputs{}, Kind::write, true, 4);
  check(Inputs{}, Kind::read, false, 3);
}

namespace {

/// What each of two ranks says of `work(engine, average)` when the second's disk refuses its `at`-th read, and whether
/// the engine's state is as before. `calls`: the reads, without a fault.
struct Refused {
  std::vector<std::string> sentences = std::vector<std::string>(2);
  bool same_weights = true;
  Size calls = 0;
};
template <class Work>
Refused refused_read(const std::string& folder, Size at, Work work) {
  using P = Policy<Bf16>;
  Refused result;
  FaultyBlocks calls;
  calls.kind = FaultyBlocks::Kind::read, calls.error = EIO;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .seed = 4, .timeout_seconds = 20}, [&](World<P>& world) {
    const EngineConfig config{.bucket_bytes = 20000, .offload = {folder, world.rank() == 1 ? &calls : nullptr}};
    using Offloaded = Policy<Bf16, Zero<1>, Offload<Optimizer, Disk>>;
    Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), AdamW{}, BatchSizes{}, config,
                                 dspp::detail::replica_config<Offloaded>({}, config));
    WeightAverage average(engine, 0.5);
    engine.train_batch(batch_of(world.memory(), 0, 2 * world.rank(), 2, 12, 61));
    const std::uint64_t before = print_of_state(engine);
    all_or_none(world.host(), [] {});
    if (world.rank() == 1) calls.calls = 0, calls.at = at;
    result.sentences[static_cast<std::size_t>(world.rank())] = sentence_of([&] { work(engine, average); });
    if (world.rank() == 1) result.calls = calls.calls, calls.at = 0;
    all_or_none(world.host(), [] {});
    if (print_of_state(engine) != before) result.same_weights = false;
  });
  return result;
}

}  // namespace

TEST_CASE("outside of steps, too, a refused read is an error on every rank") {
  const Folder folder(in_memory());
  const std::string path = folder.path.string();
  const auto check = [&](const std::string& what, bool keeps_weights, auto work) {
    CAPTURE(what);
    const Size calls = refused_read(path, 0, work).calls;
    REQUIRE(calls > 0);
    for (Size at = 1; at <= calls; at += 1 + calls / 3) {
      CAPTURE(at);
      const Refused refused = refused_read(path, at, work);
      CHECK(refused.sentences[1].starts_with("dspp: BlockFile needs "));
      CHECK(refused.sentences[0].starts_with("dspp: "));
      CHECK((refused.same_weights || !keeps_weights));
    }
  };
  const Folder saved;
  check("save_weights", true, [&](auto& engine, auto&) { save_weights(engine, (saved.path / "weights").string()); });
  check("save_hugging_face", true,
        [&](auto& engine, auto&) { hub::save_hugging_face(engine, (saved.path / "folder").string()); });
  check("restart", false, [](auto& engine, auto&) { engine.restart(0); });
  std::atomic<bool> away = false;  // within() has begun: the weights are the averages
  const auto within = [&](auto&, auto& average) {
    away = false;
    try {
      average.within([&] { away = true; });
    } catch (const Error&) {
      if (away) CHECK(sentence_of([&] { average.update(); }).find("a disk refused a part") != std::string::npos);
      throw;
    }
  };
  const Size calls = refused_read(path, 0, within).calls;
  int there = 0, back = 0;
  for (Size at = 1; at <= calls; ++at) {
    const Refused refused = refused_read(path, at, within);
    for (const std::string& sentence : refused.sentences) CHECK(sentence.starts_with("dspp: "));
    CHECK(refused.same_weights == !away);
    ++(away ? back : there);
  }
  CHECK(there > 0);
  CHECK(there == back);
}

TEST_CASE("a disk that takes no file, or too small a one, ends a training before its first step; a folder is named") {
  const Folder folder;
  const std::string path = folder.path.string();
  using Kind = FaultyBlocks::Kind;
  const auto construct_with = [&]<class What>(What, std::string_view in, FaultyBlocks* calls) {
    using P = Policy<Bf16>;
    return sentence_of([&] {
      run_ranks_of<P>({.ranks = 1}, [&](World<P>& world) {
        const EngineConfig config{.offload = {in, calls}};
        Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), AdamW{}, BatchSizes{}, config,
                                     dspp::detail::replica_config<Policy<Bf16, Offload<What, Disk>>>({}, config));
      });
    });
  };
  const auto construct = [&](std::string_view in, FaultyBlocks* calls) {
    return construct_with(Optimizer{}, in, calls);
  };
  CHECK(construct(path, nullptr) == "no error");
  CHECK(construct_with(Activations{}, path, nullptr) == "no error");
  for (const std::string& sentence : {construct("", nullptr), construct_with(Activations{}, "", nullptr)})
    CHECK(sentence.starts_with("dspp: Offload<what, Disk> needs a folder for a file, but "));
  FaultyBlocks full, closed, closed_to_inputs;
  full.kind = Kind::extend, full.error = ENOSPC, full.at = 2;
  CHECK(construct(path, &full).find("No space left on device, where ") != std::string::npos);
  closed.kind = Kind::open, closed.error = EACCES, closed.at = 1;
  closed_to_inputs.kind = Kind::open, closed_to_inputs.error = EACCES, closed_to_inputs.at = 1;
  for (const std::string& sentence : {construct(path, &closed), construct_with(Activations{}, path, &closed_to_inputs)})
    CHECK(sentence.find("to take a file, but the system says: Permission denied.") != std::string::npos);
}

TEST_CASE("state that could not be written outside of a step is kept, and written with what comes next") {
  const Folder folder;
  const std::string path = folder.path.string();
  using P = Policy<Bf16>;
  run_ranks_of<P>({.ranks = 1}, [&](World<P>& world) {
    FaultyBlocks calls;
    calls.kind = FaultyBlocks::Kind::write;
    const EngineConfig config{.bucket_bytes = 20000, .offload = {path, &calls}};
    Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), AdamW{}, BatchSizes{}, config,
                                 dspp::detail::replica_config<Policy<Bf16, Offload<Optimizer, Disk>>>({}, config));
    const std::string name = "blocks.1.mlp.up.weight";
    const auto before = engine.gather_parameter(name);
    std::vector<float> whole(static_cast<std::size_t>(before.count()), 0.75f);
    calls.calls = 0, calls.at = 1;
    CHECK(sentence_of([&] { set_parameter(engine, name, whole); }).starts_with("dspp: BlockFile needs "));
    engine.state().settle();
    const auto after = engine.gather_parameter(name);  // of masters
    CHECK(std::all_of(after.data(), after.data() + after.count(), [](float x) { return x == 0.75f; }));
  });
}
