// SPDX-License-Identifier: Apache-2.0
/// Layers without an engine: storage for their parameters, and their gradients against finite differences.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <dspp/nn/walk.hpp>

#include "placed.hpp"
#include "vjp.hpp"

namespace dspp::laws {

/// Holds the parameters of a layer: element i of parameter p starts as a function of (p's site, i's global position),
/// in bf16 and hence the same in every element type; a rank holds its slice. Products of values of order 1 stay of that
/// order. Gradients go to blocks beside them.
template <class T>
class Home : public ParameterStorage<Cpu> {
 public:
  struct Entry {
    std::string name;
    ParameterBase<Cpu>* parameter;
  };

  template <class L>
  Home(L& layer, TestRank& here) : rank_(here.rank), pool_(&here.pool) {
    this->gradient_storage = [](ParameterStorage<Cpu>& home, const ParameterBase<Cpu>& p) -> const Storage<Pool>& {
      return static_cast<Home&>(home).gradients_[static_cast<std::size_t>(p.bucket)];
    };
    this->finished = [](ParameterStorage<Cpu>& home, const ParameterBase<Cpu>&) {
      ++static_cast<Home&>(home).finished_;
    };
    this->micro_step = &micro_step_;
    this->gradients.reserve(most_parameters);
    walk(layer, *this);
  }

  template <int Rank>
  void parameter(const Path& path, Parameter<T, Rank, Cpu>& p) {
    p.home = this;
    p.bucket = p.number = static_cast<int>(entries_.size());
    p.gradient = this->gradients.add(true);
    p.site = p.piece > 0 ? entries_.back().parameter->site : sites_++;
    auto value = Tensor<T, 1, Cpu>::zeros(shape(p.count()), *pool_, Category::parameters, p.label);
    const PhiloxStream numbers{{79}, 0, 0, static_cast<std::uint32_t>(p.site)};
    const double middle = p.initial.kind == Initial::Kind::ones ? 1 : 0;
    const double deviation =
        std::min(0.5, Rank == 1 ? 1 : 1 / std::sqrt(static_cast<double>(p.global_shape()[Rank - 1])));
    p.geometry.for_each_run(rank_, 0, p.count(), [&](Size local, Size global, Size count) {
      for (Size i = 0; i < count; ++i)
        value.data()[local + i] = static_cast<T>(
            static_cast<bf16>(middle + deviation * static_cast<double>(philox_normal(numbers, global + i))));
    });
    auto gradient = Tensor<T, 1, Cpu>::zeros(shape(p.count()), *pool_, Category::gradients, p.label);
    this->values.push_back(value.storage());
    gradients_.push_back(gradient.storage());
    entries_.push_back({path.text(), &p});
  }
  void site(const Path&, RandomSite& s) { s.number = sites_++; }
  // All values stay where they are: units that are not set up gather nothing.
  void begin_unit(const Path&, const auto&) {}
  void end_unit(const auto&) {}

  const std::vector<Entry>& entries() const { return entries_; }
  Tensor<T, 1, Cpu> value(std::size_t i) const { return at(this->values[i], i); }
  Tensor<T, 1, Cpu> gradient(std::size_t i) const { return at(gradients_[i], i); }
  /// How often a parameter's gradient was reported as finished.
  int finished_reports() const { return finished_; }

  /// Sums over Tp the gradients that are Partial there, as the engine does before a step.
  void sum_partial_gradients(AnyCommunicator& tp) {
    for (std::size_t i = 0; i < entries_.size(); ++i)
      if (entries_[i].parameter->partial_over_tp())
        all_reduce(tp, buffer(gradient(i).data(), gradient(i).count()), Purpose::replicated_gradient);
  }
  /// Call before the next backward.
  void forget_gradients() { this->gradients.begin_step(); }

 private:
  Tensor<T, 1, Cpu> at(const Storage<Pool>& storage, std::size_t i) const {
    return Tensor<T, 1, Cpu>::view(storage, 0, shape(entries_[i].parameter->count()));
  }

  int rank_, sites_ = 0, finished_ = 0;
  Pool* pool_;
  std::vector<Entry> entries_;
  std::vector<Storage<Pool>> gradients_;
  static constexpr std::size_t most_parameters = 1000;
  std::vector<int> uses_ = std::vector<int>(most_parameters);
  CurrentMicroStep micro_step_{uses_.data()};
};

/// An input of a layer on one rank.
template <class T, int Rank, class State = Invariant>
using Dense = Variable<T, Rank, Cpu, Placed<On<Tp<1>, State>>>;

/// The gradients of `function(x)`, a Variable, by finite differences of <w, function(x)> with fixed random w: that of x
/// and of every parameter in `home`.
template <class X = Dense<double, 3>, class F>
void check_variable_gradient(TestRank& here, F function, const Tensor<double, X::rank>& value,
                             const Home<double>* home = nullptr) {
  const auto weighted = [&] {
    const Tape<Cpu>::Recording off(here.tape, false);
    const auto y = function(X(value, here.tape));
    return dot(y.value(), random<double>(y.shape(), here.pool, 9));
  };
  X x(value, here.tape);
  const Slot input = x.slot();
  {
    auto y = function(x);
    x = {};
    const Slot output = y.slot();
    auto dy = random<double>(y.shape(), here.pool, 9);
    y = {};
    here.tape.backward(output, std::move(dy));
  }
  const auto dx = here.tape.template take<double, X::rank>(input, value.shape());
  here.tape.clear();
  CAPTURE("x");
  REQUIRE(dx);
  check_gradient(value, dx, weighted);
  if (home == nullptr) return;
  CHECK(home->finished_reports() == static_cast<int>(home->entries().size()));
  for (std::size_t i = 0; i < home->entries().size(); ++i) {
    CAPTURE(home->entries()[i].name);
    check_gradient(home->value(i), home->gradient(i), weighted);
  }
}

/// A layer on one rank: dx and every parameter gradient by finite differences.
template <class X = Dense<double, 3>, class L>
void check_layer_gradient(L layer, const Shape<X::rank>& shape) {
  TestRank here;
  Home<double> home(layer, here);
  check_variable_gradient<X>(
      here, [&](const X& x) { return layer(x); }, random<double>(shape, here.pool, 8), &home);
  CHECK(here.tape.node_count() == 0);
}

}  // namespace dspp::laws
