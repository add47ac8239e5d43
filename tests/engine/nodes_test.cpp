// SPDX-License-Identifier: Apache-2.0
// ZeRO by node: Shards<Within<Node>> and SecondaryShards<Node> train as the same policy without them, at the cost of
// the plan, with the traffic of the papers' formulas inside of nodes and between them.
// labels: engine thread
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <dspp/checkpoint/training_state.hpp>
#include <dspp/engine/profiling.hpp>
#include <dspp/engine/weight_average.hpp>
#include <dspp/optim.hpp>
#include <laws/flipped_bits.hpp>
#include <laws/folder.hpp>
#include <laws/sentence_of.hpp>
#include <laws/strategy.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

struct Counts {
  Size ranks, nodes, on_node;
};
/// The replicas of a cell with one rank for each.
Counts counts_of(const Cell& cell, Size tp = 1) {
  const Size ranks = cell.ranks / tp, on_node = cell.ranks_per_node / tp;
  return {ranks, ranks / on_node, on_node};
}

/// Shards<Within<Node>>: of psi bytes of gradients and values a rank reads inside of its node as under ZeRO of the
/// node's replicas, and across nodes its slice of the gradients twice, (nodes - 1) / nodes of it each time.
void check_traffic_within(const Trained& trained) {
  const laws::Facts& facts = trained.facts;
  const auto [ranks, nodes, on_node] = counts_of(trained.cell, facts.tp);
  const Size micro_steps = trained.cell.accumulate;
  Size across = 0, expected = 0;
  for (const RankRecord& record : trained.ranks) {
    const Size elements = record.psi / facts.element, slice = elements / on_node;
    const Size gradients = slice * (on_node - 1) * facts.gradient, values = slice * (on_node - 1) * facts.element;
    const auto on = [&](Collective c, Purpose p) { return record.node.bytes(c, p); };
    CHECK(on(Collective::reduce_scatter, Purpose::gradient) == (facts.stage == 1 ? 1 : micro_steps) * gradients);
    CHECK(on(Collective::all_gather, Purpose::parameter) == (facts.stage == 3 ? 2 * micro_steps : 1) * values);
    across += record.across.bytes(Purpose::gradient);
    expected += 2 * slice * (nodes - 1) * facts.gradient;  // of all nodes: one rank's share is rounded
    CHECK(record.across.total() == record.across.bytes(Purpose::gradient));
    CHECK(record.replicas.bytes(Purpose::gradient) + record.replicas.bytes(Purpose::parameter) == 0);
    CHECK(record.replicas.total() == record.replicas.bytes(Purpose::scalar));
  }
  CHECK(across * nodes == expected);
}

/// SecondaryShards<Node>: each remote byte of the values comes into a node once a step, whatever the micro-steps.
void check_traffic_of_secondary_shards(const Trained& trained) {
  const laws::Facts& facts = trained.facts;
  const auto [ranks, nodes, on_node] = counts_of(trained.cell, facts.tp);
  for (const RankRecord& record : trained.ranks) {
    const Size slice = record.psi / ranks;
    CHECK(record.across.bytes(Collective::all_gather, Purpose::parameter) == (nodes - 1) * slice);
    CHECK(record.across.total() == (nodes - 1) * slice);
    CHECK(record.node.total() == 2 * trained.cell.accumulate * nodes * (on_node - 1) * slice);
    CHECK(record.replicas.bytes(Purpose::parameter) == 0);
    CHECK(record.replicas.bytes(Purpose::gradient) ==
          trained.cell.accumulate * (ranks - 1) * slice / facts.element * facts.gradient);
  }
}

template <class O, class... More>
void check_shards_within(Cell cell, double tolerance) {
  CAPTURE(cell.ranks);
  CAPTURE(cell.ranks_per_node);
  const Trained flat = train_as_values<O, Policy<Zero<2>, More...>, More...>(cell);
  const Trained two = train_as_values<O, Policy<Zero<2>, Shards<Within<Node>>, More...>, More...>(cell);
  CHECK(relative_gap(two.losses, flat.losses) <= tolerance);
  CHECK(relative_gap(two.norms, flat.norms) <= 10 * tolerance);
  CHECK(parameter_gap(two, flat) <= 100 * tolerance);
  check_traffic_within(two);
  for (std::size_t r = 0; r < two.ranks.size(); ++r) {
    const auto [ranks, nodes, on_node] = counts_of(cell, two.facts.tp);
    const Size over_all = flat.ranks[r].state[Category::optimizer], over_node = two.ranks[r].state[Category::optimizer];
    CHECK(over_node <= nodes * over_all);  // less, as there is less padding
    CHECK(over_node > 9 * nodes * over_all / 10);
    CHECK(two.ranks[r].values_print == two.ranks[r % static_cast<std::size_t>(two.facts.tp)].values_print);
  }
  const Trained one = train_as_values<O, Policy<Zero<1>, Shards<Within<Node>>, More...>, More...>(cell);
  check_traffic_within(one);
  const Trained three = train_as_values<O, Policy<Zero<3>, Shards<Within<Node>>, More...>, More...>(cell);
  check_traffic_within(three);
  check_same_bits(three, two);
  if (cell.accumulate == 1) return check_same_bits(two, one);  // else stage 1 adds micro-steps before it reduces
  CHECK(relative_gap(one.losses, two.losses) <= tolerance);
}

template <class O, class... More>
void check_secondary_shards(const Cell& cell) {
  CAPTURE(cell.ranks);
  CAPTURE(cell.ranks_per_node);
  const Trained flat = train_as_values<O, Policy<Zero<3>, More...>, More...>(cell);
  const Trained kept = train_as_values<O, Policy<Zero<3>, SecondaryShards<Node>, More...>, More...>(cell);
  check_same_bits(kept, flat);
  check_traffic_of_secondary_shards(kept);
  for (std::size_t r = 0; r < kept.ranks.size(); ++r) CHECK(kept.ranks[r].resident == flat.ranks[r].resident);
}

}  // namespace

TEST_CASE("f64: shards within nodes train as shards over all replicas do, and stages share their bits") {
  check_shards_within<AdamW, F64>({.ranks = 4, .steps = 4, .ranks_per_node = 2}, 1e-12);
  check_shards_within<AdamW, F64>({.ranks = 6, .accumulate = 2, .steps = 2, .ranks_per_node = 2}, 1e-12);
  check_shards_within<Lamb, F64>({.ranks = 6, .steps = 2, .ranks_per_node = 3}, 1e-12);
  check_shards_within<Muon, F64>({.ranks = 4, .steps = 2, .ranks_per_node = 2}, 1e-11);
  check_shards_within<AdamW, F64, Tp<2>, SequenceParallel>({.ranks = 8, .steps = 2, .ranks_per_node = 4}, 1e-12);
}

TEST_CASE("bf16 and averages: the same") {
  check_shards_within<Averaged<AdamW>, Bf16>({.ranks = 4, .accumulate = 3, .steps = 3, .ranks_per_node = 2}, 1e-2);
}

TEST_CASE("a node for each replica, which has all, and one node for all, which is as without nodes") {
  check_shards_within<AdamW, F64>({.ranks = 3, .steps = 2, .ranks_per_node = 1}, 1e-12);
  const Cell one{.ranks = 3, .steps = 2, .ranks_per_node = 3};
  const Trained flat = train_as_values<AdamW, Policy<Zero<2>, F64>, F64>(one);
  check_same_bits(train_as_values<AdamW, Policy<Zero<2>, Shards<Within<Node>>, F64>, F64>(one), flat);
  check_same_bits(train_as_values<AdamW, Policy<Zero<3>, SecondaryShards<Node>, F64>, F64>(one), flat);
}

TEST_CASE("secondary shards have the bits of the same policy without them") {
  check_secondary_shards<AdamW, F64>({.ranks = 4, .steps = 3, .ranks_per_node = 2});
  check_secondary_shards<AdamW, F64>({.ranks = 6, .accumulate = 2, .steps = 2, .ranks_per_node = 3});
  check_secondary_shards<AdamW, F64>({.ranks = 3, .steps = 2, .ranks_per_node = 1});
  check_secondary_shards<AdamW, F64, Tp<2>, SequenceParallel>({.ranks = 8, .steps = 2, .ranks_per_node = 4});
  check_secondary_shards<Averaged<AdamW>, Bf16>({.ranks = 4, .accumulate = 3, .steps = 3, .ranks_per_node = 2});
}

namespace {

/// Traffic of quantized values and gradients over all replicas, in one hop: of a part of every bucket, which is less
/// than `bits` / 8 bytes an element, the scales and 64 bytes a bucket.
void check_quantized_traffic(const Trained& trained, int gather_bits, int reduce_bits, bool by_node) {
  const laws::Facts& facts = trained.facts;
  const Size ranks = trained.cell.ranks / facts.tp, micro_steps = trained.cell.accumulate;
  for (const RankRecord& record : trained.ranks) {
    const Size slice = record.psi / facts.element / ranks;
    const auto check = [&](Size bytes, Size parts, int bits) {
      CAPTURE(bits);
      const Size least = slice * bits / 8 * parts;
      CHECK(bytes >= least);
      CHECK(bytes <= least + parts * (slice / 256 * facts.compute + (64 + facts.compute) * record.buckets));
    };
    if (gather_bits > 0)
      check(record.replicas.bytes(Collective::all_gather, Purpose::parameter), 2 * micro_steps * (ranks - 1),
            gather_bits);
    if (reduce_bits == 0) continue;
    CHECK(record.replicas.bytes(Collective::reduce_scatter, Purpose::gradient) == 0);
    const Size reductions = facts.stage == 1 ? 1 : micro_steps;
    if (!by_node) {
      check(record.replicas.bytes(Purpose::gradient), reductions * (ranks - 1), reduce_bits);
      continue;
    }
    const auto [all, nodes, on_node] = counts_of(trained.cell, facts.tp);
    check(record.node.bytes(Purpose::gradient), reductions * (on_node - 1) * nodes, reduce_bits);
    check(record.across.bytes(Purpose::gradient), reductions * (nodes - 1), reduce_bits);
    CHECK(record.replicas.bytes(Purpose::gradient) == 0);
  }
}

/// The curve of the same policy in full precision, nearly.
void check_near(const Trained& quantized, const Trained& exact, double tolerance) {
  CHECK(relative_gap(quantized.losses, exact.losses) <= tolerance);
  CHECK(!same_bits(quantized.losses, exact.losses));
}

}  // namespace

TEST_CASE("gathered values of 8 bits train nearly as exact ones, at the cost of the plan") {
  for (const int ranks : {2, 3, 4}) {
    CAPTURE(ranks);
    const Cell cell{.ranks = ranks, .accumulate = ranks == 4 ? 3 : 1, .steps = 10};
    const Trained exact = train_as_values<AdamW, Policy<Zero<3>, F64>, F64>(cell);
    const Trained quantized = train_as_values<AdamW, Policy<Zero<3>, GatherAs<Int8>, F64>, F64>(cell);
    check_near(quantized, exact, 0.01);
    check_quantized_traffic(quantized, 8, 0, false);
  }
  const Cell one{.ranks = 1, .steps = 2};
  check_same_bits(train_as_values<AdamW, Policy<Zero<3>, GatherAs<Int8>, ReduceAs<Int4>, F64>, F64>(one),
                  train_as_values<AdamW, Policy<Zero<3>, F64>, F64>(one));
}

TEST_CASE("gradients of 4 and 8 bits train nearly as exact ones, in one hop or by node, and stages share their bits") {
  for (const Cell& cell : {Cell{.ranks = 3, .steps = 10}, Cell{.ranks = 4, .steps = 10, .ranks_per_node = 2},
                           Cell{.ranks = 6, .accumulate = 2, .steps = 10, .ranks_per_node = 3},
                           Cell{.ranks = 2, .steps = 10, .ranks_per_node = 1}}) {
    CAPTURE(cell.ranks);
    CAPTURE(cell.ranks_per_node);
    const bool by_node = cell.ranks_per_node > 1;
    const Trained exact = train_as_values<AdamW, Policy<Zero<2>, F64>, F64>(cell);
    const Trained eight = train_as_values<AdamW, Policy<Zero<2>, ReduceAs<Int8>, F64>, F64>(cell);
    check_near(eight, exact, 0.01);
    if (cell.ranks_per_node != 1) check_quantized_traffic(eight, 0, 8, by_node);
    const Trained four = train_as_values<AdamW, Policy<Zero<3>, ReduceAs<Int4>, F64>, F64>(cell);
    check_near(four, exact, 0.05);
    if (cell.ranks_per_node != 1) check_quantized_traffic(four, 0, 4, by_node);
    const Trained one = train_as_values<AdamW, Policy<Zero<1>, ReduceAs<Int8>, F64>, F64>(cell);
    if (cell.accumulate == 1) check_same_bits(one, eight);
    check_same_bits(train_as_values<AdamW, Policy<Zero<3>, ReduceAs<Int8>, F64>, F64>(cell), eight);
  }
}

TEST_CASE("all of ZeRO++ together, in bf16 with accumulation") {
  const Cell cell{.ranks = 4, .accumulate = 3, .steps = 10, .ranks_per_node = 2};
  const Trained exact = train_as_values<AdamW, Policy<Zero<3>, Bf16>, Bf16>(cell);
  using All = Policy<Zero<3>, Bf16, SecondaryShards<Node>, GatherAs<Int8>, ReduceAs<Int4>>;
  const Trained all = train_as_values<AdamW, All, Bf16>(cell);
  check_near(all, exact, 0.05);
  check_quantized_traffic(all, 0, 4, true);
  // Of psi bytes a rank reads 2 psi (N - m) / N a micro-step by gathers and half as much again by reductions in f32,
  // which accumulation takes; here a node's m ranks share what a step gathers once, at half the bytes, and an eighth.
  for (std::size_t r = 0; r < 4; ++r) {
    const Size psi = exact.ranks[r].psi, scalars = 2000;
    CHECK(std::abs(exact.ranks[r].links.outer - 3 * (2 * psi / 2 + 2 * psi / 2)) <= scalars);
    const double expected = static_cast<double>(all.ranks[r].psi) * (0.25 * 0.5 + 3 * 0.25 * 0.25);
    CHECK(static_cast<double>(all.ranks[r].links.outer) >= expected);
    CHECK(static_cast<double>(all.ranks[r].links.outer) <= 1.25 * expected + scalars);
  }
  for (const RankRecord& record : all.ranks) {
    const Size slice = record.psi / all.facts.element / 4;
    const Size values = record.across.bytes(Collective::all_gather, Purpose::parameter);
    CHECK(values >= slice);
    CHECK(values <= slice + slice / 256 * 4 + 68 * record.buckets);
  }
}

namespace {

/// Batches of the tokens of small_gpt(): three samples of a data rank, of which a rank of Cp has its part.
template <class P>
Batch<Cpu> batch_for(World<P>& world, Size step) {
  constexpr Size own = 12 / P::cp;
  return batch_of(world.memory(), 12 * step, 3 * world.data_rank(), 3, own, small_gpt().vocabulary,
                  own * world.cp_rank());
}

/// The sentence of rank 0 after training on four ranks of two nodes, in which `change` may change its engine after the
/// first step. Every step checks the ranks.
template <class Q>
std::string sentence_after(const std::function<void(int rank, Bucket<double, Cpu>& bucket)>& change) {
  using P = Policy<F64>;
  return sentence_of([&] {
    run_ranks_of<P>({.ranks = 4, .threads_per_rank = 1, .timeout_seconds = 20, .ranks_per_node = 2},
                    [&](World<P>& world) {
                      const EngineConfig config{.bucket_bytes = 16000, .check_ranks = 1};
                      Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), {}, {}, config,
                                                   dspp::detail::replica_config<Q>({}, config));
                      for (Size step = 0; step < 2; ++step) {
                        const auto loss = engine.forward(batch_for(world, step));
                        if (step == 1) change(world.rank(), engine.units()[1]->buckets()[0]);
                        engine.backward(loss);
                        engine.step();
                      }
                    });
  });
}

}  // namespace

TEST_CASE("a rank whose copy of another node's shard has other bits is found by the check of ranks") {
  const auto change_values = [](int rank, auto& bucket) {
    if (rank == 3) bucket.values.data()[1] += 1e-9;
  };
  CHECK(sentence_after<Policy<F64, Zero<3>, Shards<Within<Node>>>>([](int, auto&) {}) == "no error");
  const std::string of_copy = sentence_after<Policy<F64, Zero<3>, Shards<Within<Node>>>>(change_values);
  CHECK(of_copy.starts_with("dspp: replicas need the same bits of a parameter, but 'values of blocks.0."));
  CHECK(of_copy.find("rank 3") != std::string::npos);
  CHECK(sentence_after<Policy<F64, Zero<3>, SecondaryShards<Node>>>([](int, auto&) {}) == "no error");
  const std::string of_secondary =
      sentence_after<Policy<F64, Zero<3>, SecondaryShards<Node>>>([](int rank, auto& bucket) {
        REQUIRE(bucket.secondary);
        if (rank == 2) *bucket.secondary.template element<double>(3) += 1e-9;
      });
  CHECK(of_secondary.starts_with("dspp: replicas need the same bits of a parameter, but 'secondary shards of bucket "));
  CHECK(of_secondary.find("rank 2") != std::string::npos);
}

TEST_CASE("a flipped bit of a node's reduced gradient stops all nodes, in steps that check ranks and in others") {
  using P = Policy<F64>;
  using Q = Policy<F64, Zero<2>, Shards<Within<Node>>>;
  for (const Size at : {0, 1})
    for (const int odd : {1, 2})
      for (const Size reduction : {0, 3}) {
        CAPTURE(at);
        CAPTURE(odd);
        std::vector<std::string> sentences(4);
        Size step_of_odd = 0, number = 0;
        const auto damage = [&](int rank, Purpose purpose, Buffer out) {
          if (rank == odd && purpose == Purpose::gradient && step_of_odd == at && number++ == reduction)
            flip_bit(out, 64 * 5 + 50);
        };
        const auto program = [&](World<P>& world) {
          sentences[static_cast<std::size_t>(world.rank())] = sentence_of([&] {
            const EngineConfig config{.bucket_bytes = 16000};
            Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), {}, {}, config,
                                         dspp::detail::replica_config<Q>({}, config));
            for (Size step = 0; step < 3; ++step) {
              if (world.rank() == odd) step_of_odd = step;
              engine.backward(engine.forward(batch_for(world, step)));
              engine.step();
            }
          });
        };
        run_damaged<P>(4, damage, program, 2);
        for (const std::string& sentence : sentences) {
          CHECK(sentence == sentences[0]);
          CHECK(sentence.starts_with("dspp: a reduced gradient needs to "));
          CHECK(sentence.find("on rank " + std::to_string(odd)) != std::string::npos);
        }
      }
}

TEST_CASE("ranks of Tp that share parameters keep the same bits of them beside quantized traffic over Data and Cp") {
  const auto trains = [](auto policy) {
    using P = decltype(policy);
    return sentence_of([&] {
      run_ranks_of<P>(
          {.ranks = 8, .threads_per_rank = 1, .timeout_seconds = 60, .ranks_per_node = 4}, [&](World<P>& world) {
            Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), AdamW{.lr = 1e-2}, {}, {.check_ranks = 1});
            for (Size step = 0; step < 3; ++step) {
              engine.backward(engine.forward(batch_for(world, step)));
              engine.step();
            }
          });
    });
  };
  CHECK(trains(Policy<F64, Tp<2>, Cp<2>, Zero<3>, GatherAs<Int8>, ReduceAs<Int4>>{}) == "no error");
}

TEST_CASE("a profile under shards within nodes has the bytes that were read, inside of nodes and across") {
  using P = Policy<F64>;
  using Q = Policy<F64, Zero<3>, Shards<Within<Node>>>;
  run_ranks_of<P>({.ranks = 4, .threads_per_rank = 1, .timeout_seconds = 60, .ranks_per_node = 2}, [](World<P>& world) {
    Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), {}, {}, {}, dspp::detail::replica_config<Q>({}, {}));
    engine.train_batch(batch_for(world, 0));
    auto profiling = engine.profile();
    const Traffic before = world.traffic();
    engine.train_batch(batch_for(world, 1));
    const Profile profile = profiling.profile();
    Size bytes = 0;
    for (const ProfileRow& row : profile.rows)
      if (row.collective) bytes += row.bytes;
    CHECK(bytes == (world.traffic() - before).total());
    CHECK(world.across_nodes().traffic().total() > 0);
  });
}

TEST_CASE("members for replicas go with state on a disk, other optimizers and a loss scale") {
  const Folder folder;
  const std::string path = folder.path.string();
  Cell cell{.ranks = 4, .accumulate = 3, .steps = 3, .ranks_per_node = 2};
  cell.offload.folder = path;
  using OnDisk = Offload<Optimizer, Disk>;
  check_same_bits(train_as_values<AdamW, Policy<Zero<3>, Shards<Within<Node>>, OnDisk, Bf16>, Bf16>(cell),
                  train_as_values<AdamW, Policy<Zero<3>, Shards<Within<Node>>, Bf16>, Bf16>(cell));
  check_same_bits(train_as_values<AdamW, Policy<Zero<3>, SecondaryShards<Node>, OnDisk, Bf16>, Bf16>(cell),
                  train_as_values<AdamW, Policy<Zero<3>, Bf16>, Bf16>(cell));
  using Quantized = Policy<Zero<3>, GatherAs<Int8>, ReduceAs<Int8>, Bf16>;
  check_same_bits(train_as_values<AdamW, Policy<Zero<3>, GatherAs<Int8>, ReduceAs<Int8>, OnDisk, Bf16>, Bf16>(cell),
                  train_as_values<AdamW, Quantized, Bf16>(cell));
  const Cell few{.ranks = 4, .steps = 4, .ranks_per_node = 2};
  check_near(train_as_values<Muon, Policy<Zero<2>, ReduceAs<Int8>, F64>, F64>(few),
             train_as_values<Muon, Policy<Zero<2>, F64>, F64>(few), 0.02);
  check_near(train_as_values<Lamb, Policy<Zero<3>, GatherAs<Int8>, ReduceAs<Int8>, F64>, F64>(few),
             train_as_values<Lamb, Policy<Zero<3>, F64>, F64>(few), 0.02);
  const Cell overflows{.ranks = 2, .steps = 8, .loss_scale = {.initial = 0x1p24}};
  const Trained scaled = laws::detail::train_as<Policy<F16, Zero<2>, ReduceAs<Int4>>, Gpt<Policy<F16>>>(overflows);
  CHECK(scaled.ranks[0].skipped > 2);
  CHECK(scaled.ranks[0].skipped < 8);
  CHECK(scaled.ranks[1].skipped == scaled.ranks[0].skipped);
}
TEST_CASE("secondary shards are of the values that a parameter was set to, in evaluation too") {
  const auto losses_under = [](auto policy) {
    using P = decltype(policy);
    std::vector<double> losses(4);
    run_ranks_of<P>({.ranks = 4, .threads_per_rank = 1, .timeout_seconds = 20, .ranks_per_node = 2},
                    [&](World<P>& world) {
                      Engine<Gpt<P>, AdamW> engine(world, Gpt<P>(small_gpt()), {});
                      const auto evaluate = [&] { return engine.eval_batch(batch_for(world, 5)).mean; };
                      double sum = evaluate();
                      set_parameter(engine, "blocks.1.mlp.up.bias", std::vector<double>(96, 0.25));
                      sum += 10 * evaluate();
                      engine.train_batch(batch_for(world, 0));
                      WeightAverage average(engine, 0.5);
                      engine.train_batch(batch_for(world, 1));
                      average.update();
                      sum += 100 * evaluate();
                      average.within([&] { sum += 1000 * evaluate(); });
                      sum += 10000 * evaluate();
                      losses[static_cast<std::size_t>(world.rank())] = sum;
                    });
    return losses;
  };
  const auto flat = losses_under(Policy<F64, Zero<3>>{});
  CHECK(same_bits(losses_under(Policy<F64, Zero<3>, SecondaryShards<Node>>{}), flat));
}

TEST_CASE("policies that need nodes refuse replicas that nodes do not divide, as their plans do") {
  using P = Policy<F64, Zero<2>, Shards<Within<Node>>>;
  const auto expected =
      "dspp: Shards<Within<Node>>, SecondaryShards and ReduceAs need as many ranks on each node, in a row, but";
  const std::string sentence = sentence_of([&] {
    run_ranks_of<P>({.ranks = 3, .timeout_seconds = 20, .ranks_per_node = 2},
                    [&](World<P>& world) { Engine<Gpt<P>, AdamW>(world, Gpt<P>(small_gpt()), {}); });
  });
  CHECK(sentence.starts_with(expected));
  const auto planned = [&](int data, int ranks_per_node) {
    return sentence_of([&] {
      plan<Gpt<P>>(small_gpt(), {.micro_batch = 1, .sequence = 8}, {.data = data, .ranks_per_node = ranks_per_node});
    });
  };
  CHECK(planned(3, 2).starts_with(expected));
  CHECK(planned(4, 3).starts_with(expected));
  using InTwo = Policy<F64, Tp<2>, Zero<2>, ReduceAs<Int8>>;  // ranks 0 and 2 share a node, 1 and 3 do not
  CHECK(sentence_of([] {
          plan<Gpt<InTwo>>(small_gpt(), {.micro_batch = 1, .sequence = 8}, {.data = 2, .ranks_per_node = 3});
        }).starts_with(expected));
  CHECK(planned(4, 2) == "no error");
  CHECK(planned(2, 3).starts_with("dspp: plan needs ranks_per_node from 1 to the number of ranks"));
  CHECK(planned(2, -1).starts_with("dspp: plan needs ranks_per_node from 1 to the number of ranks"));
}
