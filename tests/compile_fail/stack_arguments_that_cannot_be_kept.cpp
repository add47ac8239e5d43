// SPDX-License-Identifier: Apache-2.0
/// An argument behind a stack's input that its segments cannot keep until backward.
// expected-error {{dspp: Stack needs arguments that its segments can keep until backward, but one of those behind the}}
// expected-error {{input cannot be copied. Give a pointer to it, to what outlives the tape.}}
#include <memory>

#include <dspp/autograd/operators.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/nn/layer_norm.hpp>

using namespace dspp;
using P = Policy<>;

#ifdef DSPP_TWIN
using Factor = const double*;
#else
using Factor = std::unique_ptr<double>;
#endif

struct Scaled : Layer<P> {
  constexpr void visit(auto&&) {}
  constexpr Hidden<P> operator()(const Hidden<P>& x, const Factor& factor) const { return *factor * x; }
};

Hidden<P> of_blocks(const Stack<Scaled>& blocks, const Hidden<P>& x, const Factor& factor) {
  return blocks(x, factor);
}
