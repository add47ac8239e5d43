// SPDX-License-Identifier: Apache-2.0
/// Side floor: what a job keeps of itself: metrics, tables, comparisons of plan and measurement.
#pragma once

#include <dspp/observe/communication_time.hpp>
#include <dspp/observe/comparison.hpp>
#include <dspp/observe/memory_map.hpp>
#include <dspp/observe/metrics.hpp>
#include <dspp/observe/overlap.hpp>
#include <dspp/observe/profile.hpp>
#include <dspp/observe/resident.hpp>
#include <dspp/observe/table.hpp>
