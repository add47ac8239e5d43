// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <dspp/autograd/operators.hpp>
#include <dspp/autograd/variable.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

using X = Dense<double, 3>;

namespace {
Tensor<double, 3> ones(TestRank& here) {
  auto x = Tensor<double, 3>::uninitialized(shape(2, 3, 4), here.pool);
  x.fill(1);
  return x;
}
}  // namespace

TEST_CASE("a variable's type has its element, rank, device and state over Tp") {
  using V = Variable<float, 2, Cpu, Placed<On<Tp<3>, Shard<1>>>>;
  static_assert(std::is_same_v<V::Element, float> && V::rank == 2 && std::is_same_v<V::DeviceType, Cpu>);
  static_assert(std::is_same_v<state_of<const V&>, Shard<1>>);
  static_assert(Tracked<V> && Tracked<const V&> && !Tracked<Tensor<float, 2>>);
  // another state: canonical, and nothing else changes
  static_assert(std::is_same_v<InState<V, Shard<-2>>, Variable<float, 2, Cpu, Placed<On<Tp<3>, Shard<0>>>>>);
  static_assert(std::is_same_v<InState<V, Shard<-1>>, V>);
  CHECK(Tracked<X>);
}

TEST_CASE("a variable is a handle: copies have its elements and its slot") {
  TestRank here;
  X x(ones(here), here.tape);
  const X same = x;
  CHECK(same.value().data() == x.value().data());
  CHECK(same.slot().number == x.slot().number);
  CHECK(&same.tape() == &here.tape);
  CHECK(&same.memory() == &here.pool);
  CHECK(same.shape() == shape(2, 3, 4));
  CHECK(same[-1] == 4);
  const X other(ones(here), here.tape);
  CHECK(other.slot().number != x.slot().number);
}

TEST_CASE("a constant has a value and no slot, and takes no gradient while its neighbour does") {
  TestRank here;
  const X x(ones(here), here.tape), c = X::constant(ones(here), here.tape);
  CHECK(c.slot().number == -1);
  const auto y = x * c;
  here.tape.backward(y.slot(), ones(here));
  CHECK_FALSE(here.tape.has_gradient(c.slot()));
  CHECK(here.tape.take<double, 3>(x.slot(), x.shape()).data()[23] == 1);
}

TEST_CASE("take_value() moves out the only handle of the value") {
  TestRank here;
  X x(ones(here), here.tape);
  const double* block = x.value().data();
  const auto value = std::move(x).take_value();
  CHECK(value.data() == block);
  CHECK(value.unique());
}

TEST_CASE("a variable of a tape that does not record has no slot, and records nothing") {
  TestRank here;
  const Tape<Cpu>::Recording off(here.tape, false);
  const X x(ones(here), here.tape);
  bool called = false;
  x.on_backward([&called](Tape<Cpu>&, Tensor<double, 3>) { called = true; });
  CHECK(x.slot().number == -1);
  CHECK(here.tape.node_count() == 0);
  CHECK_FALSE(called);
}
