// SPDX-License-Identifier: Apache-2.0
/// gelu on Variables.
#pragma once

#include <dspp/autograd/pointwise.hpp>

namespace dspp {

/// x Phi(x), by erf or by the tanh formula (GPT-2's). Hendrycks and Gimpel 2016, arXiv:1606.08415.
///
/// Placement   any finished one, kept
/// Cost        a Linear that takes the result multiplies by gelu's derivative in the pass of its backward product,
///             where the device's product can
/// Memory      keeps x
template <class T, int Rank, Device D, class W>
constexpr auto gelu(const Variable<T, Rank, D, W>& x, GeluForm form = GeluForm::tanh);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {
/// The backward of y = gelu(x).
template <class T, int Rank, Device D>
struct GeluBackward : GeluArgument<D> {
  constexpr GeluBackward(Slot of_x, const Tensor<T, Rank, D>& x, GeluForm of_gelu)
      : GeluArgument<D>{of_x, of_gelu, x.storage(), x.offset()} {}

  constexpr void operator()(Tape<D>& tape, Tensor<T, Rank, D> dy) {
    const auto shape = dy.shape();
    auto dx = ops::gelu_vjp(Tensor<T, Rank, D>::view(std::move(this->storage), this->offset, shape), this->form,
                            std::move(dy));
    tape.give(this->slot, std::move(dx));
  }
};
/// The same if the result may be computed again.
template <class T, int Rank, Device D>
struct RecomputingGelu : GeluBackward<T, Rank, D> {
  bool recomputes;

  constexpr RecomputingGelu(Slot of_x, const Tensor<T, Rank, D>& x, GeluForm of_gelu, bool is_on = true)
      : GeluBackward<T, Rank, D>(of_x, x, of_gelu), recomputes(is_on) {}

  constexpr bool is_recomputable() const { return recomputes; }
  constexpr Tensor<T, Rank, D> again(Tape<D>&, const Shape<Rank>& shape) const {
    return ops::gelu(Tensor<T, Rank, D>::view(this->storage, this->offset, shape), this->form);
  }
  static constexpr const void* home() { return nullptr; }
};
}  // namespace detail

namespace operations {
template <class T, int Rank, Device D>
struct Gelu {
  using DeviceType = D;
  static constexpr TapedTensor<T, Rank, D> run(const TapedTensor<T, Rank, D>& x, GeluForm form) {
    TapedTensor<T, Rank, D> y(ops::gelu(x.value(), form), x.tape());
    y.on_backward(
        detail::RecomputingGelu<T, Rank, D>(x.slot(), x.value(), form, x.tape().context().recomputes_functions));
    return y;
  }
};
}  // namespace operations

template <class T, int Rank, Device D, class W>
constexpr auto gelu(const Variable<T, Rank, D, W>& x, GeluForm form) {
  check_activation<typename W::tp>();
  return Variable<T, Rank, D, W>(perform<operations::Gelu<T, Rank, D>>(x, form), x);
}

}  // namespace dspp
