// SPDX-License-Identifier: Apache-2.0
/// Floor 2: shapes, storage, devices and the local tensor.
#pragma once

#include <dspp/tensor/block.hpp>
#include <dspp/tensor/block_layout.hpp>
#include <dspp/tensor/block_trace.hpp>
#include <dspp/tensor/category.hpp>
#include <dspp/tensor/device.hpp>
#include <dspp/tensor/host_memory.hpp>
#include <dspp/tensor/lane.hpp>
#include <dspp/tensor/ledger.hpp>
#include <dspp/tensor/memory_timeline.hpp>
#include <dspp/tensor/pool.hpp>
#include <dspp/tensor/pool_steps.hpp>
#include <dspp/tensor/pool_timeline.hpp>
#include <dspp/tensor/pool_trace.hpp>
#include <dspp/tensor/shape.hpp>
#include <dspp/tensor/tensor.hpp>
#include <dspp/tensor/timeline_range.hpp>
