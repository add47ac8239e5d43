// SPDX-License-Identifier: Apache-2.0
/// Floor 4: how tensors lie over ranks, how they move, and the policy that says so.
#pragma once

#include <dspp/placement/arrow.hpp>
#include <dspp/placement/axes.hpp>
#include <dspp/placement/broadcast_rules.hpp>
#include <dspp/placement/context_rules.hpp>
#include <dspp/placement/delayed.hpp>
#include <dspp/placement/dimension_rules.hpp>
#include <dspp/placement/offload.hpp>
#include <dspp/placement/placed.hpp>
#include <dspp/placement/policy.hpp>
#include <dspp/placement/policy_members.hpp>
#include <dspp/placement/replica_traffic.hpp>
#include <dspp/placement/rules.hpp>
#include <dspp/placement/selective_recompute.hpp>
#include <dspp/placement/speculative.hpp>
#include <dspp/placement/state.hpp>
