// SPDX-License-Identifier: Apache-2.0
/// The floor of GPUs: their memory, and the kernels of their operations.
#pragma once

#include <dspp/cuda/clock.hpp>
#include <dspp/cuda/device.hpp>
#include <dspp/cuda/extents.hpp>
#include <dspp/cuda/graphs.hpp>
#include <dspp/cuda/host_memory.hpp>
#include <dspp/cuda/kernels.hpp>
#include <dspp/cuda/lane.hpp>
#include <dspp/cuda/launch_watch.hpp>
#include <dspp/cuda/library.hpp>
#include <dspp/cuda/like_gpus.hpp>
#include <dspp/cuda/memory.hpp>
#include <dspp/cuda/nccl.hpp>
#include <dspp/cuda/pinned.hpp>
