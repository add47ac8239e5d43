// SPDX-License-Identifier: Apache-2.0
/// An optimizer's rule on every block of a range.
#pragma once

#include <type_traits>

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

/// Visible in every translation unit: the optimizer may be the user's.
///
/// Every element uses the same instructions at every position in a range, so that a compiler's choice of fused
/// operations, and with it the last bit, does not depend on how shards are cut.
template <class O, class T, class G, class S>
struct Kernel<kernels::Update<O, T, G, S>, Cpu> {
  template <class Ranges>
  static void run(const O& optimizer, const Ranges& ranges, const UpdateScalars& scalars, const double* step) {
    if (!updates(step)) return;
    ranges([&](const FlatRange<T, G, S>& range, const RangeSettings& settings) {
      UpdateScalars own = scalars_of(scalars, settings);
      if (step) own.gradient_scale = step[StepScalars::gradient_scale];
      update(optimizer_of(optimizer, settings), range, own);
    });
  }

 private:
  static void update(const O& optimizer, const FlatRange<T, G, S>& range, const UpdateScalars& scalars);
};

namespace cpu {

/// The values that accumulate: the masters, or the parameters where they are their own.
template <class T, class G, class S>
S* accumulating(const FlatRange<T, G, S>& range) {
  if constexpr (std::is_same_v<T, S>)
    if (range.master == nullptr) return range.parameter;
  return range.master;
}

/// Room for the inputs of a block.
template <class G, class S>
struct UpdateBuffers {
  Lanes<Compute<G>> gradients;
  Lanes<S> others[3];
};

/// A block of a range from element i on, before a rule: what the rule does not write is unchanged.
template <int moment_count, class T, class G, class S>
[[gnu::always_inline]] inline void read_update_block(UpdateBlock<S, block_length>& block, UpdateBuffers<G, S>& buffers,
                                                     const FlatRange<T, G, S>& range, const S* values, Size i,
                                                     Size length, S scale) {
  const Compute<G>* g = read_block(buffers.gradients, range.gradient + i, length);
  for (int k = 0; k < block_length; ++k) block.gradient[k] = static_cast<S>(g[k]) * scale;
  block.value = read_block(buffers.others[2], values + i, length);
  for (int m = 0; m < moment_count; ++m)
    block.moments[m] = read_block(buffers.others[m], static_cast<const S*>(range.moments[m] + i), length);
  for (int k = 0; k < block_length; ++k) block.new_value[k] = block.value[k];
  for (int m = 0; m < moment_count; ++m)
    for (int k = 0; k < block_length; ++k) block.new_moments[m][k] = block.moments[m][k];
}

/// Applies a rule to every block of a range.
template <int moment_count, class T, class G, class S, class Rule>
void update_range(const FlatRange<T, G, S>& range, S scale, const Rule& rule) {
  S* const values = accumulating(range);
  const bool cast = static_cast<const void*>(values) != static_cast<const void*>(range.parameter);
  parallel_for(range.count, 16384, [=](Size begin, Size end) {
    UpdateBlock<S, block_length> block;
    UpdateBuffers<G, S> buffers;
    for (Size i = begin; i < end; i += block_length) {
      const Size length = end - i;
      read_update_block<moment_count>(block, buffers, range, static_cast<const S*>(values), i, length, scale);
      rule(block);
      for (int m = 0; m < moment_count; ++m) store_block(range.moments[m] + i, block.new_moments[m], length);
      store_block(values + i, block.new_value, length);
      if constexpr (!std::is_same_v<T, S>) {
        store_block(range.parameter + i, block.new_value, length);
      } else {
        if (cast) store_block(range.parameter + i, block.new_value, length);
      }
    }
  });
}

}  // namespace cpu

template <class O, class T, class G, class S>
void Kernel<kernels::Update<O, T, G, S>, Cpu>::update(const O& optimizer, const FlatRange<T, G, S>& range,
                                                      const UpdateScalars& scalars) {
  cpu::update_range<O::moment_count>(range, static_cast<S>(scalars.gradient_scale),
                                     optimizer.template rule<S>(scalars));
}

}  // namespace dspp

/// The kernels of optimizer O in every combination of element types. `template` instantiates them, as dspp::compiled
/// does for dspp's own optimizers, and `extern template` declares that another unit does.
#define DSPP_UPDATE_KERNELS(TEMPLATE, O)                                   \
  TEMPLATE struct Kernel<kernels::Update<O, double, double, double>, Cpu>; \
  TEMPLATE struct Kernel<kernels::Update<O, float, float, float>, Cpu>;    \
  TEMPLATE struct Kernel<kernels::Update<O, bf16, bf16, float>, Cpu>;      \
  TEMPLATE struct Kernel<kernels::Update<O, bf16, float, float>, Cpu>;     \
  TEMPLATE struct Kernel<kernels::Update<O, f16, f16, float>, Cpu>;        \
  TEMPLATE struct Kernel<kernels::Update<O, f16, float, float>, Cpu>;
