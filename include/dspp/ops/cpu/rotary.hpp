// SPDX-License-Identifier: Apache-2.0
/// Rotations of pairs of features by their positions.
#pragma once

#include <dspp/ops/kernels.hpp>
#include <dspp/ops/rope_scaling.hpp>
#include <dspp/ops/rotary_turn.hpp>

namespace dspp {

/// table[i] = cosines, then sines, of position (first + i) theta^(-2j / head_dim), j < head_dim / 2, or of scaled
/// frequencies, by rope_attention_factor.
///
/// Computed in f64 (the angles of both parts added by the addition theorem, some 4 roundings) and rounded once; the
/// values depend on the position alone.
template <class C>
struct Kernel<kernels::RotaryTable<C>, Cpu> {
  static void run(Size first, Size count, Size head_dim, double theta, const RopeScaling& scaling, C* table);
};

/// Rotates, or with sign -1 rotates back; columns that are not rotated are copied. `y` may be `x`.
template <class T>
struct Kernel<kernels::Rotary<T>, Cpu> {
  static void run(const kernels::RotaryExtents& at, T* y, const T* x, const Compute<T>* table, double sign);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <cmath>

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/cpu/parallel.hpp>
#include <dspp/ops/cpu/scratch.hpp>

namespace dspp::cpu {

namespace detail {
/// Rotates the pairs (x[j], x[j + half]) of one head; `sign` -1 rotates back. `y` may be `x`.
template <class T>
void rotate_head(Size half, T* y, const T* x, const Compute<T>* cosines, const Compute<T>* sines, Compute<T> sign) {
  using C = Compute<T>;
  Lanes<C> buffer_a, buffer_b, buffer_c, buffer_s, first, second;
  for (Size j = 0; j < half; j += block_length) {
    const C* a = read_block(buffer_a, x + j, half - j);
    const C* b = read_block(buffer_b, x + half + j, half - j);
    const C* c = read_block(buffer_c, cosines + j, half - j);
    const C* s = read_block(buffer_s, sines + j, half - j);
    for (int k = 0; k < block_length; ++k) {
      const C turned = sign * s[k];
      first[k] = a[k] * c[k] - b[k] * turned;
      second[k] = b[k] * c[k] + a[k] * turned;
    }
    store_block(y + j, first, half - j);
    store_block(y + half + j, second, half - j);
  }
}
}  // namespace detail

}  // namespace dspp::cpu

namespace dspp {

template <class C>
void Kernel<kernels::RotaryTable<C>, Cpu>::run(Size first, Size count, Size head_dim, double theta,
                                               const RopeScaling& scaling, C* table) {
  using cpu::Scratch, ops::RotaryTurn;
  const Size half = head_dim / 2, stride = ops::rotary_stride;
  const Scratch<double> frequencies(half);
  const Scratch<RotaryTurn> fine(stride * half), coarse(half);
  const double* const frequency = frequencies.data();
  ops::rope_frequencies(head_dim, theta, scaling, first + count, frequencies.data());
  const double factor = ops::rope_attention_factor(scaling);
  for (Size i = 0; i < stride; ++i)
    for (Size j = 0; j < half; ++j) fine.data()[i * half + j] = RotaryTurn::of(i, frequency[j], factor);
  Size known = -1;
  for (Size i = 0; i < count; ++i) {
    const Size position = first + i, start = position / stride * stride;
    if (start != known)
      for (Size j = 0; j < half; ++j) coarse.data()[j] = RotaryTurn::of(start, frequency[j]);
    known = start;
    const RotaryTurn *starts = coarse.data(), *places = fine.data() + (position - start) * half;
    C *cosines = table + i * 2 * half, *sines = cosines + half;
    for (Size j = 0; j < half; ++j) {
      const RotaryTurn turn = starts[j].then(places[j]);
      cosines[j] = static_cast<C>(turn.cosine);
      sines[j] = static_cast<C>(turn.sine);
    }
  }
}

template <class T>
void Kernel<kernels::Rotary<T>, Cpu>::run(const kernels::RotaryExtents& at, T* y, const T* x, const Compute<T>* table,
                                          double sign) {
  using namespace cpu;
  const Size half = at.head_dim / 2, grain = std::max<Size>(1, 16384 / std::max<Size>(at.columns, 1));
  parallel_for(at.rows, grain, [&](Size begin, Size end) {
    for (Size i = begin; i < end; ++i) {
      const Compute<T>* cosines = table + i % at.sequence * 2 * half;
      const T* from = x + i * at.columns;
      T* to = y + i * at.columns;
      for (Size j = 0; j < at.rotated; j += at.head_dim)
        cpu::detail::rotate_head(half, to + j, from + j, cosines, cosines + half, static_cast<Compute<T>>(sign));
      if (to != from) std::copy(from + at.rotated, from + at.columns, to + at.rotated);
    }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
