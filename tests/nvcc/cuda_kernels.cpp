// SPDX-License-Identifier: Apache-2.0
/// Every kernel of the device, as nvcc compiles it to PTX.
// compiled, not run: it would need a GPU
#include <dspp/ops/pointwise/gelu.hpp>
#include <dspp/optim/adamw.hpp>
#include <dspp/optim/lamb.hpp>
#include <dspp/optim/muon.hpp>
#include <kernels/cuda_kernels.cuh>

namespace dspp {

#define DSPP_OF(T)                                                \
  template struct Kernel<kernels::ScaleBy<T>, Cuda>;              \
  template struct Kernel<kernels::CopyRuns<T>, Cuda>;             \
  template struct Kernel<kernels::ZeroRuns<T>, Cuda>;             \
  template struct Kernel<kernels::CopyStrided<T>, Cuda>;          \
  template struct Kernel<kernels::Exchange<T>, Cuda>;             \
  template struct Kernel<kernels::SumAlong<T>, Cuda>;             \
  template struct Kernel<kernels::MaxAlong<T>, Cuda>;             \
  template struct Kernel<kernels::MaxAlongVjp<T>, Cuda>;          \
  template struct Kernel<kernels::Select<T, std::uint8_t>, Cuda>; \
  template struct Kernel<kernels::Gather<T>, Cuda>;               \
  template struct Kernel<kernels::GatherVjp<T>, Cuda>;            \
  template struct Kernel<kernels::SumRepeats<T>, Cuda>;           \
  template struct Kernel<kernels::Sum<T>, Cuda>;                  \
  template struct Kernel<kernels::AllFinite<T>, Cuda>;            \
  template struct Kernel<kernels::Broadcast<T>, Cuda>;            \
  template struct Kernel<kernels::AddBias<T>, Cuda>;              \
  template struct Kernel<kernels::LayerNorm<T>, Cuda>;            \
  template struct Kernel<kernels::RmsNorm<T>, Cuda>;              \
  template struct Kernel<kernels::Softmax<T>, Cuda>;              \
  template struct Kernel<kernels::SoftmaxVjp<T>, Cuda>;           \
  template struct Kernel<kernels::Swiglu<T>, Cuda>;               \
  template struct Kernel<kernels::SwigluVjp<T>, Cuda>;            \
  template struct Kernel<kernels::Rotary<T>, Cuda>;               \
  template struct Kernel<kernels::Dropout<T>, Cuda>;              \
  template struct Kernel<kernels::Embedding<T>, Cuda>;            \
  template struct Kernel<kernels::CrossEntropyParts<T>, Cuda>;    \
  template struct Kernel<kernels::CrossEntropyVjp<T>, Cuda>;      \
  template struct Kernel<kernels::BatchedMatmul<T>, Cuda>;        \
  template struct Kernel<kernels::GroupedAttention<T>, Cuda>;     \
  template struct Kernel<kernels::GroupedAttentionVjp<T>, Cuda>;
#define DSPP_WITH(T, G)                                      \
  template struct Kernel<kernels::SumRows<T, G>, Cuda>;      \
  template struct Kernel<kernels::LayerNormVjp<T, G>, Cuda>; \
  template struct Kernel<kernels::RmsNormVjp<T, G>, Cuda>;   \
  template struct Kernel<kernels::EmbeddingVjp<T, G>, Cuda>; \
  template struct Kernel<kernels::Matmul<T, G>, Cuda>;

DSPP_OF(float)
DSPP_OF(bf16)
DSPP_WITH(float, float)
DSPP_WITH(bf16, float)
template struct Kernel<kernels::GroupedAttention<f16>, Cuda>;
template struct Kernel<kernels::Pointwise<pointwise::GeluTanh, bf16, bf16>, Cuda>;
template struct Kernel<kernels::Pointwise<pointwise::Identity, float, std::int32_t>, Cuda>;
template struct Kernel<kernels::PointwisePair<pointwise::Add, double, double, double>, Cuda>;
template struct Kernel<kernels::PointwiseBroadcast<pointwise::Add, float>, Cuda>;

namespace {
/// The parameters' kernels, whose ranges are the caller's.
template <class T, class G>
void update(CudaMemory& on, const FlatRange<T, G, float>& range, double* sums, float* to) {
  const auto only = [&](auto... more) { return [=](auto f) { f(range, RangeSettings{}, more...); }; };
  Kernel<kernels::Update<AdamW, T, G, float>, Cuda>::run(on, AdamW{}, only(), {}, sums);
  Kernel<kernels::AddUpdateSquares<Lamb, T, G, float>, Cuda>::run(on, Lamb{}, only(sums), {}, sums);
  Kernel<kernels::UpdateByNorms<Lamb, T, G, float>, Cuda>::run(on, Lamb{}, only(static_cast<const double*>(sums)), {},
                                                               sums);
  Kernel<kernels::MatrixDirections<Muon, T, G, float>, Cuda>::run(on, Muon{}, only(to), {}, sums);
}
}  // namespace

void update_all(CudaMemory& on, const FlatRange<float, float, float>& f32, const FlatRange<bf16, float, float>& mixed,
                double* sums, float* to) {
  update(on, f32, sums, to);
  update(on, mixed, sums, to);
}

}  // namespace dspp
