// SPDX-License-Identifier: Apache-2.0
// What goes on beside the program between its calls, under stages 0 to 2: reductions of units that the last backward of
// a step has left, and the gather of updated values beside the next forward. Bits are as without; values are there when
// they are read.
// labels: engine thread
#include <atomic>
#include <chrono>
#include <thread>
#include <type_traits>
#include <vector>

#include <dspp/dspp.hpp>
#include <dspp/launch/run_tcp.hpp>
#include <laws/contributions.hpp>
#include <laws/strategy.hpp>
#include <laws/tcp_processes.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Of three blocks the ranks leave out others in a step; the second is used twice; the first's norm is used before its
/// unit, or in a part there that runs again in backward.
struct Use {
  bool skips = false, twice = false, before = false, before_again = false;
};

/// Its blocks are units, or parts of the one unit of the model, whose gradients are reduced behind backward.
template <class P, bool units = true>
struct Blocks : Layer<P> {
  struct Block : Layer<P> {
    LayerNorm<P> norm;
    Linear<P> up, down;
    explicit Block(Size width)
        : norm(width),
          up(LinearConfig{.in = width, .out = 4 * width, .initial = Initial::normal(0.2)}),
          down(LinearConfig{.in = 4 * width, .out = width, .initial = Initial::normal(0.2)}) {}
    void visit(auto&& f) { f("norm", norm), f("up", up), f("down", down); }
    auto operator()(const Hidden<P>& x) const { return x + down(gelu(up(norm(x)))); }
  };

  VocabParallel<Embedding, P> tokens;
  std::conditional_t<units, InUnit<Block>, Block> first, second, third;
  Use use;
  const int* left_out;  ///< a block's number, or another: none

  Blocks(Size width, Use how, const int* without)
      : tokens(EmbeddingConfig{.vocabulary = 32, .width = width, .initial = Initial::normal(0.5)}),
        first(Block(width)),
        second(Block(width)),
        third(Block(width)),
        use(how),
        left_out(without) {}
  const LayerNorm<P>& norm_of_first() const {
    if constexpr (units)
      return first.inner.norm;
    else
      return first.norm;
  }
  void visit(auto&& f) { f("tokens", tokens), f("first", first), f("second", second), f("third", third); }
  Loss<P> loss(const Tokens<P>& ids, const Tokens<P>& targets) const {
    Hidden<P> x = tokens(ids);
    if (use.before) x = norm_of_first()(x);
    if (use.before_again) x = recompute(norm_of_first(), x);
    int number = 0;
    for (const auto* block : {&first, &second, &third})
      if (number++ != *left_out) x = (*block)(x);
    if (use.twice) x = second(x);
    return cross_entropy<P>(tokens.logits(x), targets, tokens.vocabulary());
  }
};

/// Adds the elements of all parameters, as a layer reads them.
struct ReadsValues {
  std::vector<double>& all;
  template <class T, int Rank>
  void parameter(const Path&, const Parameter<T, Rank, Cpu>& p) {
    const auto values = p.value();
    for (Size i = 0; i < values.count(); ++i) all.push_back(static_cast<double>(values.data()[i]));
  }
  void site(const Path&, const RandomSite&) {}
  void begin_unit(const Path&, const auto&) {}
  void end_unit(const auto&) {}
};
template <class Engine>
std::vector<double> values_as_read(Engine& engine) {
  std::vector<double> all;
  if (Engine::P::zero_stage == 3) return all;  // whose values are not there
  ReadsValues reader{all};
  walk(const_cast<std::remove_cvref_t<decltype(engine.model())>&>(engine.model()), reader);
  return all;
}

struct Settings {
  Size width = 96;
  Use use{};
  AsyncProgress async_progress = AsyncProgress::off;
  SumOrder sum_order = SumOrder::rank;
  bool looks = false;           ///< between backward and step, at a loss and a gradient
  bool one_rank_reads = false;  ///< behind each step, another one each time, and no rank waits for it
};
struct Seen {
  std::vector<double> losses, looked_at;
  std::vector<std::vector<double>> values;  ///< behind each step
};

constexpr int ranks = 3;

/// Four steps of two micro-steps. `have_read`: how many ranks have read the values behind a step.
template <class P, bool units>
Seen train_rank(World<P>& world, const Settings& settings, std::atomic<Size>& have_read) {
  Seen own;
  int left_out = -1;
  Engine engine{world, Blocks<P, units>(settings.width, settings.use, &left_out), AdamW{.lr = 1e-2},
                BatchSizes{.micro_batch = 2, .sequence = 8, .accumulate = 2},
                EngineConfig{.bucket_bytes = 200'000, .check_ranks = 3}};
  for (Size step = 0; step < 4; ++step) {
    for (Size a = 0; a < 2; ++a) {
      if (settings.use.skips) left_out = static_cast<int>(step + world.rank() + 2 * a) % 4;
      const auto batch = batch_of<Cpu>(world.memory(), 12 * step + 6 * a, 2 * world.data_rank(), 2, 8, 32);
      const auto loss = engine.forward(batch);
      engine.backward(loss);
      if (settings.looks && a == 1) {
        own.looked_at.push_back(engine.all_reduce_mean(loss));
        const auto gradient = engine.gather_gradient("first.norm.weight");
        own.looked_at.insert(own.looked_at.end(), gradient.data(), gradient.data() + gradient.count());
      }
      const StepReport report = engine.step();
      if (a == 1) own.losses.push_back(report.loss);
    }
    const bool reads = !settings.one_rank_reads || step % ranks == world.rank();
    own.values.push_back(reads ? values_as_read(engine) : std::vector<double>());
    have_read += reads ? 1 : 0;
    // Outside of dspp: no call of the others has the gathers go on.
    for (int i = 0; settings.one_rank_reads && have_read <= step && i < 3000; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    CHECK((!settings.one_rank_reads || have_read > step));
  }
  own.values.push_back(values_as_read(engine));
  return own;
}

/// On three thread ranks.
template <class P, bool units = true>
Seen train_blocks(const Settings& settings) {
  std::vector<Seen> seen(ranks);
  std::atomic<Size> have_read = 0;
  run_ranks_of<P>({.ranks = ranks,
                   .threads_per_rank = 1,
                   .timeout_seconds = 60,
                   .sum_order = settings.sum_order,
                   .async_progress = settings.async_progress},
                  [&](World<P>& world) {
                    seen[static_cast<std::size_t>(world.rank())] = train_rank<P, units>(world, settings, have_read);
                  });
  Seen result = seen[0];
  for (std::size_t r = 0; r < seen.size(); ++r) {
    CHECK(seen[r].losses == result.losses);
    CHECK(seen[r].values.back() == result.values.back());
    for (std::size_t step = 0; step < result.values.size(); ++step)
      if (!seen[r].values[step].empty()) result.values[step] = seen[r].values[step];
  }
  return result;
}

void check_same(const Seen& a, const Seen& b) {
  CHECK(same_bits(a.losses, b.losses));
  CHECK(same_bits(a.looked_at, b.looked_at));
  REQUIRE(a.values.size() == b.values.size());
  for (std::size_t step = 0; step < a.values.size(); ++step) CHECK(same_bits(a.values[step], b.values[step]));
}

constexpr AsyncProgress on = AsyncProgress::on;

/// On three processes that TCP connects, of which those in `with_threads` have a progress thread: they see what thread
/// ranks see.
template <class P>
void check_processes(const Settings& settings, unsigned with_threads, const Seen& expected) {
  CAPTURE(with_threads);
  const HeldPort port;
  check_all_passed(in_processes(ranks, [&](int rank) -> std::string {
    const RunOptions options{.threads_per_rank = 1, .timeout_seconds = 60};
    const Mesh mesh(Degrees{.data = ranks});
    std::atomic<Size> have_read = 0;
    dspp::detail::Blame blame;
    dspp::detail::run_tcp_rank(
        mesh, {.rank = rank, .size = ranks, .port = port.port()}, options, (with_threads >> rank & 1) != 0,
        dspp::Facts{},
        [&](const RankGroups& groups) {
          dspp::detail::run_rank<P>(options, 1, mesh, rank, groups, [&](World<P>& world) {
            CHECK(dspp::detail::has_async_progress(world.data(), 1_MiB) == ((with_threads >> rank & 1) != 0));
            check_same(train_rank<P, true>(world, settings, have_read), expected);
          });
        },
        blame);
    return "";
  }));
}

}  // namespace

TEST_CASE("ranks of which some alone have a progress thread train to the bits of ranks without") {
  const auto check = []<class P>(P, const Settings& settings) {
    const Seen without = train_blocks<P>(settings);
    for (const unsigned with_threads : {1u, 4u, 3u, 6u}) check_processes<P>(settings, with_threads, without);
  };
  for (const Size width : {96, 8}) {
    const Settings twice{.width = width, .use = {.twice = true}, .looks = true};
    check(Policy<F64, Zero<1>>{}, twice);
    check(Policy<F64, Zero<1>>{}, {.width = width, .use = {.skips = true, .before = true}, .looks = true});
    check(Policy<F64, Zero<2>>{}, twice);
    check(Policy<F64, Zero<3>>{}, twice);
  }
}

TEST_CASE(
    "values are the updated ones where a rank reads them, also alone, right behind a step and without a forward") {
  for (const Size width : {96, 8}) {  // the gathers of the second are too small for a progress thread
    const Settings reads{.width = width, .async_progress = on, .one_rank_reads = true}, plain{.width = width};
    const Seen off = train_blocks<Policy<F64, Zero<2>, Overlap<Off>>>(plain);
    CHECK(off.values[0] != off.values[1]);
    check_same(train_blocks<Policy<F64, Zero<2>>>(reads), off);
    check_same(train_blocks<Policy<F64, Zero<2>>>({.width = width, .async_progress = on}), off);
    check_same(train_blocks<Policy<F64, Zero<2>>>({.width = width, .one_rank_reads = true}), off);
    check_same(train_blocks<Policy<F64, Zero<1>>>(reads), train_blocks<Policy<F64, Zero<1>, Overlap<Off>>>(plain));
  }
}

TEST_CASE(
    "stages 0 and 1 have the bits of one reduction behind backward, whatever part of the model a rank uses where") {
  for (const Use& use : {Use{}, Use{.twice = true}, Use{.skips = true}, Use{.before = true},
                         Use{.skips = true, .twice = true, .before = true}}) {
    const Settings alone{.use = use, .looks = true};
    Settings async = alone;
    async.async_progress = on;
    const Seen behind = train_blocks<Policy<F64, Zero<0>>, false>(alone);
    check_same(train_blocks<Policy<F64, Zero<0>>>(alone), behind);
    check_same(train_blocks<Policy<F64, Zero<0>>>(async), behind);
    check_same(train_blocks<Policy<F64, Zero<1>>>(alone), behind);
    check_same(train_blocks<Policy<F64, Zero<1>>>(async), behind);
    check_same(train_blocks<Policy<F64, Zero<1>, Overlap<Off>>>(async), behind);
  }
}

TEST_CASE("a gradient that is written behind its unit's reduction is reduced, too, in stages 0 and 1 alike") {
  for (const SumOrder order : {SumOrder::rank, SumOrder::transport}) {
    const Settings async{.use = {.before_again = true}, .async_progress = on, .sum_order = order, .looks = true};
    Settings alone = async;
    alone.async_progress = AsyncProgress::off;
    const Seen twice = train_blocks<Policy<F64, Zero<0>>>(async),
               once = train_blocks<Policy<F64, Zero<0>>, false>(alone);
    check_same(train_blocks<Policy<F64, Zero<0>>>(alone), twice);
    check_same(train_blocks<Policy<F64, Zero<1>>>(async), twice);
    check_same(train_blocks<Policy<F64, Zero<1>>>(alone), twice);
    CHECK(relative_gap(twice.losses, once.losses) < 1e-12);
    CHECK(relative_gap(twice.looked_at, once.looked_at) < 1e-9);
    CHECK(relative_gap(twice.values.back(), once.values.back()) < 1e-9);
    CHECK(!same_bits(twice.values.back(), once.values.back()));
  }
}
