// SPDX-License-Identifier: Apache-2.0
/// What happens to a row of a product's values on its way to memory: widening, bias, rounding, GELU.
#pragma once

#include <cmath>

#include <dspp/base/element.hpp>
#include <dspp/ops/gelu_form.hpp>

namespace dspp::cpu {

/// to[i] = from[i] in f32.
inline void widen_row(const bf16* from, Size count, float* to);
/// to[i] = values[i], rounded if R is narrower.
template <class C, class R>
void narrow_row(const C* values, Size count, R* to);
/// to[i] += values[i], in C, rounded once.
template <class C, class R>
void add_row(const C* values, Size count, R* to);
/// to[i] = values[i] + bias[i], in C, rounded once. values may be to.
template <class C, class R>
void add_bias_row(const C* values, const R* bias, Size count, R* to);
/// y[i] = gelu(x[i]).
template <class R>
void gelu_row(const R* x, Size count, GeluForm form, R* y);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// Runs f(i) for i in [0, count), in blocks of constant length: those vectorise at -O2 as well, where compilers refuse
/// loops of unknown length.
template <class F>
inline void each(Size count, const F& f) {
  constexpr Size width = 16;
  Size i = 0;
  for (; i + width <= count; i += width)
    for (Size j = 0; j < width; ++j) f(i + j);
  for (; i < count; ++i) f(i);
}

template <class C>
C gelu_value(C x, GeluForm form) {
  if (form == GeluForm::exact) return x * C(0.5) * (C(1) + std::erf(x * C(0.70710678118654752440)));
  const C u = C(0.79788456080286535588) * (x + C(0.044715) * x * x * x);
  return x * C(0.5) * (C(1) + std::tanh(u));
}

}  // namespace detail

inline void widen_row(const bf16* from, Size count, float* to) {
  detail::each(count, [&](Size i) { to[i] = from[i]; });
}

template <class C, class R>
void narrow_row(const C* values, Size count, R* to) {
  if constexpr (std::is_same_v<C, R>)
    if (values == to) return;
  detail::each(count, [&](Size i) { to[i] = R(values[i]); });
}

template <class C, class R>
void add_row(const C* values, Size count, R* to) {
  detail::each(count, [&](Size i) { to[i] = R(static_cast<C>(to[i]) + values[i]); });
}

template <class C, class R>
void add_bias_row(const C* values, const R* bias, Size count, R* to) {
  detail::each(count, [&](Size i) { to[i] = R(values[i] + static_cast<C>(bias[i])); });
}

template <class R>
void gelu_row(const R* x, Size count, GeluForm form, R* y) {
  for (Size i = 0; i < count; ++i) y[i] = R(detail::gelu_value(static_cast<Compute<R>>(x[i]), form));
}

}  // namespace dspp::cpu
