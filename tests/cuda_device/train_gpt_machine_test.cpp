// SPDX-License-Identifier: Apache-2.0
// The ranks that train_gpt has on GPUs if none are named, and the memory that its plans are held against.
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/cuda_memory.cuh>

#include <dspp/launch/cuda_rank.hpp>
#include <examples/train_gpt/machine.hpp>

using namespace dspp;

TEST_CASE("a GPU says what is free of it, in whole numbers of ranks") {
  CudaMemory on;
  const Size free = CudaMemory::free_bytes(0);
  CHECK(free > 1_MiB);
  train_gpt::check_memory<Cuda>(1, {}, 1_MiB);
  CHECK(train_gpt::default_ranks<Cuda>(1) == CudaMemory::gpus());
}

#if !DSPP_HAS_NVCC()
namespace {

/// GPUs of 100 MiB each.
struct Gpus {
  explicit Gpus(int count) {
    software_gpu::set_gpus(count);
    software_gpu::limit_memory(std::size_t{100} << 20);
  }
  ~Gpus() {
    software_gpu::set_gpus(1);
    software_gpu::limit_memory(std::size_t{1} << 40);
  }
};

std::string sentence_of(Size ranks, const Launch& launch, Size planned_bytes_per_rank) {
  try {
    train_gpt::check_memory<Cuda>(ranks, launch, planned_bytes_per_rank);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("without a number of ranks train_gpt has one on each GPU, and as many as its policy needs") {
  for (const int gpus : {1, 3, 8}) {
    const Gpus some(gpus);
    CHECK(train_gpt::default_ranks<Cuda>(1) == gpus);
    CHECK(train_gpt::default_ranks<Cuda>(4) == (gpus == 8 ? 8 : 4));
    CHECK(train_gpt::default_ranks<Cuda>(3) == (gpus == 8 ? 6 : 3));
  }
  CHECK(train_gpt::default_ranks<Cpu>(1) == 2);
  CHECK(train_gpt::default_ranks<Cpu>(3) == 3);
}

TEST_CASE("plans of train_gpt are held against what is free on the GPUs that its ranks are on") {
  const Launch threads;
  const Launch second{.rank = 1, .size = 4, .local_size = 4, .local_rank = 1, .by = "RANK"};
  const Launch somewhere{.rank = 1, .size = 4, .local_size = 4, .local_rank = -1, .by = "SLURM_PROCID"};
  {
    const Gpus one(1);
    CHECK(sentence_of(1, threads, 100_MiB).empty());
    CHECK(sentence_of(2, threads, 50_MiB).empty());
    CHECK(sentence_of(2, threads, 51_MiB) ==
          "dspp: train_gpt needs a job that fits into the 100.0 MiB of memory that are free on GPU 0, but 2 ranks of "
          "51.0 "
          "MiB do not. Lower --width, --layers, --micro-batch or --sequence, or raise the ZeRO stage.");
    CHECK(sentence_of(4, second, 100_MiB).empty());  // which may be the only one on what it sees as GPU 0
    CHECK(sentence_of(4, second, 101_MiB).find("GPU 0, but 1 rank of 101.0 MiB does not.") != std::string::npos);
    CHECK(sentence_of(4, somewhere, 101_MiB).empty());
  }
  {
    const Gpus three(3);
    CHECK(sentence_of(3, threads, 100_MiB).empty());
    CHECK(sentence_of(4, threads, 51_MiB).find("GPU 0, but 2 ranks of 51.0 MiB") != std::string::npos);
    CHECK(sentence_of(4, second, 101_MiB).find("GPU 1, but 1 rank of ") != std::string::npos);
  }
}

TEST_CASE("to ask what is free leaves a thread's GPU, and of a CUDA that fails it is one sentence") {
  const Gpus two(2);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  CHECK(CudaMemory::free_bytes(0) == 100_MiB);
  int gpu = 0;
  REQUIRE(cudaGetDevice(&gpu) == cudaSuccess);
  CHECK(gpu == 1);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  for (const int call : {1, 2}) {
    software_gpu::fail_call(0);
    software_gpu::fail_call(call);
    CHECK_THROWS_WITH_AS(CudaMemory::free_bytes(0), doctest::Contains("dspp: Cuda needs an NVIDIA GPU"), Error);
  }
  software_gpu::fail_call(0);
}
#endif
