// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <thread>

#include <kernels/arithmetic.cuh>
#include <kernels/blas.cuh>
#include <kernels/cuda_memory.cuh>
#include <kernels/cudnn_attention.cuh>
#include <kernels/each.cuh>
#include <kernels/embedding.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

template <class T>
__global__ void write_index(Size count, T* y) {
  const Size i = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) y[i] = static_cast<T>(i);
}

std::string sentence_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("gpu::launch names the operation and its extents if CUDA refuses") {
  const std::string sentence = sentence_of([] {
    gpu::launch({"write_index", 3, 5}, write_index<float>, Size{1}, {2048}, nullptr, Size{0}, nullptr);
  });
  CHECK(sentence.find("dspp: write_index [rows 3, columns 5; GPU 0] needs a GPU that runs it, but CUDA gives '") == 0);
  const std::string large = sentence_of(
      [] { gpu::launch({"write_index"}, write_index<float>, Size{1} << 31, {256}, nullptr, Size{0}, nullptr); });
  CHECK(large.find("'invalid argument'") != std::string::npos);
}

TEST_CASE("an error of CUDA names the rank and the GPU of its thread, while it is a rank's") {
  const auto sentence = [] { return sentence_of([] { gpu::check({"fill", 1, 32}, cudaErrorInvalidValue); }); };
  {
    const CudaThread thread(3, 0);
    CHECK(thread.gpu() == 0);
    CHECK(sentence() ==
          "dspp: fill [rows 1, columns 32; rank 3 on GPU 0] needs a GPU that runs it, but CUDA gives 'invalid "
          "argument'. If it is the first failure, look at these extents; else at what ran before, which "
          "DSPP_CUDA_SYNCHRONOUS=1 names.");
  }
  CHECK(sentence().find("dspp: fill [rows 1, columns 32; GPU 0] needs") == 0);
#if !DSPP_HAS_NVCC()
  software_gpu::set_gpus(3);
  std::thread([&] {
    const CudaThread thread(4, 4);
    CHECK(sentence().find("dspp: fill [rows 1, columns 32; rank 4 on GPU 1] needs") == 0);
  }).join();
  software_gpu::set_gpus(1);
  software_gpu::fail_call(1);
  const std::string opening = sentence_of([] { CudaThread(2, 0); });
  software_gpu::fail_call(0);
  CHECK(opening ==
        "dspp: Cuda needs an NVIDIA GPU and its driver, but CUDA gives 'unspecified launch failure' to rank 2. See "
        "what nvidia-smi lists, or take Cpu.");
  CHECK(sentence().find("; GPU 0] needs") != std::string::npos);
#endif
}

TEST_CASE("gpu::launch of no blocks does nothing, and of many writes all") {
  const laws::TestStream stream;
  const Size count = 70001;
  const DeviceArray<float> y(count);
  gpu::launch({"write_index"}, write_index<float>, Size{0}, {256}, stream, count, y);
  CHECK(std::isnan(y.read(stream)[0]));
  gpu::launch({"write_index"}, write_index<float>, gpu::blocks_for(count, 256), {256}, stream, count, y);
  const auto got = y.read(stream);
  for (Size i = 0; i < count; i += 777) CHECK(got[i] == static_cast<float>(i));
}

#if !DSPP_HAS_NVCC()
TEST_CASE("a GPU that cannot run the program's kernels is one sentence before the first of them") {
  const auto before = software_gpu::live();
  const auto opening = [] {
    return sentence_of([] {
      const CudaThread thread(2, 0);
      const CudaMemory memory;
    });
  };
  software_gpu::set_gpu_kind(0, {"Tesla T4", 7, 5});
  software_gpu::refuse("cudaFuncGetAttributes", cudaErrorNoKernelImageForDevice);
  CHECK(opening() ==
        "dspp: Cuda needs kernels for Tesla T4 of compute capability 7.5 (rank 2 on GPU 0), but this program has none "
        "that it takes: CUDA gives 'no kernel image is available for execution on the device'. Take a GPU of compute "
        "capability 8.0 or later, or Cpu.");
  software_gpu::set_gpu_kind(0, {"NVIDIA A100-SXM4-40GB", 8, 0});
  CHECK(opening().find("'. Compile with CMAKE_CUDA_ARCHITECTURES=80, or nvcc -arch=sm_80.") != std::string::npos);
  software_gpu::refuse("cudaFuncGetAttributes", cudaErrorUnsupportedPtxVersion);
  CHECK(opening().find("'. Update the driver, or compile with CMAKE_CUDA_ARCHITECTURES=80, or nvcc -arch=sm_80.") !=
        std::string::npos);
  software_gpu::refuse("", cudaSuccess);
  software_gpu::set_gpu_kind(0, {});
  CHECK(opening().empty());
  CHECK(software_gpu::live() == before);
}

TEST_CASE("a driver that is older than the program's CUDA, and none, are one sentence each") {
  const auto opening = [](int rank) { return sentence_of([rank] { const CudaThread thread(rank, 0); }); };
  software_gpu::refuse("cudaGetDeviceCount", cudaErrorInsufficientDriver);
  software_gpu::set_driver(12040);
  CHECK(opening(1) ==
        "dspp: Cuda needs a driver for CUDA 13.0, with which this program was made, but that of rank 1 is for CUDA "
        "12.4. Update the driver, or compile with a toolkit that is not newer than it.");
  CHECK(sentence_of([] { CudaMemory::gpus(); }).find("but that of this machine is for CUDA 12.4.") !=
        std::string::npos);
  software_gpu::set_driver(0);
  CHECK(opening(1).find("dspp: Cuda needs an NVIDIA GPU and its driver, but CUDA gives 'CUDA driver version") == 0);
  software_gpu::set_driver(13000);
  software_gpu::refuse("", cudaSuccess);
  CHECK(opening(1).empty());
}

namespace {

__global__ void diverging_kernel(int at) {
  if (static_cast<int>(threadIdx.x) == at) __syncthreads();
}

}  // namespace

TEST_CASE("where work is waited for, an error of a kernel is thrown by its launch") {
  const laws::TestStream stream;
  CHECK_FALSE(gpu::waits_for_work());
  gpu::waits_for_work() = true;
  CHECK_THROWS_AS(gpu::launch({"diverging"}, diverging_kernel, 1, {64}, stream, 0), Error);
  CHECK_NOTHROW(gpu::launch({"not diverging"}, diverging_kernel, 1, {64}, stream, -1));
  gpu::waits_for_work() = false;
}

namespace {

/// Where work is waited for, the sentences of `call` when that of its first, second, ... call of CUDA fails on the GPU.
std::vector<std::string> sentences_of_work(auto&& call) {
  std::vector<std::string> sentences;
  gpu::waits_for_work() = true;
  software_gpu::fail_call(0);
  call();
  const int calls = software_gpu::fail_call(0);
  for (int n = 1; n <= calls; ++n) {
    software_gpu::fail_work_of_call(n);
    const std::string sentence = sentence_of(call);
    INFO("call ", n, " of ", calls, ", ", software_gpu::failed_call());
    CHECK(sentence.empty() == std::string(software_gpu::failed_call()).empty());
    if (!sentence.empty()) sentences.push_back(sentence.substr(0, sentence.find("; GPU 0] needs ")) + "]");
  }
  software_gpu::fail_call(0);
  gpu::waits_for_work() = false;
  return sentences;
}

using Sentences = std::vector<std::string>;

/// It issues work, as cuDNN does, and sees no failure of it.
struct AnyCudnn {
  bool takes(const gpu::CudnnCall&) const { return true; }
  void run(cudaStream_t stream, const gpu::CudnnCall&, const gpu::CudnnOperands&, void* workspace) const {
    cudaMemsetAsync(workspace, 0, 1, stream);
  }
};

}  // namespace

TEST_CASE("where work is waited for, an error on the GPU of a copy, a product or a sort names it") {
  CudaMemory on;
  const cudaStream_t stream = gpu::stream_of(on);
  const DeviceArray<double> x(4), y(4);
  auto* const to = reinterpret_cast<std::byte*>(x.data());
  const auto* const from = reinterpret_cast<const std::byte*>(y.data());
  double host = 0;
  CHECK(sentences_of_work([&] { on.zero(to, 32); }) == Sentences{"dspp: zero [rows 1, columns 32]"});
  CHECK(sentences_of_work([&] { on.copy(to, from, 32); }) == Sentences{"dspp: copy [rows 1, columns 32]"});
  CHECK(sentences_of_work([&] { on.from_host(to, &host, 8); }) == Sentences{"dspp: from_host [rows 1, columns 8]"});
  CHECK(sentences_of_work([&] { on.to_host(&host, from, 8); }) ==
        Sentences(2, "dspp: to_host [rows 1, columns 8]"));  // a value, and what checks found
  CHECK(sentences_of_work([] { const CudaMemory other; }) == Sentences{"dspp: open [rows 0, columns 0]"});

  const DeviceArray<float> a(6), b(8), c(12);
  gpu::Blas blas;
  const float* const no_bias = nullptr;
  CHECK(sentences_of_work([&] {
          gpu::blas_matmul<float>(blas, stream, 1, {.m = 3, .n = 4, .k = 2, .lda = 2, .ldb = 4, .ldc = 4}, a, b,
                                  c.data(), Write::overwrite, no_bias);
        }) == Sentences{"dspp: matmul [rows 3, columns 4]"});

  const DeviceArray<std::int32_t> ids(std::vector<std::int32_t>{1, 0, 1}), positions(3), sorted_positions(3);
  const DeviceArray<std::uint32_t> keys(3), sorted_keys(3);
  const DeviceArray<float> dy(12), dw(8), parts(gpu::embedding_parts(3, 4));
  const DeviceArray<std::uint8_t> workspace(gpu::embedding_workspace(3, 2), laws::to_256);
  const gpu::EmbeddingScratch scratch{keys,  sorted_keys,      positions,       sorted_positions,
                                      parts, workspace.data(), workspace.size()};
  CHECK(sentences_of_work([&] {
          gpu::embedding_backward<float>(stream, 3, 2, 4, dw.data(), Write::overwrite, dy, ids, 0, scratch);
        }) == Sentences{"dspp: embedding_backward [rows 3, columns 4]", "dspp: embedding_backward [rows 3, columns 4]",
                        "dspp: sort_pairs [rows 1, columns 3]", "dspp: embedding_backward [rows 3, columns 4]",
                        "dspp: embedding_backward [rows 3, columns 4]"});
}

TEST_CASE("where work is waited for, an error of cuDNN's on the GPU names the pass of attention and its extents") {
  const laws::TestStream stream;
  const kernels::AttentionExtents at{2, 128, 3, 1, 64, {}};
  const DeviceArray<bf16> q(at.batch * at.sequence * at.width()), kv(at.batch * at.sequence * 2 * at.kv_width());
  const DeviceArray<float> sums(at.batch * at.heads * at.sequence);
  const Size width = at.width(), kv_width = at.kv_width();
  const auto of = gpu::attention_operands<bf16>(at, {}, {q, width}, {kv, 2 * kv_width}, {kv + kv_width, 2 * kv_width});
  const DeviceArray<std::uint8_t> workspace(gpu::cudnn_slices(at).workspace_bytes(), laws::to_256);
  AnyCudnn cudnn;
  CHECK(sentences_of_work([&] {
          CHECK(gpu::cudnn_attention<AnyCudnn, bf16>(cudnn, stream, of, {q, width}, sums, workspace.data()));
        }) == Sentences{"dspp: attention [rows 256, columns 192]"});
  CHECK(sentences_of_work([&] {
          CHECK(gpu::cudnn_attention_backward<AnyCudnn, bf16>(
              cudnn, stream, {of, {q, width}, {q, width}, sums}, {q, width}, {kv, 2 * kv_width},
              {kv + kv_width, 2 * kv_width}, {workspace.data(), workspace.size()}));
        }) == Sentences{"dspp: attention_vjp [rows 256, columns 192]"});
}
#endif
