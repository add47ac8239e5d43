// SPDX-License-Identifier: Apache-2.0
/// Floor 3: operations on local tensors and their vjps.
#pragma once

#include <dspp/ops/activation.hpp>
#include <dspp/ops/arithmetic.hpp>
#include <dspp/ops/attention.hpp>
#include <dspp/ops/bits.hpp>
#include <dspp/ops/broadcast.hpp>
#include <dspp/ops/clip.hpp>
#include <dspp/ops/copy.hpp>
#include <dspp/ops/counted_targets.hpp>
#include <dspp/ops/cross_entropy.hpp>
#include <dspp/ops/custom.hpp>
#include <dspp/ops/dropout.hpp>
#include <dspp/ops/embedding.hpp>
#include <dspp/ops/finite.hpp>
#include <dspp/ops/flat_range.hpp>
#include <dspp/ops/gelu_form.hpp>
#include <dspp/ops/gradient_norm.hpp>
#include <dspp/ops/grouped_attention.hpp>
#include <dspp/ops/kernels.hpp>
#include <dspp/ops/layer_norm.hpp>
#include <dspp/ops/matmul.hpp>
#include <dspp/ops/matmul_columns.hpp>
#include <dspp/ops/reduce.hpp>
#include <dspp/ops/reduce_along.hpp>
#include <dspp/ops/repeat.hpp>
#include <dspp/ops/rms_norm.hpp>
#include <dspp/ops/rotary.hpp>
#include <dspp/ops/select.hpp>
#include <dspp/ops/slice.hpp>
#include <dspp/ops/softmax.hpp>
#include <dspp/ops/step_verdict.hpp>
#include <dspp/ops/swiglu.hpp>
#include <dspp/ops/transpose.hpp>
#include <dspp/ops/update.hpp>
#include <dspp/ops/write.hpp>
