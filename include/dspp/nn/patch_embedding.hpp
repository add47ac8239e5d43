// SPDX-License-Identifier: Apache-2.0
/// Images as sequences of patches: a convolution whose stride is its kernel.
#pragma once

#include <array>
#include <string>
#include <utility>

#include <dspp/nn/layer.hpp>
#include <dspp/nn/linear.hpp>
#include <dspp/ops/transpose.hpp>

namespace dspp {

/// Images, [batch, channels, height, width]: whole over Tp, and of every rank along Cp all.
template <class P>
using Images = WholeOverCp<Value<P, 4, Invariant>>;

struct PatchEmbeddingConfig {
  Size channels = 3, patch = 16, width = 0;
  bool bias = true;
  Initial initial = Initial::normal(0.02);
};

/// y[b, n] = W x[b, patch n] + bias, patches in the order of their rows, then columns.
///
///   x [batch, channels, height, width]   W [out, channels, patch, patch]   bias [out]
///   y [batch, (height / patch) (width / patch), out]
///
/// Placement   x whole over Tp, which any such state keeps, and not cut by Cp; so is y. own_positions<P>(y) is a rank's
///             part of the sequence.
/// Cost        2 out operations an element of x forward, twice that backward; no communication
/// Memory      keeps x once, in the order of patches
/// Throws      Error(shape) if x has other channels, or extents that the patch does not divide
/// Source      Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.1; weights lie as those of torch's Conv2d
template <class P>
struct PatchEmbedding : Layer<P> {
  ParameterOf<P, 4> weight;
  ParameterOf<P, 1> bias;
  bool has_bias;

  constexpr explicit PatchEmbedding(const PatchEmbeddingConfig& c);

  constexpr void visit(auto&& f) {
    f("weight", weight);
    if (has_bias) f("bias", bias);
  }

  template <Tracked X>
  constexpr auto operator()(const X& x) const;
};

// ---------------------------------------------------------------------------------------------------------------------

template <class P>
constexpr PatchEmbedding<P>::PatchEmbedding(const PatchEmbeddingConfig& c)
    : weight("PatchEmbedding weight", dspp::shape(c.width, c.channels, c.patch, c.patch), c.initial),
      bias("PatchEmbedding bias", dspp::shape(c.width), Initial::zeros()),
      has_bias(c.bias) {
  bias.decays = false;
}

// What does not depend on the policy is instantiated once for an element type.
namespace detail {

/// [batch, channels, height, width] as rows of patches, [batch height / p width / p, channels p p].
template <class T, Device D>
constexpr Tensor<T, 2, D> rows_of_patches(const Tensor<T, 4, D>& x, const Shape<4>& weight) {
  const Size p = weight[2], down = x[2] / p, across = x[3] / p;
  if (x[1] != weight[1] || x[2] % p != 0 || x[3] % p != 0)
    fail(ErrorCode::shape, "dspp: PatchEmbedding needs images of " + std::to_string(weight[1]) +
                               " channels and extents that " + std::to_string(p) + " divides, but they are " +
                               to_string(x.shape()) + ". Crop them, or change the layer.");
  const auto apart = x.reshape(dspp::shape(x[0], x[1], down, p, across, p));
  return ops::transpose(apart, {0, 2, 4, 1, 3, 5}).reshape(dspp::shape(x[0] * down * across, x[1] * p * p));
}
template <class T, Device D>
constexpr Tensor<T, 4, D> image_of_patches(const Tensor<T, 2, D>& rows, const Shape<4>& image, Size p) {
  const auto apart = rows.reshape(dspp::shape(image[0], image[2] / p, image[3] / p, image[1], p, p));
  return ops::transpose(apart, {0, 3, 1, 4, 2, 5}).reshape(image);
}

template <class T, Device D>
constexpr Tensor<T, 2, D> patch_matrix(const Parameter<T, 4, D>& weight) {
  const Shape<4>& s = weight.shape();
  return weight.value().reshape(dspp::shape(s[0], s[1] * s[2] * s[3]));
}

}  // namespace detail

namespace operations {
/// `bias`: null if there is none. `partial`: see Parameter::used.
template <class T, Device D>
struct PatchEmbedding {
  using DeviceType = D;
  static constexpr TapedTensor<T, 3, D> run(const TapedTensor<T, 4, D>& x, const Parameter<T, 4, D>& weight,
                                            const Parameter<T, 1, D>* bias, bool partial) {
    const auto rows = detail::rows_of_patches(x.value(), weight.shape());
    const auto matrix = detail::patch_matrix(weight);
    const Size extent = weight.shape()[2];  // of a patch
    const auto shape = dspp::shape(x[0], (x[2] / extent) * (x[3] / extent), matrix[0]);
    TapedTensor<T, 3, D> y(product_of(rows, matrix, bias).reshape(shape), x.tape());
    if (!x.tape().recording()) return y;
    weight.used(x.tape(), partial);
    if (bias) bias->used(x.tape(), partial);
    y.on_backward([&weight, bias, slot = x.slot(), image = x.shape(), rows](Tape<D>& tape, Tensor<T, 3, D> dy) {
      const auto dy_rows = detail::as_rows(dy);
      const auto write = [&](auto dw, Write how) {
        ops::matmul_into(dw.reshape(dspp::shape(dy_rows[1], rows[1])), how, dy_rows, Transpose::yes, rows,
                         Transpose::no);
      };
      if (!weight.is_frozen()) weight.accumulate(write);
      if (bias && !bias->is_frozen())
        bias->accumulate([&](auto db, Write how) { ops::sum_rows_into(db, how, dy_rows); });
      if (!slot.takes_gradient()) return;
      const auto dx = ops::matmul(dy_rows, Transpose::no, detail::patch_matrix(weight), Transpose::no);
      tape.give(slot, detail::image_of_patches(dx, image, weight.shape()[2]));
    });
    return y;
  }

 private:
  // Not a conditional expression: in a constant one g++ 12 releases its temporary twice.
  static constexpr Tensor<T, 2, D> product_of(const Tensor<T, 2, D>& rows, const Tensor<T, 2, D>& matrix,
                                              const Parameter<T, 1, D>* bias) {
    if (bias) return ops::matmul_bias(rows, Transpose::no, matrix, Transpose::yes, bias->value());
    return ops::matmul(rows, Transpose::no, matrix, Transpose::yes);
  }
};
}  // namespace operations

#define DSPP_PATCH_EMBEDDING_OPERATIONS(TEMPLATE, T) \
  TEMPLATE struct CompiledOperation<operations::PatchEmbedding<T, Cpu>>;
DSPP_DECLARE_OPERATIONS(DSPP_PATCH_EMBEDDING_OPERATIONS)

template <class P>
template <Tracked X>
constexpr auto PatchEmbedding<P>::operator()(const X& x) const {
  check_value_of<P, X>();
  constexpr bool whole =
      X::rank == 4 && !is_shard<state_of<X>> && Finished<state_of<X>> && X::Placement::cp_dimension < 0;
  static_assert(whole,
                "dspp: PatchEmbedding needs images of four dimensions, finished and whole over Tp and Cp, but these "
                "are not. Give "
                "it an Images<P>, and cut its result.");
  if constexpr (is_value_of<P, X> && whole) {
    using Y = Variable<ElementOf<P>, 3, DeviceOf<P>, typename X::Placement>;
    using Patches = operations::PatchEmbedding<ElementOf<P>, DeviceOf<P>>;
    return Y(perform<Patches>(x, weight, has_bias ? &bias : nullptr, is_partial_beside<X>), x);
  } else {
    return x;
  }
}

}  // namespace dspp
