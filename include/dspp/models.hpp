// SPDX-License-Identifier: Apache-2.0
/// Floor 10: attention, blocks, stacks, models, decorators.
#pragma once

#include <dspp/models/at_position.hpp>
#include <dspp/models/attention.hpp>
#include <dspp/models/attention_extras.hpp>
#include <dspp/models/bert.hpp>
#include <dspp/models/gated_mlp.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/models/grouped_attention.hpp>
#include <dspp/models/llama.hpp>
#include <dspp/models/mlp.hpp>
#include <dspp/models/positions.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/models/sequential.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/models/tiled.hpp>
#include <dspp/models/tiled_linear.hpp>
#include <dspp/models/tiled_mlp.hpp>
