// SPDX-License-Identifier: Apache-2.0
/// The table of rotary angles, in the arithmetic of the Cpu's.
///
///   table[i, j] = factor cos((first + i) frequency[j])      table[i, half + j] = factor sin(the same)
///
/// table [count, 2 half], frequency [half].
///
/// In f64, rounded once. The host computes the frequencies, which are arguments of the launch: nothing is uploaded or
/// waited for. In software the bits are the Cpu's. On a GPU a sine may differ from the Cpu's by 2 units in the last
/// place of f64, which changes few f32 values of the table, each by a unit in its last place.
///
/// A block has 8 pairs of features and 1024 positions, as 32 runs of 32. A thread has one place in every run: it
/// computes the turn of its own place, and that of the start of one run for all threads.
///
/// Bytes     4 an element, and 1/16 of a sine
#pragma once

#include <algorithm>
#include <vector>

#include <dspp/ops/rope_scaling.hpp>
#include <dspp/ops/rotary_turn.hpp>
#include <kernels/device.cuh>

namespace dspp::gpu {

inline constexpr int pairs_of_launch = 128, pairs_of_block = 8, runs_of_block = 32;

struct PairFrequencies {
  double of[pairs_of_launch];  // 1 KiB of the 4 KiB that a launch's arguments may have
};

/// What a launch writes: `pairs` columns of cosines and of sines, whose first is `pair`.
struct RotaryTableExtents {
  Size first, count, half, pair, pairs, strips;
};

template <class C>
__global__ void __launch_bounds__(pairs_of_block* ops::rotary_stride)
    rotary_table_kernel(RotaryTableExtents at, PairFrequencies frequencies, double factor, C* table) {
  constexpr Size stride = ops::rotary_stride;
  static_assert(runs_of_block == stride, "dspp: a thread needs one run to begin, but there are others. Change either.");
  __shared__ double cosines[runs_of_block][pairs_of_block], sines[runs_of_block][pairs_of_block];
  const int thread = static_cast<int>(threadIdx.x), own = thread % pairs_of_block, place = thread / pairs_of_block;
  const Size j = blockIdx.x % at.strips * pairs_of_block + own;
  const Size first_run = at.first / stride + blockIdx.x / at.strips * runs_of_block;
  const double frequency = j < at.pairs ? frequencies.of[j] : 0;
  const auto start = ops::RotaryTurn::of((first_run + place) * stride, frequency);
  cosines[place][own] = start.cosine;
  sines[place][own] = start.sine;
  __syncthreads();
  if (j >= at.pairs) return;
  const auto fine = ops::RotaryTurn::of(place, frequency, factor);
  for (int run = 0; run < runs_of_block; ++run) {
    const Size i = (first_run + run) * stride + place - at.first;
    if (i < 0 || i >= at.count) continue;
    const auto turn = ops::RotaryTurn{cosines[run][own], sines[run][own]}.then(fine);
    C* const to = table + i * 2 * at.half + at.pair + j;
    to[0] = static_cast<C>(turn.cosine);
    to[at.half] = static_cast<C>(turn.sine);
  }
}

/// Positions [first, first + count), frequencies theta^(-2j / head_dim) or those of `scaling`.
template <class C>
void rotary_table(cudaStream_t stream, Size first, Size count, Size head_dim, double theta, const RopeScaling& scaling,
                  C* table) {
  if (count == 0) return;
  const Size half = head_dim / 2, runs = (first + count - 1) / ops::rotary_stride - first / ops::rotary_stride + 1;
  std::vector<double> frequencies(static_cast<std::size_t>(half));
  ops::rope_frequencies(head_dim, theta, scaling, first + count, frequencies.data());
  for (Size pair = 0; pair < half; pair += pairs_of_launch) {
    const Size pairs = std::min<Size>(pairs_of_launch, half - pair), strips = blocks_for(pairs, pairs_of_block);
    PairFrequencies of{};
    std::copy_n(frequencies.data() + pair, pairs, of.of);
    launch(Work{"rotary_table", count, head_dim}, rotary_table_kernel<C>, strips * blocks_for(runs, runs_of_block),
           {pairs_of_block * static_cast<int>(ops::rotary_stride)}, stream,
           RotaryTableExtents{first, count, half, pair, pairs, strips}, of, ops::rope_attention_factor(scaling), table);
  }
}

}  // namespace dspp::gpu
