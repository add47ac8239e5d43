// SPDX-License-Identifier: Apache-2.0
/// Floor 9: units, buckets, their arrows over the replica axes, their values, gradients and updates.
#pragma once

#include <dspp/zero/bucket.hpp>
#include <dspp/zero/delayed_update.hpp>
#include <dspp/zero/full_tensors.hpp>
#include <dspp/zero/gradients.hpp>
#include <dspp/zero/in_unit.hpp>
#include <dspp/zero/lane_update.hpp>
#include <dspp/zero/materialize.hpp>
#include <dspp/zero/overlap_clock.hpp>
#include <dspp/zero/reduction_check.hpp>
#include <dspp/zero/replica_completion.hpp>
#include <dspp/zero/replica_config.hpp>
#include <dspp/zero/replica_hops.hpp>
#include <dspp/zero/replicas.hpp>
#include <dspp/zero/sharded_state.hpp>
#include <dspp/zero/speculative_update.hpp>
#include <dspp/zero/stage.hpp>
#include <dspp/zero/state_store.hpp>
#include <dspp/zero/unit.hpp>
#include <dspp/zero/update.hpp>
