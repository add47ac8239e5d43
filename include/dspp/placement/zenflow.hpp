// SPDX-License-Identifier: Apache-2.0
/// Which rows of parameters a step updates: ZenFlow.
#pragma once

#include <dspp/base/types.hpp>

namespace dspp {

/// A member of a policy: a step updates the important rows of each matrix, those of the largest gradients, and all
/// vectors. The gradients of the other rows are added up, and once in ZenFlowConfig::update_interval steps their mean
/// updates them, beside the steps that follow. What is important is selected anew once in select_interval steps, from
/// the gradients of a step; the first step of a training, and the first after the state was read or set from outside,
/// updates all rows and selects.
///
/// What reads, writes or saves the engine's parameters or state has the other rows updated first, by the gradients so
/// far, and begins anew: a training that goes on from a checkpoint has the bits of the one that saved it. The bits are
/// those of a policy without where all rows are important, and where each step updates all and nothing overlaps.
///
/// Rows are those of the last dimension: of a Linear the weights of an output, of an Embedding those of a token. An
/// update of the other rows has the number and the learning rate of its step, and decays them once.
///
/// Memory   where the optimizer's state rests, of a rank's slice: a sum of gradients in the state's precision, and
///          with overlap_step another, and the values where they have no masters; in the device's memory a byte a row,
///          and 8 bytes for each rank along Tp
/// Cost     of a selection, 8 bytes a row summed over the replicas and gathered over Tp; the host waits for it
/// Source   ZenFlow, arXiv:2505.12242, as in DeepSpeed, whose channels are chosen by each rank of its own slice
struct ZenFlow {};

/// The numbers of ZenFlow, by the names that DeepSpeed has for them.
struct ZenFlowConfig {
  double topk_ratio = 0.1;      ///< share of the rows of each matrix that are important, at least one unless it is 0
  Size update_interval = 4;     ///< steps from one update of the other rows to the next
  Size select_interval = 16;    ///< steps from one selection to the next: a multiple of update_interval
  Size full_warm_up_steps = 0;  ///< first steps of a training that update all rows
  /// An update of the other rows runs beside the next update_interval steps, and counts from their end on. Else, and
  /// before a selection, it runs within its step.
  bool overlap_step = true;

  friend constexpr bool operator==(const ZenFlowConfig&, const ZenFlowConfig&) = default;
};

}  // namespace dspp
