// SPDX-License-Identifier: Apache-2.0
/// Which kernels of a device compute attention.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// What a GPU's attention is computed by; a Cpu has one. A policy says it: AttentionBy<CuDnn>.
///
///   fastest   cuDNN where it is compiled in and takes the attention, else as flash
///   cudnn     cuDNN, or an error
///   flash     never cuDNN: dspp's kernels on tensor cores where they take the operands, else as plain
///   by_warps  as flash, and not by warpgroups: for tests and measurements
///   plain     a thread a query, or a key
enum class AttentionKernels { fastest, cudnn, flash, by_warps, plain };

constexpr const char* name_of(AttentionKernels kernels) {
  constexpr const char* names[] = {"fastest", "cudnn", "flash", "by_warps", "plain"};
  return names[static_cast<int>(kernels)];
}

}  // namespace dspp
