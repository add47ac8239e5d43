// SPDX-License-Identifier: Apache-2.0
/// The units of the Cpu that dspp::compiled holds: the list, and its declarations.
/// (A member that constant expressions run is inline: one that is large, and not run often, is marked gnu::noinline.)
#pragma once

#include <dspp/tensor/device.hpp>
#include <dspp/zero/gradients.hpp>
#include <dspp/zero/materialize.hpp>
#include <dspp/zero/sharded_state.hpp>
#include <dspp/zero/update.hpp>

/// Of values of type T; TEMPLATE is `template`, or `extern template` for declarations.
#define DSPP_UNITS_OF(TEMPLATE, T)                                                                                 \
  TEMPLATE class Replicas<T, Cpu>;                                                                                 \
  TEMPLATE class Unit<T, Cpu>;                                                                                     \
  TEMPLATE class Inventory<T, Cpu>;                                                                                \
  TEMPLATE class ShardedState<T, Cpu>;                                                                             \
  TEMPLATE void sum_replicated_gradients(const List<Unit<T, Cpu>*>&, Replicas<T, Cpu>&, CommunicatorOf<Cpu>&);     \
  TEMPLATE Scalar<double, Cpu> gradient_norm(const List<Unit<T, Cpu>*>&, Replicas<T, Cpu>&, CommunicatorOf<Cpu>&); \
  TEMPLATE void fill_bucket(Bucket<T, Cpu>&, Replicas<T, Cpu>&, int, Range, const InitialSource&);                 \
  TEMPLATE void ShardedState<T, Cpu>::fill_master(const Bucket<T, Cpu>&, int, Range, const InitialSource&);

#if !DSPP_HAS_DEFINITIONS()
namespace dspp {
DSPP_UNITS_OF(extern template, double)
DSPP_UNITS_OF(extern template, float)
DSPP_UNITS_OF(extern template, bf16)
DSPP_UNITS_OF(extern template, f16)
}  // namespace dspp
#endif
