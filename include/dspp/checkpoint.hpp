// SPDX-License-Identifier: Apache-2.0
/// Floor 13: trainings and weights on disk.
#pragma once

#include <dspp/checkpoint/average_file.hpp>
#include <dspp/checkpoint/checkpoint.hpp>
#include <dspp/checkpoint/training_facts.hpp>
#include <dspp/checkpoint/training_state.hpp>
