// SPDX-License-Identifier: Apache-2.0
/// Operations on a row of a product's values: widening, bias, rounding, GELU.
#pragma once

#include <dspp/ops/cpu/blocks.hpp>
#include <dspp/ops/gelu_form.hpp>
#include <dspp/ops/pointwise/arithmetic.hpp>
#include <dspp/ops/pointwise/gelu.hpp>

namespace dspp::cpu {

/// value as an R.
template <class R, class T>
constexpr R converted(T value) {
  return static_cast<R>(static_cast<Compute<R>>(value));
}

/// to[i] = f(x[i]), computed in x's compute type and rounded to R. `to` may be `x`.
template <class T, class R, class F>
void map_row(const T* x, Size count, R* to, F f) {
  using C = Compute<T>;
  Lanes<C> buffer;
  Lanes<Compute<R>> result;
  for (Size i = 0; i < count; i += block_length) {
    const C* a = read_block(buffer, x + i, count - i);
    for (int j = 0; j < block_length; ++j) result[j] = static_cast<Compute<R>>(f(a[j]));
    store_block(to + i, result, count - i);
  }
}

/// The same of two rows: to[i] = f(x[i], y[i]).
template <class T, class U, class R, class F>
void map_rows(const T* x, const U* y, Size count, R* to, F f) {
  Lanes<Compute<T>> buffer_x;
  Lanes<Compute<U>> buffer_y;
  Lanes<Compute<R>> result;
  for (Size i = 0; i < count; i += block_length) {
    const Compute<T>* a = read_block(buffer_x, x + i, count - i);
    const Compute<U>* b = read_block(buffer_y, y + i, count - i);
    for (int j = 0; j < block_length; ++j) result[j] = static_cast<Compute<R>>(f(a[j], b[j]));
    store_block(to + i, result, count - i);
  }
}

/// to[i] = values[i], converted. Elementwise without arithmetic, so it needs no block.
template <class T, class R>
void convert_row(const T* values, Size count, R* to) {
  constexpr bool widens = std::is_same_v<T, f16> && std::is_same_v<R, float>;
  constexpr bool narrows = std::is_same_v<T, float> && std::is_same_v<R, f16>;
  if constexpr (widens || narrows) return convert_elements(values, count, to);
  constexpr int part = 8;
  Size i = 0;
  for (; i + block_length <= count; i += block_length)
    for (int j = 0; j < block_length; ++j) to[i + j] = converted<R>(values[i + j]);
  for (; i + part <= count; i += part)
    for (int j = 0; j < part; ++j) to[i + j] = converted<R>(values[i + j]);
  for (; i < count; ++i) to[i] = converted<R>(values[i]);
}

/// to[i] += values[i], rounded once.
template <class C, class R>
void add_row(const C* values, Size count, R* to) {
  map_rows(to, values, count, to, [](auto a, auto b) { return a + b; });
}

/// to[i] = values[i] + bias[i], rounded once. `to` may be `values`.
template <class C, class R>
void add_bias_row(const C* values, const R* bias, Size count, R* to) {
  map_rows(values, bias, count, to, [](auto a, auto b) { return a + b; });
}

/// y[i] = gelu(x[i]).
template <class R>
void gelu_row(const R* x, Size count, GeluForm form, R* y) {
  if (form == GeluForm::exact)
    map_row(x, count, y, [](auto a) { return pointwise::GeluExact{}(a); });
  else
    map_row(x, count, y, [](auto a) { return pointwise::GeluTanh{}(a); });
}

/// dx[i] = gelu'(x[i]) dy[i]. dx may be dy.
template <class R>
void gelu_vjp_row(const R* x, const R* dy, Size count, GeluForm form, R* dx) {
  if (form == GeluForm::exact)
    map_rows(x, dy, count, dx, pointwise::Vjp<pointwise::GeluExact>{});
  else
    map_rows(x, dy, count, dx, pointwise::Vjp<pointwise::GeluTanh>{});
}

}  // namespace dspp::cpu
