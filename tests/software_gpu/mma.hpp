// SPDX-License-Identifier: Apache-2.0
/// The twin of CUDA's <mma.h>: products of 16x16x16 by a warp, with f32 sums.
///
/// A lane holds its elements of a fragment in an order that is drawn in each launch, and a fragment is NaN until it is
/// filled. A load or a store is no barrier: what other lanes wrote or read before needs its own.
#pragma once

#include <limits>
#include <type_traits>

#include <dspp/base/error.hpp>
#include <software_gpu/block.hpp>

namespace nvcuda::wmma {

struct row_major {};
struct col_major {};
struct matrix_a {};
struct matrix_b {};
struct accumulator {};
enum layout_t { mem_row_major, mem_col_major };

template <class Use, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M == 16 && N == 16 && K == 16);
  enum { num_elements = dspp::software_gpu::fragment_elements };
  static constexpr bool by_columns = std::is_same_v<Layout, col_major>;
  static constexpr int kind =
      std::is_same_v<Use, accumulator> ? 0 : (std::is_same_v<Use, matrix_a> ? 1 : 3) + by_columns;
  T x[num_elements];
  fragment() {
    for (T& element : x) element = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
  }
};

namespace detail {
/// Begins a load or a store. Throws what CUDA leaves undefined.
template <class T>
void begin(int kind, const T* memory, unsigned stride) {
  dspp::software_gpu::begin_warp_operation(kind, memory, stride);
  dspp::require(reinterpret_cast<std::uintptr_t>(memory) % 32 == 0,
                "dspp: a fragment needs an address that is a multiple of 32 bytes, but got another. Align the tile.");
  dspp::require(stride * sizeof(T) % 16 == 0 && stride >= 16,
                "dspp: a fragment needs rows of at least 16 elements, a multiple of 16 bytes apart, but got others. "
                "Pad the rows.");
}
inline unsigned offset(unsigned place, unsigned stride, bool by_columns) {
  const unsigned row = place / 16, column = place % 16;
  return by_columns ? column * stride + row : row * stride + column;
}
template <class F, class T>
void load(F& to, const T* from, unsigned stride, bool by_columns) {
  begin(10 + F::kind, from, stride);
  const auto* const places = dspp::software_gpu::places_of_fragment(F::kind);
  for (int i = 0; i < F::num_elements; ++i) to.x[i] = from[offset(places[i], stride, by_columns)];
}
}  // namespace detail

template <class Use, class T, class Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, T, Layout>& to, const T* from, unsigned stride) {
  static_assert(sizeof(T) == 2);
  detail::load(to, from, stride, to.by_columns);
}
inline void load_matrix_sync(fragment<accumulator, 16, 16, 16, float>& to, const float* from, unsigned stride,
                             layout_t layout) {
  detail::load(to, from, stride, layout == mem_col_major);
}

inline void store_matrix_sync(float* to, const fragment<accumulator, 16, 16, 16, float>& from, unsigned stride,
                              layout_t layout) {
  detail::begin(20, to, stride);
  const auto* const places = dspp::software_gpu::places_of_fragment(from.kind);
  for (int i = 0; i < from.num_elements; ++i)
    to[detail::offset(places[i], stride, layout == mem_col_major)] = from.x[i];
}

inline void fill_fragment(fragment<accumulator, 16, 16, 16, float>& to, float value) {
  for (float& element : to.x) element = value;
}

/// d = a b + c. All lanes meet.
template <class T, class A, class B>
void mma_sync(fragment<accumulator, 16, 16, 16, float>& d, const fragment<matrix_a, 16, 16, 16, T, A>& a,
              const fragment<matrix_b, 16, 16, 16, T, B>& b, const fragment<accumulator, 16, 16, 16, float>& c) {
  using namespace dspp::software_gpu;
  begin_warp_operation(30 + a.kind + b.kind * 4, nullptr, 0);
  float *const left = operands_of_warp(), *const right = left + 256;
  const auto *const places_a = places_of_fragment(a.kind), *const places_b = places_of_fragment(b.kind);
  for (int i = 0; i < fragment_elements; ++i) {
    left[places_a[i]] = static_cast<float>(a.x[i]);
    right[places_b[i] % 16 * 16 + places_b[i] / 16] = static_cast<float>(b.x[i]);
  }
  wait_at(Barrier::warp);
  multiply_operands(places_of_fragment(c.kind), d.x, c.x);
  next_slots();
}

}  // namespace nvcuda::wmma
