// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/update_by_norms.hpp>
#include <dspp/ops/cpu/update_matrices.hpp>
#include <dspp/optim/adagrad.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/optim/lamb.hpp>
#include <dspp/optim/lion.hpp>
#include <dspp/optim/muon.hpp>
#include <dspp/optim/sgd.hpp>
#include <kernels/cuda_kernels.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;
using laws::odd_extent;

namespace {

/// A range on the host and the same on the device: values of T with f32 masters where T is narrower, gradients of G.
template <class T, class G>
struct Range {
  static constexpr bool is_own_master = std::is_same_v<T, float>;
  std::vector<float> master, first, second;
  std::vector<G> gradient;
  std::vector<T> parameter;
  DeviceArray<float> d_master, d_first, d_second;
  DeviceArray<G> d_gradient;
  DeviceArray<T> d_parameter;

  Range(Size count, Size offset, std::mt19937& random)
      : master(laws::normals<float>(count, random)),
        first(laws::normals<float>(count, random)),
        second(laws::normals<float>(count, random)),
        gradient(laws::normals<G>(count, random)),
        parameter(rounded(master)),
        d_master(master, offset),
        d_first(squares(first), offset),
        d_second(squares(second), offset),
        d_gradient(gradient, offset),
        d_parameter(parameter, offset) {}
  FlatRange<T, G, float> host() {
    return {gradient.data(),
            parameter.data(),
            is_own_master ? nullptr : master.data(),
            {first.data(), second.data()},
            static_cast<Size>(gradient.size())};
  }
  FlatRange<T, G, float> device() {
    return {d_gradient,
            d_parameter,
            is_own_master ? nullptr : d_master.data(),
            {d_first, d_second},
            static_cast<Size>(gradient.size())};
  }
  static std::vector<T> rounded(const std::vector<float>& x) {
    std::vector<T> y;
    for (const float a : x) y.push_back(static_cast<T>(a));
    return y;
  }
  static std::vector<float>& squares(std::vector<float>& x) {  // moments under roots are not negative
    for (float& a : x) a *= a;
    return x;
  }
  void check_equal(cudaStream_t stream, const std::string& what) {
    laws::check_elements(d_parameter.read(stream), laws::in_f64(parameter), sizeof(T) == 4 ? 64 : 0x1p17, what, 4);
    laws::check_elements(d_master.read(stream), laws::in_f64(master), 64, what, 4);
    laws::check_elements(d_first.read(stream), laws::in_f64(first), 64, what, 4);
    laws::check_elements(d_second.read(stream), laws::in_f64(second), 64, what, 4);
  }
};

constexpr RangeSettings settings{.decays = true, .lr_factor = 0.5, .weight_decay = 0.05};

/// Calls f(range, settings, more...).
template <class R, class... More>
auto only(const R& range, More... more) {
  return [=](auto f) { f(range, settings, more...); };
}

std::vector<double> step_of(StepVerdict verdict) {
  std::vector<double> step(StepScalars::count);
  step[StepScalars::gradient_scale] = 0.25, step[StepScalars::verdict] = static_cast<double>(verdict);
  return step;
}

template <class O, class T, class G>
void check_update(const O& optimizer) {
  std::mt19937 random(18);
  CudaMemory on;
  const UpdateScalars scalars{.step = 3, .lr = optimizer.lr, .gradient_scale = 2};
  for (int i = 0; i < 6; ++i) {
    Range<T, G> range(odd_extent(3000, random), i % 2, random);
    const auto step = step_of(i == 4 ? StepVerdict::spike : StepVerdict::update);
    const DeviceArray<double> d_step(step);
    const bool has_step = i % 3 > 0;
    Kernel<kernels::Update<O, T, G, float>, Cpu>::run(optimizer, only(range.host()), scalars,
                                                      has_step ? step.data() : nullptr);
    Kernel<kernels::Update<O, T, G, float>, Cuda>::run(on, optimizer, only(range.device()), scalars,
                                                       has_step ? d_step.data() : nullptr);
    range.check_equal(gpu::stream_of(on), O::name);
  }
}

template <class O>
void check_update_of_all_types(const O& optimizer) {
  check_update<O, float, float>(optimizer);
  check_update<O, bf16, float>(optimizer);
  check_update<O, f16, f16>(optimizer);
}

}  // namespace

TEST_CASE("every optimizer's own rule updates a range on the GPU as on the Cpu") {
  check_update_of_all_types(AdamW{.lr = 1e-2});
  check_update_of_all_types(Sgd{.lr = 1e-2});
  check_update_of_all_types(MomentumSgd{.lr = 1e-2, .nesterov = true});
  check_update_of_all_types(Adagrad{.lr = 1e-2});
  check_update_of_all_types(Lion{.lr = 1e-2});
  check_update_of_all_types(Muon{.lr = 1e-2});
}

TEST_CASE("updates by norms: the squares are the Cpu's, and so is what they scale") {
  std::mt19937 random(19);
  CudaMemory on;
  const Lamb lamb{.lr = 0.1};
  const UpdateScalars scalars{.step = 2, .lr = lamb.lr};
  for (const Size count : {Size{1}, Size{31}, odd_extent(9000, random), Size{2'200'000}}) {
    Range<bf16, float> range(count, 1, random);
    const auto step = step_of(StepVerdict::update);
    const DeviceArray<double> d_step(step), d_sums(std::vector<double>{1, 2});
    std::vector<double> sums{1, 2};
    Kernel<kernels::AddUpdateSquares<Lamb, bf16, float, float>, Cpu>::run(lamb, only(range.host(), sums.data()),
                                                                          scalars, step.data());
    Kernel<kernels::AddUpdateSquares<Lamb, bf16, float, float>, Cuda>::run(
        on, lamb, only(range.device(), d_sums.data()), scalars, d_step);
    const auto read = d_sums.read(gpu::stream_of(on));
    for (int k = 0; k < 2; ++k) CHECK(laws::close(read[k], sums[k], 1e-6));
    const double* const at = sums.data();
    const double* const d_at = d_sums;
    Kernel<kernels::UpdateByNorms<Lamb, bf16, float, float>, Cpu>::run(lamb, only(range.host(), at), scalars,
                                                                       step.data());
    Kernel<kernels::UpdateByNorms<Lamb, bf16, float, float>, Cuda>::run(on, lamb, only(range.device(), d_at), scalars,
                                                                        d_step);
    range.check_equal(gpu::stream_of(on), "Lamb");
  }
}

TEST_CASE("what comes before and after the products of Muon's matrices is the Cpu's") {
  std::mt19937 random(20);
  CudaMemory on;
  const auto stream = gpu::stream_of(on);
  const Muon muon{.lr = 0.1};
  const UpdateScalars scalars{.step = 2, .lr = muon.lr};
  const auto step = step_of(StepVerdict::update);
  const DeviceArray<double> d_step(step);
  Range<bf16, bf16> range(777, 0, random);
  std::vector<float> update(777);
  const DeviceArray<float> d_update(777);
  Kernel<kernels::MatrixDirections<Muon, bf16, bf16, float>, Cpu>::run(muon, only(range.host(), update.data()), scalars,
                                                                       step.data());
  Kernel<kernels::MatrixDirections<Muon, bf16, bf16, float>, Cuda>::run(on, muon, only(range.device(), d_update.data()),
                                                                        scalars, d_step);
  laws::check_elements(d_update.read(stream), laws::in_f64(update), 32, "directions", 4);
  range.check_equal(stream, "directions");

  for (const double epsilon : {1e-7, 1e3, 0.0}) {
    const auto x = epsilon == 0 ? std::vector<float>(777, 0.0f) : update;
    std::vector<float> y(777);
    const DeviceArray<float> d_x(x);
    Kernel<kernels::Normalize<float>, Cpu>::run(777, epsilon, y.data(), x.data());
    Kernel<kernels::Normalize<float>, Cuda>::run(on, 777, epsilon, d_x, d_x);
    laws::check_elements(d_x.read(stream), laws::in_f64(y), 8, "normalize");
  }

  FlatRange<bf16, float, float> host{update.data(), range.parameter.data(), range.master.data(), {}, 777},
      device{d_update, range.d_parameter, range.d_master, {}, 777};
  const MatrixShape shape{.rows = 111, .columns = 7};
  Kernel<kernels::UpdateMatrices<Muon, bf16, float>, Cpu>::run(muon, only(host, shape), scalars, step.data());
  Kernel<kernels::UpdateMatrices<Muon, bf16, float>, Cuda>::run(on, muon, only(device, shape), scalars, d_step);
  range.check_equal(stream, "matrices");

  const std::vector<double> parts{1, 2, -1, 3, 4, -1, 5, 6};
  const DeviceArray<double> d_parts(parts), sums(std::vector<double>{0.5, 0.25});
  Kernel<kernels::AddPairs, Cuda>::run(on, [&](auto f) { f(3, 3, d_parts.data(), sums.data()); });
  CHECK(sums.read(stream) == std::vector<double>{0.5 + 1 + 3 + 5, 0.25 + 2 + 4 + 6});
}
