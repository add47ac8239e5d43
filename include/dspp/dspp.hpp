// SPDX-License-Identifier: Apache-2.0
/// Everything: train large transformers on many devices, with the strategy in their types.
#pragma once

#include <dspp/autograd.hpp>
#include <dspp/base.hpp>
#include <dspp/comm.hpp>
#include <dspp/data.hpp>
#include <dspp/engine.hpp>
#include <dspp/io.hpp>
#include <dspp/mesh.hpp>
#include <dspp/models.hpp>
#include <dspp/nn.hpp>
#include <dspp/observe.hpp>
#include <dspp/ops.hpp>
#include <dspp/optim.hpp>
#include <dspp/parallel.hpp>
#include <dspp/placement.hpp>
#include <dspp/tensor.hpp>
#include <dspp/zero.hpp>
