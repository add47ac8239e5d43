// SPDX-License-Identifier: Apache-2.0
/// The kernels of custom_op, which are a program's own: nvcc compiles them to PTX.
// compiled, not run: it would need a GPU
#include <dspp/ops/pointwise/custom.hpp>
#include <kernels/cuda_kernels.cuh>

namespace dspp {

namespace {
/// The functions of a custom_op with a number, and of one of two inputs.
struct Shifted {
  template <class C>
  DSPP_HOST_DEVICE C operator()(C x, C by) const {
    return x + by;
  }
};
struct Passed {
  template <class C>
  DSPP_HOST_DEVICE C operator()(C, C, C dy, C) const {
    return dy;
  }
};
struct Product {
  template <class C>
  DSPP_HOST_DEVICE C operator()(C a, C b) const {
    return a * b;
  }
};
struct OfProduct {
  template <class C>
  DSPP_HOST_DEVICE TwoGradients<C> operator()(C a, C b, C, C dy) const {
    return {b * dy, a * dy};
  }
};
}  // namespace

using OfOne = pointwise::Custom<Shifted, 1>;
using OfTwo = pointwise::Custom<Product, 0>;
template struct Kernel<kernels::Pointwise<OfOne, bf16, bf16>, Cuda>;
template struct Kernel<kernels::PointwisePair<pointwise::CustomVjp<Shifted, Passed, 1>, bf16, bf16, bf16>, Cuda>;
template struct Kernel<kernels::PointwisePair<OfTwo, float, float, float>, Cuda>;
template struct Kernel<kernels::PointwiseVjpOfTwo<pointwise::CustomVjp<Product, OfProduct, 0>, float>, Cuda>;

}  // namespace dspp
