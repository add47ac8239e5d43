// SPDX-License-Identifier: Apache-2.0
// Attention by cuDNN: what it is asked for, with a twin of cuDNN; and where cuDNN is compiled in, on a GPU, itself.
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/attention_choice.cuh>
#include <kernels/cudnn_graphs.cuh>

#include <laws/cudnn_twin.hpp>
#include <laws/device_attention.hpp>

using namespace dspp;
using gpu::CudnnSlices;
using laws::AttentionCase;
using laws::CudnnTwin;

namespace {

template <class T>
inline constexpr laws::AttentionBounds bounds{0x1p24 * laws::rounding_of<T>, 0x1p24 * 4 * laws::rounding_of<T>};

template <class T, class Cudnn>
void check(Cudnn& cudnn, const AttentionCase& c, std::mt19937& random) {
  CHECK(gpu::cudnn_takes<T>(c.at, false));
  const laws::DeviceArray<std::uint8_t> forward(gpu::cudnn_forward_workspace, laws::to_256),
      backward(gpu::cudnn_slices(c.at).workspace_bytes(), laws::to_256);
  laws::check_attention<T>(
      c, random, bounds<T>,
      [&](cudaStream_t stream, const auto& of, auto y, float* lse) {
        CHECK(gpu::cudnn_attention(cudnn, stream, of, y, lse, forward.data()));
      },
      [&](cudaStream_t stream, const auto& from, auto dq, auto dk, auto dv, float*, float*) {
        CHECK(gpu::cudnn_attention_backward(cudnn, stream, from, dq, dk, dv, {backward.data(), backward.size()}));
      });
}

AttentionCase causal(Size batch, Size sequence, Size kv_heads, Size group, Size head_dim, Size window = 0) {
  AttentionCase c(batch, sequence, kv_heads, group, head_dim);
  c.at.rule.window = window;
  return c;
}

/// Slices of fewer samples and heads than there are give the bits of one, in a sequence whose rows of log_sum_exp begin
/// anywhere. see(cudnn, slices) looks at what ran.
template <class Cudnn, class See>
void check_slices(See see) {
  std::mt19937 random(7);
  const laws::TestStream stream;
  const Size t = 131, heads = 6, kv_heads = 3, d = 32, batch = 3, width = heads * d, kv_width = kv_heads * d;
  const kernels::AttentionExtents at{batch, t, heads, kv_heads, d, {}};
  const auto q = laws::normals<bf16>(batch * t * width, random),
             kv = laws::normals<bf16>(batch * t * 2 * kv_width, random),
             dy = laws::normals<bf16>(batch * t * width, random);
  const laws::DeviceArray<bf16> d_q(q), d_kv(kv), d_dy(dy), y(batch * t * width);
  const laws::DeviceArray<float> lse(batch * heads * t);
  const auto of =
      gpu::attention_operands<bf16>(at, {}, {d_q, width}, {d_kv, 2 * kv_width}, {d_kv.data() + kv_width, 2 * kv_width});
  gpu::attention<bf16>(stream, of, {y, width}, lse);
  const auto gradients = [&](Size usual, Size most, int slices) {
    Cudnn cudnn;
    const laws::DeviceArray<bf16> dq(batch * t * width), dkv(batch * t * 2 * kv_width);
    const auto cut = gpu::cudnn_slices(at, usual, most);
    const laws::DeviceArray<std::uint8_t> workspace(cut.workspace_bytes(), laws::to_256);
    const bool is_taken = gpu::cudnn_attention_backward<Cudnn, bf16>(
        cudnn, stream, {of, {y, width}, {d_dy, width}, lse}, {dq, width}, {dkv, 2 * kv_width},
        {dkv.data() + kv_width, 2 * kv_width}, {workspace.data(), workspace.size()}, cut);
    std::string refusal;
    if constexpr (requires { cudnn.last_refusal(); }) refusal = cudnn.last_refusal();
    CHECK_MESSAGE(is_taken, refusal);
    see(cudnn, slices);
    return std::pair{dq.read(stream), dkv.read(stream)};
  };
  const Size head = gpu::cudnn_slices(at).head_bytes;
  const auto at_once = gradients(CudnnSlices::usual, CudnnSlices::most, 1);
  CHECK(gradients(6 * head, 6 * head, 2) == at_once);  // samples 2 and 1
  CHECK(gradients(3 * head, 3 * head, 3) == at_once);
  CHECK(gradients(head, 3 * head, 3) == at_once);      // a sample is whole if it may
  CHECK(gradients(2 * head, 2 * head, 6) == at_once);  // heads 2 and 1
  CHECK(gradients(head, head, 9) == at_once);
  CHECK(gradients(1, head, 9) == at_once);
}

}  // namespace

TEST_CASE("a slice of cuDNN's backward pass has a planned workspace, and the slices are all of the attention") {
  // What cuDNN 9.19 asked for on an H100, of whole attentions of (batch, sequence, kv_heads, group, head_dim).
  const auto head_bytes = [](const AttentionCase& c) { return gpu::cudnn_slices(c.at).head_bytes; };
  CHECK(32 * 12 * head_bytes({32, 1024, 12, 1, 64}) + 1024 >= 806879488);
  CHECK(4 * 16 * head_bytes({4, 4096, 16, 1, 128}) + 1024 >= 2148532480);
  CHECK(4 * 8 * head_bytes({4, 4096, 8, 4, 64}) + 1024 >= 4431282432);
  CHECK(4 * 8 * head_bytes({4, 4096, 8, 4, 96}) + 1024 >= 4498391296);
  CHECK(3 * 5 * head_bytes({3, 1000, 5, 1, 64}) + 1024 >= 31517536);
  CHECK(16 * head_bytes({1, 16384, 16, 1, 128}) + 1024 >= 8590983424);
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    const AttentionCase c(laws::odd_extent(70, random), Size{1} << (random() % 9 + 7), laws::odd_extent(40, random),
                          laws::odd_extent(8, random), 64);
    const CudnnSlices slices = gpu::cudnn_slices(c.at);
    if (slices.head_bytes > CudnnSlices::most) {
      CHECK(slices.samples == 0);
      CHECK(slices.workspace_bytes() == 0);
      continue;
    }
    CHECK(slices.samples >= 1);
    CHECK(slices.kv_heads >= 1);
    CHECK((slices.samples == 1 || slices.kv_heads == c.at.kv_heads));
    const Size heads = slices.samples * slices.kv_heads;
    CHECK(heads <= c.at.batch * c.at.kv_heads);
    const bool is_sample = slices.samples == 1 && slices.kv_heads == c.at.kv_heads;
    CHECK((heads == 1 || heads * slices.head_bytes <= (is_sample ? CudnnSlices::most : CudnnSlices::usual)));
  }
}

TEST_CASE("cuDNN's attention is called once forward and slice by slice backward, with operands that are the whole's") {
  std::mt19937 random(5);
  CudnnTwin<bf16> whole;
  check<bf16>(whole, causal(2, 128, 2, 2, 32, 31), random);
  CHECK(whole.most_workspace > gpu::cudnn_forward_workspace);
  CudnnTwin<f16> full;
  AttentionCase c(1, 130, 1, 2, 40);
  c.at.rule = {.mask = AttentionMask::full, .scale = 0.3};
  check<f16>(full, c, random);
}

TEST_CASE("slices of samples and of heads have the bits of the whole") {
  check_slices<CudnnTwin<bf16>>([](const auto& twin, int slices) { CHECK(twin.runs == slices); });
}

TEST_CASE("cuDNN is not asked for what it does not take, nor without a workspace") {
  const auto takes = [](Size sequence, Size head_dim, const AttentionRule& rule, bool has_extras = false) {
    return gpu::cudnn_takes<bf16>({2, sequence, 4, 4, head_dim, rule}, has_extras);
  };
  CHECK(takes(128, 64, {}));
  CHECK(takes(1000, 128, {.mask = AttentionMask::full}));
  CHECK(takes(1000, 64, {.window = 100}));
  CHECK(takes(1000, 64, {.mask = AttentionMask::full, .window = 1000}));
  CHECK(!takes(1000, 64, {.mask = AttentionMask::full, .window = 100}));
  CHECK(!takes(127, 64, {}));
  CHECK(!takes(1000, 64, {.softcap = 30}));
  CHECK(!takes(1000, 64, {}, true));
  CHECK(!takes(1000, 24, {}));
  CHECK(!takes(1000, 68, {}));
  CHECK(!takes(1000, 136, {}));
  CHECK(!gpu::cudnn_takes<float>({2, 128, 4, 4, 64, {}}, false));
  CHECK(!gpu::cudnn_takes<bf16>({2, 256, 4, 4, 64, {.mask = AttentionMask::full}, 128}, false));

  const laws::TestStream stream;
  const laws::DeviceArray<bf16> x(3 * 128 * 32 + 8), y(128 * 32);
  const laws::DeviceArray<float> lse(128);
  const laws::DeviceArray<std::uint8_t> workspace(gpu::cudnn_forward_workspace);
  const auto of = [&](Size from) {
    return gpu::attention_operands<bf16>({1, 128, 1, 1, 32, {}}, {}, {x.data() + from, 96}, {x.data() + from + 32, 96},
                                         {x.data() + from + 64, 96});
  };
  CudnnTwin<bf16> twin;
  const auto asks = [&](const auto& operands) {
    return gpu::cudnn_attention<CudnnTwin<bf16>, bf16>(twin, stream, operands, {y, 32}, lse, workspace.data());
  };
  CHECK(asks(of(0)));
  CHECK(!asks(of(4)));  // not aligned
  twin.refuses = true;
  CHECK(!asks(of(0)));
  twin.refuses = false;
  const kernels::AttentionExtents at{1, 128, 1, 1, 32, {}};
  const laws::DeviceArray<std::uint8_t> enough(gpu::cudnn_slices(at).workspace_bytes());
  const auto backward = [&](Size bytes) {
    return gpu::cudnn_attention_backward<CudnnTwin<bf16>, bf16>(twin, stream, {of(0), {y, 32}, {y, 32}, lse}, {y, 32},
                                                                {y, 32}, {y, 32}, {enough.data(), bytes});
  };
  CHECK(!backward(0));
  CHECK(!backward(enough.size() - 1));
  twin.refuses = true;
  CHECK(!backward(enough.size()));
  CHECK(twin.runs == 1);
}

TEST_CASE("attention without samples, heads or tokens has no slices, and cuDNN is not asked for it") {
  const laws::TestStream stream;
  const laws::DeviceArray<bf16> x(8);
  const laws::DeviceArray<float> lse(1);
  for (const kernels::AttentionExtents& at :
       {kernels::AttentionExtents{0, 128, 2, 2, 32, {}}, kernels::AttentionExtents{2, 0, 2, 2, 32, {}},
        kernels::AttentionExtents{0, 128, 0, 0, 32, {}}}) {
    CHECK(gpu::cudnn_slices(at).workspace_bytes() == 0);
    CudnnTwin<bf16> twin;
    const auto of = gpu::attention_operands<bf16>(at, {}, {x, 64}, {x, 64}, {x, 64});
    CHECK(!gpu::cudnn_attention<CudnnTwin<bf16>, bf16>(twin, stream, of, {x, 64}, lse, x.data()));
    CHECK(!gpu::cudnn_attention_backward<CudnnTwin<bf16>, bf16>(twin, stream, {of, {x, 64}, {x, 64}, lse}, {x, 64},
                                                                {x, 64}, {x, 64}, {}));
  }
}

#if DSPP_HAS_CUDNN()

TEST_CASE("cuDNN's attention and its backward pass agree with f64 on the Cpu, and with dspp's own") {
  std::mt19937 random(6);
  gpu::CudnnAttention cudnn;
  check<bf16>(cudnn, causal(2, 128, 2, 1, 64), random);
  check<f16>(cudnn, causal(1, 200, 1, 3, 64), random);
  check<bf16>(cudnn, causal(1, 333, 2, 2, 128), random);
  check<bf16>(cudnn, causal(1, 257, 1, 1, 96, 100), random);
  check<bf16>(cudnn, causal(3, 130, 1, 2, 32), random);
  AttentionCase full(2, 193, 1, 2, 64);
  full.at.rule = {.mask = AttentionMask::full, .scale = 0.3};
  check<bf16>(cudnn, full, random);
  check_slices<gpu::CudnnAttention>([](const auto&, int) {});
}

#endif
