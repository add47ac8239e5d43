// SPDX-License-Identifier: Apache-2.0
/// A plan runs the tape's checks: a gradient of another shape than its variable, and a registered use of a parameter
/// that receives no gradient.
// expected-error {{dspp: a gradient needs the shape and element type of its variable, but it has others. reshape or}}
// expected-error {{fail_of_use}}
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;

/// x and a registered vector, with the requested gradients.
template <class P, bool right_shape, bool of_the_vector>
struct Odd : Layer<P> {
  template <class Q>
  using on = Odd<Q, right_shape, of_the_vector>;
  ParameterOf<P, 1> vector;

  constexpr explicit Odd(const GptConfig& c) : vector("Odd vector", shape(c.width), Initial::zeros()) {}
  constexpr void visit(auto&& f) { f("vector", vector); }
  constexpr Hidden<P> operator()(const Hidden<P>& x) const {
    using D = DeviceOf<P>;
    Hidden<P> y(x.value(), x);
    vector.register_use(x);
    y.on_backward([self = this, slot = x.slot()](Tape<D>& tape, Tensor<ElementOf<P>, 3, D> dy) {
      if constexpr (of_the_vector) self->vector.accumulate([](auto, Write) {});
      if constexpr (right_shape)
        tape.give(slot, std::move(dy));
      else
        tape.give(slot, dy.reshape(shape(dy[0], dy[2], dy[1])));
    });
    return y;
  }
};

using P = Policy<>;
constexpr GptConfig small{.layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 4};
constexpr BatchSizes sizes{.micro_batch = 1, .sequence = 4};

#ifdef DSPP_TWIN
constexpr auto paper = plan<Gpt<P, Odd<P, true, true>>>(small, sizes);
#else
constexpr auto turned = plan<Gpt<P, Odd<P, false, true>>>(small, sizes);
constexpr auto without = plan<Gpt<P, Odd<P, true, false>>>(small, sizes);
#endif
