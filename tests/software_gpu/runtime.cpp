// SPDX-License-Identifier: Apache-2.0
#include <software_gpu/runtime.hpp>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>

#include <software_gpu/graphs.hpp>

namespace dspp::software_gpu {

struct Event {};

namespace {
/// One record of an event.
struct Moment {
  bool came = false;
  double at = 0;
};
struct Item {
  std::function<void()> work;
  std::shared_ptr<Moment> records, waits;
  std::function<bool()> may{};
  double product = 0, message = 0, issued = 0;  // seconds
};
}  // namespace

struct Stream {
  std::deque<Item> queue;
  unsigned rank = random_below(1000);  // among the streams, while they run in an order of ranks
  int gpu = 0;
  double time = 0;
};

namespace {

constexpr std::size_t page = 4096, arena_bytes = std::size_t{1} << 34;
constexpr unsigned char poison = 0xff, guard = 0xa5;  // 0xffff and 0xffffffff are NaN
constexpr std::size_t round_to_page(std::size_t bytes) {
  return (bytes + page - 1) / page * page;
}

struct Device {
  char* base = nullptr;
  std::size_t used = 0;
  std::map<char*, std::size_t> live;  // an allocation, and its bytes
  std::map<char*, std::size_t> pinned, mapped;
  std::vector<char*> freed_mapped;  // until no stream has work that may use it
  std::vector<std::pair<char*, std::weak_ptr<const bool>>> copies_of_pinned;  // under way, while the second lives
  std::size_t limit = std::numeric_limits<std::size_t>::max();
  Stream null_stream;
  std::vector<Stream*> streams{&null_stream};
  std::map<Event*, std::shared_ptr<Moment>> events;
  double flops_per_second = 0, bytes_per_second = 0;  // of begin_times, else 0
  std::map<int, Times> times;
  int times_begun = 0;
  int fails_after = 0, calls = 0, failing_call = 0, gpus = 1, opened = 0;
  bool work_fails = false;  // that of failing_call, not the call
  cudaError_t late = cudaSuccess;
  const char* failed_call = "";
  std::map<int, GpuKind> kinds;
  std::string refused;  // the name of a call
  cudaError_t refusal = cudaSuccess;
  int driver = 13000;
  std::map<const void*, std::size_t> shared_bytes;  // that kernels may have
};

Device& device();

thread_local int current_gpu = 0;
thread_local const char* failing_work = nullptr;  // of the call under way, its name

/// Of a host thread, since begin_times.
struct HostTime {
  int of = 0;
  double now = 0, product = 0, message = 0;
};
thread_local HostTime host_time;
HostTime& time_of_host() {
  if (host_time.of != device().times_begun) host_time = {device().times_begun};
  return host_time;
}

struct WorkFailed {};

std::lock_guard<std::recursive_mutex> turn() {
  return std::lock_guard(turns());
}

void touched(int, siginfo_t* info, void*) {
  const auto* at = static_cast<const char*>(info->si_addr);
  const Device& d = device();
  const char text[] = "dspp: the host touched device memory of the GPU in software. Copy it with cudaMemcpyAsync.\n";
  if (at >= d.base && at < d.base + arena_bytes) {
    [[maybe_unused]] const auto written = write(2, text, sizeof text - 1);
    _exit(3);
  }
  std::signal(SIGSEGV, SIG_DFL);
}

void prepare(Device& d) {
  void* memory = mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  require(memory != MAP_FAILED, "dspp: the GPU in software needs 16 GiB of addresses, but got none. Raise ulimit -v.");
  d.base = static_cast<char*>(memory);
  name_touches_of_host();
}

Device& device() {
  static Device only;
  if (only.base == nullptr) prepare(only);
  return only;
}

/// Device memory is open while one of these lives.
class Open {
 public:
  Open() {
    if (device().opened++ == 0) protect(PROT_READ | PROT_WRITE);
  }
  ~Open() {
    if (--device().opened == 0) protect(PROT_NONE);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

 private:
  static void protect(int rights) {
    Device& d = device();
    if (d.used > 0) mprotect(d.base, d.used, rights);
  }
};

bool may_run(const Stream& s) {
  if (s.queue.empty()) return false;
  const Item& first = s.queue.front();
  return (!first.waits || first.waits->came) && (!first.may || first.may());
}

/// Asked before memory is opened: to open it, and to close it, takes as long as it has pages.
bool all_wait() {
  const auto& all = device().streams;
  return std::none_of(all.begin(), all.end(), [](const Stream* s) { return may_run(*s); }) &&
         std::any_of(all.begin(), all.end(), [](const Stream* s) { return !s->queue.empty() && s->queue.front().may; });
}

/// Runs one item of a stream that may run: of a random one, rather of `wanted`, or of the first by rank, whichever
/// holds for a while. Ranks let one stream be late for long, which finds what few of the random orders show. False: all
/// of them wait for other GPUs.
/// Source: Burckhardt et al. 2010, A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs
bool step(Stream& wanted) {
  std::vector<Stream*> may;
  bool for_others = false;
  for (Stream* s : device().streams) {
    if (may_run(*s)) may.push_back(s);
    for_others = for_others || (!s->queue.empty() && s->queue.front().may);
  }
  require(!may.empty() || for_others,
          "dspp: a stream of the GPU in software needs an event that is never recorded. Record it first.");
  if (may.empty()) return false;
  static bool by_rank = false;
  static unsigned seeded = 0;
  if (random_below(32) == 0 || seeded != times_seeded()) {
    seeded = times_seeded();
    by_rank = random_below(2) == 0;
    for (Stream* other : device().streams) other->rank = random_below(1000);
  }
  Stream* const first = *std::min_element(may.begin(), may.end(), [](auto* a, auto* b) { return a->rank < b->rank; });
  Stream& s = by_rank                                   ? *first
              : may_run(wanted) && random_below(2) == 0 ? wanted
                                                        : *may[random_below(static_cast<unsigned>(may.size()))];
  const Item item = std::move(s.queue.front());
  s.queue.pop_front();
  s.time = std::max({s.time, item.issued, item.waits ? item.waits->at : 0});
  if (item.work) {
    const Open open;
    try {
      item.work();
    } catch (const WorkFailed&) {
      for (Item& later : s.queue) later.work = nullptr;
      device().late = cudaErrorLaunchFailure;
    } catch (...) {
      // Nothing runs after a kernel that failed, as on a GPU: the host may free what later copies would write to.
      for (Item& later : s.queue) later.work = nullptr;
      throw;
    }
  }
  const Interval taken{s.time, s.time + item.product + item.message};
  s.time = taken.end;
  Times& times = device().times[s.gpu];
  if (item.product > 0) times.products.push_back(taken);
  if (item.message > 0) times.messages.push_back(taken);
  times.computing += item.product, times.moving += item.message;
  if (taken.begin < taken.end) times.end = std::max(times.end, s.time);
  if (item.records) *item.records = {true, s.time};
  return true;
}

/// The host goes on when the stream is done.
void host_waited(const Stream& s) {
  if (s.queue.empty()) time_of_host().now = std::max(time_of_host().now, s.time);
}

/// Without a turn: what the stream waits for may be another thread's to call, which may also end the stream.
void drain(Stream& s) {
  const auto since = std::chrono::steady_clock::now();
  for (;;) {
    {
      const auto mine = turn();
      const auto& all = device().streams;
      if (std::find(all.begin(), all.end(), &s) == all.end()) return;
      host_waited(s);
      if (s.queue.empty()) return;
      if (!all_wait()) {
        const Open open;
        while (!s.queue.empty() && step(s)) {
        }
      }
      host_waited(s);
      if (s.queue.empty()) return;
    }
    require(std::chrono::steady_clock::now() - since < std::chrono::seconds(100),
            "dspp: a stream of the GPU in software needs another GPU's call, but waited 100 s. Look for who waits.");
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

/// The streams of the current GPU.
void drain_gpu() {
  std::vector<Stream*> own;
  {
    const auto mine = turn();
    for (Stream* s : device().streams)
      if (s->gpu == current_gpu) own.push_back(s);
  }
  for (Stream* s : own) drain(*s);
}

Stream& stream_or_null(Stream* s) {
  return s ? *s : device().null_stream;
}

}  // namespace

std::recursive_mutex& turns() {
  static std::recursive_mutex only;
  return only;
}

void issue(Stream* stream, std::function<void()> work) {
  issue_when(stream, nullptr, std::move(work));
}

void issue_when(Stream* stream, std::function<bool()> may, std::function<void()> work) {
  const auto mine = turn();
  Stream& s = stream_or_null(stream);
  if (const char* const call = std::exchange(failing_work, nullptr)) {
    device().failed_call = call;
    work = [] { throw WorkFailed(); };
  }
  HostTime& host = time_of_host();
  const double product = std::exchange(host.product, 0), message = std::exchange(host.message, 0);
  if (stream != nullptr && !may && capture_work(stream, work)) return;
  s.queue.push_back({std::move(work), nullptr, nullptr, std::move(may), product, message, host.now});
  if (random_below(8) == 0 && may_run(s)) step(s);  // hardware may be early, too
}

void begin_times(double flops_per_second, double bytes_per_second) {
  const auto mine = turn();
  Device& d = device();
  d.flops_per_second = flops_per_second, d.bytes_per_second = bytes_per_second;
  d.times.clear(), ++d.times_begun;
  for (Stream* s : d.streams) s->time = 0;
  for (auto& [event, moment] : d.events) moment->at = 0;
}
void issues_product(double flops) {
  const auto mine = turn();
  if (device().flops_per_second > 0) time_of_host().product = flops / device().flops_per_second;
}
void issues_message(double bytes) {
  const auto mine = turn();
  if (device().bytes_per_second > 0) time_of_host().message = bytes / device().bytes_per_second;
}
Times times_of(int gpu) {
  const auto mine = turn();
  return device().times[gpu];
}
double time_now() {
  const auto mine = turn();
  return time_of_host().now;
}
double time_of(Stream* stream) {
  return stream_or_null(stream).time;
}
void wait_until(Stream* stream, double seconds) {
  Stream& s = stream_or_null(stream);
  s.time = std::max(s.time, seconds);
}

void name_touches_of_host() {
  struct sigaction action = {};
  action.sa_sigaction = touched;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

bool may_share(const void* kernel, std::size_t bytes) {
  const auto mine = turn();
  const auto found = device().shared_bytes.find(kernel);
  return bytes <= (found == device().shared_bytes.end() ? 32 * 1024 : found->second);
}

bool is_device_memory(const void* data) {
  const auto mine = turn();
  const char* const at = static_cast<const char*>(data);
  return at >= device().base && at < device().base + device().used;
}

bool is_reached_by_device(const void* data) {
  const auto mine = turn();
  if (is_device_memory(data)) return true;
  const auto& mapped = device().mapped;
  const auto after = mapped.upper_bound(const_cast<char*>(static_cast<const char*>(data)));
  return after != mapped.begin() && data < std::prev(after)->first + std::prev(after)->second;
}

void set_gpus(int count) {
  const auto mine = turn();
  device().gpus = count;
}

void set_gpu_kind(int gpu, GpuKind kind) {
  const auto mine = turn();
  device().kinds[gpu] = kind;
}
void refuse(const char* call, cudaError_t status) {
  const auto mine = turn();
  device().refused = call, device().refusal = status;
}
void set_driver(int version) {
  const auto mine = turn();
  device().driver = version;
}

void fail_launch(int number) {
  const auto mine = turn();
  device().fails_after = number;
}
void limit_memory(std::size_t bytes) {
  const auto mine = turn();
  device().limit = bytes;
}
bool launch_fails() {
  const auto mine = turn();
  return device().fails_after > 0 && --device().fails_after == 0;
}

namespace {
cudaError_t late_error() {
  const auto mine = turn();
  return std::exchange(device().late, cudaSuccess);
}
}  // namespace

int fail_work_of_call(int number) {
  const auto mine = turn();
  const int calls = fail_call(number);
  device().work_fails = true;
  return calls;
}
int fail_call(int number) {
  const auto mine = turn();
  device().failing_call = number;
  device().work_fails = false;
  device().late = cudaSuccess;
  if (number > 0) device().failed_call = "";
  return std::exchange(device().calls, 0);
}
namespace {
thread_local int waits = 0, left_out_wait = 0;
}

int leave_out_wait(int number) {
  left_out_wait = number;
  return std::exchange(waits, 0);
}
namespace {
struct Ranges {
  int open = 0;
  bool are_noted = false;
  std::vector<std::string> noted;
};
thread_local Ranges ranges;
}  // namespace

void note_ranges() {
  ranges.are_noted = true;
  ranges.noted.clear();
}
std::vector<std::string> noted_ranges() {
  ranges.are_noted = false;
  return std::move(ranges.noted);
}
int open_ranges() {
  return ranges.open;
}
bool call_fails(const char* name) {
  const auto mine = turn();
  failing_work = nullptr;
  if (++device().calls != device().failing_call) return false;
  if (device().work_fails) {
    failing_work = name;
    return false;
  }
  device().failed_call = name;
  return true;
}
const char* failed_call() {
  const auto mine = turn();
  return device().failed_call;
}
Live live() {
  const auto mine = turn();
  const Device& d = device();
  return {static_cast<int>(d.live.size() + d.pinned.size() + d.mapped.size()), static_cast<int>(d.streams.size()) - 1,
          static_cast<int>(d.events.size()), live_graphs()};
}

}  // namespace dspp::software_gpu

using namespace dspp::software_gpu;

namespace {
/// What a call gives that does not fail otherwise.
cudaError_t status_of(const char* call) {
  const auto mine = turn();
  if (device().refused == call) return device().refusal;
  return call_fails(call) ? cudaErrorLaunchFailure : cudaSuccess;
}
}  // namespace

const char* cudaGetErrorString(cudaError_t status) {
  switch (status) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorInsufficientDriver: return "CUDA driver version is insufficient for CUDA runtime version";
    case cudaErrorInvalidDeviceFunction: return "invalid device function";
    case cudaErrorNoKernelImageForDevice: return "no kernel image is available for execution on the device";
    case cudaErrorUnsupportedPtxVersion: return "the provided PTX was compiled with an unsupported toolchain.";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureMerge: return "operation would result in a merge of separate capture sequences";
    case cudaErrorStreamCaptureUnmatched: return "capture was not ended in the same stream as it began";
    case cudaErrorStreamCaptureUnjoined: return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation: return "dependency created on uncaptured work in another stream";
    case cudaErrorStreamCaptureImplicit:
      return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent: return "operation not permitted on an event last recorded in a capturing stream";
    case cudaErrorStreamCaptureWrongThread:
      return "attempt to terminate a thread-local capture sequence from another thread";
  }
  return "unknown error";
}

cudaError_t cudaGetLastError() {
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* gpu) {
  if (call_fails("cudaGetDevice")) return cudaErrorLaunchFailure;
  *gpu = current_gpu;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const auto mine = turn();
  if (const cudaError_t status = status_of("cudaGetDeviceCount"); status != cudaSuccess) return status;
  *count = device().gpus;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int gpu) {
  const auto mine = turn();
  if (call_fails("cudaSetDevice")) return cudaErrorLaunchFailure;
  if (gpu < 0 || gpu >= device().gpus) return cudaErrorInvalidDevice;
  current_gpu = gpu;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int gpu) {
  if (call_fails("cudaDeviceGetPCIBusId")) return cudaErrorLaunchFailure;
  std::snprintf(text, static_cast<std::size_t>(length), "0000:%02x:00.0", static_cast<unsigned>(gpu + 1));
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* of, int gpu) {
  const auto mine = turn();
  if (call_fails("cudaGetDeviceProperties")) return cudaErrorLaunchFailure;
  const GpuKind kind = device().kinds[gpu];
  std::snprintf(of->name, sizeof of->name, "%s", kind.name);
  of->major = kind.major, of->minor = kind.minor, of->multiProcessorCount = 2;
  return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* of, const void*) {
  of->numRegs = 32;
  return status_of("cudaFuncGetAttributes");
}

cudaError_t cudaDriverGetVersion(int* version) {
  const auto mine = turn();
  *version = device().driver;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = 13000;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  if (call_fails("cudaDeviceGetAttribute")) return cudaErrorLaunchFailure;
  // Few multiprocessors: blocks that take one row after another then do so in small tests.
  *value = attribute == cudaDevAttrMultiProcessorCount ? 2 : 227 * 1024;
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  const auto mine = turn();
  if (call_fails("cudaFuncSetAttribute")) return cudaErrorLaunchFailure;
  if (value > 227 * 1024) return cudaErrorInvalidValue;
  device().shared_bytes[kernel] = static_cast<std::size_t>(value);
  return cudaSuccess;
}

// A page of guard bytes, the allocation, and guard bytes up to the next page's end.
cudaError_t cudaMalloc(void** to, std::size_t bytes) {
  const auto mine = turn();
  Device& d = device();
  const std::size_t whole = page + round_to_page(bytes) + page;
  if (const cudaError_t status = may_wait(nullptr, false); status != cudaSuccess) return status;
  if (call_fails("cudaMalloc") || bytes > d.limit || d.used + whole > arena_bytes) return cudaErrorMemoryAllocation;
  d.limit -= bytes;
  char* const start = d.base + d.used;
  d.used += whole;
  const Open open;
  std::memset(start, guard, whole);
  std::memset(start + page, poison, bytes);
  d.live[start + page] = bytes;
  *to = start + page;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  const auto mine = turn();
  if (call_fails("cudaMemGetInfo")) return cudaErrorLaunchFailure;
  *total = arena_bytes;
  *free = std::min(device().limit, arena_bytes - device().used);
  return cudaSuccess;
}

cudaError_t cudaFree(void* memory) {
  if (memory == nullptr) return cudaSuccess;
  if (const cudaError_t status = may_wait(nullptr, false); status != cudaSuccess) return status;
  drain_gpu();
  const auto mine = turn();
  Device& d = device();
  const auto found = d.live.find(static_cast<char*>(memory));
  if (found == d.live.end()) return cudaErrorInvalidValue;
  const auto [at, bytes] = *found;
  bool whole = true;
  {
    const Open open;
    const char *first = at - page, *last = at + round_to_page(bytes) + page;
    const auto is_guard = [](char c) { return static_cast<unsigned char>(c) == guard; };
    whole = std::all_of(first, static_cast<const char*>(at), is_guard) &&
            std::all_of(at + bytes, const_cast<char*>(last), is_guard);
    std::memset(at, poison, bytes);
  }
  d.live.erase(found);
  const std::size_t used_before = d.used;
  d.used = 0;
  if (!d.live.empty()) {
    const auto& [start, length] = *d.live.rbegin();
    d.used = static_cast<std::size_t>(start - d.base) + round_to_page(length) + page;
  }
  madvise(d.base + d.used, used_before - d.used, MADV_DONTNEED);
  dspp::require(whole,
                "dspp: a kernel needs to stay in its arrays, but one wrote beside an allocation. Look at its bounds.",
                dspp::ErrorCode::state);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** to, std::size_t bytes) {
  const auto mine = turn();
  if (call_fails("cudaMallocHost")) return cudaErrorMemoryAllocation;
  if (const cudaError_t status = may_wait(nullptr, false); status != cudaSuccess) return status;
  *to = std::aligned_alloc(page, round_to_page(std::max<std::size_t>(bytes, 1)));
  std::memset(*to, poison, bytes);
  device().pinned[static_cast<char*>(*to)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaHostAlloc(void** to, std::size_t bytes, unsigned flags) {
  const auto mine = turn();
  if (call_fails("cudaHostAlloc")) return cudaErrorMemoryAllocation;
  if (flags != (cudaHostAllocPortable | cudaHostAllocMapped)) return cudaErrorInvalidValue;
  if (const cudaError_t status = may_wait(nullptr, false); status != cudaSuccess) return status;
  Device& d = device();
  if (std::all_of(d.streams.begin(), d.streams.end(), [](const Stream* s) { return s->queue.empty(); }))
    for (char* freed : std::exchange(d.freed_mapped, {})) std::free(freed);
  *to = std::aligned_alloc(page, round_to_page(std::max<std::size_t>(bytes, 1)));
  std::memset(*to, poison, bytes);
  d.mapped[static_cast<char*>(*to)] = bytes;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* memory) {
  const auto mine = turn();
  Device& d = device();
  if (const auto mapped = d.mapped.find(static_cast<char*>(memory)); mapped != d.mapped.end()) {
    std::memset(memory, poison, mapped->second);
    d.freed_mapped.push_back(mapped->first);
    d.mapped.erase(mapped);
    return cudaSuccess;
  }
  const auto found = d.pinned.find(static_cast<char*>(memory));
  if (found == d.pinned.end()) return memory == nullptr ? cudaSuccess : cudaErrorInvalidValue;
  if (const cudaError_t status = may_wait(nullptr, false); status != cudaSuccess) return status;
  for (const auto& [at, under_way] : d.copies_of_pinned)
    dspp::require(at != found->first || under_way.expired(),
                  "dspp: a copy needs its pinned memory until it ran, but it is freed before. Wait for its event.",
                  dspp::ErrorCode::state);
  std::free(memory);
  d.pinned.erase(found);
  return cudaSuccess;
}

namespace {
/// The pinned allocation that holds the bytes, or null.
char* pinned_around(const void* data, std::size_t bytes) {
  const auto* const at = static_cast<const char*>(data);
  auto next = device().pinned.upper_bound(const_cast<char*>(at));
  if (next == device().pinned.begin()) return nullptr;
  const auto& [base, size] = *std::prev(next);
  return at + bytes <= base + size ? base : nullptr;
}

/// Until what holds the result is gone, the pinned allocation is in use.
std::shared_ptr<const bool> use_pinned(char* base) {
  auto& all = device().copies_of_pinned;
  std::erase_if(all, [](const auto& one) { return one.second.expired(); });
  auto use = std::make_shared<const bool>(true);
  all.emplace_back(base, use);
  return use;
}

void issue_pinned(cudaStream_t stream, char* base, void* to, const void* from, std::size_t bytes, const char* watched) {
  std::vector<char> seen(watched, watched + bytes);
  issue(stream, [use = use_pinned(base), to, from, bytes, watched, seen = std::move(seen)] {
    dspp::require(
        std::memcmp(watched, seen.data(), bytes) == 0,
        "dspp: a copy needs its pinned memory as it was when it was issued, but the host changed it before it "
        "ran. Wait for its event.",
        dspp::ErrorCode::state);
    std::memcpy(to, from, bytes);
  });
}
}  // namespace

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const auto mine = turn();
  if (call_fails("cudaMemcpyAsync")) return cudaErrorLaunchFailure;
  if (const cudaError_t status = may_issue(stream); status != cudaSuccess) return status;
  if (bytes == 0) return cudaSuccess;
  if (kind == cudaMemcpyDefault) {
    const bool to_device = is_reached_by_device(to), from_device = is_reached_by_device(from);
    if (!is_device_memory(to) && !is_device_memory(from)) return cudaErrorInvalidValue;  // the host would wait
    kind = !from_device ? cudaMemcpyHostToDevice : to_device ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost;
  } else if (is_device_memory(to) != (kind != cudaMemcpyDeviceToHost) ||
             is_device_memory(from) != (kind != cudaMemcpyHostToDevice))
    return cudaErrorInvalidValue;
  if (kind == cudaMemcpyHostToDevice) {
    if (char* const base = pinned_around(from, bytes)) {
      issue_pinned(stream, base, to, from, bytes, static_cast<const char*>(from));
      return cudaSuccess;
    }
    std::vector<char> taken(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
    issue(stream, [to, bytes, taken = std::move(taken)] { std::memcpy(to, taken.data(), bytes); });
    return cudaSuccess;
  }
  if (char* const base = kind == cudaMemcpyDeviceToHost ? pinned_around(to, bytes) : nullptr) {
    std::memset(to, poison, bytes);
    issue_pinned(stream, base, to, from, bytes, static_cast<const char*>(to));
    return cudaSuccess;
  }
  issue(stream, [to, from, bytes] { std::memcpy(to, from, bytes); });
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream) {
  if (call_fails("cudaMemsetAsync")) return cudaErrorLaunchFailure;
  if (const cudaError_t status = may_issue(stream); status != cudaSuccess) return status;
  issue(stream, [to, byte, bytes] { std::memset(to, byte, bytes); });
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  const auto mine = turn();
  if (call_fails("cudaStreamCreate")) return cudaErrorLaunchFailure;
  *stream = new Stream;
  (*stream)->gpu = current_gpu;
  device().streams.push_back(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  drain(stream_or_null(stream));
  const auto mine = turn();
  std::erase(device().streams, stream);
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (call_fails("cudaStreamSynchronize")) return cudaErrorLaunchFailure;
  if (const cudaError_t status = may_wait(stream, true); status != cudaSuccess) return status;
  drain(stream_or_null(stream));
  return late_error();
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  const auto mine = turn();
  if (call_fails("cudaStreamQuery")) return cudaErrorLaunchFailure;
  if (const cudaError_t status = may_wait(stream, true); status != cudaSuccess) return status;
  Stream& s = stream_or_null(stream);
  host_waited(s);
  if (s.queue.empty()) return late_error();
  if (all_wait()) return cudaErrorNotReady;
  const Open open;
  for (int i = 0; i < 64 && !s.queue.empty() && step(s); ++i) {
  }
  host_waited(s);
  return s.queue.empty() ? late_error() : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t status = may_wait(nullptr, false); status != cudaSuccess) return status;
  drain_gpu();
  return late_error();
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const auto mine = turn();
  if (const cudaError_t status = may_query(event); status != cudaSuccess) return status;
  return device().events[event]->came ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const auto mine = turn();
  for (const cudaEvent_t event : {begin, end})
    if (const cudaError_t status = cudaEventQuery(event); status != cudaSuccess) return status;
  const Device& d = device();
  const double seconds = d.events.at(end)->at - d.events.at(begin)->at;
  *milliseconds = d.flops_per_second > 0 ? static_cast<float>(1e3 * seconds) : 1;
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  const auto mine = turn();
  if (call_fails("cudaEventCreateWithFlags")) return cudaErrorLaunchFailure;
  *event = new Event;
  device().events[*event] = std::make_shared<Moment>(Moment{true, 0});
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const auto mine = turn();
  device().events.erase(event);
  forget_event(event);
  delete event;
  return cudaSuccess;
}

// Each record is an occurrence of its own: a wait is for the last one before it.
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const auto mine = turn();
  if (call_fails("cudaEventRecord")) return cudaErrorLaunchFailure;
  if (const Captured captured = capture_record(event, stream); captured.is_done) return captured.status;
  auto occurrence = std::make_shared<Moment>();
  device().events[event] = occurrence;
  stream_or_null(stream).queue.push_back({nullptr, occurrence, nullptr});
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const auto mine = turn();
  if (call_fails("cudaStreamWaitEvent")) return cudaErrorLaunchFailure;
  if (++waits == left_out_wait) return cudaSuccess;
  if (const Captured captured = capture_wait(stream, event); captured.is_done) return captured.status;
  stream_or_null(stream).queue.push_back({nullptr, nullptr, device().events[event]});
  return cudaSuccess;
}

int nvtxRangePushA(const char* text) {
  if (ranges.are_noted) ranges.noted.emplace_back(text);
  return ranges.open++;
}

int nvtxRangePop() {
  if (ranges.are_noted) ranges.noted.emplace_back();
  return --ranges.open;
}
