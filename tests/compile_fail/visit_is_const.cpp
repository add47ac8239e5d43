// SPDX-License-Identifier: Apache-2.0
/// A layer whose visit is const, so that nobody can fill its parameters.
// expected-error {{dspp: a layer needs a visit(f) that hands out its parts to be filled, but this one is}}
// expected-error {{const. Remove}}
// expected-error {{the const behind visit(auto&& f).}}
#include <dspp/nn/linear.hpp>
#include <dspp/nn/walk.hpp>

using namespace dspp;
using P = Policy<>;

struct Pair : Layer<P> {
  Linear<P> first{2, 2}, second{2, 2};
#ifdef DSPP_TWIN
  constexpr void visit(auto&& f) {
    f("first", first), f("second", second);
  }
#else
  constexpr void visit(auto&& f) const {
    f("first", first), f("second", second);
  }
#endif
};

struct Nothing {
  void parameter(const Path&, auto&) {}
  void site(const Path&, auto&) {}
};

void f(Pair& pair) {
  Nothing handler;
  walk(pair, handler);
}
