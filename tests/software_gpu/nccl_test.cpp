// SPDX-License-Identifier: Apache-2.0
// What the twin of NCCL finds: each by doing it wrong.
// labels: cuda
#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <laws/device_array.hpp>
#include <software_gpu/nccl.hpp>

using namespace dspp;
using laws::DeviceArray;

namespace {

void settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) REQUIRE(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
  REQUIRE(state == ncclSuccess);
}

/// f(rank, communicator, stream) on the threads of `ranks` GPUs. Communicators that it leaves are aborted.
void on_ranks(int ranks, const std::function<void(int, ncclComm_t, cudaStream_t)>& f) {
  software_gpu::set_gpus(ranks);
  ncclUniqueId id{};
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        cudaSetDevice(r);
        ncclComm_t comm = nullptr;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        REQUIRE(ncclCommInitRankConfig(&comm, ranks, id, r, &config) == ncclInProgress);
        settle(comm);
        cudaStream_t stream = nullptr;
        cudaStreamCreate(&stream);
        f(r, comm, stream);
        ncclCommAbort(comm);
        cudaStreamDestroy(stream);
      });
  }
  software_gpu::set_gpus(1);
  CHECK(software_gpu::live_nccl_communicators() == 0);
}

}  // namespace

TEST_CASE("the twin of NCCL puts an operation into its stream only once it is not in progress") {
  bool early = false;
  for (int attempt = 0; attempt < 20; ++attempt)
    on_ranks(1, [&](int, ncclComm_t comm, cudaStream_t stream) {
      const DeviceArray<float> x(std::vector<float>{1, 2}), y(2);
      const ncclResult_t called = ncclAllReduce(x, y, 2, ncclFloat32, ncclSum, comm, stream);
      const bool has_run = y.read(stream) == std::vector<float>{1, 2};
      CHECK(has_run == (called == ncclSuccess));
      early = early || !has_run;
      settle(comm);
      CHECK(y.read(stream) == std::vector<float>{1, 2});
    });
  CHECK(early);
}

TEST_CASE("the twin of NCCL waits where ranks differ, until they abort") {
  on_ranks(2, [](int rank, ncclComm_t comm, cudaStream_t stream) {
    const DeviceArray<float> x(std::vector<float>{1, 2});
    CHECK(ncclAllReduce(x, x, rank == 0 ? 1 : 2, ncclFloat32, ncclSum, comm, stream) != ncclInvalidUsage);
    settle(comm);
    for (int i = 0; i < 100; ++i) CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    ncclCommAbort(comm);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
  });
}

TEST_CASE("the twin of NCCL sums in an order that depends on the count, and rounds every addition") {
  std::vector<float> first(4);
  on_ranks(3, [&](int rank, ncclComm_t comm, cudaStream_t stream) {
    for (const std::size_t count : {1, 2, 3, 4}) {
      const DeviceArray<float> x(std::vector<float>(count, rank == 0 ? 1.0f : rank == 1 ? 1e8f : -1e8f));
      static_cast<void>(ncclAllReduce(x, x, count, ncclFloat32, ncclSum, comm, stream));
      settle(comm);
      const float sum = x.read(stream)[0];
      if (rank == 0) first[count - 1] = sum;
    }
  });
  CHECK(std::count(first.begin(), first.end(), 1.0f) > 0);
  CHECK(std::count(first.begin(), first.end(), 0.0f) > 0);
}

TEST_CASE("the twin of NCCL refuses memory of the host, a call in progress, and what is not finalized") {
  on_ranks(1, [](int, ncclComm_t comm, cudaStream_t stream) {
    float host = 1;
    CHECK(ncclAllReduce(&host, &host, 1, ncclFloat32, ncclSum, comm, stream) == ncclInvalidArgument);
    const DeviceArray<float> x(std::vector<float>{1, 2});
    while (ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, comm, stream) == ncclSuccess) {
    }
    CHECK(ncclAllReduce(x, x, 2, ncclFloat32, ncclSum, comm, stream) == ncclInvalidUsage);
    settle(comm);
    CHECK(ncclCommDestroy(comm) == ncclInvalidUsage);  // not finalized
    void* handle = nullptr;
    CHECK(ncclCommRegister(comm, x.data(), 8, &handle) == ncclSuccess);
    CHECK(ncclCommRegister(comm, x.data(), 8, &handle) == ncclInvalidUsage);
    CHECK(software_gpu::is_registered(comm, x.data() + 1));
  });
}

TEST_CASE("the twin of NCCL finds two ranks on one GPU") {
  software_gpu::set_gpus(1);
  ncclUniqueId id{};
  ncclGetUniqueId(&id);
  ncclComm_t both[2] = {};
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  for (int r : {0, 1}) CHECK(ncclCommInitRankConfig(&both[r], 2, id, r, &config) == ncclInProgress);
  for (ncclComm_t comm : both) {
    ncclResult_t state = ncclSuccess;
    CHECK(ncclCommGetAsyncError(comm, &state) == ncclSuccess);
    CHECK(state == ncclInvalidUsage);
    CHECK(std::string(ncclGetLastError(comm)) == "Duplicate GPU detected");
    ncclCommAbort(comm);
  }
}
