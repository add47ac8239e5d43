// SPDX-License-Identifier: Apache-2.0
/// Floor 12: the engine: batches, forward, backward, step; evaluation and text from a model.
#pragma once

#include <dspp/engine/batch.hpp>
#include <dspp/engine/batches.hpp>
#include <dspp/engine/blend.hpp>
#include <dspp/engine/bucket_batches.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/engine/engine_config.hpp>
#include <dspp/engine/engine_scope.hpp>
#include <dspp/engine/evaluate.hpp>
#include <dspp/engine/generate.hpp>
#include <dspp/engine/micro_step.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/offload_states.hpp>
#include <dspp/engine/profiling.hpp>
#include <dspp/engine/source_batches.hpp>
#include <dspp/engine/step_graphs.hpp>
#include <dspp/engine/weight_average.hpp>
