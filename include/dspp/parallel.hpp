// SPDX-License-Identifier: Apache-2.0
/// Floor 7: layers cut over Tp.
#pragma once

#include <dspp/parallel/column.hpp>
#include <dspp/parallel/context.hpp>
#include <dspp/parallel/row.hpp>
#include <dspp/parallel/tiled_loss.hpp>
#include <dspp/parallel/vocab.hpp>
#include <dspp/parallel/vocab_bias.hpp>
