// SPDX-License-Identifier: Apache-2.0
/// Floor 11: worlds, the engine, plans, batches, weights on disk.
#pragma once

#include <dspp/engine/batch.hpp>
#include <dspp/engine/batches.hpp>
#include <dspp/engine/checkpoint.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/engine/engine_config.hpp>
#include <dspp/engine/engine_scope.hpp>
#include <dspp/engine/evaluate.hpp>
#include <dspp/engine/full_tensors.hpp>
#include <dspp/engine/generate.hpp>
#include <dspp/engine/gradients.hpp>
#include <dspp/engine/hugging_face.hpp>
#include <dspp/engine/hugging_face_config.hpp>
#include <dspp/engine/hugging_face_fields.hpp>
#include <dspp/engine/hugging_face_tokens.hpp>
#include <dspp/engine/launch.hpp>
#include <dspp/engine/materialize.hpp>
#include <dspp/engine/nonfinite.hpp>
#include <dspp/engine/plan.hpp>
#include <dspp/engine/plan_table.hpp>
#include <dspp/engine/run.hpp>
#include <dspp/engine/together.hpp>
#include <dspp/engine/training_facts.hpp>
#include <dspp/engine/training_state.hpp>
#include <dspp/engine/update.hpp>
#include <dspp/engine/world.hpp>
