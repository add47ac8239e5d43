// SPDX-License-Identifier: Apache-2.0
/// An optimizer's rule on every block of a range.
#pragma once

#include <cstring>
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

/// The inputs of a block in the types of a rule: in place, or converted and padded in the buffers.
template <class G, class S>
struct UpdateInputs {
  const Compute<G>* gradient;
  const S *values, *moments[max_moments];
  Lanes<Compute<G>> gradients;
  Lanes<S> others[max_moments + 1];

  template <class T>
  [[gnu::always_inline]] void read(const FlatRange<T, G, S>& range, const S* from, int moment_count, Size i,
                                   Size length) {
    gradient = read_block(gradients, range.gradient + i, length);
    values = read_block(others[max_moments], from + i, length);
    for (int m = 0; m < moment_count; ++m)
      moments[m] = read_block(others[m], static_cast<const S*>(range.moments[m] + i), length);
  }
};

/// Copies a vector register's elements: a loop of copies would become narrower ones, which wait for the wider stores.
template <class S>
[[gnu::always_inline]] inline void copy_vector(S* to, const S* from) {
  using Vector [[gnu::vector_size(8 * sizeof(S))]] = S;
  Vector elements;
  std::memcpy(&elements, from, sizeof elements);
  std::memcpy(to, &elements, sizeof elements);
}

/// Elements that a rule gets at once: those of a vector register, in which all that it computes stays.
inline constexpr int rule_length = 8;
static_assert(block_length % rule_length == 0);

/// The elements of a rule from the k-th of a block on: what the rule does not write is unchanged.
template <int moment_count, class G, class S>
[[gnu::always_inline]] inline void begin_rule(UpdateBlock<S, rule_length>& block, const UpdateInputs<G, S>& of, int k,
                                              S scale) {
  block.value = of.values + k;
  for (int m = 0; m < moment_count; ++m) block.moments[m] = of.moments[m] + k;
  for (int j = 0; j < rule_length; ++j) block.gradient[j] = static_cast<S>(of.gradient[k + j]) * scale;
  copy_vector(block.new_value, block.value);
  for (int m = 0; m < moment_count; ++m) copy_vector(block.new_moments[m], block.moments[m]);
}

/// Elements [begin, end) of a range, of rows that are taken.
struct TakenRows {
  Size begin, end;
};
/// The first ones of [at, end); none at `end`.
inline TakenRows taken_from(const RowChoice& rows, Size at, Size end) {
  if (rows.marks == nullptr) return {at, end};
  const auto next_row = [&](Size i) { return std::min(end, (rows.row_of(i) + 1) * rows.columns - rows.first); };
  while (at < end && !rows.takes(at)) at = next_row(at);
  Size to = at;
  while (to < end && rows.takes(to)) to = next_row(to);
  return {at, to};
}

/// Applies a rule to every element of a range.
template <int moment_count, class T, class G, class S, class Rule>
void update_range(const FlatRange<T, G, S>& range, S scale, const Rule& rule) {
  S* const values = accumulating(range);
  const bool cast = range.parameter != nullptr && static_cast<const void*>(values) != range.parameter;
  parallel_for(range.count, 16384, [=](Size begin, Size end) {
    const FlatRange<T, G, S> own = range;  // what is the loop's own stays in registers
    const Rule of_loop = rule;
    const S by = scale;
    const bool casts = cast;
    UpdateInputs<G, S> inputs;
    Lanes<S> new_values, rest[max_moments + 1];
    for (TakenRows taken = taken_from(own.rows, begin, end); taken.begin < end;
         taken = taken_from(own.rows, taken.end, end))
      for (Size i = taken.begin; i < taken.end; i += block_length) {
        const Size length = taken.end - i;
        inputs.read(own, values, moment_count, i, length);
        S* to[max_moments + 1];
        for (int m = 0; m < moment_count; ++m) to[m] = length < block_length ? rest[m] : own.moments[m] + i;
        to[max_moments] = length < block_length ? rest[max_moments] : values + i;
        for (int k = 0; k < block_length; k += rule_length) {
          UpdateBlock<S, rule_length> block;
          begin_rule<moment_count>(block, inputs, k, by);
          of_loop(block);
          for (int m = 0; m < moment_count; ++m) copy_vector(to[m] + k, block.new_moments[m]);
          copy_vector(to[max_moments] + k, block.new_value);
          if (casts) copy_vector(new_values + k, block.new_value);
        }
        if (length < block_length) {
          for (int m = 0; m < moment_count; ++m) std::copy_n(rest[m], length, own.moments[m] + i);
          std::copy_n(rest[max_moments], length, values + i);
        }
        if (casts) store_block(own.parameter + i, new_values, length);
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
