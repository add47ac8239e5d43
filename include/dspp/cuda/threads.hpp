// SPDX-License-Identifier: Apache-2.0
/// Ranks that are threads of one process and share a GPU: collectives are copies and sums on it.
#pragma once

#include <functional>
#include <memory>

#include <dspp/comm/threads/rank_share.hpp>
#include <dspp/cuda/memory.hpp>

namespace dspp {

/// Most ranks that share a GPU: a kernel of a sum takes so many addresses.
inline constexpr int most_ranks_on_gpu = 64;

/// For Threads::on_device: what a rank, whose memory is `memory`, does of the operations of a group.
///
/// An operation starts on the rank's communication stream, after what every rank had issued before it posted the
/// operation. Sums are those of thread ranks on the Cpu, bit for bit, in either order. The host waits for the other
/// ranks' calls, never for the GPU: after Pending::wait() the rank's stream has the results before what it does next.
/// Digests of sums are not made: who wants one takes that of the result.
///
/// Cost     a read of the memory of each rank, at the device's bandwidth, beside what the rank's stream does; no
///          temporaries
/// Throws   Error(usage) when more than most_ranks_on_gpu ranks share one
///
/// Defined in kernels/cuda_threads.cuh.
detail::MakeShare cuda_share(CudaMemory& memory);

}  // namespace dspp
