// SPDX-License-Identifier: Apache-2.0
// NCCL's collectives whose calls ranks announce by TCP: in software, where NCCL's twin lives in one process, on threads
// that are TCP ranks with a GPU each; of processes what they do before NCCL connects them.
// labels: cuda
#include <kernels/cuda_memory.cuh>
#include <kernels/nccl.cuh>

#include <thread>

#include <laws/communicator.hpp>
#include <laws/device_communicator.hpp>
#include <laws/random_program.hpp>
#include <laws/tcp_processes.hpp>

#if !DSPP_HAS_NVCC()
using namespace dspp;
using namespace dspp::laws;

namespace {

/// f(rank, groups) for each TCP rank of a mesh, and what each threw.
template <class F>
std::vector<std::string> on_nccl_tcp_ranks(const Mesh& mesh, F f, double timeout_seconds = 60) {
  const int ranks = mesh.world_size();
  software_gpu::set_gpus(ranks);
  const HeldPort port;
  std::vector<std::string> said(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] {
        TcpWorld world(mesh, {.rank = r, .size = ranks, .port = port.port()}, timeout_seconds);
        try {
          NcclRank own(0, world.groups());
          Groups<Cuda> groups = own.groups(world.groups());
          f(own, groups);
        } catch (const Error& error) {
          said[static_cast<std::size_t>(r)] = error.what();
          world.abort(error);
        }
        world.end(5);
      });
  }
  software_gpu::set_gpus(1);
  CHECK(software_gpu::live_nccl_communicators() == 0);
  return said;
}

struct NcclOverTcp {
  static constexpr Size most_elements = 3001;
  template <class F>
  static void run(int ranks, F f) {
    const auto said = on_nccl_tcp_ranks(Mesh(Degrees{.data = ranks}), [&](NcclRank& own, Groups<Cuda>& groups) {
      AnyCommunicator c(OnDevice(groups.world, own.pool));
      f(c);
    });
    for (const std::string& one : said) CHECK(one.empty());
  }
};

struct NcclSubgroupsOverTcp {
  template <class F>
  static void run(int ranks, F f) {
    const auto said =
        on_nccl_tcp_ranks(Mesh(Degrees{.data = ranks, .tp = 2}), [&](NcclRank& own, Groups<Cuda>& groups) {
          AnyCommunicator c(OnDevice(groups.along[Axis::Data], own.pool));
          f(c);
        });
    for (const std::string& one : said) CHECK(one.empty());
  }
};

using Vector = Tensor<float, 1, Cuda>;

float first_of(const Vector& x) {
  float value = 0;
  x.read([&](const float* host) { value = host[0]; });
  return value;
}

}  // namespace

TEST_CASE("NCCL's collectives between TCP ranks obey the laws of a communicator") {
  for (int ranks : {2, 3}) {
    check_sums_of<float, RecordedWorld<NcclOverTcp>>(ranks);
    check_copies_of<bf16, RecordedWorld<NcclOverTcp>>(ranks);
  }
}

TEST_CASE("random programs run on NCCL's communicators of TCP ranks, of all ranks and of parts") {
  check_random_programs<NcclOverTcp>(3, 10);
  check_random_programs<NcclSubgroupsOverTcp>(2, 10);
}

TEST_CASE("TCP ranks that call different collectives of NCCL, end or throw are named, and none waits for ever") {
  const auto all = [](auto odd) {
    return on_nccl_tcp_ranks(Mesh(Degrees{.data = 3}), [&](NcclRank& own, Groups<Cuda>& groups) {
      const auto x = Vector::uninitialized(shape(Size{30}), own.pool);
      x.fill(1);
      if (groups.world.rank() == 1) return odd(groups.world, x);
      all_reduce(groups.world, buffer(x.data(), 30), Purpose::gradient);
      first_of(x);
    });
  };
  const auto check = [](const std::vector<std::string>& said, const std::string& what) {
    for (const int r : {0, 2}) {
      INFO(said[static_cast<std::size_t>(r)]);
      CHECK(said[static_cast<std::size_t>(r)].find(what) != std::string::npos);
    }
  };
  check(all([](AnyCommunicator& c, const Vector& x) {
          all_reduce(c, buffer(x.data(), 20), Purpose::gradient);
          first_of(x);
        }),
        "rank 1 calls all_reduce(f32 x 20)");
  check(all([](AnyCommunicator&, const Vector&) {}), "rank 1 calls barrier");
  check(all([](AnyCommunicator&, const Vector&) { fail(ErrorCode::usage, "dspp: rank 1 gives up. Nothing to do."); }),
        "rank 1 failed: dspp: rank 1 gives up. Nothing to do.");
}

TEST_CASE("TCP ranks on unlike GPUs are one sentence on each, before NCCL connects them") {
  software_gpu::set_gpu_kind(1, {"NVIDIA A100-SXM4-40GB", 8, 0});
  const auto said = on_nccl_tcp_ranks(Mesh(Degrees{.data = 3}), [](NcclRank&, Groups<Cuda>&) {});
  software_gpu::set_gpu_kind(1, {});
  for (const std::string& one : said)
    CHECK(one.find("and rank 1 NVIDIA A100-SXM4-40GB of compute capability 8.0 with 2 multiprocessors. Choose them by "
                   "CUDA_VISIBLE_DEVICES") != std::string::npos);
}

TEST_CASE("processes exchange NCCL's id by TCP, and each joins with that of rank 0 and its own GPU") {
  ncclUniqueId before{};
  REQUIRE(ncclGetUniqueId(&before) == ncclSuccess);
  std::uint64_t number = 0;
  std::memcpy(&number, before.internal, sizeof number);
  const auto all = on_tcp_ranks(
      Mesh(Degrees{.data = 3}),
      [&](TcpWorld& world) {
        software_gpu::set_gpus(3);
        ncclUniqueId id{};
        for (int i = 0; i < 5 * world.rank(); ++i) CHECK(ncclGetUniqueId(&id) == ncclSuccess);  // others than rank 0's
        std::string said;
        try {
          NcclRank own(0, world.groups());
          CHECK(own.thread.gpu() == world.rank());
          own.groups(world.groups());
        } catch (const Error& error) {
          said = error.what();
        }
        CHECK(software_gpu::joined_nccl_id() == number + 1);
        // The twin of each process waits for ranks of this process: here it ends.
        CHECK(said.find("in a communicator of the world") + said.find("failed: ") != 2 * std::string::npos);
      },
      0.5);
  for (const EndedProcess& one : all) CHECK(one.status == 0);
}

#endif
