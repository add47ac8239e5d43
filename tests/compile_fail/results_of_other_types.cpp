// SPDX-License-Identifier: Apache-2.0
/// Operations whose result is of a type that is neither their operands' nor the one that they are computed in.
// header-only: dspp::compiled has the products
// expected-error {{dspp: squared_norm needs to be a double or of the type that T is computed in, but another is asked}}
// expected-error {{for. Take squared_norm<double>(x).}}
// expected-error {{dspp: a product needs a result of its operands' type, or of the type they are computed in.}}
#include <dspp/ops/matmul.hpp>
#include <dspp/ops/reduce.hpp>

using namespace dspp;

/// A norm of f32 in bf16.
namespace norm_in_less {
#ifdef DSPP_TWIN
auto f(const Tensor<float, 1>& x) { return ops::squared_norm<float>(x); }
#else
auto f(const Tensor<float, 1>& x) { return ops::squared_norm<bf16>(x); }
#endif
}  // namespace norm_in_less

/// A product of bf16, which is computed in f32, in f64.
namespace product_in_more {
#ifdef DSPP_TWIN
void f(const cpu::Product& p, const bf16* x, float* y) { cpu::gemm(p, x, x, kernels::Finish<float>{.c = y}); }
#else
void f(const cpu::Product& p, const bf16* x, double* y) { cpu::gemm(p, x, x, kernels::Finish<double>{.c = y}); }
#endif
}  // namespace product_in_more
