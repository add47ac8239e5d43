// SPDX-License-Identifier: Apache-2.0
/// The law of an optimizer's kernel on a device: three steps of a flat shard are those of the Cpu's optimizer in f64.
#pragma once

#include <dspp/ops/cpu/update.hpp>
#include <kernels/update.cuh>

#include <laws/device_array.hpp>

namespace dspp::laws {

/// Segments of random lengths over `count` elements, some of which decay, some with another rate.
inline std::vector<gpu::Segment> random_segments(Size count, double weight_decay, std::mt19937& random) {
  std::vector<gpu::Segment> segments;
  for (Size begin = 0; begin < count; begin += odd_extent(700, random))
    segments.push_back({begin, random() % 2 ? static_cast<float>(weight_decay) : 0.0f, random() % 3 ? 1.0f : 0.5f});
  return segments;
}

/// run(stream, shard, t, step) on the device against Kernel<Update<O, double, double, double>, Cpu>.
template <class T, class G, class O, class Run>
void check_update(const O& optimizer, Size count, Size offset, bool with_segments, std::mt19937& random, Run run) {
  constexpr double gradient_scale = 0.25;
  const std::string what = "count " + std::to_string(count) + ", offset " + std::to_string(offset) + ", segments " +
                           std::to_string(with_segments);
  const TestStream stream;
  const auto start = normals<float>(count, random);
  const DeviceArray<float> values(start, offset), first(std::vector<float>(count, 0.0f), offset);
  const DeviceArray<float> second(std::vector<float>(count, 0.0f), offset);
  const DeviceArray<T> parameter(count, offset);
  std::vector<double> scalars(StepScalars::count, 0.0);
  scalars[StepScalars::gradient_scale] = gradient_scale;
  scalars[StepScalars::verdict] = static_cast<double>(StepVerdict::update);
  const DeviceArray<double> step(scalars);
  auto segments = with_segments ? random_segments(count, optimizer.weight_decay, random) : std::vector<gpu::Segment>();
  const DeviceArray<gpu::Segment> d_segments(segments);
  if (segments.empty()) segments.push_back({0, static_cast<float>(optimizer.weight_decay), 1});

  std::vector<double> values64 = in_f64(start), first64(count, 0.0), second64(count, 0.0);
  for (Size t = 1; t <= 3; ++t) {
    const auto gradient = normals<G>(count, random);
    const DeviceArray<G> d_gradient(gradient, offset);
    gpu::Shard<T, G> shard{.count = count, .gradient = d_gradient, .parameter = parameter, .values = values};
    shard.moments[0] = first;
    shard.moments[1] = second;
    shard.common = segments[0];
    if (with_segments && count > 0) {
      shard.segments = d_segments;
      shard.segment_count = static_cast<int>(segments.size());
    }
    run(static_cast<cudaStream_t>(stream), shard, t, step.data());
    check_cuda(cudaStreamSynchronize(stream));

    const auto gradient64 = in_f64(gradient);
    const auto ranges = [&](auto f) {
      for (std::size_t s = 0; s < segments.size(); ++s) {
        const Size begin = segments[s].begin, end = s + 1 < segments.size() ? segments[s + 1].begin : count;
        FlatRange<double, double, double> range;
        range.gradient = gradient64.data() + begin;
        range.parameter = values64.data() + begin;
        range.moments[0] = first64.data() + begin;
        range.moments[1] = second64.data() + begin;
        range.count = end - begin;
        f(range, RangeSettings{.lr_factor = segments[s].lr_factor, .weight_decay = segments[s].weight_decay});
      }
    };
    Kernel<kernels::Update<O, double, double, double>, Cpu>::run(
        optimizer, ranges, UpdateScalars{.step = t, .lr = optimizer.lr, .gradient_scale = gradient_scale}, nullptr);
  }
  check_elements(values.read(stream), values64, 16, what + ": values");
  check_elements(parameter.read(stream), values64, 16, what + ": parameter");
  if constexpr (O::moment_count > 0) check_elements(first.read(stream), first64, 16, what + ": first moment");
  if constexpr (O::moment_count > 1) check_elements(second.read(stream), second64, 16, what + ": second moment");
}

}  // namespace dspp::laws
