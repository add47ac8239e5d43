// SPDX-License-Identifier: Apache-2.0
// CUDA calls that fail in mid-training, and values that a GPU finds wrong.
// labels: cuda
#include <set>

#include <kernels/cuda_memory.cuh>

#include <dspp/launch/cuda_rank.hpp>

#include <laws/training_run.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

using P = Policy<F32, Cuda>;

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
namespace {

/// The calls of CUDA that open a rank with its engine and batch, train one step and read its report, read the values,
/// and end them.
constexpr int opening = 0, stepping = 1, reading = 2, ending = 3, parts = 4;
struct Run {
  std::array<int, parts> calls{};
  std::vector<double> report{};
  std::uint64_t print = 0;

  bool operator==(const Run&) const = default;
};

/// One step of a tiny Gpt. Of one part, the n-th call fails, or the work that it issues; 0: none.
Run train_once(int part = opening, int n = 0, bool is_late = false) {
  constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 2, .vocabulary = 13, .sequence = 4};
  Run run;
  const auto fail_call = [&](int number) {
    return is_late ? software_gpu::fail_work_of_call(number) : software_gpu::fail_call(number);
  };
  const auto end = [&](int ended) {
    run.calls[static_cast<std::size_t>(ended)] = fail_call(ended + 1 == part ? n : 0);
  };
  fail_call(part == opening ? n : 0);
  run_ranks_of<P>({.ranks = 1, .threads_per_rank = 1, .timeout_seconds = 60}, [&](World<P>& world) {
    Engine engine(world, Gpt<P>(tiny), AdamW{}, BatchSizes{}, EngineConfig{});
    const auto batch = batch_of<Cuda>(world.memory(), 0, 0, 1, 4, 13);
    end(opening);
    auto loss = engine.forward(batch);
    engine.backward(loss);
    const StepReport report = engine.step();
    end(stepping);
    run.report = {report.loss, report.gradient_norm};
    run.print = print_of_state(engine);
    end(reading);
  });
  end(ending);
  return run;
}

/// "dspp: layer_norm [rows 4, columns 8; rank 0 on GPU 0] needs a GPU that runs it, but CUDA gives '...'. ...",
/// or the Pool's map of a use of memory.
bool names_operation(const std::string& sentence) {
  if (sentence.rfind("dspp: a Pool needs ", 0) == 0)
    return sentence.find(" in use and the machine gives no more. ") != std::string::npos;
  if (sentence.rfind("dspp: Cuda needs an NVIDIA GPU and its driver, but CUDA gives '", 0) == 0)
    return sentence.find("' to rank 0. ") != std::string::npos;
  return sentence.rfind("dspp: ", 0) == 0 && sentence.find(" [rows ") > 6 &&
         sentence.find("; rank 0 on GPU 0] needs a GPU that runs it, but CUDA gives '") != std::string::npos;
}

}  // namespace

TEST_CASE("whichever CUDA call of a training fails, its sentence names the operation, and the next one has the bits") {
  const auto before = software_gpu::live();
  const Run expected = train_once();
  REQUIRE(expected.calls[stepping] > 100);
  for (int part = 0; part < parts; ++part)
    for (int n = 1; n <= expected.calls[static_cast<std::size_t>(part)]; ++n) {
      std::string sentence;
      Run run;
      try {
        run = train_once(part, n);
      } catch (const Error& error) {
        sentence = error.what();
      }
      const std::string failed = software_gpu::failed_call();
      software_gpu::fail_call(0);
      INFO("part ", part, ", call ", n, ", ", failed, ": ", sentence);
      CHECK(software_gpu::live() == before);
      if (sentence.empty()) {  // kept blocks were returned for the allocation, or nobody was left to tell
        CHECK((part == ending ? failed == "cudaStreamSynchronize"
                              : failed == "cudaMalloc" || failed == "cudaMallocHost"));
        CHECK(run.report == expected.report);
        CHECK(run.print == expected.print);
      } else {
        CHECK(!failed.empty());
        CHECK(names_operation(sentence));
      }
      if (n % 20 == 0) CHECK(train_once() == expected);
    }
  CHECK(train_once() == expected);
}

TEST_CASE("ranks on unlike GPUs are one sentence before the first step, and on like ones train") {
  const auto sentence_of_two = [] {
    try {
      run_ranks_of<P>({.ranks = 2, .threads_per_rank = 1, .timeout_seconds = 60}, [](World<P>& world) {
        Engine engine(world, Gpt<P>(small_gpt()), AdamW{}, BatchSizes{}, EngineConfig{});
        const auto batch = batch_of<Cuda>(world.memory(), 0, world.data_rank(), 1, 4, 13);
        auto loss = engine.forward(batch);
        engine.backward(loss);
        const StepReport report = engine.step();
        CHECK(report.loss > 0);
      });
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  software_gpu::set_gpus(2);
  CHECK(sentence_of_two() == "");
  software_gpu::set_gpu_kind(1, {"NVIDIA A100-SXM4-40GB", 8, 0});
  CHECK(sentence_of_two() ==
        "dspp: Cuda needs GPUs of one kind on all ranks, but rank 0 has GPU in software of compute capability 9.0 with "
        "2 multiprocessors and rank 1 NVIDIA A100-SXM4-40GB of compute capability 8.0 with 2 multiprocessors. Choose "
        "them by CUDA_VISIBLE_DEVICES, or start the ranks on machines alike.");
  software_gpu::set_gpu_kind(1, {});
  software_gpu::set_gpus(1);
}

TEST_CASE("where work is waited for, what fails on the GPU in a step has the sentence of a call that is refused") {
  gpu::waits_for_work() = true;
  const Run expected = train_once();
  const auto sentence_at = [](int n, bool is_late) {
    std::string sentence;
    try {
      train_once(stepping, n, is_late);
    } catch (const Error& error) {
      sentence = error.what();
    }
    software_gpu::fail_call(0);
    return sentence;
  };
  const std::set<std::string> all{
      "", "cublasLtMatmul", "cudaLaunchKernelEx", "cudaMemcpyAsync", "cudaMemsetAsync", "SortPairs"};
  std::set<std::string> failed;
  const auto fail = [&](int n) {
    const std::string late = sentence_at(n, true), call = software_gpu::failed_call();
    INFO("call ", n, ", ", call, ": ", late);
    CHECK(late == (call.empty() ? "" : sentence_at(n, false)));
    failed.insert(call);
  };
  const int calls = expected.calls[stepping];
  for (int n = 1; n <= calls; n += 3) fail(n);
  for (int n = 2; n <= calls && failed != all; n += n % 3 == 0 ? 2 : 1) fail(n);  // those between, for rare kinds
  gpu::waits_for_work() = false;
  CHECK(failed == all);
  CHECK(train_once().report == expected.report);
}
#endif

TEST_CASE("ids and targets outside the vocabulary are the Cpu's sentences") {
  CHECK(sentence_of(3, 4).empty());
  CHECK(sentence_of(3, ignored_target).empty());
  CHECK(sentence_of(61, 4).find("the id at position 2 is 61. Encode the text") != std::string::npos);
  CHECK(sentence_of(3, -7).find("the target at position 1 is -7. No vocabulary") != std::string::npos);
}
