// SPDX-License-Identifier: Apache-2.0
/// The operations of the Cpu that dspp::compiled holds for an element type; each list is beside its operations.
#pragma once

#include <dspp/autograd.hpp>
#include <dspp/models.hpp>
#include <dspp/nn.hpp>
#include <dspp/parallel.hpp>

#define DSPP_OPERATIONS(TEMPLATE, T)             \
  DSPP_ACTIVATION_OPERATIONS(TEMPLATE, T)        \
  DSPP_ARITHMETIC_OPERATIONS(TEMPLATE, T)        \
  DSPP_ATTENTION_OPERATIONS(TEMPLATE, T)         \
  DSPP_BACKWARD_OPERATIONS(TEMPLATE, T)          \
  DSPP_CROSS_ENTROPY_OPERATIONS(TEMPLATE, T)     \
  DSPP_EMBEDDING_OPERATIONS(TEMPLATE, T)         \
  DSPP_GROUPED_ATTENTION_OPERATIONS(TEMPLATE, T) \
  DSPP_LAYER_NORM_OPERATIONS(TEMPLATE, T)        \
  DSPP_LINEAR_OPERATIONS(TEMPLATE, T)            \
  DSPP_MATMUL_OPERATIONS(TEMPLATE, T)            \
  DSPP_PATCH_EMBEDDING_OPERATIONS(TEMPLATE, T)   \
  DSPP_POSITIONS_OPERATIONS(TEMPLATE, T)         \
  DSPP_REDISTRIBUTE_OPERATIONS(TEMPLATE, T)      \
  DSPP_REDUCTION_OPERATIONS(TEMPLATE, T)         \
  DSPP_RMS_NORM_OPERATIONS(TEMPLATE, T)          \
  DSPP_SHAPE_OPERATIONS(TEMPLATE, T)             \
  DSPP_VALUE_BESIDE_OPERATIONS(TEMPLATE, T)
