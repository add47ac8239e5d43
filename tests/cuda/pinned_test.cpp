// SPDX-License-Identifier: Apache-2.0
// Copies between the host and a GPU through pinned memory; what the twin of cudaMemcpyAsync finds is planted.
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/cuda_memory.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using doctest::Contains;
using laws::DeviceArray;

namespace {

std::byte* bytes_of(const DeviceArray<int>& x) {
  return reinterpret_cast<std::byte*>(x.data());
}

/// Elements on the device, as the memory's own copies to the host give them.
std::vector<int> read(CudaMemory& on, const DeviceArray<int>& x) {
  std::vector<int> host(static_cast<std::size_t>(x.size()));
  on.to_host(host.data(), bytes_of(x), x.size() * 4);
  return host;
}

std::vector<int> counted(Size count, int first) {
  std::vector<int> numbers(static_cast<std::size_t>(count));
  for (int& x : numbers) x = first++;
  return numbers;
}

constexpr Size more_than_a_piece = PinnedCopies::piece_bytes / 4 + 1000;

}  // namespace

TEST_CASE("copies of every size come whole, and the host's elements may change as soon as a call returns") {
  CudaMemory on;
  for (const Size count : {Size{1}, Size{1024}, PinnedCopies::piece_bytes / 4, more_than_a_piece}) {
    CAPTURE(count);
    const DeviceArray<int> x(count), y(count);
    const auto expected = counted(count, 5), others = counted(count, -7);
    auto host = expected;
    on.from_host(bytes_of(x), host.data(), count * 4);
    host = others;
    on.from_host(bytes_of(y), host.data(), count * 4);
    host.assign(host.size(), 0);
    CHECK(read(on, x) == expected);
    CHECK(read(on, y) == others);
    CHECK(on.pinned().source().held() <= PinnedCopies::most_bytes);
  }
  CHECK(on.pinned().pool().live() == 0);  // all copies ran before the last wait
  CHECK(on.pinned().source().held() > PinnedCopies::piece_bytes);
}

TEST_CASE("a tensor's elements are written to and read from pinned memory, or from the heap if they are many") {
  CudaMemory on;
  Pool pool(0, &on);
  for (const Size count : {Size{0}, Size{3}, more_than_a_piece}) {
    CAPTURE(count);
    const Size before = on.pinned().pool().live();
    const Storage<Pool> memory(pool, std::max<Size>(4 * count, 4), Category::data, "test");
    Cuda::write(pool, memory.element<int>(0), count, [&](int* to) {
      CHECK((on.pinned().pool().live() > before) == (count < more_than_a_piece));
      for (Size i = 0; i < count; ++i) to[i] = static_cast<int>(i) + 1;
    });
    Cuda::read(pool, static_cast<const int*>(memory.element<int>(0)), count, [&](const int* from) {
      CHECK((on.pinned().pool().live() > 0) == (count < more_than_a_piece));
      Size wrong = 0;
      for (Size i = 0; i < count; ++i) wrong += from[i] != static_cast<int>(i) + 1;
      CHECK(wrong == 0);
    });
    CHECK(on.pinned().pool().live() == 0);
  }
}

TEST_CASE("pinned memory has the Pool's limit, its map and its failing requests, and copies beyond the limit wait") {
  CudaMemory on;
  Pool& pinned = on.pinned().pool();
  pinned.set_limit(16_KiB);
  const DeviceArray<int> x(1024);
  for (int i = 0; i < 20; ++i) on.from_host(bytes_of(x), counted(1024, i).data(), 4096);
  CHECK(pinned.peak() >= 8_KiB);  // more, if no copy has run by then
  CHECK(pinned.peak() <= 16_KiB);
  CHECK(pinned.peak_by_category()[Category::data] == pinned.peak());
  CHECK(read(on, x) == counted(1024, 19));
  const auto host = counted(8192, 0);
  const DeviceArray<int> large(8192);
  CHECK_THROWS_WITH_AS(on.from_host(bytes_of(large), host.data(), 32768), Contains("of a limit of 16.0 KiB"), Error);
  pinned.fail_nth_request(1);  // once more after the copies under way
  on.from_host(bytes_of(x), host.data(), 4096);
  CHECK(read(on, x) == counted(1024, 0));
}

#if !DSPP_HAS_NVCC()
namespace {
/// A stream that goes on when `open` is set.
void close(cudaStream_t stream, const bool& open) {
  software_gpu::issue_when(
      stream, [&open] { return open; }, [] {});
}
}  // namespace

TEST_CASE("the host goes on after a copy from it, whatever its stream waits for") {
  CudaMemory on;
  const DeviceArray<int> x(1024), large(more_than_a_piece);
  bool open = false;
  close(gpu::stream_of(on), open);
  on.from_host(bytes_of(x), counted(1024, 3).data(), 4096);
  on.from_host(bytes_of(large), counted(more_than_a_piece, 4).data(), 4 * more_than_a_piece);
  CHECK(on.pinned().pool().live() > 4 * more_than_a_piece);  // the copies are under way
  open = true;
  CHECK(read(on, x) == counted(1024, 3));
  CHECK(read(on, large) == counted(more_than_a_piece, 4));
}

TEST_CASE("where half of the limit is in use, buffers whose copies ran serve again without a wait") {
  CudaMemory on;
  on.pinned().pool().set_limit(8_KiB);
  const DeviceArray<int> x(1024);
  const auto host = counted(1024, 0);
  on.from_host(bytes_of(x), host.data(), 4096);
  laws::check_cuda(cudaDeviceSynchronize());  // not the memory's own wait
  for (int i = 0; i < 3; ++i) {
    on.from_host(bytes_of(x), host.data(), 4096);
    laws::check_cuda(cudaDeviceSynchronize());
  }
  CHECK(on.pinned().pool().peak() == 4096);
}

TEST_CASE("buffers of all sizes are kept: copies that take turns call CUDA for no more memory") {
  CudaMemory on;
  const DeviceArray<int> x(512 * 1024);
  const auto host = counted(512 * 1024, 0);
  const auto calls_of = [&](std::initializer_list<Size> sizes) {
    software_gpu::fail_call(0);
    for (const Size bytes : sizes) {
      on.from_host(bytes_of(x), host.data(), bytes);
      on.synchronize();
    }
    return software_gpu::fail_call(0);
  };
  calls_of({2_MiB, 1_MiB, 4096});
  CHECK(on.pinned().source().held() == 3_MiB + 4096);
  const int of_one = calls_of({2_MiB});
  for (int i = 0; i < 3; ++i) CHECK(calls_of({1_MiB, 2_MiB, 4096, 2_MiB}) == 4 * of_one);
  CHECK(on.pinned().source().held() == 3_MiB + 4096);
}

TEST_CASE("of more sizes than the limit has room for, the largest that are kept are freed first") {
  PinnedMemory memory(10000);
  std::byte *const small = memory.take(1000), *const large = memory.take(8000);
  memory.give(small, 1000);
  memory.give(large, 8000);
  std::byte* const other = memory.take(2000);
  CHECK(memory.held() == 3000);
  CHECK(memory.take(1000) == small);
  memory.give(small, 1000);
  memory.give(other, 2000);
  software_gpu::fail_call(1);  // cudaMallocHost, at first: all that are kept are freed for it
  std::byte* const third = memory.take(3000);
  CHECK(third != nullptr);
  CHECK(memory.held() == 3000);
  memory.give(third, 3000);
}

TEST_CASE("the GPU in software finds pinned memory that is used again, changed or freed before its copy ran") {
  const auto is_changed = Contains("a copy needs its pinned memory as it was when it was issued");
  const DeviceArray<int> x(1024), y(1024);
  {
    CudaMemory on;
    bool open = false;
    close(gpu::stream_of(on), open);
    on.from_host(bytes_of(x), counted(1024, 3).data(), 4096);
    on.pinned().all_done();  // planted: nobody waited
    on.from_host(bytes_of(y), counted(1024, 4).data(), 4096);
    open = true;
    CHECK_THROWS_WITH_AS(on.synchronize(), is_changed, Error);
  }
  const laws::TestStream stream;
  void* memory = nullptr;
  laws::check_cuda(cudaMallocHost(&memory, 64));
  auto* const pinned = static_cast<int*>(memory);
  for (const auto kind : {cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost}) {
    CAPTURE(kind);
    const bool from_host = kind == cudaMemcpyHostToDevice;
    const auto copy = [&](const bool& open) {
      close(stream, open);
      laws::check_cuda(cudaMemcpyAsync(from_host ? x.data() : memory, from_host ? memory : x.data(), 64, kind, stream));
    };
    bool open = false;
    copy(open);
    pinned[2] += 1;
    open = true;
    CHECK_THROWS_WITH_AS(cudaStreamSynchronize(stream), is_changed, Error);
    open = false;
    copy(open);
    CHECK_THROWS_WITH_AS(cudaFreeHost(memory), Contains("needs its pinned memory until it ran, but it is freed"),
                         Error);
    open = true;
    laws::check_cuda(cudaStreamSynchronize(stream));
  }
  std::vector<int> pageable(16, 1);
  laws::check_cuda(cudaMemcpyAsync(x.data(), pageable.data(), 64, cudaMemcpyHostToDevice, stream));
  pageable.assign(16, 2);
  laws::check_cuda(cudaStreamSynchronize(stream));
  CHECK(x.read(stream)[0] == 1);
  laws::check_cuda(cudaFreeHost(memory));
}

TEST_CASE("a value in pinned memory is poison until its copy ran") {
  const laws::TestStream stream;
  const DeviceArray<int> x(std::vector<int>(16, 7));
  void* memory = nullptr;
  laws::check_cuda(cudaMallocHost(&memory, 64));
  bool open = false;
  close(stream, open);
  laws::check_cuda(cudaMemcpyAsync(memory, x.data(), 64, cudaMemcpyDeviceToHost, stream));
  CHECK(static_cast<int*>(memory)[3] == -1);
  open = true;
  laws::check_cuda(cudaStreamSynchronize(stream));
  CHECK(static_cast<int*>(memory)[3] == 7);
  laws::check_cuda(cudaFreeHost(memory));
}

namespace {
/// Of operations that go on until idle is set.
struct Busy final : CudaWatcher {
  bool idle = false;
  void wait() override { laws::check_cuda(cudaDeviceSynchronize()); }
  bool is_idle() noexcept override { return idle; }
  void become_idle() noexcept override { idle = true; }
  void taken(std::byte*, Size) noexcept override {}
  void giving(std::byte*) noexcept override {}
};
}  // namespace

TEST_CASE("nothing pinned is freed while a watcher has operations under way") {
  const auto before = software_gpu::live().allocations;
  {
    Busy watcher;
    PinnedMemory memory(4096);
    memory.watch(&watcher);
    memory.give(memory.take(4096), 4096);
    memory.give(memory.take(1000), 1000);
    CHECK(memory.held() == 5096);
    CHECK(software_gpu::live().allocations == before + 2);
    memory.trim();
    CHECK(memory.held() == 5096);
    watcher.idle = true;
    memory.trim();
    CHECK(memory.held() == 1000);
    memory.give(memory.take(4000), 4000);
    CHECK(memory.held() == 4000);
    memory.watch(nullptr);
  }
  CHECK(software_gpu::live().allocations == before);
}

TEST_CASE("what a watched memory pins beyond its bound is freed at the first wait with nothing under way") {
  CudaMemory on;
  Busy watcher;
  on.watch(&watcher);
  const DeviceArray<int> x(1024 * 1024);
  const auto host = counted(1024 * 1024, 0);
  for (const Size bytes : {4_MiB, 2_MiB}) {
    for (int i = 0; i < 20; ++i) on.from_host(bytes_of(x), host.data(), bytes);
    on.synchronize();
  }
  const Size held = on.pinned().source().held();
  CHECK(held > PinnedCopies::most_bytes);
  on.synchronize();
  CHECK(on.pinned().source().held() == held);
  watcher.idle = true;
  on.synchronize();
  CHECK(on.pinned().source().held() <= PinnedCopies::most_bytes);
  on.watch(nullptr);
}
#endif
