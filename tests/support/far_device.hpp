// SPDX-License-Identifier: Apache-2.0
/// A software device as asynchronous as a GPU: the host cannot access its memory, and operations run late.
///
/// Every rank has a memory region whose pages are accessible only while its queue runs or a collective reads it: a host
/// access ends the process with a sentence. The whole queue runs inside its owner's waits only; a collective runs after
/// everything issued before the wait for it, so that reading its result early, or overwriting its input, yields poison.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <dspp/comm/any_communicator.hpp>
#include <dspp/launch/device_rank.hpp>
#include <dspp/ops.hpp>
#include <dspp/placement/policy.hpp>

namespace dspp {

/// The memory of one rank's far device, and the operations queued there. Used by the rank's thread only.
class FarMemory final : public MemorySource {
 public:
  static constexpr Size region_bytes = 256_MiB;

  FarMemory();
  ~FarMemory() override;
  FarMemory(const FarMemory&) = delete;
  FarMemory& operator=(const FarMemory&) = delete;

  std::byte* take(Size bytes) noexcept override;
  void give(std::byte* data, Size bytes) noexcept override { free_[bytes].push_back(data); }
  void fill(std::byte* data, Size bytes, unsigned char value) noexcept override {
    issue([=] { std::memset(data, value, static_cast<std::size_t>(bytes)); });
  }

  template <class Work>
  void issue(Work work) {
    queue_.emplace_back(std::move(work));
  }
  /// Runs the queue, then work() with the region open. An exception drops the rest of the queue.
  template <class Work>
  void run_with(Work work) {
    const Open open(*this);
    work();
  }
  /// The same, because the host needs a value.
  template <class Work>
  void wait(Work work) {
    ++waits_;
    run_with(work);
  }
  bool holds(const void* data, Size bytes) const {
    const auto* at = static_cast<const std::byte*>(data);
    return bytes == 0 || (at >= base_ && at + bytes <= base_ + region_bytes);
  }
  /// The number of times that the host waited for a value.
  Size waits() const { return waits_; }

 private:
  /// The region is open while it lives, after running the queue.
  class Open {
   public:
    explicit Open(FarMemory& memory) : memory_(memory) {
      memory_.protect(PROT_READ | PROT_WRITE);
      try {
        memory_.run_queue();
      } catch (...) {
        memory_.protect(PROT_NONE);
        throw;
      }
    }
    ~Open() { memory_.protect(PROT_NONE); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    FarMemory& memory_;
  };

  void run_queue() {
    std::deque<std::function<void()>> queue = std::exchange(queue_, {});
    for (auto& work : queue) work();
  }
  void protect(int access) {
    if (::mprotect(base_, static_cast<std::size_t>(region_bytes), access) != 0) std::abort();
  }

  std::byte* base_;
  Size used_ = 0, waits_ = 0;
  std::map<Size, std::vector<std::byte*>> free_;
  std::deque<std::function<void()>> queue_;
};

namespace far_device {

/// A deferred kernel, with copies of its arguments.
template <class Name>
struct Later {
  template <class... Arguments>
  static auto of(const Arguments&... arguments) {
    return [... kept = arguments] { Kernel<Name, Cpu>::run(kept...); };
  }
};
/// Kernels that take functions over the host's own lists: the functions' current results are copied.
template <class O, class T, class G, class S>
struct Later<kernels::Update<O, T, G, S>> {
  template <class Ranges>
  static auto of(const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars, const double* step) {
    std::vector<std::pair<FlatRange<T, G, S>, RangeSettings>> list;
    ranges([&](const FlatRange<T, G, S>& range, const RangeSettings& settings) { list.emplace_back(range, settings); });
    return [optimizer, scalars, step, list = std::move(list)] {
      const auto again = [&](auto f) {
        for (const auto& [range, settings] : list) f(range, settings);
      };
      Kernel<kernels::Update<O, T, G, S>, Cpu>::run(optimizer, again, scalars, step);
    };
  }
};
/// The same with another argument, such as a pointer to numbers of the device.
template <class Name, class Range, class More>
struct LaterWith {
  template <class O, class Ranges>
  static auto of(const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars, const double* step) {
    std::vector<std::tuple<Range, RangeSettings, More>> list;
    ranges([&](const Range& range, const RangeSettings& settings, const More& more) {
      list.emplace_back(range, settings, more);
    });
    return [optimizer, scalars, step, list = std::move(list)] {
      const auto again = [&](auto f) {
        for (const auto& [range, settings, more] : list) f(range, settings, more);
      };
      Kernel<Name, Cpu>::run(optimizer, again, scalars, step);
    };
  }
};
template <class O, class T, class G, class S>
struct Later<kernels::AddUpdateSquares<O, T, G, S>>
    : LaterWith<kernels::AddUpdateSquares<O, T, G, S>, FlatRange<T, G, S>, double*> {};
template <class O, class T, class G, class S>
struct Later<kernels::UpdateByNorms<O, T, G, S>>
    : LaterWith<kernels::UpdateByNorms<O, T, G, S>, FlatRange<T, G, S>, const double*> {};
template <class O, class T, class G, class S>
struct Later<kernels::MatrixDirections<O, T, G, S>>
    : LaterWith<kernels::MatrixDirections<O, T, G, S>, FlatRange<T, G, S>, S*> {};
template <class O, class T, class S>
struct Later<kernels::UpdateMatrices<O, T, S>>
    : LaterWith<kernels::UpdateMatrices<O, T, S>, FlatRange<T, S, S>, MatrixShape> {};
template <>
struct Later<kernels::AddPairs> {
  template <class Ranges>
  static auto of(const Ranges& ranges) {
    std::vector<std::tuple<Size, Size, const double*, double*>> list;
    ranges([&](Size count, Size stride, const double* parts, double* sums) {
      list.emplace_back(count, stride, parts, sums);
    });
    return [list = std::move(list)] {
      Kernel<kernels::AddPairs, Cpu>::run([&](auto f) {
        for (const auto& [count, stride, parts, sums] : list) f(count, stride, parts, sums);
      });
    };
  }
};
template <class T>
struct Later<kernels::AddSquares<T>> {
  template <class Ranges>
  static auto of(const Ranges& ranges) {
    std::vector<std::tuple<Size, const T*, double*>> list;
    ranges([&](Size count, const T* x, double* sum) { list.emplace_back(count, x, sum); });
    return [list = std::move(list)] {
      Kernel<kernels::AddSquares<T>, Cpu>::run([&](auto f) {
        for (const auto& [count, x, sum] : list) f(count, x, sum);
      });
    };
  }
};

inline FarMemory& of(Pool& pool) {
  return static_cast<FarMemory&>(*pool.source());
}
/// The number of times that the host waited for a value of that memory; 0 if it is the host's own.
inline Size waits(Pool& pool) {
  const auto* memory = dynamic_cast<FarMemory*>(pool.source());
  return memory ? memory->waits() : 0;
}

}  // namespace far_device

struct Far {
  static constexpr bool real = true;
  static constexpr bool synchronous = false;
  using Memory = Pool;
  using Imitated = Cpu;

  template <class T>
  static void fill(Pool& pool, T* y, Size count, T value) {
    far_device::of(pool).issue([=] { std::fill_n(y, count, value); });
  }
  static void zero(Pool& pool, std::byte* to, Size bytes) { far_device::of(pool).fill(to, bytes, 0); }
  static void copy(Pool& pool, std::byte* to, const std::byte* from, Size bytes) {
    far_device::of(pool).issue([=] { std::memcpy(to, from, static_cast<std::size_t>(bytes)); });
  }
  template <class T>
  static void to_host(Pool& pool, T* host, const T* x, Size count) {
    far_device::of(pool).wait([&] { std::copy_n(x, count, host); });
  }
  template <class T>
  static void from_host(Pool& pool, T* x, const T* host, Size count) {
    far_device::of(pool).issue([x, kept = std::vector<T>(host, host + count)] { std::ranges::copy(kept, x); });
  }
  template <class T, class F>
  static void read(Pool& pool, const T* x, Size count, F f) {
    const auto room = std::make_unique_for_overwrite<T[]>(static_cast<std::size_t>(count));
    to_host(pool, room.get(), x, count);
    f(static_cast<const T*>(room.get()));
  }
  template <class T, class F>
  static void write(Pool& pool, T* x, Size count, F f) {
    std::shared_ptr<T[]> room(new T[static_cast<std::size_t>(count)]);
    std::memset(static_cast<void*>(room.get()), 0xFF, static_cast<std::size_t>(count) * sizeof(T));  // f writes all
    f(room.get());
    far_device::of(pool).issue([=] { std::copy_n(room.get(), count, x); });
  }
  template <class Name, class... Arguments>
  static void launch(Pool& pool, const Arguments&... arguments) {
    far_device::of(pool).issue(far_device::Later<Name>::of(arguments...));
  }
  template <class Name, class... Arguments>
  static auto ask(Pool& pool, const Arguments&... arguments) {
    decltype(Kernel<Name, Cpu>::run(arguments...)) value{};
    far_device::of(pool).wait([&] { value = Kernel<Name, Cpu>::run(arguments...); });
    return value;
  }
};

/// A communicator of the far device: an operation begins when the host waits for it, and refuses other memory.
class FarCommunicator {
 public:
  FarCommunicator(AnyCommunicator inner, FarMemory& memory) : inner_(std::move(inner)), memory_(&memory) {}

  int rank() const { return inner_.rank(); }
  int size() const { return inner_.size(); }
  SumOrder sum_order() const { return inner_.sum_order(); }
  const Traffic& traffic() const { return inner_.traffic(); }
  void barrier(CallSite site = CallSite::here()) { inner_.barrier(site); }

  Pending<> start_all_reduce(Buffer x, PurposeAt p) {
    return start({x}, [=, this] { return inner_.start_all_reduce(x, p); });
  }
  Pending<> start_reduce_scatter(ConstBuffer a, Buffer y, PurposeAt p) {
    return start({a, y}, [=, this] { return inner_.start_reduce_scatter(a, y, p); });
  }
  Pending<> start_all_gather(ConstBuffer a, Buffer y, PurposeAt p) {
    return start({a, y}, [=, this] { return inner_.start_all_gather(a, y, p); });
  }
  Pending<> start_all_to_all(ConstBuffer a, Buffer y, const PartCounts& parts, PurposeAt p) {
    return start({a, y}, [=, this, sent = std::vector<Size>(parts.sent.begin(), parts.sent.end()),
                          received = std::vector<Size>(parts.received.begin(), parts.received.end())] {
      return inner_.start_all_to_all(a, y, {sent, received}, p);
    });
  }
  Pending<> start_broadcast(Buffer x, int root, PurposeAt p) {
    return start({x}, [=, this] { return inner_.start_broadcast(x, root, p); });
  }
  Pending<> start_send(ConstBuffer a, int to, PurposeAt p) {
    return start({a}, [=, this] { return inner_.start_send(a, to, p); });
  }
  Pending<> start_receive(Buffer y, int from, PurposeAt p) {
    return start({y}, [=, this] { return inner_.start_receive(y, from, p); });
  }
  Pending<> start_reduce_scatter(std::span<const ScatterPair> pairs, PurposeAt p) {
    return start_pairs(pairs, p, [this](const auto& kept, PurposeAt q) {
      return inner_.start_reduce_scatter(std::span<const ScatterPair>(kept), q);
    });
  }
  Pending<> start_all_gather(std::span<const GatherPair> pairs, PurposeAt p) {
    return start_pairs(pairs, p, [this](const auto& kept, PurposeAt q) {
      return inner_.start_all_gather(std::span<const GatherPair>(kept), q);
    });
  }

 private:
  struct Operation {
    std::uint64_t ticket;
    std::function<Pending<>()> begin;
  };

  template <class Begin>
  Pending<> start(std::initializer_list<ConstBuffer> buffers, Begin begin) {
    for (const ConstBuffer& b : buffers)
      if (!memory_->holds(b.data, b.bytes()))
        fail(ErrorCode::usage,
             "dspp: a collective of a far device needs memory of this rank's device, but got other memory. Use a "
             "tensor, or world.host() for what lies on the host.");
    waiting_.push_back({++tickets_, std::move(begin)});
    static constexpr detail::Completion completion{
        [](void* who, std::uint64_t ticket) { static_cast<FarCommunicator*>(who)->complete(ticket); },
        [](void* who, std::uint64_t ticket) noexcept { static_cast<FarCommunicator*>(who)->drop(ticket); }};
    return Pending<>(&completion, this, tickets_);
  }
  template <class Pair, class Begin>
  Pending<> start_pairs(std::span<const Pair> pairs, PurposeAt p, Begin begin) {
    std::vector<Pair> kept(pairs.begin(), pairs.end());
    for (const Pair& pair : kept)
      if (!memory_->holds(pair.in.data, pair.in.bytes()) || !memory_->holds(pair.out.data, pair.out.bytes()))
        fail(ErrorCode::usage, "dspp: a collective of a far device needs memory of this rank's device. Use tensors.");
    return start({}, [kept = std::move(kept), p, begin] { return begin(kept, p); });
  }
  /// Runs the queue, then the operations up to that one, in order.
  void complete(std::uint64_t ticket) {
    memory_->run_with([&] {
      while (!waiting_.empty() && waiting_.front().ticket <= ticket) {
        const Operation operation = std::move(waiting_.front());
        waiting_.pop_front();
        operation.begin().wait();
      }
    });
  }
  void drop(std::uint64_t ticket) noexcept {
    if (std::uncaught_exceptions() > 0) {
      std::erase_if(waiting_, [&](const Operation& operation) { return operation.ticket == ticket; });
      return;
    }
    try {
      complete(ticket);
    } catch (...) {  // the group has failed and throws the error to the next caller
    }
  }

  AnyCommunicator inner_;
  FarMemory* memory_;
  std::deque<Operation> waiting_;
  std::uint64_t tickets_ = 0;
};

template <>
struct DeviceRank<Far> {
  FarMemory memory;
  Pool pool;
  AnyCommunicator host;

  DeviceRank(Size limit_bytes, const RankGroups& groups) : pool(limit_bytes, &memory), host(groups.world) {
    pool.poison(true);
  }
  Groups<Far> groups(const RankGroups& of_host) {
    const auto far = [&](const AnyCommunicator& group) { return AnyCommunicator(FarCommunicator(group, memory)); };
    Groups<Far> groups{far(of_host.world), far(of_host.replicas)};
    for (Axis axis : all_axes) groups.along[axis] = far(of_host[axis]);
    groups.node_replicas = far(of_host.node_replicas);
    groups.across_nodes = far(of_host.across_nodes);
    return groups;
  }
  AnyCommunicator* host_group() { return &host; }
  void end() {
    memory.wait([] {});
  }
};

namespace detail {
/// As on paper: the ZeRO stage and the gradients' type are given to the engine as values, and models are fewer.
template <class... Members>
struct Rebind<Strategy<Members...>, Far> {
  using type = strategy_on_paper<Strategy<Members...>, Far>;
};
}  // namespace detail

// ---------------------------------------------------------------------------------------------------------------------

namespace far_device {

/// The regions of all ranks, for the SIGSEGV handler.
struct Regions {
  std::mutex lock;
  std::vector<const std::byte*> bases;

  static Regions& all() {
    static Regions regions;
    return regions;
  }
};

inline void on_fault(int, siginfo_t* info, void*) {
  const auto* at = static_cast<const std::byte*>(info->si_addr);
  for (const std::byte* base : Regions::all().bases)
    if (at >= base && at < base + FarMemory::region_bytes) {
      constexpr char sentence[] = "far device: the host touched its memory\n";
      [[maybe_unused]] const auto written = ::write(2, sentence, sizeof sentence - 1);
      ::_exit(3);
    }
  ::signal(SIGSEGV, SIG_DFL);
}

}  // namespace far_device

inline FarMemory::FarMemory()
    : base_(static_cast<std::byte*>(::mmap(nullptr, static_cast<std::size_t>(region_bytes), PROT_NONE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
  // Large pages where the system has them: opening and closing the region walks over what was touched.
  ::madvise(base_, static_cast<std::size_t>(region_bytes), MADV_HUGEPAGE);
  auto& regions = far_device::Regions::all();
  const std::lock_guard guard(regions.lock);
  regions.bases.push_back(base_);
  struct sigaction action {};
  action.sa_sigaction = far_device::on_fault;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGSEGV, &action, nullptr);
}

inline FarMemory::~FarMemory() {
  auto& regions = far_device::Regions::all();
  const std::lock_guard guard(regions.lock);
  std::erase(regions.bases, base_);
  ::munmap(base_, static_cast<std::size_t>(region_bytes));
}

inline std::byte* FarMemory::take(Size bytes) noexcept {
  if (auto& kept = free_[bytes]; !kept.empty()) {
    std::byte* const data = kept.back();
    kept.pop_back();
    return data;
  }
  const Size size = round_up(bytes, block_alignment);
  if (used_ + size > region_bytes) return nullptr;
  return base_ + std::exchange(used_, used_ + size);
}

}  // namespace dspp
