// SPDX-License-Identifier: Apache-2.0
// Tiles under an engine: one name, the same values and files as without them, and what is resident.
// labels: thread
#include <dspp/checkpoint/checkpoint.hpp>
#include <dspp/hub/hugging_face.hpp>
#include <laws/difference.hpp>
#include <laws/folder.hpp>
#include <laws/tiled_model.hpp>
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using Tensors = std::map<std::string, std::vector<double>>;

/// Runs `program(world, engine, record)` on every rank; what the first rank records is the result.
template <class Model, class Program>
Tensors with_engine(int ranks, Program program) {
  using P = typename Model::policy;
  Tensors recorded;
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine{world, Model(small_gpt()), AdamW{.lr = 1e-2}, EngineConfig{.bucket_bytes = 4000}};
    const auto record = [&](const std::string& name, const auto& whole) {
      if (world.is_first()) recorded[name].assign(whole.data(), whole.data() + whole.count());
    };
    program(world, engine, record);
  });
  return recorded;
}

constexpr auto every_parameter = [](auto&, auto& engine, auto record) {
  for (const auto& named : engine.inventory().parameters)
    record(named.name->text, engine.gather_parameter(named.name->text));
};

/// After a forward and backward: gradients of all parameters.
constexpr auto every_gradient = [](auto& world, auto& engine, auto record) {
  auto loss = engine.forward(batch_of(world.memory(), 0, 6 * world.data_rank(), 6, 12, 61));
  engine.backward(loss);
  for (const auto& named : engine.inventory().parameters)
    record(named.name->text, engine.gather_gradient(named.name->text));
};

double gap(const Tensors& a, const Tensors& b) {
  Worst worst;
  REQUIRE(!b.empty());
  REQUIRE(a.size() == b.size());
  for (const auto& [name, values] : b) worst.add(worst_difference(a.at(name), values));
  return worst.value();
}

using One = Policy<F64>;
using Cut3 = Policy<F64, Zero<3>, Tp<2>>;

}  // namespace

TEST_CASE("tiles start from the bits of the untiled layer, under its names") {
  const Tensors plain = with_engine<PlainGpt<One>>(1, every_parameter);
  CHECK(plain.contains("blocks.0.mlp.up.weight"));
  CHECK(with_engine<TiledGpt<One>>(1, every_parameter) == plain);
  CHECK(with_engine<TiledGpt<One>>(3, every_parameter) == plain);
  CHECK(with_engine<TiledGpt<Cut3>>(4, every_parameter) == plain);
}

TEST_CASE("whole gradients of tiled parameters are those of the untiled layer") {
  const Tensors plain = with_engine<PlainGpt<One>>(2, every_gradient);
  CHECK(gap(with_engine<TiledGpt<One>>(2, every_gradient), plain) < 1e-12);
  CHECK(gap(with_engine<TiledGpt<Cut3>>(4, every_gradient), plain) < 1e-12);
}

TEST_CASE("a tiled parameter is counted, set and gathered whole") {
  with_engine<TiledGpt<Cut3>>(2, [](auto&, auto& engine, auto) {
    const Size plain = plan<PlainGpt<One>>(small_gpt(), {.sequence = 12}).parameters;
    CHECK(engine.parameter_count() == plain);
    std::vector<double> values(24 * 96);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
    set_parameter(engine, "blocks.1.mlp.down.weight", values);
    const auto whole = engine.gather_parameter("blocks.1.mlp.down.weight");
    CHECK(std::equal(values.begin(), values.end(), whole.data(), whole.data() + whole.count()));
    CHECK_THROWS_AS(set_parameter(engine, "blocks.1.mlp.down.weight", std::vector<double>(24)), Error);
  });
}

TEST_CASE(
    "files are independent of tiles: plain weights load into tiles and tiled ones into plain layers, byte for byte") {
  const Folder folder;
  const auto save = [&](const char* name) {
    return [&folder, name](auto&, auto& engine, auto) { save_weights(engine, folder.file(name)); };
  };
  const auto train_and_save = [&](auto& world, auto& engine, auto) {
    auto loss = engine.forward(batch_of(world.memory(), 0, 3 * world.data_rank(), 3, 12, 61));
    engine.backward(loss);
    engine.step();
    save_weights(engine, folder.file("tiled"));
  };
  with_engine<TiledGpt<Cut3>>(4, train_and_save);
  const auto load_and_save = [&](const char* from, const char* to) {
    return [&folder, from, to](auto&, auto& engine, auto) {
      load_weights(engine, folder.file(from));
      save_weights(engine, folder.file(to));
    };
  };
  with_engine<PlainGpt<One>>(1, load_and_save("tiled", "plain"));
  with_engine<TiledGpt<One>>(3, load_and_save("plain", "again"));
  const auto bytes = [&](const char* name) { return read_file(folder.file(name) + "/model.safetensors"); };
  CHECK(bytes("plain").size() > 10000);
  CHECK(bytes("tiled") == bytes("plain"));
  CHECK(bytes("again") == bytes("plain"));
  with_engine<TiledGpt<One>>(1, save("fresh"));
  CHECK(bytes("fresh") != bytes("plain"));
}

TEST_CASE("Hugging Face's transposed weights are read into tiles and written from them") {
  const Folder folder;
  const auto bytes = [&](const char* name) { return read_file(folder.file(name) + "/model.safetensors"); };
  with_engine<PlainGpt<One>>(1,
                             [&](auto&, auto& engine, auto) { hub::save_hugging_face(engine, folder.file("plain")); });
  with_engine<TiledGpt<Cut3>>(4, [&](auto&, auto& engine, auto) {
    set_parameter(engine, "blocks.1.mlp.up.weight", std::vector<double>(24 * 96));
    hub::load_hugging_face(engine, folder.file("plain"));
    hub::save_hugging_face(engine, folder.file("tiled"));
  });
  CHECK(bytes("plain").size() > 10000);
  CHECK(bytes("tiled") == bytes("plain"));
}

// ---- what is resident -----------------------------------------------------------------------------------------------

namespace {

/// One block of which nearly all is in two weights of 64 x 256, and 4 KB of everything else.
constexpr GptConfig wide{.layers = 1, .width = 64, .heads = 2, .vocabulary = 16, .sequence = 8};
constexpr Size weight = 64 * 256;

template <class P, int In, int Out>
using Grid = Gpt<P, FeedBlock<P, Tiled<ColumnParallel<Linear, P>, In, Out>, Tiled<RowParallel<Linear, P>, Out, In>>>;

using Sharded = Policy<F64, Zero<3>>;

template <class Model>
constexpr Plan plan_of_wide(int ranks) {
  return plan<Model>(wide, {.micro_batch = 1, .sequence = 8}, {.data = ranks});
}

struct Measured {
  Size peak = 0;
  CategoryBytes by_category{};
};

template <class Model>
Measured measured_of_wide(int ranks) {
  using P = typename Model::policy;
  Measured measured;
  run_ranks_of<P>(RunOptions{.ranks = ranks, .threads_per_rank = 1}, [&](World<P>& world) {
    Engine engine{world, Model(wide), AdamW{}};
    auto batch = batch_of(world.memory(), 0, world.data_rank(), 1, 8, 16);
    auto loss = engine.forward(batch);
    engine.backward(loss);
    engine.step();
    if (world.is_first()) measured = {world.memory().peak(), world.memory().peak_by_category()};
  });
  return measured;
}

template <class Model>
Plan check_wide(int ranks) {
  const Plan paper = plan_of_wide<Model>(ranks);
  const Measured measured = measured_of_wide<Model>(ranks);
  CHECK(paper.peak == measured.peak);
  CHECK(paper.by_category == measured.by_category);
  return paper;
}

}  // namespace

TEST_CASE("under Zero<3> two tiles are gathered in place of both weights; planned equals measured, byte for byte") {
  for (const int ranks : {2, 4}) {
    CAPTURE(ranks);
    const Plan plain = check_wide<Gpt<Sharded, PlainFeed<Sharded>>>(ranks);
    const Plan tiled = check_wide<Grid<Sharded, 2, 4>>(ranks);
    const auto digests = [](const Plan& p) { return p.state[Category::communication]; };
    CHECK(tiled.resident - digests(tiled) == plain.resident - digests(plain));
    CHECK(digests(tiled) - digests(plain) == 16 * 8 * ReductionPrint::count);  // of 2 x 8 buckets more
    // both weights were gathered with the block; now the tile in use and the one ahead are
    CHECK(plain.by_category[Category::parameters] - tiled.by_category[Category::parameters] ==
          8 * (2 * weight - 2 * weight / 8));
    CHECK(plain.replica_traffic.bytes(Purpose::parameter) == tiled.replica_traffic.bytes(Purpose::parameter));
    CHECK(plain.replica_traffic.bytes(Purpose::gradient) == tiled.replica_traffic.bytes(Purpose::gradient));
    CHECK(plain.peak - tiled.peak > 8 * weight);
  }
}

namespace {
template <class P>
using GridBlock = FeedBlock<P, Tiled<ColumnParallel<Linear, P>, 1, 4>, Tiled<RowParallel<Linear, P>, 4, 1>>;

/// Bytes of gathered parameters at their peak, with blocks that are computed again.
Size gathered_again(int layers) {
  GptConfig c = wide;
  c.layers = layers;
  const Plan paper =
      plan<Gpt<Sharded, Recompute<GridBlock<Sharded>>>>(c, {.micro_batch = 1, .sequence = 8}, {.data = 16});
  return paper.by_category[Category::parameters] - paper.state[Category::parameters];
}
}  // namespace

TEST_CASE("under Recompute no tile stays gathered after its use, however many blocks there are") {
  const Size two = gathered_again(2);
  CHECK(two > 0);
  CHECK(gathered_again(4) == two);
  CHECK(gathered_again(8) == two);
}

TEST_CASE("under Zero<2> and Zero<3> at most three tiles have unreduced gradients at once") {
  const auto check = []<int Stage>(std::integral_constant<int, Stage>) {
    using P = Policy<F64, Zero<Stage>>;
    const Plan plain = check_wide<Gpt<P, PlainFeed<P>>>(2), tiled = check_wide<Grid<P, 2, 4>>(2);
    // one that is written and two that are reduced, in place of the two weights' own, all beside the reduced halves
    CHECK(plain.by_category[Category::gradients] - tiled.by_category[Category::gradients] >=
          8 * (2 * weight - 3 * weight / 8) - 4096);
  };
  check(std::integral_constant<int, 2>{});
  check(std::integral_constant<int, 3>{});
}

namespace {
/// A forward that uses the layer twice, and one that computes it again.
template <class P>
struct TwiceBlock : Layer<P> {
  PlainFeed<P> plain;
  Tiled<ColumnParallel<Linear, P>, 2, 2> up;
  Tiled<RowParallel<Linear, P>, 2, 2> down;
  constexpr explicit TwiceBlock(const GptConfig& c) : plain(c), up(c.width, 2 * c.width), down(2 * c.width, c.width) {}
  constexpr void visit(auto&& f) {
    f("plain", plain);
    f("up", up);
    f("down", down);
  }
  constexpr auto operator()(const Hidden<P>& x) const {
    const auto y = plain(x);
    const auto once = y + down(gelu(up(y)));
    return once + down(gelu(up(once)));
  }
};
template <class P>
using Twice = Gpt<P, TwiceBlock<P>>;
template <class P>
using TwiceAgain = Gpt<P, Recompute<TwiceBlock<P>>>;
}  // namespace

TEST_CASE("tiles that are used twice, and recomputed, are reduced once: stages share their bits") {
  const Cell cell{.ranks = 2, .steps = 3};
  const Trained whole = train<Twice<Policy<F64>>>(cell), sharded = train<Twice<Policy<F64, Zero<3>>>>(cell);
  CHECK(whole.losses == sharded.losses);
  CHECK(whole.parameters == sharded.parameters);
  const Size gradient = sharded.ranks[0].psi / 2;  // (N - 1) / N of it, once
  CHECK(sharded.ranks[0].replicas.bytes(Purpose::gradient) == gradient);
  const Trained again = train<TwiceAgain<Policy<F64, Zero<3>>>>(cell);
  CHECK(again.losses == whole.losses);
  for (int r = 0; r < 2; ++r) CHECK(plan_of<TwiceAgain<Policy<F64, Zero<3>>>>(cell, r).peak == again.ranks[0].peak);
}
