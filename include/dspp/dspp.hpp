// SPDX-License-Identifier: Apache-2.0
/// The core: train large transformers on many devices, with the strategy in their types. By name come
/// <dspp/checkpoint.hpp> (states and weights on disk), <dspp/hub.hpp> (folders of Hugging Face),
/// <dspp/data.hpp> (tokenizers, token files), <dspp/io.hpp> (formats), <dspp/observe.hpp> (metrics) and
/// <dspp/app.hpp> (command lines).
#pragma once

#include <dspp/autograd.hpp>
#include <dspp/base.hpp>
#include <dspp/comm.hpp>
#include <dspp/engine.hpp>
#include <dspp/launch.hpp>
#include <dspp/mesh.hpp>
#include <dspp/models.hpp>
#include <dspp/nn.hpp>
#include <dspp/ops.hpp>
#include <dspp/optim.hpp>
#include <dspp/parallel.hpp>
#include <dspp/placement.hpp>
#include <dspp/plan.hpp>
#include <dspp/tensor.hpp>
#include <dspp/zero.hpp>
