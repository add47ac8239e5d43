// SPDX-License-Identifier: Apache-2.0
/// The machine of a job: how many ranks it has if the job names none, and whether their plans fit into its memory.
#pragma once

#include <algorithm>
#include <string>
#include <type_traits>

#include <dspp/base/error.hpp>
#include <dspp/launch/device_rank.hpp>
#include <dspp/launch/launch.hpp>
#include <dspp/tensor/pool.hpp>

namespace train_gpt {

using dspp::Size;

/// Two on the processor, one on each GPU, of which some stay idle where the policy does not divide them; more where it
/// needs more.
///
/// Throws   Error(usage) where CUDA opens no GPU
template <dspp::Device D>
Size default_ranks(int model_ranks) {
  if (std::is_same_v<D, dspp::Cpu>) return dspp::round_up(2, model_ranks);
  return std::max(dspp::DeviceRank<D>::devices() / model_ranks, 1) * model_ranks;
}

/// Refuses a job whose planned memory exceeds the machine's, or what is free on a GPU. Of several processes each checks
/// its own rank on its own GPU: others may see other GPUs.
///
/// Throws   Error(usage)
template <dspp::Device D>
void check_memory(Size ranks, const dspp::Launch& launch, Size planned_bytes_per_rank) {
  constexpr bool on_gpu = !std::is_same_v<D, dspp::Cpu>;
  const bool processes = launch.size > 1;
  const auto check = [&](int device, Size ranks_there) {
    const Size has = dspp::DeviceRank<D>::memory_bytes(device);
    if (planned_bytes_per_rank <= has / ranks_there) return;
    const std::string bytes = dspp::readable_bytes(has);
    dspp::fail(dspp::ErrorCode::usage,
               "dspp: train_gpt needs a job that fits into " +
                   (on_gpu ? "the " + bytes + " of memory that are free on GPU " + std::to_string(device)
                           : "this machine's " + bytes + " of memory") +
                   ", but " + std::to_string(ranks_there) + (ranks_there == 1 ? " rank of " : " ranks of ") +
                   dspp::readable_bytes(planned_bytes_per_rank) + (ranks_there == 1 ? " does" : " do") +
                   " not. Lower --width, --layers, --micro-batch or --sequence, or raise the ZeRO stage.");
  };
  if (!on_gpu) return check(0, processes ? launch.local_size : ranks);
  const int devices = dspp::DeviceRank<D>::devices();
  if (processes && launch.local_rank >= 0) check(launch.local_rank % devices, 1);
  for (int device = 0; !processes && device < std::min<Size>(devices, ranks); ++device)
    check(device, dspp::round_up(ranks - device, devices) / devices);
}

/// Fails where the plan's peak is above the limit of a rank's pool.
///
/// Throws   Error(usage)
inline void check_pool_limit(Size limit, Size planned_peak) {
  if (limit == 0 || planned_peak <= limit) return;
  dspp::fail(dspp::ErrorCode::usage,
             "dspp: --pool-limit needs at least the " + std::to_string(planned_peak) + " bytes (" +
                 dspp::readable_bytes(planned_peak) + ") of the plan's peak, but got " + std::to_string(limit) +
                 ". Raise it, lower --width, --layers, --micro-batch or --sequence, raise the ZeRO stage, or give "
                 "--recompute-segments or --offload.");
}

}  // namespace train_gpt
