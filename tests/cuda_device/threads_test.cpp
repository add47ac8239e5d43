// SPDX-License-Identifier: Apache-2.0
// Collectives of ranks that are threads and share the GPU.
// labels: cuda
#include <kernels/cuda_threads.cuh>

#include <atomic>
#include <thread>

#include <dspp/tensor/tensor.hpp>

#include <laws/communicator.hpp>
#include <laws/device_array.hpp>
#include <laws/device_schedules.hpp>
#include <laws/random_program.hpp>
#include <laws/through_device.hpp>
#include <laws/worlds.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <SumOrder Order>
struct SharedGpu {
  static constexpr Size most_elements = 3001;  // no tiles here
  template <class F>
  static void run(int ranks, F f) {
    const ThreadGroup group(ranks, {.timeout_seconds = 60, .sum_order = Order});
    run_ranks(group, [&](int rank) {
      CudaMemory memory;
      AnyCommunicator on_gpu(group.communicator(rank).on_device(cuda_share(memory)));
      AnyCommunicator c(ThroughDevice(on_gpu, memory));
      f(c);
    });
  }
};

}  // namespace

TEST_CASE("collectives on a GPU obey the laws of a communicator, in either order of sums") {
  for (int ranks : {1, 3}) check_communicator_laws<RecordedWorld<SharedGpu<SumOrder::rank>>>(ranks);
  check_communicator_laws<RecordedWorld<SharedGpu<SumOrder::transport>>>(3);
  check_random_programs<SharedGpu<SumOrder::rank>>(3, 60);
}

namespace {

constexpr Size part = 300;  // elements

/// to[i] = value + i % 7
struct WriteKernel {
  float* to;
  float value;
  __device__ void operator()(Size i) const { to[i] = value + static_cast<float>(i % 7); }
};
struct KeepKernel {
  float* to;
  const float* from;
  __device__ void operator()(Size i) const { to[i] = from[i]; }
};

/// What a rank finds after operations between which its stream writes, reads and overwrites their memory.
struct Chain {
  CudaMemory memory;
  Threads c;
  cudaStream_t stream = gpu::stream_of(memory);
  DeviceArray<float> a{3 * part}, b{3 * part}, d{part}, e{3 * part}, x{part}, seen{8 * part};

  explicit Chain(const Threads& host) : c(host.on_device(cuda_share(memory))) {}

  void write(float* to, Size count, int salt) {
    gpu::launch_each({"write"}, stream, count, WriteKernel{to, static_cast<float>(100 * salt + c.rank())});
  }
  void keep(Size at, const float* from, Size count) {
    gpu::launch_each({"keep"}, stream, count, KeepKernel{seen.data() + at * part, from});
  }
  std::vector<float> run() {
    const auto slice = buffer(b.data() + c.rank() * part, part);
    write(a, c.size() * part, 1);
    Pending<> first =
        c.start_reduce_scatter(buffer(std::as_const(a).data(), c.size() * part), slice, Purpose::gradient);
    write(d, part, 2);
    const GatherPair pairs[] = {{slice, buffer(b.data(), c.size() * part)},
                                {buffer(d.data(), part), buffer(e.data(), c.size() * part)}};
    Pending<> second = c.start_all_gather(std::span<const GatherPair>(pairs), Purpose::gradient);
    first.wait();
    keep(0, static_cast<const float*>(slice.data), part);
    write(a, c.size() * part, 3);
    second.wait();
    keep(1, b, c.size() * part);
    keep(3, e, c.size() * part);
    write(b, c.size() * part, 4), write(d, part, 5);
    write(x, part, 6);
    Pending<> third = c.start_all_reduce(buffer(x.data(), part), Purpose::gradient);
    third.wait();
    keep(5, x, part);
    write(x, part, 7);
    Pending<> fourth = c.start_broadcast(buffer(x.data(), part), 1, Purpose::parameter);
    fourth.wait();
    keep(6, x, part);
    write(x, part, 8), write(d, part, 10);
    if (c.rank() == 0)
      c.start_send(buffer(x.data(), part), 1, Purpose::activation).wait();
    else
      c.start_receive(buffer(d.data(), part), 0, Purpose::activation).wait();
    keep(7, c.rank() == 0 ? x : d, part);
    write(x, part, 9);
    return seen.read(stream);
  }
};

/// The results of both ranks when one of them leaves out its n-th wait, and the waits that it came to.
std::pair<std::vector<std::vector<float>>, int> run_chain(int leaves_out, int number) {
  const ThreadGroup group(2, {.timeout_seconds = 60});
  std::vector<std::vector<float>> found(2);
  int waits = 0;
  run_ranks(group, [&](int rank) {
    Chain chain(group.communicator(rank));
#if !DSPP_HAS_NVCC()
    if (rank == leaves_out) software_gpu::leave_out_wait(number);
#endif
    found[static_cast<std::size_t>(rank)] = chain.run();
#if !DSPP_HAS_NVCC()
    if (rank == leaves_out) waits = software_gpu::leave_out_wait(0);
#endif
  });
  return {found, waits};
}

}  // namespace

#if !DSPP_HAS_NVCC()
TEST_CASE("each wait of a stream for an event is needed: without it, some order of the streams gives other values") {
  const auto right = run_chain(0, 0).first;
  constexpr int most = 5000;  // tries: on a busy machine the ranks' threads may take the same turns for long
  for (int rank = 0; rank < 2; ++rank) {
    const int waits = run_chain(rank, 0).second;
    CHECK(waits > 15);
    for (int number = 1; number <= waits; ++number) {
      int tries = 0;
      while (++tries <= most && run_chain(rank, number).first == right) {
      }
      CAPTURE(rank);
      CAPTURE(number);
      CHECK(tries <= most);
    }
  }
}
#endif

TEST_CASE("under random schedules operations on a GPU between which their memory is written give the same") {
  const auto right = run_chain(0, 0).first;
  CHECK(right[0] != right[1]);
  under_schedules([&] {
    for (int i = 0; i < 3; ++i) CHECK(run_chain(0, 0).first == right);
    check_random_programs<SharedGpu<SumOrder::rank>>(2, 3);
  });
}

TEST_CASE("a broadcast on a GPU overwrites nothing that a rank still reads in the operation before") {
  for (int round = 0; round < 60; ++round) {
    const int late = round % 4;  // comes when the others have begun both, and waits for the first; 3: none
    std::atomic<int> begun{0};
    const ThreadGroup group(3, {.timeout_seconds = 60});
    run_ranks(group, [&](int rank) {
      CudaMemory memory;
      Threads c = group.communicator(rank).on_device(cuda_share(memory));
      const cudaStream_t stream = gpu::stream_of(memory);
      const DeviceArray<float> a(part), all(3 * part);
      gpu::launch_each({"write"}, stream, part, WriteKernel{a, static_cast<float>(100 * rank)});
      while (rank == late && begun.load() < 2) std::this_thread::yield();
      Pending<> gathered =
          c.start_all_gather(buffer(std::as_const(a).data(), part), buffer(all.data(), 3 * part), Purpose::parameter);
      if (rank == late) gathered.wait();
      Pending<> sent = c.start_broadcast(buffer(a.data(), part), 0, Purpose::parameter);
      ++begun;
      sent.wait();
      if (rank != late) gathered.wait();
      const auto values = all.read(stream);
      for (int r = 0; r < 3; ++r) CHECK(values[static_cast<std::size_t>(r * part)] == static_cast<float>(100 * r));
    });
  }
}

namespace {

/// What two ranks that share a GPU throw, if the second does something else while two operations are under way.
template <class F>
std::string sentence_of(F second) {
  const ThreadGroup group(2, {.timeout_seconds = 60});
  try {
    run_ranks(group, [&](int rank) {
      CudaMemory memory;
      Threads c = group.communicator(rank).on_device(cuda_share(memory));
      const DeviceArray<float> x(5000), y(5000);
      Pending<> first = c.start_all_reduce(buffer(x.data(), 5000), Purpose::gradient);
      if (rank == 1) return second(c, y.data());
      Pending<> other = c.start_all_reduce(buffer(y.data(), 5000), Purpose::gradient);
      first.wait();
      other.wait();
    });
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a rank that throws, ends or calls something else stops those that share its GPU, whatever is under way") {
  for (int round = 0; round < 10; ++round) {
    const std::string thrown = sentence_of([](Threads& c, float* y) {
      const Pending<> other = c.start_all_reduce(buffer(y, 5000), Purpose::gradient);
      fail(ErrorCode::usage, "dspp: rank 1 gives up. Nothing to do.");
    });
    CHECK(thrown == "dspp: rank 1 gives up. Nothing to do.");
    const std::string ended = sentence_of([](Threads&, float*) {});
    CHECK(ended.find("but rank 1 has ended") != std::string::npos);
    const std::string differs =
        sentence_of([](Threads& c, float* y) { c.start_broadcast(buffer(y, 5000), 0, Purpose::parameter).wait(); });
    CHECK(differs.find("call different collectives") != std::string::npos);
  }
}

#if !DSPP_HAS_NVCC()
namespace {

/// What each of two ranks that share a GPU has after every collective.
std::vector<std::vector<float>> exchange() {
  using Vector = Tensor<float, 1, Cuda>;
  const ThreadGroup group(2, {.timeout_seconds = 60});
  std::vector<std::vector<float>> found(2);
  run_ranks(group, [&](int rank) {
    CudaMemory memory;
    Pool pool(0, &memory);
    AnyCommunicator c(group.communicator(rank).on_device(cuda_share(memory)));
    const auto x = Vector::uninitialized(shape(8), pool), y = Vector::uninitialized(shape(4), pool),
               z = Vector::uninitialized(shape(8), pool);
    x.write([&](float* host) { std::fill_n(host, 8, static_cast<float>(1 + rank)); });
    const ConstBuffer of_x = buffer(static_cast<const float*>(x.data()), 8),
                      of_y = buffer(static_cast<const float*>(y.data()), 4);
    all_reduce(c, buffer(x.data(), 8), Purpose::gradient);
    reduce_scatter(c, of_x, buffer(y.data(), 4), Purpose::gradient);
    all_gather(c, of_y, buffer(x.data(), 8), Purpose::parameter);
    all_to_all(c, of_x, buffer(z.data(), 8), Purpose::activation);
    broadcast(c, buffer(z.data(), 8), 1, Purpose::parameter);
    if (rank == 0)
      send(c, of_y, 1, Purpose::activation);
    else
      receive(c, buffer(y.data(), 4), 0, Purpose::activation);
    for (const Vector& each : {y, z})
      each.read([&](const float* host) {
        found[static_cast<std::size_t>(rank)].insert(found[static_cast<std::size_t>(rank)].end(), host,
                                                     host + each.count());
      });
  });
  return found;
}

}  // namespace

TEST_CASE("whichever CUDA call of ranks that share a GPU fails, both end with a sentence and leave nothing") {
  const auto before = software_gpu::live();
  software_gpu::fail_call(0);
  const auto expected = exchange();
  CHECK(expected[0] == std::vector<float>(12, 6));
  const int calls = software_gpu::fail_call(0);
  CHECK(calls > 100);
  int thrown = 0;
  for (int n = 1; n <= calls; ++n) {
    std::string sentence;
    software_gpu::fail_call(n);
    try {
      CHECK(exchange() == expected);
    } catch (const Error& error) {
      sentence = error.what();
      ++thrown;
      CHECK(sentence.rfind("dspp: ", 0) == 0);
    }
    software_gpu::fail_call(0);
    INFO("call ", n, ", ", software_gpu::failed_call(), ": ", sentence);
    CHECK(software_gpu::live() == before);
  }
  CHECK(thrown > calls * 9 / 10);
  CHECK(exchange() == expected);
}
#endif

TEST_CASE("collectives on a GPU have the bits of thread ranks on the Cpu") {
  for (const SumOrder order : {SumOrder::rank, SumOrder::transport}) {
    const ThreadGroup group(3, {.timeout_seconds = 60, .sum_order = order});
    run_ranks(group, [&](int rank) {
      CudaMemory memory;
      Threads on_host = group.communicator(rank);
      ThroughDevice on_gpu(AnyCommunicator(on_host.on_device(cuda_share(memory))), memory);
      std::vector<bf16> x = contributions<bf16>(rank, 1003), y = x, sum(501), as(501);
      all_reduce(on_host, all_of(x), Purpose::gradient);
      all_reduce(on_gpu, all_of(y), Purpose::gradient);
      CHECK(same_bits(x, y));
      x.resize(1503), y.resize(1503);
      reduce_scatter(on_host, all_of(std::as_const(x)), all_of(sum), Purpose::gradient);
      reduce_scatter(on_gpu, all_of(std::as_const(x)), all_of(as), Purpose::gradient);
      CHECK(same_bits(sum, as));
    });
  }
}
