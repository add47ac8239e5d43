// SPDX-License-Identifier: Apache-2.0
/// The pass over a range that all optimizers share: blocks in, a rule, blocks out.
#pragma once

#include <type_traits>

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>
#include <dspp/optim/optimizer.hpp>

namespace dspp::detail {

/// A block of everything that a rule sees, in the state's type. The gradient is already scaled.
template <class S>
struct UpdateBlock {
  cpu::Lanes<S> gradient, value, moments[2];
};

/// Master (or parameter) and moments through `rule(UpdateBlock<S>&)`, and the parameter rounded from the master.
///
/// Every element goes through the same instructions wherever it stands in a range, so that a compiler's choice of fused
/// operations, and with it the last bit, does not depend on how shards are cut.
///
/// Cost     each array is read once, and written once if it changes
template <int Moments, class T, class G, class S, class Rule>
void pass_over(const FlatRange<T, G, S>& range, double gradient_scale, Rule rule) {
  S* values = range.master;
  if constexpr (std::is_same_v<T, S>)
    if (values == nullptr) values = range.parameter;
  const bool cast = static_cast<const void*>(values) != static_cast<const void*>(range.parameter);
  const S scale = static_cast<S>(gradient_scale);
  cpu::parallel_for(range.count, 16384, [=](Size begin, Size end) {
    UpdateBlock<S> block;
    cpu::Lanes<Compute<G>> g_buffer;
    cpu::Lanes<S> buffer;
    for (Size i = begin; i < end; i += cpu::block_length) {
      const Size length = end - i;
      const Compute<G>* g = cpu::read_block(g_buffer, range.gradient + i, length);
      for (int k = 0; k < cpu::block_length; ++k) block.gradient[k] = static_cast<S>(g[k]) * scale;
      const S* v = cpu::read_block(buffer, values + i, length);
      for (int k = 0; k < cpu::block_length; ++k) block.value[k] = v[k];
      for (int m = 0; m < Moments; ++m) {
        const S* moment = cpu::read_block(buffer, range.moments[m] + i, length);
        for (int k = 0; k < cpu::block_length; ++k) block.moments[m][k] = moment[k];
      }
      rule(block);
      for (int m = 0; m < Moments; ++m) cpu::store_block(range.moments[m] + i, block.moments[m], length);
      cpu::store_block(values + i, block.value, length);
      if constexpr (!std::is_same_v<T, S>) {
        cpu::store_block(range.parameter + i, block.value, length);
      } else {
        if (cast) cpu::store_block(range.parameter + i, block.value, length);
      }
    }
  });
}

}  // namespace dspp::detail
