// SPDX-License-Identifier: Apache-2.0
/// An optimizer's own rule on a range of parameters: what the Cpu calls on blocks of many elements is called here on
/// blocks of one. The rule is a functor that a device can call (DSPP_HOST_DEVICE), dspp's or the user's.
///
///   update_range          values, moments and parameters by the rule
///   add_update_squares    sums[0] += sum of p^2, sums[1] += sum of u^2, u what the rule gives in place of values
///   NormRule              p - lr ratio(|p|, |u|) u, the norms from such sums
///
/// Bytes     as update.cuh; add_update_squares what is read of that
#pragma once

#include <cmath>

#include <kernels/each.cuh>
#include <kernels/reduce.cuh>
#include <kernels/update.cuh>
#include <kernels/varying.cuh>

namespace dspp::gpu {

/// A rule of UpdateBlocks for update.cuh, whose settings are in the rule. A kernel takes loaded(), once.
template <int Moments, class R>
struct BlockRule {
  static constexpr int moment_count = Moments;
  Varying<R> rule;

  __device__ BlockRule loaded() const { return {{rule.get()}}; }
  __device__ void operator()(const Segment&, float gradient, float& value, float (&moments)[max_moments]) const {
    const float before = value;
    UpdateBlock<float, 1> block;
    block.gradient[0] = gradient;
    block.value = &before;
    block.new_value[0] = value;
    DSPP_UNROLL
    for (int m = 0; m < Moments; ++m) {
      block.moments[m] = &moments[m];
      block.new_moments[m][0] = moments[m];
    }
    rule.value(block);
    value = block.new_value[0];
    DSPP_UNROLL
    for (int m = 0; m < Moments; ++m) moments[m] = block.new_moments[m][0];
  }
};

template <int Moments, class T, class G>
Shard<T, G> shard_of(const FlatRange<T, G, float>& range, double gradient_scale) {
  Shard<T, G> shard;
  shard.count = range.count;
  shard.gradient = range.gradient;
  shard.parameter = range.parameter;
  shard.values = range.master;
  for (int m = 0; m < Moments; ++m) shard.moments[m] = range.moments[m];
  shard.rows = range.rows;
  shard.scale = static_cast<float>(gradient_scale);
  return shard;
}

/// Gradients are scaled by `step`'s gradient_scale, or by `gradient_scale` if step is null or `unscaled` is set.
template <int Moments, class T, class G, class R>
void update_range(cudaStream_t stream, const FlatRange<T, G, float>& range, const Varying<R>& rule,
                  double gradient_scale, const double* step, bool unscaled = false) {
  Shard<T, G> shard = shard_of<Moments>(range, gradient_scale);
  shard.unscaled = unscaled;
  launch_update("update", stream, BlockRule<Moments, R>{rule}, shard, step);
}

/// A direction and the learning rate of a step.
template <class Direction>
struct RatedDirection {
  Direction direction;
  double lr;
};

/// The rule of a direction whose length depends on norms: `sums` as of add_update_squares.
template <class O, class Direction>
struct NormRule {
  Varying<RatedDirection<Direction>> of;
  O optimizer;
  const double* sums;

  __device__ void operator()(UpdateBlock<float, 1>& block) const {
    const RatedDirection<Direction>& now = of.place != nullptr ? *of.place : of.value;
    now.direction(block);
    const auto rate = static_cast<float>(now.lr * optimizer.ratio(::sqrt(sums[0]), ::sqrt(sums[1])));
    block.new_value[0] = block.value[0] - rate * block.new_value[0];
  }
};

inline constexpr int square_threads = 256;
inline constexpr Size most_square_pieces = 512;

/// Doubles of the scratch.
constexpr Size update_squares_scratch(Size count) {
  const Size needed = blocks_for(count, square_threads * 16);
  return 2 * (needed < 1 ? 1 : needed < most_square_pieces ? needed : most_square_pieces);
}

template <int Threads, int Moments, class R, class T, class G>
__global__ void __launch_bounds__(Threads)
    update_squares_kernel(BlockRule<Moments, R> rule, Shard<T, G> shard, const double* step, double* pieces) {
  const float scale = step != nullptr ? static_cast<float>(step[StepScalars::gradient_scale]) : shard.scale;
  const auto own = rule.loaded();
  double of_values = 0, of_updates = 0;
  for (Size i = static_cast<Size>(blockIdx.x) * Threads + threadIdx.x; i < shard.count;
       i += static_cast<Size>(gridDim.x) * Threads) {
    float value = shard.values[i], moments[max_moments] = {};
    for (int m = 0; m < Moments; ++m) moments[m] = shard.moments[m][i];
    of_values += static_cast<double>(value) * static_cast<double>(value);
    own(Segment{}, to_float(shard.gradient[i]) * scale, value, moments);
    of_updates += static_cast<double>(value) * static_cast<double>(value);
  }
  of_values = reduce_block(of_values, Plus{}, 0.0);
  of_updates = reduce_block(of_updates, Plus{}, 0.0);
  if (threadIdx.x > 0) return;
  pieces[2 * blockIdx.x] = of_values;
  pieces[2 * blockIdx.x + 1] = of_updates;
}

/// sums[k] += the sum over i < count of parts[stride i + k], in order, for k = 0 and 1.
struct AddPairs {
  Size count, stride;
  const double* parts;
  double* sums;
  __device__ void operator()() const {
    for (Size i = 0; i < count; ++i) {
      sums[0] += parts[stride * i];
      sums[1] += parts[stride * i + 1];
    }
  }
};

template <int Moments, class T, class G, class R>
void add_update_squares(cudaStream_t stream, const FlatRange<T, G, float>& range, const Varying<R>& rule,
                        double gradient_scale, const double* step, double* scratch, double* sums) {
  const Work work{"add_update_squares", 1, range.count};
  Shard<T, G> shard = shard_of<Moments>(range, gradient_scale);
  if constexpr (std::is_same_v<T, float>)
    if (shard.values == nullptr) shard.values = shard.parameter;
  const Size pieces = update_squares_scratch(range.count) / 2;
  launch(work, update_squares_kernel<square_threads, Moments, R, T, G>, pieces, {square_threads}, stream,
         BlockRule<Moments, R>{rule}, shard, step, scratch);
  launch_once(work, stream, AddPairs{pieces, 2, scratch, sums});
}

/// y[i] = x[i] / max(root of *squares, epsilon), or 0 where that is 0. y may be x.
struct Normalize {
  float* y;
  const float* x;
  const double* squares;
  double epsilon;
  __device__ void operator()(Size i) const {
    const double root = ::sqrt(*squares);
    const auto norm = static_cast<float>(root > epsilon ? root : epsilon);
    y[i] = norm == 0 ? 0 : x[i] / norm;
  }
};

}  // namespace dspp::gpu
