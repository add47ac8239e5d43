// SPDX-License-Identifier: Apache-2.0
/// What a job shows and keeps of itself: options, progress, metrics, tables, comparisons of plan and measurement.
#pragma once

#include <dspp/observe/comparison.hpp>
#include <dspp/observe/interrupt.hpp>
#include <dspp/observe/json_writer.hpp>
#include <dspp/observe/metrics.hpp>
#include <dspp/observe/options.hpp>
#include <dspp/observe/output.hpp>
#include <dspp/observe/progress.hpp>
#include <dspp/observe/table.hpp>
