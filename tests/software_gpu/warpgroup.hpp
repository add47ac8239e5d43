// SPDX-License-Identifier: Apache-2.0
/// The twin of wgmma: products of 64 rows by four warps, see kernels/warpgroup.cuh.
///
/// A product is computed as late as it may be: when a thread waits for its group, from what shared memory holds then.
/// Until then its sums are NaN. What a GPU leaves undefined is a sentence.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include <dspp/base/element.hpp>
#include <software_gpu/block.hpp>

namespace dspp::software_gpu {

/// What this thread copied to shared memory and waited for is there for products. Those of any thread of the block need
/// it.
void fence_copies();
/// Products with these registers may follow, until the thread waits for some: sums, and left operands.
void begin_products(std::initializer_list<const void*> registers);
void end_group_of_products();
/// For all groups but the last `later`. Of the products that have ended, these registers are the thread's again; other
/// sums stay NaN until they are named.
void wait_for_products(std::size_t later, std::initializer_list<const void*> registers);

/// A product of the warpgroup: `product` adds it to this thread's `count` sums, which begin at 0 or as they are.
/// `left` and `right` name its operands in shared memory; the four warps must agree on both. `operand`: words in
/// registers, which nobody writes before the product has ended.
void multiply_later(float* sums, int count, bool adds, const void* left, const void* right,
                    std::function<void(float*)> product, const std::uint32_t* operand = nullptr, std::size_t words = 0);

namespace detail {
/// Of sum i of a thread: its row and column in [64, N].
inline int row_of_sum(unsigned thread, int i) {
  return static_cast<int>(thread % 128 / 32 * 16 + thread % 32 / 4) + i / 2 % 2 * 8;
}
inline int column_of_sum(unsigned thread, int i) {
  return i / 4 * 8 + static_cast<int>(thread % 4) * 2 + i % 2;
}
}  // namespace detail

/// sums [64, n] of left[row ..) right^T over d columns. Tiles have element(row, column).
template <class Left, class Right>
void multiply_rows(float* sums, bool adds, int row, int d, int n, const Left& left, const Right& right) {
  const unsigned thread = threadIdx.x;
  multiply_later(sums, n / 2, adds, left.element(row, 0), right.begin, [=](float* x) {
    for (int i = 0; i < n / 2; ++i) {
      float sum = x[i];
      const int own = row + detail::row_of_sum(thread, i), other = detail::column_of_sum(thread, i);
      for (int k = 0; k < d; ++k)
        sum += static_cast<float>(*left.element(own, k)) * static_cast<float>(*right.element(other, k));
      x[i] = sum;
    }
  });
}

/// sums [64, d] of left [64, 16 Steps], in registers, times right [16 Steps, d].
template <class T, std::size_t Steps, class Right>
void multiply_operand(float* sums, bool adds, const std::uint32_t (&left)[Steps][4], int d, const Right& right) {
  const unsigned thread = threadIdx.x, lane = lane_of_thread();
  std::vector<float> rows(2 * 16 * Steps);  // of the left operand, this thread's two
  for (std::size_t step = 0; step < Steps; ++step) {
    float* const shared = operands_of_warp();
    for (unsigned w = 0; w < 4; ++w) {
      const unsigned row = lane / 4 + w % 2 * 8, column = w / 2 * 8 + lane % 4 * 2;
      for (unsigned half = 0; half < 2; ++half) {
        T value;
        value.bits = static_cast<std::uint16_t>(left[step][w] >> (16 * half));
        shared[row * 16 + column + half] = static_cast<float>(value);
      }
    }
    wait_at(Barrier::warp);
    for (unsigned half = 0; half < 2; ++half)
      for (unsigned k = 0; k < 16; ++k)
        rows[half * 16 * Steps + step * 16 + k] = shared[(lane / 4 + half * 8) * 16 + k];
    next_slots();
  }
  multiply_later(
      sums, d / 2, adds, nullptr, right.begin,
      [=](float* x) {
        for (int i = 0; i < d / 2; ++i) {
          float sum = x[i];
          const int column = detail::column_of_sum(thread, i);
          for (int k = 0; k < static_cast<int>(16 * Steps); ++k)
            sum += rows[static_cast<std::size_t>(i / 2 % 2 * static_cast<int>(16 * Steps) + k)] *
                   static_cast<float>(*right.element(k, column));
          x[i] = sum;
        }
      },
      left[0], 4 * Steps);
}

}  // namespace dspp::software_gpu
