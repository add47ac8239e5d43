// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <dspp/ops/cpu/attention.hpp>
#include <kernels/attention.cuh>

#include <laws/device_array.hpp>

using namespace dspp;
using laws::DeviceArray;
using laws::in_f64;
using laws::odd_extent;

namespace {

/// Random extents and rules, with extras or without.
struct Case {
  kernels::AttentionExtents at;
  std::vector<std::int32_t> lengths, documents;
  bool has_bias = false;

  explicit Case(std::mt19937& random) {
    at.batch = odd_extent(2, random), at.sequence = odd_extent(14, random), at.kv_heads = odd_extent(2, random);
    at.heads = at.kv_heads * odd_extent(2, random), at.head_dim = random() % 6 ? odd_extent(9, random) : 70;
    at.rule.mask = random() % 2 ? AttentionMask::causal : AttentionMask::full;
    if (random() % 2) at.rule.window = odd_extent(at.sequence + 2, random);
    if (random() % 3 == 0) at.rule.softcap = 1.5;
    if (random() % 3 == 0) at.rule.scale = 0.7;
    has_bias = random() % 3 == 0;
    if (random() % 2)
      for (Size b = 0; b < at.batch; ++b)
        lengths.push_back(static_cast<std::int32_t>(odd_extent(at.sequence + 1, random) - 1));
    if (random() % 2)
      for (Size i = 0; i < at.batch * at.sequence; ++i)
        documents.push_back(i % at.sequence == 0 ? 0 : documents.back() + (random() % 4 == 0));
  }
  std::string what() const {
    return laws::describe("batch", at.batch, "sequence", at.sequence, "heads", at.heads, "kv_heads", at.kv_heads,
                          "head_dim", at.head_dim, "window", at.rule.window);
  }
};

template <class T>
void check_case(std::mt19937& random) {
  const Case c(random);
  const auto& at = c.at;
  const Size tokens = at.batch * at.sequence, rows = at.batch * at.heads * at.sequence,
             scores = at.heads * at.sequence * at.sequence;
  const auto q = laws::normals<T>(tokens * at.width(), random),
             kv = laws::normals<T>(tokens * 2 * at.kv_width(), random),
             dy = laws::normals<T>(tokens * at.width(), random);
  auto bias = laws::normals<T>(scores, random);
  for (T& b : bias)
    if (random() % 4 == 0) b = static_cast<T>(-std::numeric_limits<float>::infinity());
  const auto q64 = in_f64(q), kv64 = in_f64(kv), dy64 = in_f64(dy), bias64 = in_f64(bias);
  std::vector<std::int32_t> ranges(2 * tokens);
  std::vector<double> y(q.size()), lse(rows), dq(q.size()), dkv(kv.size()), dbias(scores, 0.5);
  Kernel<kernels::KeyRanges, Cpu>::run(at.batch, at.sequence, c.lengths.empty() ? nullptr : c.lengths.data(),
                                       c.documents.empty() ? nullptr : c.documents.data(), ranges.data());
  const kernels::AttentionExtras<double> extras{ranges.data(), c.has_bias ? bias64.data() : nullptr};
  Kernel<kernels::GroupedAttention<double>, Cpu>::run(at, extras, q64.data(), kv64.data(), y.data(), lse.data());
  Kernel<kernels::GroupedAttentionVjp<double>, Cpu>::run(at, extras, q64.data(), kv64.data(), y.data(), lse.data(),
                                                         dy64.data(), dq.data(), dkv.data(), nullptr,
                                                         c.has_bias ? dbias.data() : nullptr);

  const laws::TestStream stream;
  const DeviceArray<T> d_q(q), d_kv(kv), d_dy(dy), d_bias(bias), d_y(tokens * at.width()), d_dq(tokens * at.width()),
      d_dkv(tokens * 2 * at.kv_width());
  const DeviceArray<float> d_lse(rows), d_dbias(std::vector<float>(scores, 0.5f));
  const DeviceArray<std::int32_t> d_lengths(c.lengths), d_documents(c.documents), d_ranges(2 * tokens);
  gpu::key_ranges(stream, at.batch, at.sequence, c.lengths.empty() ? nullptr : d_lengths.data(),
                  c.documents.empty() ? nullptr : d_documents.data(), d_ranges);
  CHECK(d_ranges.read(stream) == ranges);
  const Size stride = 2 * at.kv_width();
  const auto of = gpu::attention_operands<T>(at, {d_ranges, c.has_bias ? d_bias.data() : nullptr}, {d_q, at.width()},
                                             {d_kv, stride}, {d_kv.data() + at.kv_width(), stride});
  gpu::plain_attention<T>(stream, of, {d_y, at.width()}, d_lse);
  gpu::plain_attention_backward<T>(stream, {of, {d_y, at.width()}, {d_dy, at.width()}, d_lse}, {d_dq, at.width()},
                                   {d_dkv, stride}, {d_dkv.data() + at.kv_width(), stride},
                                   c.has_bias ? d_dbias.data() : nullptr);
  const auto is_lse = in_f64(d_lse.read(stream));
  for (Size i = 0; i < rows; ++i)
    CHECK((std::isinf(lse[i]) ? is_lse[i] == lse[i] : laws::close(is_lse[i], lse[i], 4e-6)));
  // y enters the backward pass as it was rounded.
  const double through_y = sizeof(T) == 4 ? 256 : 0x1p24 * 4 * laws::rounding_of<T>;
  laws::check_elements(d_y.read(stream), y, 128, c.what(), 1);
  laws::check_elements(d_dq.read(stream), dq, through_y, c.what(), 4);
  laws::check_elements(d_dkv.read(stream), dkv, through_y, c.what(), 4);
  laws::check_elements(d_dbias.read(stream), dbias, through_y, c.what(), 4);
}

}  // namespace

TEST_CASE("gpu::plain_attention and its backward pass agree with f64 on the Cpu under every rule") {
  std::mt19937 random(11);
  for (int i = 0; i < 40; ++i) check_case<float>(random);
  for (int i = 0; i < 12; ++i) check_case<bf16>(random), check_case<f16>(random);
}
