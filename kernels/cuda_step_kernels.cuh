// SPDX-License-Identifier: Apache-2.0
/// The kernels of a step that dspp/cuda/kernels.hpp declares: updates of parameters, and the numbers they depend on.
#pragma once

#include <dspp/cuda/device.hpp>
#include <kernels/counted_targets.cuh>
#include <kernels/cuda_graphs.cuh>
#include <kernels/cuda_memory.cuh>
#include <kernels/squared_norm.cuh>
#include <kernels/update_range.cuh>

namespace dspp {

namespace gpu {
/// make(scalars), or its place where the launches of a step are repeated: see CudaGraphs::place.
template <class Make>
auto varying(CudaMemory& on, const UpdateScalars& scalars, const MatrixShape& shape, const Make& make) {
  using R = decltype(make(scalars));
  Varying<R> now{make(scalars)};
  if (CudaGraphs* const graphs = on.graphs()) now.place = graphs->place(scalars.range, shape, make, now.value);
  return now;
}
}  // namespace gpu

// ---- parameters -----------------------------------------------------------------------------------------------------

template <class O, class T, class G>
void Kernel<kernels::Update<O, T, G, float>, Cuda>::update(CudaMemory& on, const O& optimizer, const Range& range,
                                                           const UpdateScalars& scalars, const double* step) {
  const auto rule = gpu::varying(on, scalars, {},
                                 [optimizer](const UpdateScalars& now) { return optimizer.template rule<float>(now); });
  gpu::update_range<O::moment_count>(gpu::stream_of(on), range, rule, scalars.gradient_scale, step);
}
template <class O, class T, class G>
void Kernel<kernels::AddUpdateSquares<O, T, G, float>, Cuda>::update(CudaMemory& on, const O& optimizer,
                                                                     const Range& range, const UpdateScalars& scalars,
                                                                     const double* step, double* sums) {
  static_assert(2 * gpu::most_square_pieces <= CudaMemory::scratch_doubles);
  const auto rule = gpu::varying(
      on, scalars, {}, [optimizer](const UpdateScalars& now) { return optimizer.template direction<float>(now); });
  gpu::add_update_squares<O::moment_count>(gpu::stream_of(on), range, rule, scalars.gradient_scale, step, on.scratch(),
                                           sums);
}
template <class O, class T, class G>
void Kernel<kernels::UpdateByNorms<O, T, G, float>, Cuda>::update(CudaMemory& on, const O& optimizer,
                                                                  const Range& range, const UpdateScalars& scalars,
                                                                  const double* step, const double* sums) {
  using Direction = decltype(optimizer.template direction<float>(scalars));
  const auto direction = gpu::varying(on, scalars, {}, [optimizer](const UpdateScalars& now) {
    return gpu::RatedDirection<Direction>{optimizer.template direction<float>(now), now.lr};
  });
  using Rule = gpu::NormRule<O, Direction>;
  gpu::update_range<O::moment_count>(gpu::stream_of(on), range, gpu::Varying<Rule>{Rule{direction, optimizer, sums}},
                                     scalars.gradient_scale, step);
}
template <class O, class T, class G>
void Kernel<kernels::MatrixDirections<O, T, G, float>, Cuda>::update(CudaMemory& on, const O& optimizer,
                                                                     const Range& range, const UpdateScalars& scalars,
                                                                     const double* step, float* to) {
  FlatRange<float, G, float> as_values{.gradient = range.gradient, .parameter = to, .count = range.count};
  for (int m = 0; m < O::matrix_moment_count; ++m) as_values.moments[m] = range.moments[m];
  const auto rule = gpu::varying(on, scalars, {}, [optimizer](const UpdateScalars& now) {
    return optimizer.template matrix_direction<float>(now);
  });
  gpu::update_range<O::matrix_moment_count>(gpu::stream_of(on), as_values, rule, scalars.gradient_scale, step);
}
template <class O, class T>
void Kernel<kernels::UpdateMatrices<O, T, float>, Cuda>::update(CudaMemory& on, const O& optimizer, const Range& range,
                                                                const UpdateScalars& scalars, const double* step,
                                                                const MatrixShape& shape) {
  const auto rule = gpu::varying(on, scalars, shape, [optimizer, shape](const UpdateScalars& now) {
    return optimizer.template matrix_rule<float>(now, shape);
  });
  gpu::update_range<0>(gpu::stream_of(on), range, rule, 1, step, true);
}
DSPP_CUDA_INLINE void Kernel<kernels::Normalize<float>, Cuda>::run(CudaMemory& on, Size count, double epsilon, float* y,
                                                                   const float* x) {
  double* const squares = on.scratch() + gpu::most_norm_pieces;
  gpu::squared_norm(gpu::stream_of(on), count, x, on.scratch(), squares);
  gpu::launch_each(gpu::Work{"normalize", 1, count}, gpu::stream_of(on), count, gpu::Normalize{y, x, squares, epsilon});
}
DSPP_CUDA_INLINE void Kernel<kernels::AddPairs, Cuda>::add(CudaMemory& on, Size count, Size stride, const double* parts,
                                                           double* sums) {
  gpu::launch_once(gpu::Work{"add_pairs", 1, count}, gpu::stream_of(on), gpu::AddPairs{count, stride, parts, sums});
}
template <class T>
void Kernel<kernels::AddSquares<T>, Cuda>::add(CudaMemory& on, Size count, const T* x, double* sum) {
  gpu::squared_norm(gpu::stream_of(on), count, x, on.scratch(), sum, true);
}
template <class T>
void Kernel<kernels::AddRowSquares<T>, Cuda>::add(CudaMemory& on, Size count, Size columns, Size first, const T* x,
                                                  double* sums) {
  gpu::add_row_squares(gpu::stream_of(on), count, columns, first, x, sums);
}
DSPP_CUDA_INLINE void Kernel<kernels::SumPairs, Cuda>::run(CudaMemory& on, Size pairs, const double* x, double* sum) {
  gpu::once_as_cpu<kernels::SumPairs>("sum_pairs", gpu::stream_of(on), pairs, x, sum);
}
DSPP_CUDA_INLINE void Kernel<kernels::NormOfPairs, Cuda>::run(CudaMemory& on, int ranks, double* squares) {
  gpu::once_as_cpu<kernels::NormOfPairs>("norm_of_pairs", gpu::stream_of(on), ranks, squares);
}
DSPP_CUDA_INLINE void Kernel<kernels::JudgeStep, Cuda>::run(CudaMemory& on, const StepLimits& limits,
                                                            const double* norm, double* scalars) {
  gpu::once_as_cpu<kernels::JudgeStep>("judge_step", gpu::stream_of(on), limits, norm, scalars);
  gpu::launch_once(gpu::Work{"judge_step"}, gpu::stream_of(on), gpu::SkipIfFault{on.fault(), scalars});
}

// ---- counted targets ------------------------------------------------------------------------------------------------

DSPP_CUDA_INLINE void Kernel<kernels::SumTargetWeights, Cuda>::run(CudaMemory& on, Size count,
                                                                   const std::int32_t* targets, const float* weights,
                                                                   double* counts) {
  gpu::sum_target_weights(gpu::stream_of(on), count, targets, weights, counts);
}
DSPP_CUDA_INLINE void Kernel<kernels::RequireSameCounts, Cuda>::run(CudaMemory& on, const double* reported,
                                                                    const double* other) {
  const auto check = on.add_check([](const CudaFault& found) { detail::WrongCounts::differ(found.a, found.b); });
  gpu::launch_once(gpu::Work{"require_same_counts"}, gpu::stream_of(on),
                   gpu::RequireNumbers<kernels::RequireSameCounts>{reported, other, check, on.fault()});
}
DSPP_CUDA_INLINE void Kernel<kernels::RequireSumOfWeights, Cuda>::run(CudaMemory& on, const double* reported,
                                                                      const double* sum) {
  const auto check = on.add_check([](const CudaFault&) { detail::WrongCounts::without_weights(); });
  gpu::launch_once(gpu::Work{"require_sum_of_weights"}, gpu::stream_of(on),
                   gpu::RequireNumbers<kernels::RequireSumOfWeights>{reported, sum, check, on.fault()});
}
DSPP_CUDA_INLINE void Kernel<kernels::CountTargets<float>, Cuda>::run(CudaMemory& on, double all, const double* counted,
                                                                      const double* nonzero, const float* loss,
                                                                      double* counts) {
  const auto check = on.add_check([](const CudaFault&) { detail::WrongCounts::no_number(); });
  gpu::launch_once(gpu::Work{"count_targets"}, gpu::stream_of(on),
                   gpu::CountTargets{all, counted, nonzero, loss, counts, check, on.fault()});
}
DSPP_CUDA_INLINE void Kernel<kernels::Widen<float>, Cuda>::run(CudaMemory& on, const float* value, double* number) {
  gpu::once_as_cpu<kernels::Widen<float>>("widen", gpu::stream_of(on), value, number);
}
DSPP_CUDA_INLINE void Kernel<kernels::AddCounted, Cuda>::run(CudaMemory& on, const double* counts, const double* number,
                                                             double* sum) {
  gpu::once_as_cpu<kernels::AddCounted>("add_counted", gpu::stream_of(on), counts, number, sum);
}
DSPP_CUDA_INLINE void Kernel<kernels::SeedLoss<float>, Cuda>::run(CudaMemory& on, const kernels::SeedArguments& of,
                                                                  const double* counts, const float* loss, double* sums,
                                                                  float* seed) {
  const auto check = on.add_check([](const CudaFault&) { detail::WrongCounts::beside_mean(); });
  gpu::launch_once(gpu::Work{"seed_loss"}, gpu::stream_of(on),
                   gpu::SeedLoss{of, counts, loss, sums, seed, check, on.fault()});
}
DSPP_CUDA_INLINE void Kernel<kernels::SumUpTargets, Cuda>::run(CudaMemory& on, int replicas, Size micro_steps,
                                                               const double* sums, const double* totals,
                                                               double* scalars) {
  gpu::once_as_cpu<kernels::SumUpTargets>("sum_up_targets", gpu::stream_of(on), replicas, micro_steps, sums, totals,
                                          scalars);
}

}  // namespace dspp
