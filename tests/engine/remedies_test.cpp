// SPDX-License-Identifier: Apache-2.0
// Remedies for running out of memory: predicted bytes are those that the other strategy saves.
// labels: engine
#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

constexpr GptConfig small = small_gpt();

/// The out-of-memory map of a Gpt that has `limit` bytes on each of two ranks.
template <class P>
std::string map_under(Size limit, const std::vector<Remedy>& planned = {}) {
  try {
    run_ranks_of<P>(RunOptions{.ranks = 2, .threads_per_rank = 1, .memory_limit_bytes = limit, .timeout_seconds = 30},
                    [&](World<P>& world) {
                      world.memory().set_remedies(&planned, planned);
                      Engine engine{world, Gpt<P>(small), AdamW{}};
                      const auto batch =
                          batch_of(world.memory(), 0, world.data_rank(), 4, 8, 61);  // as in plans, alive to the end
                      auto loss = engine.forward(batch);
                      engine.backward(loss);
                      engine.step();
                    });
    return "nothing went wrong";
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::out_of_memory);
    return error.what();
  }
}

template <class P>
Plan planned(Size micro_batch, Size sequence) {
  return plan<Gpt<P>>(small, {.micro_batch = micro_batch, .sequence = sequence}, {.data = 2});
}

}  // namespace

TEST_CASE("state bytes are those of the ZeRO table: 16, 4 + 12/N, 2 + 14/N and 16/N a parameter in bf16") {
  constexpr ParameterBytes bf16_adamw{2, 2, 12};
  constexpr Size psi = 1200;
  for (const int n : {1, 2, 3, 4}) {
    CHECK(state_bytes(stage_rule<0>, bf16_adamw, psi, n) == 16 * psi);
    CHECK(state_bytes(stage_rule<1>, bf16_adamw, psi, n) == 4 * psi + 12 * psi / n);
    CHECK(state_bytes(stage_rule<2>, bf16_adamw, psi, n) == 2 * psi + 14 * psi / n);
    CHECK(state_bytes(stage_rule<3>, bf16_adamw, psi, n) == 16 * psi / n);
  }
}

TEST_CASE("only what saves something is offered") {
  constexpr ParameterBytes f32_adamw{4, 4, 8};
  const auto names = [](const std::vector<Remedy>& remedies) {
    std::string text;
    for (const Remedy& remedy : remedies) text += remedy.what + ";";
    return text;
  };
  CHECK(names(stage_remedies(stage_rule<0>, f32_adamw, 100, 4)) == "Zero<1>;Zero<2>;Zero<3>;");
  CHECK(names(stage_remedies(stage_rule<2>, f32_adamw, 100, 4)) == "Zero<3>;twice the data ranks;");
  CHECK(names(stage_remedies(stage_rule<3>, f32_adamw, 100, 4)) == "twice the data ranks;");
  CHECK(names(stage_remedies(stage_rule<0>, f32_adamw, 100, 1)) == "Zero<3> on two data ranks;");
}

TEST_CASE("the map of an Engine without room names higher stages, and their savings are real up to padding") {
  const std::string map = map_under<Policy<Bf16, Zero<0>>>(64_KiB);
  CAPTURE(map);
  const Plan here = planned<Policy<Bf16, Zero<0>>>(4, 8), there = planned<Policy<Bf16, Zero<3>>>(4, 8);
  const Size gradient_bytes = 2 * here.parameters;  // not resident between steps
  const Size saved = here.resident - there.resident + gradient_bytes / 2;
  const Size said = state_bytes(stage_rule<0>, {2, 2, 12}, here.parameters, 2) / 2;
  CHECK(map.find("Zero<3> saves " + readable_bytes(said)) != std::string::npos);
  CHECK(std::abs(static_cast<double>(said - saved)) < 0.1 * static_cast<double>(saved));
}

TEST_CASE("planned remedies save the stated bytes exactly") {
  using P = Policy<F32, Zero<2>>;
  const auto remedies = plan_remedies<Gpt<P>>(small, {.micro_batch = 4, .sequence = 8}, {.data = 2});
  REQUIRE(remedies.size() == 3);
  CHECK(remedies[0].saved_bytes == planned<P>(4, 8).peak - planned<P>(2, 8).peak);
  CHECK(remedies[1].saved_bytes == planned<P>(4, 8).peak - planned<P>(4, 4).peak);
  GptConfig again = small;
  again.recompute_segments = 2;
  CHECK(remedies[2].what == "recompute_segments = 2");
  CHECK(remedies[2].saved_bytes ==
        planned<P>(4, 8).peak - plan<Gpt<P>>(again, {.micro_batch = 4, .sequence = 8}, {.data = 2}).peak);
  // a limit that holds the state, but not the step
  const std::string map = map_under<P>(planned<P>(4, 8).peak - 1, remedies);
  CAPTURE(map);
  CHECK(map.find("half the micro-batch saves " + readable_bytes(remedies[0].saved_bytes)) != std::string::npos);
  CHECK(map_under<P>(planned<P>(4, 8).peak) == "nothing went wrong");
}

TEST_CASE(
    "F2: under each of 20 limits the error has the request, the free bytes, categories, tensors and three remedies") {
  using P = Policy<F32, Zero<1>>;
  const auto remedies = plan_remedies<Gpt<P>>(small, {.micro_batch = 4, .sequence = 8}, {.data = 2});
  const Size peak = planned<P>(4, 8).peak;
  for (Size i = 1; i <= 20; ++i) {
    const Size limit = peak * i / 20 - 1;
    const std::string map = map_under<P>(limit, remedies);
    CAPTURE(map);
    CHECK(map.starts_with("dspp: a Pool needs "));
    for (const char* part :
         {" more for ", "free under the limit   ", "reserved by the Pool   ", "largest kept block     "})
      CHECK(map.find(part) != std::string::npos);
    CHECK(map.find(" of a limit of " + readable_bytes(limit)) != std::string::npos);
    const auto count = [&](const std::string& part) {
      int found = 0;
      for (std::size_t at = map.find(part); at != std::string::npos; at = map.find(part, at + 1)) ++found;
      return found;
    };
    CHECK(count(" saves ") >= 3);
    CHECK(count("  largest: ") <= 5);
    if (i > 4) CHECK(count("  largest: ") == 5);
    if (i > 10) CHECK(map.find("\n  parameters             ") != std::string::npos);
  }
}
