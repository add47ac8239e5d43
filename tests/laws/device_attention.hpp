// SPDX-License-Identifier: Apache-2.0
/// Attention of random extents and rules on the device, beside f64 on the Cpu.
#pragma once

#include <dspp/ops/cpu/attention.hpp>
#include <kernels/attention.cuh>
#include <laws/device_array.hpp>

namespace dspp::laws {

/// Extents and a rule, with extras or without. Documents end with a chance of one in `document`.
struct AttentionCase {
  kernels::AttentionExtents at;
  std::vector<std::int32_t> lengths, documents;
  bool has_bias = false;

  AttentionCase(Size batch, Size sequence, Size kv_heads, Size group, Size head_dim) {
    at.batch = batch, at.sequence = sequence, at.kv_heads = kv_heads, at.heads = kv_heads * group;
    at.head_dim = head_dim;
  }
  void draw_rule(std::mt19937& random, int document) {
    at.rule.mask = random() % 2 ? AttentionMask::causal : AttentionMask::full;
    if (random() % 2) at.rule.window = odd_extent(at.sequence + 2, random);
    if (random() % 3 == 0) at.rule.softcap = 1.5;
    if (random() % 3 == 0) at.rule.scale = 0.7;
    if (random() % 2)
      for (Size b = 0; b < at.batch; ++b)
        lengths.push_back(static_cast<std::int32_t>(odd_extent(at.sequence + 1, random) - 1));
    if (random() % 2)
      for (Size i = 0; i < at.batch * at.sequence; ++i)
        documents.push_back(i % at.sequence == 0 ? 0 : documents.back() + (random() % document == 0));
  }
  /// Keys of another sequence, of as many as `most`.
  void draw_keys(Size most, std::mt19937& random) {
    at.other_keys = odd_extent(most, random);
    at.rule.mask = AttentionMask::full, at.rule.window = 0;
    documents.clear();
    for (std::int32_t& length : lengths) length = static_cast<std::int32_t>(odd_extent(at.keys() + 1, random) - 1);
  }
  std::string what() const {
    return describe("batch", at.batch, "sequence", at.sequence, "keys", at.keys(), "heads", at.heads, "kv_heads",
                    at.kv_heads, "head_dim", at.head_dim, "causal", at.rule.mask == AttentionMask::causal, "window",
                    at.rule.window, "softcap", at.rule.softcap, "lengths", lengths.size(), "documents",
                    documents.size());
  }
};

/// How far y, and the gradients, may be from f64, in roundings of f32 of the largest element.
struct AttentionBounds {
  double y, gradients, log_sum_exp = 4e-6;
};

/// The elements, and after them rows that no kernel may count: of NaN.
template <class T>
std::vector<T> before_nan(std::vector<T> values, Size row) {
  values.resize(values.size() + static_cast<std::size_t>(130 * row),
                static_cast<T>(std::numeric_limits<float>::quiet_NaN()));
  return values;
}

/// forward(stream, of, y, lse) and backward(stream, from, dq, dk, dv, dbias, workspace) agree with f64, and give the
/// same bits when they run again.
template <class T, class Forward, class Backward>
void check_attention(const AttentionCase& c, std::mt19937& random, const AttentionBounds& bounds, Forward forward,
                     Backward backward) {
  const auto& at = c.at;
  const Size tokens = at.batch * at.sequence, rows = at.batch * at.heads * at.sequence,
             scores = c.has_bias ? at.heads * at.sequence * at.keys() : 0;
  const Size others = at.batch * at.keys();
  const auto q = normals<T>(tokens * at.width(), random), kv = normals<T>(others * 2 * at.kv_width(), random),
             dy = normals<T>(tokens * at.width(), random);
  auto bias = normals<T>(scores, random);
  for (T& b : bias)
    if (random() % 4 == 0) b = static_cast<T>(-std::numeric_limits<float>::infinity());
  const auto q64 = in_f64(q), kv64 = in_f64(kv), dy64 = in_f64(dy), bias64 = in_f64(bias);
  std::vector<std::int32_t> ranges(2 * tokens);
  std::vector<double> y(q.size()), lse(rows), dq(q.size()), dkv(kv.size()), dbias(scores, 0.5);
  Kernel<kernels::KeyRanges, Cpu>::run(at.batch, at.sequence, at.keys(), c.lengths.empty() ? nullptr : c.lengths.data(),
                                       c.documents.empty() ? nullptr : c.documents.data(), ranges.data());
  const kernels::AttentionExtras<double> extras{ranges.data(), c.has_bias ? bias64.data() : nullptr};
  Kernel<kernels::GroupedAttention<double>, Cpu>::run(at, extras, q64.data(), kv64.data(), y.data(), lse.data());
  Kernel<kernels::GroupedAttentionVjp<double>, Cpu>::run(at, extras, q64.data(), kv64.data(), y.data(), lse.data(),
                                                         dy64.data(), dq.data(), dkv.data(), nullptr,
                                                         c.has_bias ? dbias.data() : nullptr);

  const TestStream stream;
  const DeviceArray<T> d_q(before_nan(q, at.width())), d_kv(before_nan(kv, 2 * at.kv_width())),
      d_dy(before_nan(dy, at.width())), d_bias(bias);
  const DeviceArray<std::int32_t> d_lengths(c.lengths), d_documents(c.documents), d_ranges(2 * tokens);
  gpu::key_ranges(stream, at.batch, at.sequence, at.keys(), c.lengths.empty() ? nullptr : d_lengths.data(),
                  c.documents.empty() ? nullptr : d_documents.data(), d_ranges);
  CHECK(d_ranges.read(stream) == ranges);
  const Size stride = 2 * at.kv_width();
  const bool has_ranges = !c.lengths.empty() || !c.documents.empty();
  const auto of =
      gpu::attention_operands<T>(at, {has_ranges ? d_ranges.data() : nullptr, c.has_bias ? d_bias.data() : nullptr},
                                 {d_q, at.width()}, {d_kv, stride}, {d_kv.data() + at.kv_width(), stride});
  struct {
    std::vector<T> y, dq, dkv;
    std::vector<float> lse, dbias;
  } is[2];
  for (auto& run : is) {
    const DeviceArray<T> d_y(tokens * at.width()), d_dq(tokens * at.width()), d_dkv(others * stride);
    const DeviceArray<float> d_lse(rows), d_dbias(std::vector<float>(scores, 0.5f)), workspace(rows + 130);
    forward(stream, of, gpu::HeadsOf<T>{d_y, at.width()}, d_lse.data());
    backward(stream, gpu::AttentionUpstream<T>{of, {d_y, at.width()}, {d_dy, at.width()}, d_lse},
             gpu::HeadsOf<T>{d_dq, at.width()}, gpu::HeadsOf<T>{d_dkv, stride},
             gpu::HeadsOf<T>{d_dkv.data() + at.kv_width(), stride}, c.has_bias ? d_dbias.data() : nullptr,
             workspace.data());
    run = {d_y.read(stream), d_dq.read(stream), d_dkv.read(stream), d_lse.read(stream), d_dbias.read(stream)};
  }
  const auto same_bits = [](const auto& a, const auto& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
  };
  INFO(c.what());
  CHECK((same_bits(is[0].y, is[1].y) && same_bits(is[0].dq, is[1].dq) && same_bits(is[0].dkv, is[1].dkv) &&
         same_bits(is[0].lse, is[1].lse)));
  const auto is_lse = in_f64(is[0].lse);
  Size wrong = 0;
  for (Size i = 0; i < rows; ++i)
    wrong += !(std::isinf(lse[i]) ? is_lse[i] == lse[i] : close(is_lse[i], lse[i], bounds.log_sum_exp));
  CHECK(wrong == 0);
  check_elements(is[0].y, y, bounds.y, "y", 1);
  check_elements(is[0].dq, dq, bounds.gradients, "dq", 4);
  check_elements(is[0].dkv, dkv, bounds.gradients, "dk and dv", 4);
  check_elements(is[0].dbias, dbias, bounds.gradients, "dbias", 4);
}

}  // namespace dspp::laws
