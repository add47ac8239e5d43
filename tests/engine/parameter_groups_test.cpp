// SPDX-License-Identifier: Apache-2.0
// Groups of parameters in whole trainings: frozen ones cost nothing but their values, which the plan says; checkpoints
// record them; groups that differ between ranks or contain nothing are errors in words.
// labels: engine thread
#include <laws/folder.hpp>
#include <laws/rank_sentence.hpp>
#include <laws/strategy.hpp>

#include <dspp/checkpoint/training_state.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr bool in_first_block(std::string_view p) {
  return p.starts_with("blocks.0.");
}
constexpr ParameterGroups frozen_block = {
    {.name = "norms", .contains = [](std::string_view p) { return p.find("norm") != p.npos; }, .lr_factor = 0.5},
    {.name = "first block", .contains = in_first_block, .frozen = true},
    {.name = "heads and tables",
     .contains = [](std::string_view p) { return !p.starts_with("blocks."); },
     .weight_decay = 0}};

/// A stage as a value: one engine for all.
template <int Stage, class... More>
Trained train_stage(const Cell& cell) {
  return train_on<Cpu, Gpt<Policy<Zero<Stage>, More...>>>(cell);
}
template <int Stage, class... More>
void check_plans(const Trained& trained) {
  for (int r = 0; r < trained.cell.ranks; ++r)
    check_plan(plan_of<Gpt<Policy<Zero<Stage>, More...>>>(trained.cell, r), trained.ranks[static_cast<std::size_t>(r)],
               r);
}

bool is_frozen(const std::string& name) {
  return in_first_block(name) && name.find("norm") == name.npos;
}

/// Frozen parameters have their initial values, the others have not.
void check_values(const Trained& trained, const Trained& initial) {
  Size frozen = 0;
  for (const auto& parameter : initial.parameters) {
    const std::string& name = parameter.first;
    CAPTURE(name);
    CHECK((trained.parameters.at(name) == parameter.second) == is_frozen(name));
    frozen += is_frozen(name);
  }
  CHECK(frozen == 8);
}

/// Optimizer state and gradient traffic are those of what is trained.
void check_costs(const Trained& trained, const Trained& all, int moments_and_masters) {
  const auto N = trained.facts.stage == 0 ? 1 : trained.cell.ranks / trained.facts.tp;
  for (std::size_t r = 0; r < trained.ranks.size(); ++r) {
    const RankRecord &got = trained.ranks[r], &whole = all.ranks[r];
    const Size of_gradients = got.replicas.bytes(Purpose::gradient), before = whole.replicas.bytes(Purpose::gradient);
    const Size of_state = got.state[Category::optimizer], state_before = whole.state[Category::optimizer];
    CHECK(of_state < 0.8 * static_cast<double>(state_before));
    CHECK(state_before == whole.psi / trained.facts.element / N * trained.facts.compute * moments_and_masters);
    CHECK(of_gradients <= 0.8 * static_cast<double>(before));
    // padding apart, both shrink by the same share
    if (before > 0)
      CHECK(static_cast<double>(of_gradients) / static_cast<double>(before) ==
            doctest::Approx(static_cast<double>(of_state) / static_cast<double>(state_before)).epsilon(1e-12));
    CHECK(got.by_category[Category::gradients] < whole.by_category[Category::gradients]);
    CHECK(got.same_traffic);
    CHECK(got.left == 0);
  }
}

template <class... More, int... Stages>
void check_stages(std::integer_sequence<int, Stages...>, Cell cell, int moments_and_masters) {
  cell.steps = 3;
  Cell with_groups = cell;
  with_groups.groups = frozen_block;
  constexpr int first = std::array{Stages...}[0];
  const std::array trained{train_stage<Stages, More...>(with_groups)...};
  std::size_t i = 0;
  (check_plans<Stages, More...>(trained[i++]), ...);
  const Trained all = train_stage<first, More...>(cell);
  with_groups.steps = 0;
  const Trained initial = train_stage<first, More...>(with_groups);
  check_costs(trained[0], all, moments_and_masters);
  for (const Trained& stage : trained) {
    check_same_bits(stage, trained[0]);
    check_values(stage, initial);
  }
}

using P = Policy<F64>;
constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4};

std::string sentence_with(int ranks, auto config_of_rank) {
  return sentence_of<P>(ranks, [&](World<P>& world) {
    Engine engine{world, Gpt<P>{tiny}, AdamW{}, EngineConfig{.groups = config_of_rank(world.rank())}};
  });
}

constexpr ParameterGroups biases = {
    {.name = "biases", .contains = [](std::string_view p) { return p.ends_with(".bias"); }, .lr_factor = 2}};
constexpr ParameterGroups weights = {
    {.name = "biases", .contains = [](std::string_view p) { return p.ends_with(".weight"); }, .lr_factor = 2}};
constexpr ParameterGroups nothing = {
    {.name = "biases", .contains = [](std::string_view p) { return p.ends_with(".bias"); }},
    {.name = "biases of norms", .contains = [](std::string_view p) { return p.ends_with("norm1.bias"); }}};
constexpr ParameterGroups everything = {
    {.name = "all", .contains = [](std::string_view) { return true; }, .frozen = true}};
constexpr ParameterGroups table = {
    {.name = "table", .contains = [](std::string_view p) { return p.starts_with("tokens"); }, .frozen = true}};

/// Trains two steps under a stage, after those of a checkpoint if there is one.
std::uint64_t go_on(const std::string& from, const std::string& to, const ParameterGroups& groups, Size steps) {
  std::uint64_t print = 0;
  run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .seed = 4}, [&](World<P>& world) {
    Engine engine{world, Gpt<P>{tiny}, AdamW{.lr = 1e-2}, EngineConfig{.bucket_bytes = 400, .groups = groups}};
    if (!from.empty()) load_checkpoint(engine, from);
    for (Size i = engine.steps(); i < steps; ++i) {
      engine.backward(engine.forward(batch_of(world.memory(), 4 * i, 2 * world.rank(), 2, 4, 13)));
      engine.step();
    }
    if (!to.empty()) save_checkpoint(engine, to);
    if (world.is_first()) print = print_of_state(engine);
  });
  return print;
}

}  // namespace

TEST_CASE("f64: a frozen block has no gradient, moments or traffic, and plans are exact, under every stage") {
  for (const int ranks : {1, 2, 3, 4}) check_stages<F64>(std::integer_sequence<int, 0, 1, 2, 3>(), {.ranks = ranks}, 2);
}

TEST_CASE("bf16 over Tp: a frozen block has no masters either") {
  check_stages<Bf16, Tp<2>>(std::integer_sequence<int, 3>(), {.ranks = 4}, 3);
}

TEST_CASE("groups that contain nothing, freeze everything or differ between ranks are errors in words") {
  const auto same = [](const ParameterGroups& groups) { return [&groups](int) { return groups; }; };
  CHECK(sentence_with(1, same(biases)) == "");
  CHECK(sentence_with(1, same(nothing)) ==
        "dspp: a parameter group needs at least one parameter, but group 2, 'biases of norms', has none: its predicate "
        "accepts no name, or earlier groups have all that it accepts. Look at the predicate; a name of this model is "
        "'tokens.weight'.");
  CHECK(sentence_with(1, same(everything)) ==
        "dspp: Engine needs a parameter to train, but all are frozen. Freeze fewer, or take Weights for evaluation.");
  const std::string differ = sentence_with(2, [](int rank) { return rank == 0 ? biases : weights; });
  CHECK(differ.find("groups ") != differ.npos);
  CHECK(differ.find("group 1") != differ.npos);
  CHECK(sentence_with(2, [](int rank) { return rank == 0 ? nothing : biases; }).find("groups ") != std::string::npos);
}

TEST_CASE("a group's numbers out of range, without a predicate, or too many, are errors in words") {
  const auto accept = [](std::string_view) { return true; };
  CHECK_THROWS_WITH_AS(ParameterGroups({{.name = "a"}}),
                       doctest::Contains("dspp: a parameter group needs a predicate on names, but has none."), Error);
  for (const double bad : {-0.5, std::nan(""), HUGE_VAL})
    CHECK_THROWS_WITH_AS(ParameterGroups({{.contains = accept, .lr_factor = bad}}),
                         doctest::Contains("needs an lr_factor of at least 0"), Error);
  for (const double bad : {-0.5, -2.0, std::nan(""), HUGE_VAL})
    CHECK_THROWS_WITH_AS(ParameterGroups({{.contains = accept, .weight_decay = bad}}),
                         doctest::Contains("needs a weight_decay of at least 0, or -1"), Error);
  const ParameterGroup one{.contains = accept};
  CHECK_THROWS_WITH_AS(ParameterGroups({one, one, one, one, one, one, one, one, one}),
                       doctest::Contains("needs at most 8 parameter groups"), Error);
  struct Bare {
    double lr = 1;
  };
  CHECK_THROWS_WITH_AS(check_groups_fit<Bare>({{.contains = accept, .weight_decay = 0.1}}),
                       doctest::Contains("needs an optimizer with a member weight_decay"), Error);
  check_groups_fit<Bare>({{.contains = accept, .lr_factor = 0.1}});
}

TEST_CASE("the gradient of a frozen parameter is an error in words") {
  CHECK(sentence_of<P>(1,
                       [](World<P>& world) {
                         Engine engine{world, Gpt<P>{tiny}, AdamW{}, EngineConfig{.groups = table}};
                         engine.backward(engine.forward(batch_of(world.memory(), 0, 0, 2, 4, 13)));
                         engine.gather_gradient("positions.weight");
                         engine.gather_gradient("tokens.weight");
                       }) ==
        "dspp: gather_gradient needs a parameter that is trained, but 'tokens.weight' is frozen by its group. Ask for "
        "another, or take it out of the group.");
}

TEST_CASE("a training with a frozen table resumes bit for bit, and not with other frozen parameters") {
  const Folder folder;
  go_on("", folder.file("c"), table, 2);
  CHECK(go_on(folder.file("c"), "", table, 4) == go_on("", "", table, 4));
  const std::string state = folder.read("c/step_00000002/state.json");
  CHECK(state.find("\"groups\":{\"group 1\":\"table\",\"group 1 lr_factor\":\"1\",\"group 1 weight_decay\":\"-1\","
                   "\"group 1 frozen\":\"yes\",\"group 1 matrices\":\"0\",\"tokens.weight\":\"group 1\"}") !=
        state.npos);
  const auto sentence = sentence_of<P>(1, [&](World<P>& world) {
    Engine engine{world, Gpt<P>{tiny}, AdamW{}};
    load_checkpoint(engine, folder.file("c"));
  });
  CHECK(sentence.find("has no tensor 'tokens.weight.moment1'. Resume with the model, optimizer and frozen parameters "
                      "that were saved.") != sentence.npos);
}
