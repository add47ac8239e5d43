// SPDX-License-Identifier: Apache-2.0
/// What the communicators of NCCL of one rank share, and one of them with its stream.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <dspp/comm/host_group.hpp>
#include <dspp/comm/posted.hpp>
#include <dspp/cuda/nccl.hpp>
#include <kernels/cuda_memory.cuh>

#if !DSPP_HAS_NVCC()
#include <software_gpu/nccl.hpp>
#elif __has_include(<nccl.h>)
#include <nccl.h>
#else
#error "dspp: kernels/nccl.cuh needs NCCL's header nccl.h, but it was not found. Install libnccl-dev, or leave it out."
#endif
#if NCCL_VERSION_CODE < 21900
#error "dspp: kernels/nccl.cuh needs NCCL 2.19 or later, which registers buffers, but its header is older. Update it."
#endif

namespace dspp::detail {

/// How the host waits: it spins, then yields its core, then sleeps.
class NcclPatience {
 public:
  bool is_over(double seconds) const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count() > seconds;
  }
  void pause() {
    if (++idle_ < 200) return;
    if (idle_ < 1000) return std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  int idle_ = 0;
};

class NcclLine;

/// One rank's communicators: their failure, which is one, and what happens while the host waits.
class NcclRank final : public CudaWatcher, public std::enable_shared_from_this<NcclRank> {
 public:
  NcclRank(CudaMemory& memory, NcclOptions options, HostGroup world)
      : memory_(memory), options_(options), world_(std::move(world)), exceptions_(std::uncaught_exceptions()) {
    memory_.watch(this);
    memory_.tell_transfers();
  }
  ~NcclRank() override { close(); }
  NcclRank(const NcclRank&) = delete;
  NcclRank& operator=(const NcclRank&) = delete;

  CudaMemory& memory() const { return memory_; }
  cudaStream_t stream() const { return gpu::stream_of(memory_); }
  const NcclOptions& options() const { return options_; }
  HostGroup& world() { return world_; }
  std::string name() const { return "rank " + std::to_string(world_.rank()); }

  /// Throws the first failure of this rank.
  void require_alive() const {
    if (failure_) throw *failure_;
  }
  /// f(); whatever it throws stops all communicators of this rank.
  template <class F>
  auto guarded(F f) {
    require_alive();
    try {
      return f();
    } catch (const Error& error) {
      stop(error);
      throw;
    } catch (...) {
      stop(Error(ErrorCode::state, "dspp: " + name() + " needs memory of the host to call NCCL, but there is none."));
      throw;
    }
  }
  void stop(const Error& error) noexcept;

  /// Does what can be done without waiting. Throws the failure of the world.
  void progress();
  /// Waits for an operation of host memory, while messages go on.
  void await(Pending<>& of_host);
  void barrier(HostGroup& group, CallSite site);
  /// Also throws what NCCL found since.
  void check_lines();

  void wait() override;
  bool is_idle() noexcept override;
  void become_idle() noexcept override;
  void taken(std::byte* data, Size bytes) noexcept override;
  void giving(std::byte* data) noexcept override;

  void add(NcclLine& line) { lines_.push_back(&line); }
  void remove(NcclLine& line) { std::erase(lines_, &line); }
  /// Registers the blocks that the rank has.
  void register_with(NcclLine& line);

  /// Ends the communicators: by NCCL's way if nothing failed. Throws what failed since.
  void end();
  void close() noexcept;

 private:
  struct Block {
    Size bytes = 0;
    std::vector<std::pair<NcclLine*, void*>> handles;
  };

  void register_block(std::byte* data, Block& block, NcclLine& line);
  void deregister(Block& block) noexcept;
  void wait_for(cudaStream_t stream);
  void finalize();
  void abort() noexcept;

  CudaMemory& memory_;
  NcclOptions options_;
  HostGroup world_;
  int exceptions_;
  std::optional<Error> failure_;
  std::vector<NcclLine*> lines_;
  std::map<std::byte*, Block> blocks_;
  bool advances_ = false, finalized_ = false, closed_ = false;
};

/// A communicator of NCCL, null for a group of one, and the stream of its operations, which complete in their order.
class NcclLine {
 public:
  static constexpr std::uint64_t remembered = 16;

  NcclLine(std::shared_ptr<NcclRank> rank, std::string name, HostGroup host)
      : shared_rank_(std::move(rank)), rank_(*shared_rank_), name_(std::move(name)), host_(std::move(host)) {
    rank_.add(*this);
    try {
      gpu::check({"open NCCL's stream"}, cudaStreamCreate(&stream_));
      for (cudaEvent_t* events : {ends_.data(), begins_.data()})
        for (std::uint64_t i = 0; i < remembered; ++i)
          gpu::check({"open NCCL's events"}, cudaEventCreateWithFlags(events + i, cudaEventDisableTiming));
    } catch (...) {
      release();
      throw;
    }
  }
  virtual ~NcclLine() { release(); }
  NcclLine(const NcclLine&) = delete;
  NcclLine& operator=(const NcclLine&) = delete;

  NcclRank& owner() const { return rank_; }
  HostGroup& host() { return host_; }
  const HostGroup& host() const { return host_; }
  int size() const { return host_.size(); }
  const std::string& name() const { return name_; }
  cudaStream_t stream() const { return stream_; }
  std::uint64_t launched() const { return launched_; }

  ncclComm_t comm = nullptr;

  /// The next operation's description, for errors, which begins after what the rank's stream has now.
  Posted& open(Collective collective, PurposeAt purpose, int root = 0) {
    Posted& call = calls_[opened_ % remembered];
    call = Posted{collective, purpose, root, std::move(call.pairs), place_of(purpose.site), purpose.subject};
    call.pairs.clear();
    gpu::check({"order NCCL's stream"}, cudaEventRecord(begins_[opened_ % remembered], rank_.stream()));
    ++opened_;
    return call;
  }
  std::uint64_t opened() const { return opened_; }
  const Posted& call(std::uint64_t operation) const { return calls_[operation % remembered]; }

  /// The oldest opened operation, not yet launched, is the stream's next.
  void begin() {
    gpu::check({"order NCCL's stream"}, cudaStreamWaitEvent(stream_, begins_[launched_ % remembered], 0));
    const Posted& next = call(launched_);
    if (comm != nullptr && rank_.memory().clock() != nullptr)
      rank_.memory().clock()->begin_transfer(name_of(next.collective), name_of(next.purpose), stream_);
  }
  /// NCCL has put it into the stream.
  void launch() {
    if (rank_.memory().clock() != nullptr) rank_.memory().clock()->end_transfer(stream_);
    gpu::check({"order NCCL's stream"}, cudaEventRecord(ends_[launched_ % remembered], stream_));
    ++launched_;
  }
  /// The rank's stream waits for that launched operation, and those before it.
  void join(std::uint64_t operation) {
    if (operation < joined_) return;
    gpu::check({"wait for NCCL"}, cudaStreamWaitEvent(rank_.stream(), ends_[operation % remembered], 0));
    joined_ = operation + 1;
  }

  /// Waits, as long as a call of NCCL is in progress. Throws what it says.
  void settle(ncclResult_t result) {
    check(result);
    for (NcclPatience patience; !is_settled(); patience.pause()) {
      rank_.progress();
      if (patience.is_over(rank_.world().timeout_seconds())) fail_timeout();
    }
  }
  /// True if no call is in progress.
  bool is_settled() {
    ncclResult_t state = ncclSuccess;
    check(ncclCommGetAsyncError(comm, &state));
    check(state);
    return state == ncclSuccess;
  }
  void check(ncclResult_t result) {
    if (result != ncclSuccess && result != ncclInProgress) fail_result(result);
  }
  [[noreturn]] void fail_timeout();

  /// True if this has found, for as long, that the same operation has begun and is not done: it waits for other ranks.
  /// What this rank's own stream still has before an operation does not count.
  bool waits_longer_than(double seconds) {
    const auto is_past = [](cudaEvent_t event) {
      const bool past = cudaEventQuery(event) != cudaErrorNotReady;
      if (!past) cudaGetLastError();  // not ready is no error of a later call
      return past;
    };
    const std::uint64_t before = done_;
    if (launched_ > remembered) done_ = std::max(done_, launched_ - remembered);
    while (done_ < launched_ && is_past(ends_[done_ % remembered])) ++done_;
    const bool waits = done_ < launched_ && is_past(begins_[done_ % remembered]);
    if (!waits || done_ != before) since_.reset();
    if (waits && !since_) since_.emplace();
    return waits && since_->is_over(seconds);
  }

  /// While the host waits: what can be done without waiting.
  virtual void advance() {}
  /// Before the communicator ends.
  virtual void drop_calls() noexcept {}

 private:
  [[noreturn]] void fail_result(ncclResult_t result);

  /// "all_reduce(f32 x 24), the 7th operation of the world by NCCL": the oldest that is not done.
  std::string where() const {
    if (opened_ == 0) return "a communicator of " + name_;
    std::uint64_t first = opened_ > remembered ? opened_ - remembered : 0;
    while (first + 1 < opened_ && first < launched_ && cudaEventQuery(ends_[first % remembered]) == cudaSuccess)
      ++first;
    const Posted& call = calls_[first % remembered];
    return describe(call, size()) + ", the " + ordinal(first) + " operation of " + name_ + " by NCCL" +
           at_place(call.at);
  }

  void release() noexcept {
    rank_.remove(*this);
    for (auto* events : {&ends_, &begins_})
      for (cudaEvent_t& event : *events)
        if (event) cudaEventDestroy(std::exchange(event, nullptr));
    if (stream_) cudaStreamDestroy(std::exchange(stream_, nullptr));
  }

  std::shared_ptr<NcclRank> shared_rank_;
  NcclRank& rank_;
  std::string name_;
  HostGroup host_;
  cudaStream_t stream_ = nullptr;
  std::array<cudaEvent_t, remembered> begins_{}, ends_{};
  std::array<Posted, remembered> calls_;
  std::uint64_t opened_ = 0, launched_ = 0, joined_ = 0;
  std::uint64_t done_ = 0;  // operations that waits_longer_than() has found done
  std::optional<NcclPatience> since_;
};

// ---------------------------------------------------------------------------------------------------------------------

inline void NcclLine::fail_timeout() {
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", rank_.world().timeout_seconds());
  host_.expire();  // names the ranks that have not called it
  fail(ErrorCode::peer_lost, "dspp: " + rank_.name() + " needs the other ranks in " + where() + ", but waited " +
                                 seconds +
                                 " s, and all have called it. Look for a rank, a link or a GPU that was lost.");
}

inline void NcclLine::fail_result(ncclResult_t result) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  while (result == ncclRemoteError && std::chrono::steady_clock::now() < until) {  // the host may know which rank
    rank_.world().poll();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const char* said = ncclGetLastError(comm);
  std::string words = std::string("'") + ncclGetErrorString(result) + "'";
  if (said && *said) words += std::string(" (") + said + ")";
  const bool lost = result == ncclRemoteError, wrong = result == ncclInvalidUsage || result == ncclInvalidArgument;
  fail(lost    ? ErrorCode::peer_lost
       : wrong ? ErrorCode::usage
               : ErrorCode::state,
       "dspp: " + gpu::place_of_thread() + " needs NCCL in " + where() + ", but it says " + words +
           (lost ? ". Look for a rank or a machine that was lost."
                 : ". Look at the first error of all ranks, and start them with NCCL_DEBUG=WARN."));
}

inline void NcclRank::stop(const Error& error) noexcept {
  if (failure_) return;
  failure_ = error;
  abort();
  try {
    world_.abort(error);  // the others may wait for what was aborted here
  } catch (...) {         // no memory: they stop when this rank does
  }
}

inline void NcclRank::progress() {
  world_.poll();
  if (advances_) return;
  struct Advancing {
    bool& now;
    explicit Advancing(bool& flag) : now(flag) { now = true; }
    ~Advancing() { now = false; }
  } advancing(advances_);
  for (std::size_t i = 0; i < lines_.size(); ++i) lines_[i]->advance();
}

inline void NcclRank::await(Pending<>& of_host) {
  guarded([&] {
    for (NcclPatience patience; !of_host.is_complete(); patience.pause()) {
      progress();
      if (!patience.is_over(world_.timeout_seconds())) continue;
      world_.expire();  // names the ranks that have not called it
      break;            // wait() names those that do not finish it
    }
    of_host.wait();
  });
}

inline void NcclRank::barrier(HostGroup& group, CallSite site) {
  guarded([&] {
    if (group.size() == 1) return;
    Pending<> pending = group.announce(Collective::barrier, PurposeAt(Purpose::scalar, site), 0, {});
    await(pending);
  });
}

inline void NcclRank::check_lines() {
  for (NcclLine* line : lines_)
    if (line->comm != nullptr) line->is_settled();
}

inline void NcclRank::wait_for(cudaStream_t stream) {
  for (NcclPatience patience;; patience.pause()) {
    const cudaError_t status = cudaStreamQuery(stream);
    if (status == cudaSuccess) return;
    if (status != cudaErrorNotReady) gpu::check({"wait"}, status);
    cudaGetLastError();  // not ready is no error of a later call
    progress();
    check_lines();
    for (NcclLine* line : lines_)
      if (line->comm != nullptr && line->waits_longer_than(world_.timeout_seconds())) line->fail_timeout();
  }
}

inline void NcclRank::wait() {
  guarded([&] { wait_for(stream()); });
}

inline void NcclRank::taken(std::byte* data, Size bytes) noexcept {
  if (!options_.register_buffers || failure_) return;
  try {
    Block& block = blocks_[data];
    block.bytes = bytes;
    for (NcclLine* line : lines_)
      if (line->comm != nullptr) register_block(data, block, *line);
  } catch (const Error& error) {
    stop(error);  // for the next call
  } catch (...) {
    stop(Error(ErrorCode::out_of_memory, "dspp: no memory"));
  }
}

inline void NcclRank::register_block(std::byte* data, Block& block, NcclLine& line) {
  void* handle = nullptr;
  block.handles.reserve(block.handles.size() + 1);
  line.check(ncclCommRegister(line.comm, data, static_cast<std::size_t>(block.bytes), &handle));
  block.handles.emplace_back(&line, handle);
}

inline void NcclRank::register_with(NcclLine& line) {
  for (auto& [data, block] : blocks_) register_block(data, block, line);
}

inline void NcclRank::deregister(Block& block) noexcept {
  for (const auto& [line, handle] : block.handles)
    if (line->comm != nullptr) ncclCommDeregister(line->comm, handle);
}

inline bool NcclRank::is_idle() noexcept {
  if (failure_) return true;
  for (NcclLine* line : lines_)
    if (cudaStreamQuery(line->stream()) == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
  return true;
}

inline void NcclRank::become_idle() noexcept {
  if (failure_) return;
  try {
    guarded([&] {
      for (std::size_t i = 0; i < lines_.size(); ++i) wait_for(lines_[i]->stream());
    });
  } catch (...) {  // kept for the next call; what was aborted does not run any more
  }
}

inline void NcclRank::giving(std::byte* data) noexcept {
  if (const auto found = blocks_.find(data); found != blocks_.end()) {
    deregister(found->second);
    blocks_.erase(found);
  }
}

// One by one each abort may wait for what another keeps from running.
inline void NcclRank::abort() noexcept {
  ncclGroupStart();
  for (NcclLine* line : lines_)
    if (line->comm != nullptr) ncclCommAbort(std::exchange(line->comm, nullptr));
  ncclGroupEnd();
}

inline void NcclRank::finalize() {
  finalized_ = true;
  barrier(world_, CallSite::here());  // a rank that still waits for this one is an error of both
  wait_for(stream());
  for (std::size_t i = 0; i < lines_.size(); ++i) wait_for(lines_[i]->stream());
  for (auto& [data, block] : blocks_) deregister(block);
  blocks_.clear();
  for (NcclLine* line : lines_)
    if (line->comm != nullptr) line->check(ncclCommFinalize(line->comm));
  for (NcclLine* line : lines_)
    if (line->comm != nullptr) line->settle(ncclSuccess);
  for (NcclLine* line : lines_)
    if (line->comm != nullptr) line->check(ncclCommDestroy(std::exchange(line->comm, nullptr)));
}

inline void NcclRank::end() {
  guarded([&] { finalize(); });
  close();
}

inline void NcclRank::close() noexcept {
  if (std::exchange(closed_, true)) return;
  if (!failure_ && std::uncaught_exceptions() > exceptions_) {
    failure_ = Error(ErrorCode::aborted, "dspp: " + name() + " stopped by an exception.");
    abort();  // who catches the exception sends it to the other ranks: its words are not known here
  }
  try {
    if (!failure_ && !finalized_) guarded([&] { finalize(); });
  } catch (...) {  // aborted
  }
  for (NcclLine* line : lines_) line->drop_calls();
  memory_.watch(nullptr);
  if (!failure_)
    failure_ =
        Error(ErrorCode::state, "dspp: a communicator of NCCL needs its NcclWorld, but that has ended. Keep it.");
}

}  // namespace dspp::detail
