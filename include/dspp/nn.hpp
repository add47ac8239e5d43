// SPDX-License-Identifier: Apache-2.0
/// Floor 6: layers, parameters, and the walk over a model.
#pragma once

#include <dspp/nn/activation.hpp>
#include <dspp/nn/dropout.hpp>
#include <dspp/nn/embedding.hpp>
#include <dspp/nn/initial.hpp>
#include <dspp/nn/layer.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/nn/own_positions.hpp>
#include <dspp/nn/parameter.hpp>
#include <dspp/nn/patch_embedding.hpp>
#include <dspp/nn/rms_norm.hpp>
#include <dspp/nn/sum_and_norm.hpp>
#include <dspp/nn/value_beside.hpp>
#include <dspp/nn/walk.hpp>
