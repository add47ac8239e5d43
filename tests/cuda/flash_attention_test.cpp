// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/attention_choice.cuh>

#include <laws/device_attention.hpp>
#include <laws/device_schedules.hpp>

using namespace dspp;
using laws::AttentionCase;
using laws::odd_extent;

namespace {

/// Of p and ds, which are rounded to T: of a row of p the sum is 1, of ds as large as dy v.
template <class T>
inline constexpr laws::AttentionBounds bounds{0x1p24 * laws::rounding_of<T>, 0x1p24 * 4 * laws::rounding_of<T>};

using gpu::AttentionKernels;

template <class T>
void check(const AttentionCase& c, std::mt19937& random, AttentionKernels by, bool is_taken = true) {
  laws::check_attention<T>(
      c, random, bounds<T>,
      [&](cudaStream_t stream, const auto& of, auto y, float* lse) {
        CHECK(gpu::flash_takes(of, y) == is_taken);
        gpu::attention<T>(stream, of, y, lse, by);
      },
      [&](cudaStream_t stream, const auto& from, auto dq, auto dk, auto dv, float* dbias, float* workspace) {
        CHECK(gpu::flash_takes(from.of, from.y, from.dy, dq, dk, dv) == is_taken);
        gpu::attention_backward<T>(stream, from, dq, dk, dv, dbias, workspace, by);
      });
}

/// By warpgroups, where the GPU has them, and by warps.
template <class T>
void check_both(const AttentionCase& c, std::mt19937& random) {
  check<T>(c, random, AttentionKernels::fastest);
  check<T>(c, random, AttentionKernels::by_warps);
}

}  // namespace

TEST_CASE("gpu::flash_attention and its backward pass agree with f64 on the Cpu, causal and full, in groups of heads") {
  std::mt19937 random(12);
  for (const AttentionMask mask : {AttentionMask::causal, AttentionMask::full}) {
    AttentionCase c(1, 131, 1, 2, 64);
    c.at.rule.mask = mask;
    check_both<bf16>(c, random);
    c = AttentionCase(1, 65, 1, 1, 96);
    c.at.rule.mask = mask;
    check_both<f16>(c, random);
    c = AttentionCase(2, 33, 1, 1, 128);
    c.at.rule.mask = mask;
    check_both<bf16>(c, random);
  }
}

TEST_CASE("gpu::flash_attention takes windows, caps, lengths, documents, and tiles that end anywhere") {
  std::mt19937 random(13);
  constexpr Size sequences[] = {1, 15, 17, 32, 63, 64, 65, 97, 128, 129, 160, 193};
  constexpr Size head_dims[] = {8, 16, 40, 64, 64, 72, 128};
  for (int i = 0; i < 14; ++i) {
    const Size sequence = sequences[random() % std::size(sequences)],
               head_dim = head_dims[random() % std::size(head_dims)];
    AttentionCase c(1 + (sequence < 64), sequence, odd_extent(2, random), odd_extent(2, random), head_dim);
    c.draw_rule(random, 30);
    i % 2 ? check_both<bf16>(c, random) : check_both<f16>(c, random);
  }
}

TEST_CASE("keys of another sequence are left to the plain kernel") {
  std::mt19937 random(19);
  for (const AttentionKernels by : {AttentionKernels::fastest, AttentionKernels::by_warps}) {
    AttentionCase c(1, 40, 1, 1, 64);
    c.draw_keys(24, random);
    check<bf16>(c, random, by, false);
  }
}

TEST_CASE("gpu::flash_attention takes samples and tiles without keys, and windows that end beside a tile") {
  std::mt19937 random(14);
  AttentionCase empty(8, 40, 1, 1, 64);
  empty.lengths = {0, 0, 7, 0, 0, 40, 0, 0};
  check_both<bf16>(empty, random);
  AttentionCase shorter(2, 140, 1, 1, 16);  // the second tile of keys is of no query
  shorter.lengths = {100, 128};
  check_both<f16>(shorter, random);
  for (const AttentionMask mask : {AttentionMask::causal, AttentionMask::full}) {
    AttentionCase narrow(1, 140, 1, 1, 16);
    narrow.at.rule = {.mask = mask, .window = 2};
    check_both<bf16>(narrow, random);
  }
}

TEST_CASE("gpu::attention computes plainly what gpu::flash_attention does not take, and where it is asked to") {
  std::mt19937 random(15);
  AttentionCase biased(1, 9, 1, 2, 16);
  biased.has_bias = true;
  check<bf16>(biased, random, AttentionKernels::fastest, false);
  check<bf16>({1, 9, 1, 2, 12}, random, AttentionKernels::fastest, false);
  check<f16>({1, 3, 1, 1, 136}, random, AttentionKernels::fastest, false);
  check<bf16>({1, 9, 1, 2, 16}, random, AttentionKernels::plain);
  CHECK(gpu::group_takes(gpu::attention_operands<bf16>({1, 9, 0, 0, 64, {}}, {}, {}, {}, {})) ==
        gpu::device_has_warpgroups());
  const auto at_byte = [](std::uintptr_t address) { return reinterpret_cast<const bf16*>(address); };
  const auto takes = [&](Size stride, std::uintptr_t base) {
    const gpu::HeadsOf<const bf16> heads{at_byte(64), 64}, other{at_byte(base), stride};
    return gpu::flash_takes(gpu::attention_operands<bf16>({1, 9, 1, 1, 64, {}}, {}, heads, other, heads));
  };
  CHECK(takes(64, 64));
  CHECK(!takes(68, 64));
  CHECK(!takes(64, 72));
}

TEST_CASE("gpu::flash_attention gives the same under random schedules") {
  laws::under_schedules([] {
    std::mt19937 random(16);
    AttentionCase c(2, 70, 1, 1, 16);
    c.lengths = {0, 70};
    check_both<bf16>(c, random);
  });
}
