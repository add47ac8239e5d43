// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <laws/device_attention.hpp>

using namespace dspp;
using laws::odd_extent;

namespace {

template <class T>
void check_case(std::mt19937& random) {
  const Size batch = odd_extent(2, random), sequence = odd_extent(14, random), kv_heads = odd_extent(2, random),
             group = odd_extent(2, random), head_dim = random() % 6 ? odd_extent(9, random) : 70;
  laws::AttentionCase c(batch, sequence, kv_heads, group, head_dim);
  c.draw_rule(random, 4);
  if (random() % 4 == 0) c.draw_keys(20, random);
  c.has_bias = random() % 3 == 0;
  // y enters the backward pass as it was rounded.
  const double through_y = sizeof(T) == 4 ? 256 : 0x1p24 * 4 * laws::rounding_of<T>;
  laws::check_attention<T>(
      c, random, {128, through_y},
      [](cudaStream_t stream, const auto& of, auto y, float* lse) { gpu::plain_attention<T>(stream, of, y, lse); },
      [](cudaStream_t stream, const auto& from, auto dq, auto dk, auto dv, float* dbias, float*) {
        gpu::plain_attention_backward<T>(stream, from, dq, dk, dv, dbias);
      });
}

}  // namespace

TEST_CASE("gpu::plain_attention and its backward pass agree with f64 on the Cpu under every rule") {
  std::mt19937 random(11);
  for (int i = 0; i < 40; ++i) check_case<float>(random);
  for (int i = 0; i < 12; ++i) check_case<bf16>(random), check_case<f16>(random);
}
