// SPDX-License-Identifier: Apache-2.0
// CUDA calls that fail in mid-training, and values that a GPU finds wrong.
// labels: cuda
#include <kernels/cuda_memory.cuh>

#include <dspp/launch/cuda_rank.hpp>

#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F32, Cuda>;

std::vector<double> losses_of(const Cell& cell) {
  return train_on<Cuda, Gpt<Policy<F32>>>(cell).losses;
}

double norm_of_values(auto& engine) {
  double sum = 0;
  for (auto* unit : engine.units())
    for (auto& b : unit->buckets())
      b.values.read([&](const float* x) {
        for (Size i = 0; i < b.values.count(); ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
      });
  return sum;
}

/// What trains one step on a batch with that token and target throws.
std::string sentence_of(std::int32_t token, std::int32_t target) {
  try {
    run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
      Engine engine(world, Gpt<P>(small_gpt()), AdamW{}, BatchSizes{}, EngineConfig{});
      using Ids = Tensor<std::int32_t, 2, Cuda>;
      Batch<Cuda> batch{Ids::uninitialized(shape(1, 4), world.memory(), Category::data),
                        Ids::uninitialized(shape(1, 4), world.memory(), Category::data), 0};
      batch.tokens.write([&](std::int32_t* host) { std::fill_n(host, 4, 1), host[2] = token; });
      batch.targets.write([&](std::int32_t* host) { std::fill_n(host, 4, 2), host[1] = target; });
      const auto norms = [&] { return norm_of_values(engine); };
      const double before = norms();
      const auto report = engine.train_batch(std::vector{batch});
      try {
        const double loss = report->loss;  // throws, which a CHECK may swallow
        CHECK(loss > 0);
      } catch (...) {
        CHECK(norms() == before);  // a step with a wrong value updates nothing
        throw;
      }
      CHECK(norms() != before);
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

#if !DSPP_HAS_NVCC()
TEST_CASE("whichever CUDA call of a training fails, it ends with a sentence, and the next one is as if it had not") {
  const Cell cell{.steps = 1, .samples = 2, .sequence = 4};
  software_gpu::fail_call(0);
  const auto expected = losses_of(cell);
  const int calls = software_gpu::fail_call(0);
  REQUIRE(calls > 200);
  int thrown = 0, runs = 0;
  for (int n = 1; n <= calls; n += n < 12 || n > calls - 6 ? 1 : 17) {
    CAPTURE(n);
    ++runs;
    software_gpu::fail_call(n);
    try {
      const auto losses = losses_of(cell);
      CHECK(losses == expected);  // of the program's end, or an allocation for which kept blocks were returned
    } catch (const Error& error) {
      ++thrown;
      CHECK(std::string(error.what()).rfind("dspp: ", 0) == 0);
    }
    software_gpu::fail_call(0);
  }
  CHECK(thrown >= runs - runs / 10);
  CHECK(losses_of(cell) == expected);
}
#endif

TEST_CASE("ids and targets outside the vocabulary are the Cpu's sentences") {
  CHECK(sentence_of(3, 4).empty());
  CHECK(sentence_of(3, ignored_target).empty());
  CHECK(sentence_of(61, 4).find("the id at position 2 is 61. Encode the text") != std::string::npos);
  CHECK(sentence_of(3, -7).find("the target at position 1 is -7. No vocabulary") != std::string::npos);
}
