// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <kernels/column_sum.cuh>
#include <kernels/cross_entropy.cuh>
#include <kernels/layer_norm.cuh>
#include <kernels/rms_norm.cuh>
#include <kernels/softmax.cuh>
#include <kernels/transpose.cuh>

#include <laws/device_array.hpp>
#include <laws/device_schedules.hpp>
#include <laws/left_out.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

using laws::worst_without;

/// A kernel whose odd warps pass by a barrier.
template <int Kind>
__global__ void divergent(float* y) {
  if (Kind == 0 && threadIdx.x / 32 % 2 == 0) __syncthreads();
  if (Kind == 1 && threadIdx.x % 2 == 0) __syncwarp();
  if (Kind == 2) {
    if (threadIdx.x % 2 == 0)
      __syncthreads();
    else
      y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  }
  y[threadIdx.x] = 1;
}

template <class F>
std::string sentence_of(F call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

__global__ void write_at(float* y, Size i) {
  if (threadIdx.x == 0) y[i] = 1;
}

__global__ void count_and_share(float* y) {
  const float total = static_cast<float>(atomicAdd(reinterpret_cast<int*>(y), 1));
  y[1 + blockIdx.x * blockDim.x + threadIdx.x] = __shfl_sync(0xffffffffu, total, 7);
}

/// y[i] = how many warps came before the one of thread i
__global__ void count_warps(int* y, int* count) {
  const int before = threadIdx.x % 32 == 0 ? atomicAdd(count, 1) : 0;
  y[blockIdx.x * blockDim.x + threadIdx.x] = __shfl_sync(0xffffffffu, before, 0);
}

__global__ void fill(float* y, float value) {
  y[threadIdx.x] = value;
}
__global__ void add_one(float* y, const float* x) {
  y[threadIdx.x] = x[threadIdx.x] + 1;
}

}  // namespace

TEST_CASE("The GPU in software finds each __syncthreads of a norm that is left out") {
  std::mt19937 random(1);
  const Size rows = 6, n = 2000;  // a block a row
  const auto x = laws::normals<float>(rows * n, random, 2.0), gamma = laws::normals<float>(n, random);
  const DeviceArray<float> d_x(x), d_gamma(gamma), y(rows * n), mean(rows), rstd(rows);
  const float* no_residual = nullptr;
  float* no_sum = nullptr;
  const auto run = [&] {
    const laws::TestStream stream;
    gpu::layer_norm<float>(stream, rows, n, d_x, no_residual, d_gamma, d_gamma, 1e-5, no_sum, y, mean, rstd);
    const auto got = mean.read(stream), inverse = rstd.read(stream);
    laws::Worst worst;
    for (Size i = 0; i < rows; ++i) {
      double m = 0, squares = 0;
      for (Size j = 0; j < n; ++j) m += static_cast<double>(x[i * n + j]) / static_cast<double>(n);
      for (Size j = 0; j < n; ++j) squares += (x[i * n + j] - m) * (x[i * n + j] - m) / static_cast<double>(n);
      worst.add(laws::difference(got[i], m));
      worst.add(laws::difference(inverse[i], 1 / std::sqrt(squares + 1e-5)));
    }
    return worst.value();
  };
  CHECK(worst_without(-1, run) < 1e-5);
  CHECK(worst_without(0, run) < 1e-5);  // it waits for the readers of an earlier sum, of which there are none
  for (const int barrier : {1, 2, 3}) CHECK(worst_without(barrier, run) > 1e-3);
}

TEST_CASE("The GPU in software finds the __syncthreads of a transpose or of a column sum that is left out") {
  std::mt19937 random(2);
  const Size rows = 70, n = 130;
  const auto x = laws::normals<float>(rows * n, random);
  const DeviceArray<float> d_x(x), y(rows * n), scratch(gpu::column_sum_scratch<float>(rows, n)), sums(n);
  const auto transposes = [&] {
    const laws::TestStream stream;
    gpu::transpose<float>(stream, rows, n, y, d_x);
    const auto got = y.read(stream);
    laws::Worst worst;
    for (Size i = 0; i < rows; ++i)
      for (Size j = 0; j < n; ++j) worst.add(laws::difference(got[j * rows + i], x[i * n + j]));
    return worst.value();
  };
  const auto column_sums = [&] {
    const laws::TestStream stream;
    gpu::column_sum<float, float>(stream, rows, n, d_x, scratch, sums, Write::overwrite);
    const auto got = sums.read(stream);
    laws::Worst worst;
    for (Size j = 0; j < n; ++j) {
      double sum = 0;
      for (Size i = 0; i < rows; ++i) sum += static_cast<double>(x[i * n + j]);
      worst.add(laws::difference(got[j], sum));
    }
    return worst.value();
  };
  CHECK(worst_without(-1, transposes) == 0);
  CHECK(worst_without(0, transposes) > 1e-3);
  CHECK(worst_without(-1, column_sums) < 1e-4);
  CHECK(worst_without(0, column_sums) > 1e-3);
}

TEST_CASE("The GPU in software finds what a norm's backward pass and cross-entropy need") {
  std::mt19937 random(4);
  const Size rows = 700, n = 600;  // blocks of two rows, several rows each
  const auto x = laws::normals<float>(rows * n, random), dy = laws::normals<float>(rows * n, random),
             earlier = laws::normals<float>(rows * n, random);
  const DeviceArray<float> d_x(x), d_dy(dy), d_earlier(earlier), gamma(std::vector<float>(n, 1.0f)), dx(rows * n),
      dgamma(n);
  const DeviceArray<float> inverse(std::vector<float>(rows, 1.0f)), scratch(gpu::rms_norm_scratch(rows, n));
  const auto backward = [&] {
    const laws::TestStream stream;
    gpu::rms_norm_backward<float, float>(stream, rows, n, dx, d_dy, d_x, d_earlier, gamma, inverse, scratch, dgamma,
                                         Write::overwrite);
    const auto got = dgamma.read(stream), got_dx = dx.read(stream);
    laws::Worst worst;
    for (Size j = 0; j < n; ++j) {
      double sum = 0;
      for (Size i = 0; i < rows; ++i) sum += static_cast<double>(x[i * n + j]) * static_cast<double>(dy[i * n + j]);
      worst.add(laws::difference(got[j], sum));
    }
    for (Size i = 0; i < rows; i += 13) {
      double projection = 0;
      for (Size j = 0; j < n; ++j)
        projection += static_cast<double>(x[i * n + j]) * static_cast<double>(dy[i * n + j]) / n;
      for (Size j = 0; j < n; ++j)
        worst.add(laws::difference(got_dx[i * n + j], earlier[i * n + j] + dy[i * n + j] - x[i * n + j] * projection));
    }
    return worst.value();
  };
  CHECK(worst_without(-1, backward, 1) < 1e-3);
  CHECK(worst_without(0, backward, 5) > 1e-2);  // between the sums of a row's warps and their readers
  software_gpu::leave_out_waits_for_copies(true);
  CHECK(worst_without(-1, backward, 1) > 1e-2);
  software_gpu::leave_out_waits_for_copies(false);

  const Size classes = 5000;  // two rows a block
  const auto logits = laws::normals<float>(8 * classes, random, 2.0);
  const DeviceArray<std::int32_t> targets(std::vector<std::int32_t>(8, 5));
  const DeviceArray<float> parts(24), lse(8), loss(1);
  const DeviceArray<double> counted(1);
  const auto losses = [&] {
    const laws::TestStream stream;
    const DeviceArray<float> d_logits(logits);
    gpu::cross_entropy<float>(stream, 8, classes, d_logits, {targets, nullptr, classes}, {parts, lse, loss, counted});
    const auto got = lse.read(stream);
    laws::Worst worst;
    for (Size i = 0; i < 8; ++i) {
      double sum = 0;
      for (Size j = 0; j < classes; ++j) sum += std::exp(static_cast<double>(logits[i * classes + j]));
      worst.add(laws::difference(got[i], std::log(sum)));
    }
    return worst.value();
  };
  CHECK(worst_without(-1, losses, 5) < 1e-4);
  CHECK(worst_without(0, losses, 5) > 1e-2);
  CHECK(worst_without(1, losses, 5) > 1e-2);  // of a block's second row
  software_gpu::leave_out_waits_for_copies(true);
  CHECK(worst_without(-1, losses, 1) > 1e-2);
  software_gpu::leave_out_waits_for_copies(false);
}

TEST_CASE("The GPU in software finds what the backward pass of softmax over wide rows needs") {
  std::mt19937 random(6);
  const Size rows = 2, n = gpu::longest_row<float> + 8;
  const auto y = laws::normals<float>(rows * n, random, 0.01, 0.1);
  const auto dy = laws::normals<float>(rows * n, random, 1, 1);
  const DeviceArray<float> d_y(y), d_dy(dy), dx(rows * n);
  const auto backward = [&] {
    const laws::TestStream stream;
    gpu::softmax_backward<float>(stream, rows, n, dx, d_dy, d_y);
    const auto got = dx.read(stream);
    laws::Worst worst;
    for (Size i = 0; i < rows; ++i) {
      double projection = 0;
      for (Size j = 0; j < n; ++j) projection += static_cast<double>(dy[i * n + j]) * static_cast<double>(y[i * n + j]);
      for (Size j = 0; j < n; ++j)
        worst.add(laws::difference(got[i * n + j], y[i * n + j] * (dy[i * n + j] - projection)));
    }
    return worst.value();
  };
  CHECK(worst_without(-1, backward) < 1e-2);
  CHECK(worst_without(0, backward) < 1e-2);  // it waits for the readers of an earlier sum, of which there are none
  CHECK(worst_without(1, backward) > 1);
  software_gpu::leave_out_waits_for_copies(true);
  CHECK(worst_without(-1, backward, 1) > 1);
  software_gpu::leave_out_waits_for_copies(false);
}

TEST_CASE("The GPU in software names a barrier that not all threads come to") {
  const DeviceArray<float> y(128);
  const auto sentence = [&](void (*kernel)(float*)) {
    return sentence_of([&] {
      gpu::launch({"divergent"}, kernel, Size{1}, {128}, nullptr, y);
      cudaStreamSynchronize(nullptr);
    });
  };
  CHECK(sentence(divergent<0>) ==
        "dspp: a barrier of the GPU in software needs every thread, but in block (0, 0) some warps have ended while "
        "others "
        "wait at __syncthreads. Move it out of the branch.");
  CHECK(sentence(divergent<1>).find("some lanes of a warp have ended while others wait") != std::string::npos);
  CHECK(sentence(divergent<2>).find("some lanes of a warp wait at __syncthreads and some at a shuffle") !=
        std::string::npos);
  CHECK(sentence(divergent<3>) == "");
}

TEST_CASE("A stream of the GPU in software does nothing after a kernel that failed") {
  const DeviceArray<float> y(std::vector<float>(128, 1.0f));
  for (int i = 0; i < 20; ++i) {
    float host = 3;
    {
      const laws::TestStream stream;
      CHECK(sentence_of([&] {
              gpu::launch({"divergent"}, divergent<1>, Size{1}, {128}, stream, y);
              laws::check_cuda(cudaMemcpyAsync(&host, y.data(), sizeof host, cudaMemcpyDeviceToHost, stream));
              laws::check_cuda(cudaStreamSynchronize(stream));
            }).find("some lanes of a warp have ended") != std::string::npos);
    }
    CHECK(host == 3);
  }
}

TEST_CASE("The GPU in software finds a write beside an allocation when that is freed") {
  for (const Size at : {Size{-1}, Size{50}, Size{99}}) {
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, 50 * sizeof(float)) == cudaSuccess);
    gpu::launch({"write_at"}, write_at, Size{1}, {32}, nullptr, static_cast<float*>(memory), at);
    CHECK(sentence_of([&] { cudaFree(memory); }) ==
          "dspp: a kernel needs to stay in its arrays, but one wrote beside an allocation. Look at its bounds.");
  }
}

TEST_CASE("The GPU in software ends a program whose host reads device memory") {
  const DeviceArray<float> y(std::vector<float>(4, 1.0f));
  std::fflush(nullptr);  // else the child writes it, too
  const pid_t child = fork();
  if (child == 0) {
    software_gpu::name_touches_of_host();  // doctest's own handler would only say that there was a fault
    close(2);                              // the sentence
    volatile float value = *y.data();
    _exit(value == 1 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 3);
}

TEST_CASE("The GPU in software refuses a copy whose memory is not where its kind says") {
  const DeviceArray<float> x(std::vector<float>{1, 2});
  float host[2] = {3, 4};
  CHECK(cudaMemcpyAsync(host, host + 1, sizeof(float), cudaMemcpyHostToDevice, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(x.data(), host, sizeof(float), cudaMemcpyDeviceToHost, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(x.data(), host, sizeof(float), cudaMemcpyDeviceToDevice, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(x.data(), host, sizeof(float), cudaMemcpyHostToDevice, nullptr) == cudaSuccess);
  cudaStreamSynchronize(nullptr);
  CHECK(x.read(nullptr) == std::vector<float>{3, 2});
  CHECK(host[0] == 3);
}

TEST_CASE("Atomic additions of the GPU in software lose none, and a shuffle gives one lane's value to its warp") {
  const Size threads = 3 * 64;
  const DeviceArray<float> y(std::vector<float>(1 + threads, 0.0f));
  gpu::launch({"count_and_share"}, count_and_share, Size{3}, {64}, nullptr, y);
  const auto got = y.read(nullptr);
  CHECK(bits_as<std::int32_t>(got[0]) == threads);
  for (Size warp = 0; warp < threads; warp += 32)
    for (Size lane = 1; lane < 32; ++lane) CHECK(got[1 + warp + lane] == got[1 + warp]);
  CHECK(got[1] != got[33]);
}

TEST_CASE("Streams of the GPU in software need their events") {
  int wrong_with = 0, wrong_without = 0;
  for (unsigned seed = 0; seed < 60; ++seed)
    for (const bool with_event : {true, false}) {
      software_gpu::seed(seed);
      const laws::TestStream first, second;
      const DeviceArray<float> x(32), y(32);
      cudaEvent_t event = nullptr;
      cudaEventCreate(&event);
      gpu::launch({"fill"}, fill, Size{1}, {32}, first, x, 2.0f);
      cudaEventRecord(event, first);
      if (with_event) cudaStreamWaitEvent(second, event);
      gpu::launch({"add_one"}, add_one, Size{1}, {32}, second, y, x);
      (with_event ? wrong_with : wrong_without) += y.read(second)[31] != 3.0f;
      cudaStreamSynchronize(first);
      cudaEventDestroy(event);
    }
  CHECK(wrong_with == 0);
  CHECK(wrong_without > 5);
}

TEST_CASE("A seed of the GPU in software gives the orders of blocks, warps and streams again") {
  const auto orders = [](unsigned seed) {
    software_gpu::seed(seed);
    const laws::TestStream streams[] = {{}, {}, {}};
    const DeviceArray<int> y(40 * 64), count(std::vector<int>(1, 0));
    for (int i = 0; i < 8; ++i)
      for (const auto& stream : streams) gpu::launch({"count"}, count_warps, Size{40}, {64}, stream, y, count);
    for (const auto& stream : streams) cudaStreamSynchronize(stream);
    return y.read(nullptr);
  };
  for (unsigned seed = 0; seed < 5; ++seed) {
    CHECK(orders(seed) == orders(seed));
    CHECK(orders(seed) != orders(seed + 1));
  }
}

TEST_CASE("fails from the seed 9 on") {
  if (std::getenv("DSPP_TEST_IS_TO_FAIL") == nullptr) {
    MESSAGE("this one is to fail: the next one runs it, in a process of its own");
    return;
  }
  laws::under_schedules([] { CHECK(software_gpu::current_seed() < 9); });
}

TEST_CASE("A test on the GPU in software that fails prints its seed, which the environment gives") {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const auto printed = [&](const char* environment) {
    std::fflush(nullptr);
    FILE* const child = popen(
        (environment + (" DSPP_TEST_IS_TO_FAIL=1 '" + self + "'") + " '--test-case=fails from*' 2>&1").c_str(), "r");
    REQUIRE(child != nullptr);
    std::string text;
    for (int c = 0; (c = std::fgetc(child)) != EOF;) text += static_cast<char>(c);
    return std::to_string(pclose(child) != 0) + text;
  };
  const auto count = [](const std::string& text, const std::string& what) {
    int times = 0;
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++times;
    return times;
  };
  const std::string from_7 = printed("DSPP_GPU_SEED=7 DSPP_GPU_SCHEDULES=20");
  CHECK(from_7[0] == '1');
  CHECK(count(from_7, "software GPU: DSPP_GPU_SEED=9\n") == 1);
  CHECK(count(from_7, "software GPU") == 1);
  CHECK(count(from_7, "ERROR: CHECK(") == 18);
  CHECK(count(printed("DSPP_GPU_SEED=9 DSPP_GPU_SCHEDULES=1"), "software GPU: DSPP_GPU_SEED=9\n") == 1);
  const std::string passes = printed("DSPP_GPU_SEED=7 DSPP_GPU_SCHEDULES=2");
  CHECK(passes[0] == '0');
  CHECK(count(passes, "software GPU") == 0);
  const std::string wrong = printed("DSPP_GPU_SEED=x DSPP_GPU_SCHEDULES=20");
  CHECK(wrong[0] == '1');
  CHECK(count(wrong, "dspp: DSPP_GPU_SEED needs a number below 2^32, but got 'x'. Write one, or leave it out.") == 1);
}

TEST_CASE("A launch and an allocation fail where a test asks for it") {
  software_gpu::fail_launch(2);
  const DeviceArray<float> y(32);
  const auto once = [&] { gpu::launch({"fill", 1, 32}, fill, Size{1}, {32}, nullptr, y, 1.0f); };
  CHECK(sentence_of(once) == "");
  CHECK(
      sentence_of(once).find("dspp: fill [rows 1, columns 32; GPU 0] needs a GPU that runs it, but CUDA gives 'invalid "
                             "configuration argument'") == 0);
  CHECK(sentence_of(once) == "");
  software_gpu::limit_memory(100);
  void* memory = nullptr;
  CHECK(cudaMalloc(&memory, 101) == cudaErrorMemoryAllocation);
  software_gpu::limit_memory(std::numeric_limits<std::size_t>::max());
}
