// SPDX-License-Identifier: Apache-2.0
/// Floor 5: the tape, redistribute with its backward, operators on Variables, recompute.
#pragma once

#include <dspp/autograd/activations.hpp>
#include <dspp/autograd/context.hpp>
#include <dspp/autograd/custom_op.hpp>
#include <dspp/autograd/finite_probe.hpp>
#include <dspp/autograd/gelu.hpp>
#include <dspp/autograd/integers.hpp>
#include <dspp/autograd/kept_input.hpp>
#include <dspp/autograd/matmul.hpp>
#include <dspp/autograd/move.hpp>
#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/pointwise.hpp>
#include <dspp/autograd/recompute.hpp>
#include <dspp/autograd/redistribute.hpp>
#include <dspp/autograd/reductions.hpp>
#include <dspp/autograd/report.hpp>
#include <dspp/autograd/selection.hpp>
#include <dspp/autograd/shape_operators.hpp>
#include <dspp/autograd/slot.hpp>
#include <dspp/autograd/tape.hpp>
#include <dspp/autograd/variable.hpp>
