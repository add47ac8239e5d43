// SPDX-License-Identifier: Apache-2.0
/// A wrong sum in a block whose model is planned in a constant expression: the plan goes on without a word.
// expected-error {{dspp: + needs both sides placed alike, but they are placed differently over Tp. redistribute one}}
// expected-error {{of them first.}}
// one-error
#include <dspp/autograd/operators.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;
using P = Policy<Tp<2>, SequenceParallel>;

template <class Q>
struct Mine : Layer<Q> {
  LayerNorm<Q> norm;
  ColumnParallel<Linear, Q> up;
  RowParallel<Linear, Q> down;

  constexpr explicit Mine(const GptConfig& c) : norm(c.width), up(c.width, c.width), down(c.width, c.width) {}
  constexpr void visit(auto&& f) {
    f("norm", norm);
    f("up", up);
    f("down", down);
  }
  constexpr auto operator()(const Hidden<Q>& x) const {
#ifdef DSPP_TWIN
    return x + down(up(norm(x)));
#else
    return x + up(norm(x));
#endif
  }
};

constexpr GptConfig tiny{.layers = 1, .width = 8, .heads = 2, .vocabulary = 16, .sequence = 8};
constexpr auto paper = plan<Gpt<P, Mine<P>>>(tiny, BatchSizes{.micro_batch = 1, .sequence = 8});
