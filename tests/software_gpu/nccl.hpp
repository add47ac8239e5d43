// SPDX-License-Identifier: Apache-2.0
/// The calls of NCCL that kernels/nccl.cuh uses, in software: ranks are threads of one process.
///
/// Communicators are non-blocking, as there: a call is often in progress when it returns, and its work is in the
/// stream only once ncclCommGetAsyncError has said that it is not. An operation begins when every rank's stream has
/// come to it. Ranks that differ in what they call wait for ever, and so does a rank whose peer is lost, until it
/// aborts.
/// Sums are in an order of the ring that depends on the count, and rounded at every addition.
///
/// Refused, where NCCL leaves it undefined or waits: a call while another is in progress, memory of the host, more than
/// 2048 calls in a group, two communicators in one group, a GPU that two ranks of a communicator have, communicators
/// destroyed before they are finalized or while blocks are registered with them.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include <software_gpu/runtime.hpp>

namespace dspp::software_gpu {
struct NcclComm;

/// The n-th next call that can fail does, with ncclSystemError; 0: none. Returns the calls since it was last asked.
int fail_nccl_call(int number);
/// From now on every communicator of that rank of the first world gets ncclRemoteError: its peers' operations with it
/// never begin. -1: none is lost.
void lose_nccl_rank(int rank);
/// What ncclGetVersion says of the library that is loaded; 0: that of the header.
void set_nccl_version(int version);
/// Communicators that were neither destroyed nor aborted, and blocks that are registered with them.
int live_nccl_communicators();
int registered_nccl_blocks();
/// The number in the last unique id that a rank of this process joined with, from 1: ids of a process are counted.
std::uint64_t joined_nccl_id();
/// True while `data` lies in a registered block of communicator `comm`.
bool is_registered(NcclComm* comm, const void* data);
}  // namespace dspp::software_gpu

#define NCCL_MAJOR 2
#define NCCL_MINOR 28
#define NCCL_PATCH 9
#define NCCL_VERSION_CODE 22809
#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_SPLIT_NOCOLOR -1

using ncclComm_t = dspp::software_gpu::NcclComm*;
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
struct ncclConfig_t {
  int blocking = INT_MIN;
};
#define NCCL_CONFIG_INITIALIZER \
  {}
enum ncclRedOp_t { ncclSum = 0 };
enum ncclDataType_t {
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};

ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, std::size_t bytes, void** handle);
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t sum,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclRedOp_t sum,
                               ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* in, void* out, std::size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* in, void* out, std::size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSend(const void* in, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* out, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
