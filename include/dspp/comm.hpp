// SPDX-License-Identifier: Apache-2.0
/// Floor 1: communicators.
#pragma once

#include <dspp/comm/all_or_none.hpp>
#include <dspp/comm/any_communicator.hpp>
#include <dspp/comm/async_progress.hpp>
#include <dspp/comm/buffer.hpp>
#include <dspp/comm/call_site.hpp>
#include <dspp/comm/communicator.hpp>
#include <dspp/comm/host_calls.hpp>
#include <dspp/comm/host_group.hpp>
#include <dspp/comm/pending.hpp>
#include <dspp/comm/profiled_communicator.hpp>
#include <dspp/comm/rank_groups.hpp>
#include <dspp/comm/recorder.hpp>
#include <dspp/comm/same_facts.hpp>
#include <dspp/comm/self.hpp>
#include <dspp/comm/sum_order.hpp>
#include <dspp/comm/tcp/tcp.hpp>
#include <dspp/comm/tcp/world.hpp>
#include <dspp/comm/threads/run_ranks.hpp>
#include <dspp/comm/threads/threads.hpp>
#include <dspp/comm/threads/world.hpp>
#include <dspp/comm/traffic.hpp>
