// SPDX-License-Identifier: Apache-2.0
// Times every kernel of kernels/ by CUDA events: medians, on arrays larger than the L2 cache, after warm-ups. Prints a
// line for each: dspp <name> <type> <shape> <bytes> <microseconds>, separated by tabs; bytes are the fewest that the
// operation can move. The first is a device-to-device copy, whose bandwidth is the limit of the others.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <dspp/base/philox.hpp>
#include <kernels/adamw.cuh>
#include <kernels/add_bias.cuh>
#include <kernels/arithmetic.cuh>
#include <kernels/attention_choice.cuh>
#include <kernels/column_sum.cuh>
#include <kernels/cross_entropy.cuh>
#include <kernels/cross_entropy_parts.cuh>
#include <kernels/cudnn_attention.cuh>
#include <kernels/dropout.cuh>
#include <kernels/embedding.cuh>
#include <kernels/gelu.cuh>
#include <kernels/layer_norm.cuh>
#include <kernels/rms_norm.cuh>
#include <kernels/rotary.cuh>
#include <kernels/sgd.cuh>
#include <kernels/softmax.cuh>
#include <kernels/squared_norm.cuh>
#include <kernels/swiglu.cuh>
#include <kernels/transpose.cuh>

using namespace dspp;

namespace {

void check(cudaError_t status) {
  gpu::check({"bench"}, status);
}

template <class T>
__global__ void normals_kernel(T* x, Size count, std::uint32_t site, float deviation) {
  const PhiloxStream stream{.key = {42}, .site = site};
  for (Size i = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<Size>(gridDim.x) * blockDim.x)
    x[i] = gpu::from_float<T>(deviation * philox_normal(stream, i));
}

/// Integers from 0 to below `bound`; with skew most are small, as words of a text are.
__global__ void integers_kernel(std::int32_t* x, Size count, int bound, bool skew) {
  const PhiloxStream stream{.key = {43}};
  for (Size i = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<Size>(gridDim.x) * blockDim.x) {
    float u = philox_uniform(stream, i);
    if (skew) u = u * u * u * u;
    x[i] = static_cast<int>(u * static_cast<float>(bound));
  }
}

template <class T>
class Array {
 public:
  explicit Array(Size count) : count_(count) {
    check(cudaMalloc(&memory_, static_cast<std::size_t>(count) * sizeof(T)));
  }
  ~Array() { cudaFree(memory_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;
  operator T*() const { return static_cast<T*>(memory_); }
  T* data() const { return static_cast<T*>(memory_); }
  Size size() const { return count_; }

  const Array& normal(float deviation = 1) const {
    static std::uint32_t site = 0;
    normals_kernel<<<1024, 256>>>(data(), count_, ++site, deviation);
    check(cudaGetLastError());
    return *this;
  }
  const Array& zero() const {
    check(cudaMemset(memory_, 0, static_cast<std::size_t>(count_) * sizeof(T)));
    return *this;
  }

 private:
  Size count_;
  void* memory_ = nullptr;
};

int repetitions = 30;
std::string only;

template <class F>
void time(const std::string& name, const char* type, const std::string& shape, double bytes, F run) {
  if (!only.empty() && name.find(only) == std::string::npos) return;
  std::vector<cudaEvent_t> events(static_cast<std::size_t>(repetitions) + 1);
  for (auto& event : events) check(cudaEventCreate(&event));
  for (int i = 0; i < 3; ++i) run();
  check(cudaDeviceSynchronize());
  check(cudaEventRecord(events[0], nullptr));
  for (std::size_t i = 1; i < events.size(); ++i) {
    run();
    check(cudaEventRecord(events[i], nullptr));
  }
  check(cudaDeviceSynchronize());
  std::vector<float> times;
  for (std::size_t i = 1; i < events.size(); ++i) {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, events[i - 1], events[i]));
    times.push_back(milliseconds * 1000);
  }
  for (auto& event : events) cudaEventDestroy(event);
  std::nth_element(times.begin(), times.begin() + times.size() / 2, times.end());
  std::printf("dspp\t%s\t%s\t%s\t%.0f\t%.2f\n", name.c_str(), type, shape.c_str(), bytes,
              static_cast<double>(times[times.size() / 2]));
  std::fflush(stdout);
}

std::string shape_of(Size rows, Size n) {
  return std::to_string(rows) + "x" + std::to_string(n);
}

template <class T>
void norms(const char* type, Size rows, Size n) {
  const Size count = rows * n;
  const double each = static_cast<double>(count) * sizeof(T);
  const Array<T> x(count), residual(count), sum(count), y(count), gamma(n), beta(n);
  const Array<float> mean(rows), rstd(rows), dgamma(n), dbeta(n), scratch(gpu::layer_norm_scratch(rows, n));
  x.normal(), residual.normal(), gamma.normal(), beta.normal();
  const T* none = nullptr;
  T* nothing = nullptr;
  const std::string shape = shape_of(rows, n);
  time("layer_norm", type, shape, 2 * each,
       [&] { gpu::layer_norm<T>(nullptr, rows, n, x, none, gamma, beta, 1e-5, nothing, y, mean, rstd); });
  time("layer_norm_residual", type, shape, 4 * each,
       [&] { gpu::layer_norm<T>(nullptr, rows, n, x, residual, gamma, beta, 1e-5, sum, y, mean, rstd); });
  time("layer_norm_backward", type, shape, 3 * each, [&] {
    gpu::layer_norm_backward<T, float>(nullptr, rows, n, y, residual, x, none, gamma, mean, rstd, scratch, dgamma,
                                       Write::overwrite, dbeta, Write::overwrite);
  });
  time("layer_norm_backward_residual", type, shape, 4 * each,
       [&] {  // in place of the gradient that x has, as models do
         gpu::layer_norm_backward<T, float>(nullptr, rows, n, sum, residual, x, sum, gamma, mean, rstd, scratch, dgamma,
                                            Write::overwrite, dbeta, Write::overwrite);
       });
  time("rms_norm", type, shape, 2 * each,
       [&] { gpu::rms_norm<T>(nullptr, rows, n, x, none, gamma, 1e-5, nothing, y, rstd); });
  time("rms_norm_residual", type, shape, 4 * each,
       [&] { gpu::rms_norm<T>(nullptr, rows, n, x, residual, gamma, 1e-5, sum, y, rstd); });
  time("rms_norm_backward", type, shape, 3 * each, [&] {
    gpu::rms_norm_backward<T, float>(nullptr, rows, n, y, residual, x, none, gamma, rstd, scratch, dgamma,
                                     Write::overwrite);
  });
  time("rms_norm_backward_residual", type, shape, 4 * each, [&] {
    gpu::rms_norm_backward<T, float>(nullptr, rows, n, sum, residual, x, sum, gamma, rstd, scratch, dgamma,
                                     Write::overwrite);
  });
}

template <class T>
void elements(const char* type, Size count) {
  const double each = static_cast<double>(count) * sizeof(T);
  const Array<T> x(count), dy(count), y(count);
  x.normal(), dy.normal();
  const std::string shape = std::to_string(count);
  for (const GeluForm form : {GeluForm::tanh, GeluForm::exact}) {
    const std::string name = form == GeluForm::tanh ? "gelu_tanh" : "gelu_exact";
    time(name, type, shape, 2 * each, [&] { gpu::gelu<T>(nullptr, form, count, y, x); });
    time(name + "_backward", type, shape, 3 * each, [&] { gpu::gelu_backward<T>(nullptr, form, count, y, x, dy); });
  }
  time("add", type, shape, 3 * each, [&] { gpu::add<T>(nullptr, count, y, x, dy); });
  time("scale", type, shape, 2 * each, [&] { gpu::scale<T>(nullptr, count, y, x, 0.5); });
  kernels::DropoutArguments at;
  at.samples = 16, at.dimensions = 1;
  at.extents[0] = at.global[0] = count / 16;
  at.threshold = 0x20000000u, at.factor = 1.0 / 0.875;
  time("dropout", type, shape, 2 * each, [&] { gpu::dropout<T>(nullptr, at, y, x); });
  const Array<double> pieces(gpu::squared_norm_scratch(count)), total(1);
  time("squared_norm", type, shape, each, [&] { gpu::squared_norm<T>(nullptr, count, x, pieces, total.data()); });
}

void casts(Size count) {
  const Array<float> x(count);
  const Array<bf16> y(count);
  x.normal();
  time("cast_to_bf16", "f32", std::to_string(count), 6.0 * static_cast<double>(count),
       [&] { gpu::cast<bf16>(nullptr, count, y.data(), static_cast<const float*>(x)); });
  time("cast_to_f32", "bf16", std::to_string(count), 6.0 * static_cast<double>(count),
       [&] { gpu::cast<float>(nullptr, count, x.data(), static_cast<const bf16*>(y)); });
}

void swiglus(Size rows, Size n) {
  const Array<bf16> x(2 * rows * n), y(rows * n), dx(2 * rows * n);
  x.normal();
  const double each = static_cast<double>(rows * n) * 2;
  time("swiglu", "bf16", shape_of(rows, n), 3 * each, [&] { gpu::swiglu<bf16>(nullptr, rows, n, y, x); });
  time("swiglu_backward", "bf16", shape_of(rows, n), 5 * each,
       [&] { gpu::swiglu_backward<bf16>(nullptr, rows, n, dx, x, y); });
}

template <class T>
void losses(const char* type, Size rows, Size columns, Size valid) {
  const Array<T> logits(rows * columns);
  const Array<std::int32_t> targets(rows);
  const Array<float> dloss(1), parts(3 * rows), lse(rows), loss(1);
  const Array<double> counted(1);
  logits.normal(2), dloss.normal();
  integers_kernel<<<64, 256>>>(targets, rows, static_cast<int>(valid), true);
  time("cross_entropy", type, shape_of(rows, columns), 2.0 * static_cast<double>(rows * columns) * sizeof(T), [&] {
    gpu::cross_entropy<T>(nullptr, rows, columns, logits, {targets, nullptr, valid, {}}, {parts, lse, loss, counted});
  });
  logits.normal(2);
  const double bytes = static_cast<double>(rows * columns) * sizeof(T);
  time("cross_entropy_parts", type, shape_of(rows, columns), bytes, [&] {
    gpu::cross_entropy_parts<T>(nullptr, rows, {columns, 0, valid}, logits, targets, {}, parts);
  });
  gpu::cross_entropy_combine(nullptr, 1, rows, parts, targets, nullptr, lse, loss, counted);
  time("cross_entropy_gradient", type, shape_of(rows, columns), 2 * bytes, [&] {
    gpu::cross_entropy_gradient<T>(nullptr, rows, {columns, 0, valid}, logits, logits, targets, nullptr, lse, {}, dloss,
                                   counted);
  });
}

void updates(Size count) {
  const Array<float> values(count), first(count), second(count);
  const Array<bf16> parameter(count), gradient(count);
  values.normal(), first.zero(), second.zero(), gradient.normal();
  gpu::Shard<bf16, bf16> shard{.count = count, .gradient = gradient, .parameter = parameter, .values = values};
  shard.moments[0] = first;
  shard.moments[1] = second;
  shard.common.weight_decay = 0.1f;
  std::vector<gpu::Segment> list;
  for (int i = 0; i < 148; ++i) list.push_back({count * i / 148, i % 2 ? 0.1f : 0.0f, 1});
  const Array<gpu::Segment> segments(148);
  check(cudaMemcpy(segments.data(), list.data(), list.size() * sizeof(gpu::Segment), cudaMemcpyHostToDevice));
  const std::string shape = std::to_string(count);
  const auto n = static_cast<double>(count);
  time("adamw", "bf16", shape, 30 * n, [&] { gpu::adamw(nullptr, shard, 2, 1e-4, 0.9, 0.95, 1e-8, nullptr); });
  time("sgd", "bf16", shape, 12 * n, [&] { gpu::sgd(nullptr, shard, 1e-4, nullptr); });
  time("momentum_sgd", "bf16", shape, 20 * n, [&] { gpu::momentum_sgd(nullptr, shard, 1e-4, 0.9, false, nullptr); });
  shard.segments = segments;
  shard.segment_count = 148;
  time("adamw_148_segments", "bf16", shape, 30 * n,
       [&] { gpu::adamw(nullptr, shard, 2, 1e-4, 0.9, 0.95, 1e-8, nullptr); });
}

void updates_of_f32(Size count) {
  const Array<float> values(count), gradient(count), first(count), second(count);
  values.normal(), first.zero(), second.zero(), gradient.normal();
  gpu::Shard<float, float> shard{.count = count, .gradient = gradient, .parameter = values};
  shard.moments[0] = first;
  shard.moments[1] = second;
  time("adamw", "f32", std::to_string(count), 28.0 * static_cast<double>(count),
       [&] { gpu::adamw(nullptr, shard, 2, 1e-4, 0.9, 0.95, 1e-8, nullptr); });
}

void softmaxes(Size rows, Size n) {
  const Array<bf16> x(rows * n), y(rows * n), dy(rows * n);
  x.normal(2), dy.normal();
  const double each = static_cast<double>(rows * n) * 2;
  time("softmax", "bf16", shape_of(rows, n), 2 * each, [&] { gpu::softmax<bf16>(nullptr, rows, n, y, x); });
  time("softmax_backward", "bf16", shape_of(rows, n), 3 * each,
       [&] { gpu::softmax_backward<bf16>(nullptr, rows, n, x, dy, y); });
}

void rotaries(Size rows, Size sequence, Size heads, Size head_dim) {
  const Size columns = heads * head_dim;
  const Array<bf16> x(rows * columns), y(rows * columns);
  const Array<float> table(sequence * head_dim);
  x.normal(), table.normal();
  time("rotary", "bf16", shape_of(rows, columns), 4.0 * static_cast<double>(rows * columns), [&] {
    gpu::rotary<bf16>(nullptr, {rows, sequence, columns, columns, head_dim}, y, x, table, 1);
  });
}

void embeddings(Size count, Size rows, Size n) {
  const Array<bf16> table(rows * n), y(count * n);
  const Array<float> into(rows * n), parts(gpu::embedding_parts(count, n));
  const Array<std::int32_t> ids(count), positions(count), sorted_positions(count);
  const Array<std::uint32_t> keys(count), sorted_keys(count);
  const Array<std::uint8_t> workspace(gpu::embedding_workspace(count, rows));
  table.normal();
  integers_kernel<<<1024, 256>>>(ids, count, static_cast<int>(rows), true);
  const std::string shape = shape_of(count, n);
  const double bytes = static_cast<double>(count * n) * 2;
  time("embedding", "bf16", shape, 2 * bytes, [&] { gpu::embedding<bf16>(nullptr, count, rows, n, y, table, ids, 0); });
  time("embedding_backward", "bf16", shape, bytes + 4.0 * static_cast<double>(rows * n), [&] {
    gpu::embedding_backward<bf16, float>(
        nullptr, count, rows, n, into, Write::overwrite, y, ids, 0,
        {keys, sorted_keys, positions, sorted_positions, parts, workspace, workspace.size()});
  });
}

void matrices(Size rows, Size n) {
  const Array<bf16> x(rows * n), y(rows * n);
  const Array<float> scratch(gpu::column_sum_scratch<bf16>(rows, n)), sums(n);
  x.normal();
  const double each = static_cast<double>(rows * n) * 2;
  time("column_sum", "bf16", shape_of(rows, n), each,
       [&] { gpu::column_sum<bf16, float>(nullptr, rows, n, x, scratch, sums, Write::overwrite); });
  time("add_bias", "bf16", shape_of(rows, n), 2 * each, [&] { gpu::add_bias<bf16>(nullptr, rows, n, y, x, x); });
  time("transpose", "bf16", shape_of(rows, n), 2 * each, [&] { gpu::transpose<bf16>(nullptr, rows, n, y, x); });
}

/// Bytes are q, k, v, y once, and twice that and dq, dk, dv backward; the products, 4 batch heads sequence^2 head_dim
/// operations, half of it where causal, and 2.5 times that backward, take longer.
void attentions(const kernels::AttentionExtents& at) {
  const Size width = at.width(), kv_width = at.kv_width(), tokens = at.batch * at.sequence;
  const Array<bf16> q(tokens * width), kv(tokens * 2 * kv_width), y(tokens * width), dy(tokens * width),
      dq(tokens * width), dkv(tokens * 2 * kv_width);
  const Array<float> lse(tokens * at.heads), own(tokens * at.heads);
  q.normal(), kv.normal(), dy.normal();
  const auto of = gpu::attention_operands<bf16>(at, {}, {q, width}, {kv, 2 * kv_width}, {kv + kv_width, 2 * kv_width});
  const std::string shape = std::to_string(at.batch) + "x" + std::to_string(at.sequence) + "x" +
                            std::to_string(at.heads) + "x" + std::to_string(at.head_dim);
  const std::string name = at.rule.mask == AttentionMask::causal ? "attention_causal" : "attention_full";
  const double each = static_cast<double>(q.size() + kv.size() / 2) * 2;
  for (const auto by : {gpu::AttentionKernels::by_warps, gpu::AttentionKernels::fastest}) {
    const std::string kind = name + (by == gpu::AttentionKernels::by_warps ? "_by_warps" : "");
    time(kind, "bf16", shape, 2 * each, [&] { gpu::attention<bf16>(nullptr, of, {y, width}, lse, by); });
    time(kind + "_backward", "bf16", shape, 4 * each, [&] {
      gpu::attention_backward<bf16>(nullptr, {of, {y, width}, {dy, width}, lse}, {dq, width}, {dkv, 2 * kv_width},
                                    {dkv + kv_width, 2 * kv_width}, nullptr, own, by);
    });
  }
#if DSPP_HAS_CUDNN()
  const Array<std::uint8_t> forward(gpu::cudnn_forward_workspace), backward(gpu::cudnn_slices(at).workspace_bytes());
  gpu::CudnnAttention cudnn;
  const auto forward_runs = [&] {
    return gpu::cudnn_attention(cudnn, nullptr, of, gpu::HeadsOf<bf16>{y, width}, lse, forward.data());
  };
  const auto backward_runs = [&] {
    const gpu::AttentionUpstream<bf16> from{of, {y, width}, {dy, width}, lse};
    return gpu::cudnn_attention_backward(
        cudnn, nullptr, from, gpu::HeadsOf<bf16>{dq, width}, gpu::HeadsOf<bf16>{dkv, 2 * kv_width},
        gpu::HeadsOf<bf16>{dkv + kv_width, 2 * kv_width}, {backward.data(), backward.size()});
  };
  if (!forward_runs() || !backward_runs()) {
    std::fprintf(stderr, "cuDNN does not take %s %s: %s\n", name.c_str(), shape.c_str(), cudnn.last_refusal().c_str());
    return;
  }
  time(name + "_cudnn", "bf16", shape, 2 * each, [&] { forward_runs(); });
  time(name + "_cudnn_backward", "bf16", shape, 4 * each, [&] { backward_runs(); });
#endif
}

void copies(Size bytes) {
  const Array<float> x(bytes / 4), y(bytes / 4);
  x.normal();
  time("copy", "bytes", std::to_string(bytes), 2.0 * static_cast<double>(bytes), [&] {
    check(cudaMemcpyAsync(y.data(), x.data(), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, nullptr));
  });
}

}  // namespace

int main(int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    if (std::strcmp(arguments[i], "--quick") == 0)
      repetitions = 10;
    else
      only = arguments[i];
  }
  try {
    copies(Size{1} << 30);
    norms<bf16>("bf16", 131072, 768);
    norms<bf16>("bf16", 65536, 1600);
    norms<bf16>("bf16", 32768, 4096);
    norms<bf16>("bf16", 16384, 8192);
    norms<float>("f32", 16384, 4096);
    norms<bf16>("bf16", 32768, 1601);
    elements<bf16>("bf16", Size{1} << 27);
    elements<float>("f32", Size{1} << 26);
    casts(Size{1} << 27);
    swiglus(16384, 11008);
    losses<bf16>("bf16", 8192, 50304, 50257);
    losses<bf16>("bf16", 8192, 50257, 50257);
    losses<bf16>("bf16", 4096, 128256, 128256);
    losses<float>("f32", 4096, 50304, 50257);
    updates(124439808);
    updates_of_f32(124439808);
    softmaxes(131072, 1024);
    softmaxes(8192, 32000);
    rotaries(16384, 2048, 64, 128);
    embeddings(262144, 50304, 768);
    matrices(65536, 3072);
    attentions({32, 1024, 12, 12, 64, {}});
    attentions({24, 1024, 25, 25, 64, {}});
    for (const AttentionMask mask : {AttentionMask::causal, AttentionMask::full}) {
      attentions({4, 4096, 32, 32, 64, {mask}});
      attentions({4, 4096, 16, 16, 128, {mask}});
    }
    attentions({4, 4096, 32, 8, 96, {}});
    copies(Size{1} << 30);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
