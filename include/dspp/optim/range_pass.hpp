// SPDX-License-Identifier: Apache-2.0
/// The pass over a range that all optimizers share: blocks in, a rule, blocks out.
#pragma once

#include <type_traits>

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>
#include <dspp/optim/optimizer.hpp>

namespace dspp::detail {

/// What a rule reads and what it writes, in the state's type. The gradient is already scaled.
template <class S>
struct UpdateBlock {
  cpu::Lanes<S> gradient;
  const S *value, *moments[max_moments];
  cpu::Lanes<S> new_value, new_moments[max_moments];
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
    cpu::Lanes<Compute<G>> gradients;
    cpu::Lanes<S> buffers[3];
    for (Size i = begin; i < end; i += cpu::block_length) {
      const Size length = end - i;
      const Compute<G>* g = cpu::read_block(gradients, range.gradient + i, length);
      for (int k = 0; k < cpu::block_length; ++k) block.gradient[k] = static_cast<S>(g[k]) * scale;
      block.value = cpu::read_block(buffers[2], values + i, length);
      for (int m = 0; m < Moments; ++m) block.moments[m] = cpu::read_block(buffers[m], range.moments[m] + i, length);
      rule(block);
      for (int m = 0; m < Moments; ++m) cpu::store_block(range.moments[m] + i, block.new_moments[m], length);
      cpu::store_block(values + i, block.new_value, length);
      if constexpr (!std::is_same_v<T, S>) {
        cpu::store_block(range.parameter + i, block.new_value, length);
      } else {
        if (cast) cpu::store_block(range.parameter + i, block.new_value, length);
      }
    }
  });
}

}  // namespace dspp::detail
