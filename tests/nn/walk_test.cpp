// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include <dspp/models/recompute.hpp>
#include <dspp/models/sequential.hpp>
#include <dspp/models/stack.hpp>
#include <dspp/models/tiled.hpp>
#include <dspp/nn/activation.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/walk.hpp>
#include <dspp/parallel/column.hpp>
#include <dspp/parallel/row.hpp>

using namespace dspp;

using P = Policy<F64>;

namespace {

/// A norm, something else, a dropout.
template <class Q, class Inner>
struct Block : Layer<Q> {
  LayerNorm<Q> norm{4};
  Inner inner;
  Dropout<Q> dropout{0.5};

  constexpr explicit Block(Inner part) : inner(std::move(part)) {}
  constexpr void visit(auto&& f) {
    f("norm", norm);
    f("inner", inner);
    f("dropout", dropout);
  }
};

struct Leaf : Layer<P> {
  Linear<P> linear{{.in = 4, .out = 4, .bias = false}};
  constexpr Leaf() = default;
  constexpr explicit Leaf(int) {}
  constexpr void visit(auto&& f) { f("linear", linear); }
};

struct Inner : Layer<P> {
  Stack<Leaf> leaves{2, 0};
  constexpr void visit(auto&& f) { leaves.visit(f); }
};

/// Records its calls; units by address.
struct VisitRecorder {
  std::vector<std::string> visits;
  std::vector<const void*> open;
  bool nested = true;

  template <int Rank>
  void parameter(const Path& path, const Parameter<double, Rank, Cpu>& p) {
    visits.push_back(path.text() + " = " + p.label);
  }
  void site(const Path& path, const RandomSite&) { visits.push_back(path.text() + " draws"); }
  void begin_unit(const Path& path, const Unit<double, Cpu>& unit) {
    open.push_back(&unit);
    visits.push_back(path.text().empty() ? "begin" : "begin " + path.text());
  }
  void end_unit(const Unit<double, Cpu>& unit) {
    nested = nested && !open.empty() && open.back() == &unit;
    open.pop_back();
    visits.push_back("end");
  }
};

template <class L>
std::vector<std::string> visits_of(L&& layer) {
  VisitRecorder recorder;
  walk(layer, recorder);
  CHECK(recorder.nested);
  CHECK(recorder.open.empty());
  return recorder.visits;
}

using Visits = std::vector<std::string>;

}  // namespace

TEST_CASE("a walk visits parameters and random sites in the order of visit(), by their global names") {
  CHECK(visits_of(Block<P, LayerNorm<P>>(LayerNorm<P>(4))) ==
        Visits{"norm.weight = LayerNorm weight", "norm.bias = LayerNorm bias", "inner.weight = LayerNorm weight",
               "inner.bias = LayerNorm bias", "dropout.site draws"});
}

TEST_CASE("a walk begins and ends a unit around its parts, the inner one inside the outer one, and names no unit") {
  CHECK(visits_of(InUnit(Block<P, Inner>(Inner()))) ==
        Visits{"begin", "norm.weight = LayerNorm weight",
               "norm.bias = LayerNorm bias",                                     //
               "begin inner.0", "inner.0.linear.weight = Linear weight", "end",  //
               "begin inner.1", "inner.1.linear.weight = Linear weight", "end",  //
               "dropout.site draws", "end"});
}

TEST_CASE("an unnamed part has its layer's name: tiles are units that share the name of the weight") {
  CHECK(visits_of(Tiled<Linear<P>, 1, 2>(4, 4)) == Visits{"begin", "weight = Linear weight", "end",  //
                                                          "begin", "weight = Linear weight", "end",  //
                                                          "bias = Linear bias"});
}

TEST_CASE("Recompute adds no name, a Sequential numbers its parts, and parts without parameters are skipped") {
  using Feed = Sequential<P, Recompute<Leaf>, Gelu, RowParallel<Linear>>;
  CHECK(visits_of(Feed(Recompute<Leaf>(), Gelu{}, RowParallel<Linear, P>(4, 4))) ==
        Visits{"0.linear.weight = Linear weight", "2.weight = Linear weight", "2.bias = Linear bias"});
}

TEST_CASE("a walk from a path prefixes its names with the path") {
  const Path root, model(root, "model"), third(model, 3);
  LayerNorm<P> norm(4);
  VisitRecorder recorder;
  walk(norm, recorder, third);
  CHECK(recorder.visits == Visits{"model.3.weight = LayerNorm weight", "model.3.bias = LayerNorm bias"});
  CHECK(root.text().empty());
  walk(norm.weight, recorder);  // a parameter alone, without a name
  CHECK(recorder.visits.back() == " = LayerNorm weight");
}

namespace {
struct Counter {
  Size elements = 0;
  int sites = 0;
  template <int Rank>
  constexpr void parameter(const Path&, const Parameter<float, Rank, Meta>& p) {
    elements += p.count();
  }
  constexpr void site(const Path&, const RandomSite&) { ++sites; }
};

constexpr Counter counted_on_paper() {
  using Q = Policy<Meta>;
  Block<Q, LayerNorm<Q>> block(LayerNorm<Q>(6));
  Counter counter;
  walk(block, counter);
  return counter;
}
}  // namespace

TEST_CASE("a walk runs in constant expressions") {
  static_assert(counted_on_paper().elements == 20 && counted_on_paper().sites == 1);
  CHECK(counted_on_paper().elements == 20);
}
