// SPDX-License-Identifier: Apache-2.0
#include <software_gpu/nccl.hpp>
#include <software_gpu/nccl_exchange.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <dspp/base/error.hpp>

namespace dspp::software_gpu {

namespace {

/// The ranks of a communicator.
struct Clique {
  int size = 0;
  std::vector<NcclComm*> members;
  std::vector<int> gpus, world_ranks;
  int joined = 0, finalized = 0;
  std::map<std::uint64_t, std::shared_ptr<Exchange>> collectives;                     // by number
  std::map<std::tuple<int, int, std::uint64_t>, std::shared_ptr<Exchange>> messages;  // by sender, receiver, number
  std::map<std::pair<std::uint64_t, int>, std::shared_ptr<Clique>> parts;             // by split and color
  std::map<std::uint64_t, std::vector<int>> colors;                                   // of the ranks, by split

  explicit Clique(int ranks)
      : size(ranks),
        members(static_cast<std::size_t>(ranks)),
        gpus(static_cast<std::size_t>(ranks), -1),
        world_ranks(static_cast<std::size_t>(ranks), -1) {}
};

}  // namespace

struct NcclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0, world_rank = 0;
  ncclResult_t state = ncclInProgress;
  bool initialized = false, finalizing = false;
  std::string said;
  int polls = 1;  // until what is in progress is done
  std::uint64_t collectives = 0, splits = 0;
  std::map<std::pair<int, int>, std::uint64_t> messages;
  std::vector<Call> waiting;  // calls that are not in a stream yet
  std::map<void*, std::size_t> registered;
  std::shared_ptr<bool> aborted = std::make_shared<bool>(false);
};

namespace {

struct Library {
  std::map<std::uint64_t, std::shared_ptr<Clique>> cliques;  // by unique id
  std::set<NcclComm*> live;
  std::uint64_t ids = 0, joined_id = 0;
  int calls = 0, failing_call = 0, lost = -1, version = NCCL_VERSION_CODE;
};

Library& library() {
  static Library only;
  return only;
}

std::lock_guard<std::recursive_mutex> turn() {
  return std::lock_guard(turns());
}

/// The calls of a group of this thread.
struct Group {
  int depth = 0;
  ncclResult_t result = ncclSuccess;
  NcclComm* comm = nullptr;
  std::vector<Call> calls;
  std::vector<NcclComm*> aborts;
};
thread_local Group group;

bool fails() {
  return ++library().calls == library().failing_call;
}

std::shared_ptr<Exchange> exchange_of(NcclComm& c, const Call& call) {
  Clique& clique = *c.clique;
  std::shared_ptr<Exchange>* at = nullptr;
  if (call.kind == Kind::send) {
    const std::pair<int, int> way = call.receives ? std::pair(call.other, c.rank) : std::pair(c.rank, call.other);
    at = &clique.messages[{way.first, way.second, c.messages[way]++}];
  } else {
    at = &clique.collectives[c.collectives++];
  }
  if (!*at) {
    *at = std::make_shared<Exchange>();
    (*at)->ranks = call.kind == Kind::send ? 2 : clique.size;
  }
  (*at)->calls.emplace(c.rank, call);
  return *at;
}

/// Puts the calls of a group, one operation, into their stream.
void launch(NcclComm& c) {
  std::vector<std::shared_ptr<Exchange>> all;
  const cudaStream_t stream = c.waiting.front().stream;
  double bytes = 0;
  for (const Call& call : c.waiting) {
    all.push_back(exchange_of(c, call));
    bytes += received_bytes(call, c.clique->size);
  }
  c.waiting.clear();
  issues_message(bytes);
  const double issued = time_now();
  issue_when(
      stream,
      [all, stream, issued, rank = c.rank, aborted = c.aborted] {
        const auto mine = turn();
        if (*aborted) return true;
        bool every = true;
        for (const auto& e : all) {
          e->came.insert(rank);
          if (!e->done) e->ready = std::max({e->ready, time_of(stream), issued});
          every = every && e->may_begin();
        }
        return every;
      },
      [all, stream, aborted = c.aborted] {
        const auto mine = turn();
        if (*aborted) return;
        for (const auto& e : all) run(*e), wait_until(stream, e->ready);
      });
}

ncclResult_t refuse(NcclComm& c, ncclResult_t with, const char* why) {
  c.said = why;
  return with;
}

ncclResult_t end_group() {
  Group mine = std::exchange(group, {});
  for (NcclComm* comm : mine.aborts) ncclCommAbort(comm);
  if (mine.result != ncclSuccess) return mine.result;
  if (mine.comm == nullptr) return ncclSuccess;
  NcclComm& c = *mine.comm;
  if (mine.calls.size() > 2048) return refuse(c, ncclInvalidUsage, "more than 2048 calls in a group");
  c.waiting = std::move(mine.calls);
  c.polls = static_cast<int>(random_below(3));
  c.state = ncclInProgress;
  if (c.polls == 0) {
    c.state = ncclSuccess;
    launch(c);
    return ncclSuccess;
  }
  return ncclInProgress;
}

ncclResult_t call(NcclComm* comm, Call what) {
  const auto mine = turn();
  const bool alone = group.depth == 0;
  const auto failed = [&](ncclResult_t with, const char* why) {
    if (comm != nullptr) comm->said = why;
    group.result = alone ? ncclSuccess : with;
    return with;
  };
  if (comm == nullptr || !library().live.contains(comm)) return failed(ncclInvalidArgument, "no communicator");
  if (fails()) return failed(ncclSystemError, "a call to the system failed");
  if (comm->state != ncclSuccess || comm->finalizing) return failed(ncclInvalidUsage, "a call is in progress");
  if (group.comm != nullptr && group.comm != comm) return failed(ncclInvalidUsage, "two communicators in a group");
  const bool writes = what.kind != Kind::send || what.receives, reads = what.kind != Kind::send || !what.receives;
  if (what.count == 0 || (reads && !is_reached_by_device(what.in)) || (writes && !is_reached_by_device(what.out)))
    return failed(ncclInvalidArgument, "memory that is not the device's, or none");
  group.comm = comm;
  group.calls.push_back(what);
  return alone ? end_group() : ncclSuccess;
}

void lose_if_lost(NcclComm& c) {
  if (library().lost < 0 || !c.initialized) return;
  const auto& ranks = c.clique->world_ranks;
  if (std::find(ranks.begin(), ranks.end(), library().lost) == ranks.end()) return;
  for (auto& [number, e] : c.clique->collectives) e->lost = true;
  for (auto& [way, e] : c.clique->messages) e->lost = true;
  c.state = ncclRemoteError;
  c.said = "a rank of the world closed its connection";
}

/// What is in progress goes on; the state afterwards.
void advance(NcclComm& c) {
  Clique& q = *c.clique;
  if (c.state != ncclInProgress) return;
  if (!c.initialized) {
    if (q.joined < q.size) return;
    for (int r = 0; r < q.size; ++r)
      for (int s = 0; s < r; ++s)
        if (q.gpus[static_cast<std::size_t>(r)] == q.gpus[static_cast<std::size_t>(s)] && q.size > 1) {
          c.state = ncclInvalidUsage;
          c.said = "Duplicate GPU detected";
          return;
        }
  }
  if (c.finalizing && q.finalized < q.size) return;
  if (c.polls-- > 0) return;
  c.initialized = true;
  c.state = ncclSuccess;
  if (!c.waiting.empty()) launch(c);
}

NcclComm* join(const std::shared_ptr<Clique>& clique, int rank, int world_rank) {
  auto* const c = new NcclComm;
  c->clique = clique;
  c->rank = rank;
  c->world_rank = world_rank;
  const auto i = static_cast<std::size_t>(rank);
  clique->members[i] = c;
  clique->world_ranks[i] = world_rank;
  cudaGetDevice(&clique->gpus[i]);
  ++clique->joined;
  library().live.insert(c);
  return c;
}

}  // namespace

int fail_nccl_call(int number) {
  const auto mine = turn();
  library().failing_call = number;
  return std::exchange(library().calls, 0);
}
void lose_nccl_rank(int rank) {
  const auto mine = turn();
  library().lost = rank;
}
void set_nccl_version(int version) {
  const auto mine = turn();
  library().version = version == 0 ? NCCL_VERSION_CODE : version;
}
int live_nccl_communicators() {
  const auto mine = turn();
  return static_cast<int>(library().live.size());
}
std::uint64_t joined_nccl_id() {
  const auto mine = turn();
  return library().joined_id;
}
int registered_nccl_blocks() {
  const auto mine = turn();
  int blocks = 0;
  for (const NcclComm* c : library().live) blocks += static_cast<int>(c->registered.size());
  return blocks;
}
bool is_registered(NcclComm* comm, const void* data) {
  const auto mine = turn();
  for (const auto& [at, bytes] : comm->registered)
    if (data >= at && data < static_cast<char*>(at) + bytes) return true;
  return false;
}

}  // namespace dspp::software_gpu

using namespace dspp::software_gpu;

ncclResult_t ncclGetVersion(int* version) {
  const auto mine = turn();
  *version = library().version;
  return fails() ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const auto mine = turn();
  if (fails()) return ncclSystemError;
  const std::uint64_t number = ++library().ids;
  std::memset(id->internal, 7, sizeof id->internal);
  std::memcpy(id->internal, &number, sizeof number);
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess: return "no error";
    case ncclUnhandledCudaError: return "unhandled cuda error";
    case ncclSystemError: return "unhandled system error";
    case ncclInternalError: return "internal error";
    case ncclInvalidArgument: return "invalid argument";
    case ncclInvalidUsage: return "invalid usage";
    case ncclRemoteError: return "remote process exited or there was a network error";
    case ncclInProgress: return "NCCL operation in progress";
  }
  return "unknown result code";
}

const char* ncclGetLastError(ncclComm_t comm) {
  return comm == nullptr ? "" : comm->said.c_str();
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
  const auto mine = turn();
  if (fails()) return ncclSystemError;
  if (config == nullptr || config->blocking != 0 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  std::uint64_t number = 0;
  std::memcpy(&number, id.internal, sizeof number);
  library().joined_id = number;
  std::shared_ptr<Clique>& clique = library().cliques[number];
  if (!clique) clique = std::make_shared<Clique>(ranks);
  if (clique->size != ranks || clique->members[static_cast<std::size_t>(rank)] != nullptr) return ncclInvalidArgument;
  *comm = join(clique, rank, rank);
  return ncclInProgress;
}

// The parts exist once all ranks have come: until then the new communicator is in progress.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  const auto mine = turn();
  if (fails()) return ncclSystemError;
  if (comm->state != ncclSuccess || config == nullptr || config->blocking != 0) return ncclInvalidUsage;
  const std::uint64_t split = comm->splits++;
  auto& colors = comm->clique->colors[split];
  if (colors.empty()) colors.assign(static_cast<std::size_t>(comm->clique->size), INT_MIN);
  colors[static_cast<std::size_t>(comm->rank)] = color;
  *part = nullptr;
  if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
  // Its size is known when all have come; keys are the parts' ranks, as dspp gives them.
  std::shared_ptr<Clique>& clique = comm->clique->parts[{split, color}];
  if (!clique) clique = std::make_shared<Clique>(0), clique->size = INT_MAX;
  auto grow = [&](auto& x, auto value) {
    if (x.size() <= static_cast<std::size_t>(key)) x.resize(static_cast<std::size_t>(key) + 1, value);
  };
  grow(clique->members, nullptr), grow(clique->gpus, -1), grow(clique->world_ranks, -1);
  *part = join(clique, key, comm->world_rank);
  if (std::find(colors.begin(), colors.end(), INT_MIN) == colors.end())
    for (auto& [at, one] : comm->clique->parts)
      if (at.first == split) one->size = one->joined;
  comm->state = ncclInProgress;
  comm->polls = 1;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const auto mine = turn();
  if (!library().live.contains(comm)) return ncclInvalidArgument;
  if (fails()) return ncclSystemError;
  lose_if_lost(*comm);
  advance(*comm);
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const auto mine = turn();
  if (comm->state != ncclSuccess || comm->finalizing) return ncclInvalidUsage;
  comm->finalizing = true;
  ++comm->clique->finalized;
  comm->state = ncclInProgress;
  comm->polls = 1;
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const auto mine = turn();
  if (!library().live.contains(comm) || !comm->finalizing || comm->state != ncclSuccess || !comm->registered.empty())
    return ncclInvalidUsage;
  library().live.erase(comm);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const auto mine = turn();
  if (!library().live.contains(comm)) return ncclInvalidArgument;
  if (group.depth > 0) return group.aborts.push_back(comm), ncclSuccess;
  *comm->aborted = true;
  for (auto& [number, e] : comm->clique->collectives) e->lost = e->lost || e->calls.contains(comm->rank);
  for (auto& [way, e] : comm->clique->messages) e->lost = e->lost || e->calls.contains(comm->rank);
  library().live.erase(comm);
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, std::size_t bytes, void** handle) {
  const auto mine = turn();
  if (fails()) return ncclSystemError;
  if (comm->state != ncclSuccess || !is_device_memory(data) || !comm->registered.emplace(data, bytes).second)
    return ncclInvalidUsage;
  *handle = data;
  return ncclSuccess;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const auto mine = turn();
  return comm->registered.erase(handle) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclGroupStart() {
  ++group.depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  const auto mine = turn();
  if (group.depth == 0) return ncclInvalidUsage;
  if (--group.depth > 0) return ncclSuccess;
  return end_group();
}

ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {Kind::all_reduce, in, out, count, type, 0, false, stream});
}

ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return call(comm, {Kind::reduce_scatter, in, out, count, type, 0, false, stream});
}

ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, {Kind::all_gather, in, out, count, type, 0, false, stream});
}

ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
  return call(comm, {Kind::broadcast, in, out, count, type, root, false, stream});
}

ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {Kind::send, in, nullptr, count, type, peer, false, stream});
}

ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return call(comm, {Kind::send, nullptr, out, count, type, peer, true, stream});
}
