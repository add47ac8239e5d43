// SPDX-License-Identifier: Apache-2.0
/// Floor 8: updates of flat shards, loss scales, and learning rates over time.
#pragma once

#include <dspp/optim/adagrad.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/optim/gradient_sum.hpp>
#include <dspp/optim/lamb.hpp>
#include <dspp/optim/lion.hpp>
#include <dspp/optim/loss_scale.hpp>
#include <dspp/optim/muon.hpp>
#include <dspp/optim/optimizer.hpp>
#include <dspp/optim/schedule.hpp>
#include <dspp/optim/sgd.hpp>
