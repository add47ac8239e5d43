// SPDX-License-Identifier: Apache-2.0
/// Matrix products of local tensors, with common epilogues.
#pragma once

#include <string>

#include <dspp/ops/cpu/gemm/gemm.hpp>
#include <dspp/ops/in_place.hpp>
#include <dspp/ops/workspace.hpp>
#include <dspp/tensor/tensor.hpp>

namespace dspp::ops {

namespace detail {
[[noreturn]] void fail_of_operands(Extents a, bool ta, Extents b, bool tb, const char* who);
[[noreturn]] void fail_of_result(Extents given, Extents needed, const char* what, const char* who);
[[noreturn]] void fail_of_batches(Extents a, Extents b);
}  // namespace detail

/// op(a) op(b), where op transposes its operand or not: [m, k] [k, n] -> [m, n].
///
/// Cost     2 m n k operations
/// Memory   the result, of the given category; on a GPU a workspace of at most 32 MiB, as all products below. bf16 and
///          f16 operands accumulate in f32 and round once.
/// Throws   Error(shape) when the inner extents differ
template <class T, class D>
constexpr Tensor<T, 2, D> matmul(const Tensor<T, 2, D>& a, Transpose ta, const Tensor<T, 2, D>& b, Transpose tb,
                                 Category category = Category::activations);

/// op(a) op(b) + bias on every row, in one pass: bias is [n].
template <class T, class D>
constexpr Tensor<T, 2, D> matmul_bias(const Tensor<T, 2, D>& a, Transpose ta, const Tensor<T, 2, D>& b, Transpose tb,
                                      const Tensor<T, 1, D>& bias);

template <class T, class D>
struct MatmulBiasGelu {
  Tensor<T, 2, D> y;    ///< gelu(pre)
  Tensor<T, 2, D> pre;  ///< op(a) op(b) + bias, which the backward of gelu needs
};

/// gelu(op(a) op(b) + bias) and its argument. Counts 2 m n k + 9 m n operations.
template <class T, class D>
constexpr MatmulBiasGelu<T, D> matmul_bias_gelu(const Tensor<T, 2, D>& a, Transpose ta, const Tensor<T, 2, D>& b,
                                                Transpose tb, const Tensor<T, 1, D>& bias, GeluForm form);

/// (op(a) op(b)) gelu'(x), element by element: the gradient of what gelu was taken of, x [m, n]. In one pass where the
/// device's product can: on Cuda by tanh, in 16 bits, where rows are multiples of 16 bytes. The product is rounded
/// before, as by two passes. Counts 2 m n k + 14 m n operations.
template <class T, class D>
constexpr Tensor<T, 2, D> matmul_gelu_vjp(const Tensor<T, 2, D>& a, Transpose ta, const Tensor<T, 2, D>& b,
                                          Transpose tb, const Tensor<T, 2, D>& x, GeluForm form);

/// into = op(a) op(b), or into += op(a) op(b). G is T, or float if T is narrower: the type in which a weight's gradient
/// is summed.
///
/// Cost     2 m n k operations; allocates nothing but a GPU's workspace
/// Throws   Error(shape) when the extents do not fit
template <class G, class T, class D>
constexpr void matmul_into(const Tensor<G, 2, D>& into, Write write, const Tensor<T, 2, D>& a, Transpose ta,
                           const Tensor<T, 2, D>& b, Transpose tb);

/// For each i: op(a[i]) op(b[i]): [batch, m, k] [batch, k, n] -> [batch, m, n].
///
/// Cost     2 batch m n k operations
/// Throws   Error(shape) when the batches or the inner extents differ
template <class T, class D>
constexpr Tensor<T, 3, D> batched_matmul(const Tensor<T, 3, D>& a, Transpose ta, const Tensor<T, 3, D>& b,
                                         Transpose tb);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

/// The product of row-major operands [.., rows, columns]; the caller checks the leading extents.
template <int Rank>
constexpr kernels::Product product_of(const Shape<Rank>& a, Transpose ta, const Shape<Rank>& b, Transpose tb,
                                      const char* who) {
  const bool at = ta == Transpose::yes, bt = tb == Transpose::yes;
  const kernels::Product p{.m = at ? a[-1] : a[-2],
                           .n = bt ? b[-2] : b[-1],
                           .k = at ? a[-2] : a[-1],
                           .ta = ta,
                           .tb = tb,
                           .lda = a[-1],
                           .ldb = b[-1],
                           .ldc = bt ? b[-2] : b[-1]};
  if (p.k != (bt ? b[-1] : b[-2])) fail_of_operands(a, at, b, bt, who);
  return p;
}

template <int Rank>
constexpr void require_result(const Shape<Rank>& given, const Shape<Rank>& needed, const char* what, const char* who) {
  if (!(given == needed)) fail_of_result(given, needed, what, who);
}

constexpr double flops_of(const kernels::Product& p) {
  return 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
}

template <class T, class R, class D>
constexpr void multiply(const kernels::Product& p, const Tensor<T, 2, D>& a, const Tensor<T, 2, D>& b,
                        const kernels::Finish<R>& finish) {
  a.memory().count_flops(flops_of(p));
  launch_with_workspace<kernels::Matmul<T, R>, D>(a.memory(), {p.m, p.n, "matmul"}, p, a.data(), b.data(), finish);
}

}  // namespace detail

template <class T, class D>
constexpr Tensor<T, 2, D> matmul(const Tensor<T, 2, D>& a, Transpose ta, const Tensor<T, 2, D>& b, Transpose tb,
                                 Category category) {
  const kernels::Product p = detail::product_of(a.shape(), ta, b.shape(), tb, "matmul");
  auto c = Tensor<T, 2, D>::uninitialized(dspp::shape(p.m, p.n), a.memory(), category, "matmul");
  detail::multiply(p, a, b, kernels::Finish<T>{.c = c.data()});
  return c;
}

template <class T, class D>
constexpr Tensor<T, 2, D> matmul_bias(const Tensor<T, 2, D>& a, Transpose ta, const Tensor<T, 2, D>& b, Transpose tb,
                                      const Tensor<T, 1, D>& bias) {
  const kernels::Product p = detail::product_of(a.shape(), ta, b.shape(), tb, "matmul_bias");
  detail::require_result(bias.shape(), dspp::shape(p.n), "a bias", "matmul_bias");
  auto c = Tensor<T, 2, D>::uninitialized(dspp::shape(p.m, p.n), a.memory(), Category::activations, "matmul_bias");
  a.memory().count_flops(static_cast<double>(c.count()));
  detail::multiply(p, a, b, kernels::Finish<T>{.c = c.data(), .bias = bias.data()});
  return c;
}

template <class T, class D>
constexpr MatmulBiasGelu<T, D> matmul_bias_gelu(const Tensor<T, 2, D>& a, Transpose ta, const Tensor<T, 2, D>& b,
                                                Transpose tb, const Tensor<T, 1, D>& bias, GeluForm form) {
  const kernels::Product p = detail::product_of(a.shape(), ta, b.shape(), tb, "matmul_bias_gelu");
  detail::require_result(bias.shape(), dspp::shape(p.n), "a bias", "matmul_bias_gelu");
  const auto result = dspp::shape(p.m, p.n);
  auto pre = Tensor<T, 2, D>::uninitialized(result, a.memory(), Category::activations, "matmul_bias_gelu");
  auto y = Tensor<T, 2, D>::uninitialized(result, a.memory(), Category::activations, "matmul_bias_gelu");
  a.memory().count_flops(9.0 * static_cast<double>(y.count()));  // 1 of the bias, 8 of gelu
  detail::multiply(p, a, b,
                   kernels::Finish<T>{.c = pre.data(), .bias = bias.data(), .activated = y.data(), .form = form});
  return {y, pre};
}

template <class T, class D>
constexpr Tensor<T, 2, D> matmul_gelu_vjp(const Tensor<T, 2, D>& a, Transpose ta, const Tensor<T, 2, D>& b,
                                          Transpose tb, const Tensor<T, 2, D>& x, GeluForm form) {
  const kernels::Product p = detail::product_of(a.shape(), ta, b.shape(), tb, "matmul_gelu_vjp");
  detail::require_result(x.shape(), dspp::shape(p.m, p.n), "an argument of gelu", "matmul_gelu_vjp");
  auto dx = Tensor<T, 2, D>::uninitialized(x.shape(), a.memory(), Category::activations, "matmul_gelu_vjp");
  a.memory().count_flops(14.0 * static_cast<double>(dx.count()));
  detail::multiply(p, a, b, kernels::Finish<T>{.c = dx.data(), .before = x.data(), .form = form});
  return dx;
}

template <class G, class T, class D>
constexpr void matmul_into(const Tensor<G, 2, D>& into, Write write, const Tensor<T, 2, D>& a, Transpose ta,
                           const Tensor<T, 2, D>& b, Transpose tb) {
  const kernels::Product p = detail::product_of(a.shape(), ta, b.shape(), tb, "matmul_into");
  detail::require_result(into.shape(), dspp::shape(p.m, p.n), "a destination", "matmul_into");
  detail::multiply(p, a, b, kernels::Finish<G>{.c = into.data(), .write = write});
}

template <class T, class D>
constexpr Tensor<T, 3, D> batched_matmul(const Tensor<T, 3, D>& a, Transpose ta, const Tensor<T, 3, D>& b,
                                         Transpose tb) {
  const kernels::Product p = detail::product_of(a.shape(), ta, b.shape(), tb, "batched_matmul");
  if (a[0] != b[0]) detail::fail_of_batches(a.shape(), b.shape());
  const Size batch = a[0];
  auto c =
      Tensor<T, 3, D>::uninitialized(dspp::shape(batch, p.m, p.n), a.memory(), Category::activations, "batched_matmul");
  a.memory().count_flops(static_cast<double>(batch) * detail::flops_of(p));
  detail::launch_with_workspace<kernels::BatchedMatmul<T>, D>(a.memory(), {batch * p.m, p.n, "batched_matmul"}, batch,
                                                              p, a.data(), b.data(), c.data());
  return c;
}

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

namespace detail {

DSPP_INLINE void fail_of_operands(Extents a, bool ta, Extents b, bool tb, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs two operands of one inner extent, but they are " +
                             to_string(a) + (ta ? " transposed" : "") + " and " + to_string(b) +
                             (tb ? " transposed" : "") + ". Transpose one of them, or change its shape.");
}

DSPP_INLINE void fail_of_result(Extents given, Extents needed, const char* what, const char* who) {
  fail(ErrorCode::shape, std::string("dspp: ") + who + " needs " + what + " of shape " + to_string(needed) +
                             ", but it is " + to_string(given) + ". Give one that fits the product.");
}

DSPP_INLINE void fail_of_batches(Extents a, Extents b) {
  fail(ErrorCode::shape, "dspp: batched_matmul needs two operands of one batch, but they are " + to_string(a) +
                             " and " + to_string(b) + ". Repeat the smaller one, or use matmul on each.");
}

}  // namespace detail

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp::ops
