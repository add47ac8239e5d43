// SPDX-License-Identifier: Apache-2.0
/// The dimensions along sequences that Cp cuts, through every operator, and the operators that are then errors.
#include <doctest/doctest.h>

#include <dspp/autograd.hpp>
#include <dspp/nn/layer_norm.hpp>
#include <dspp/nn/linear.hpp>

#include <laws/layer_gradient.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

/// Zeros whose dimensions `bits` run along cut sequences.
template <int Rank>
Dense<double, Rank> cut(TestRank& here, const Shape<Rank>& extents, unsigned bits) {
  Dense<double, Rank> x(Tensor<double, Rank>::zeros(extents, here.pool), here.tape);
  x.set_sequence_dimensions(bits);
  return x;
}

unsigned after(const auto& x) {
  return x.sequence_dimensions();
}

}  // namespace

TEST_CASE("the cut dimension is followed through every operator that keeps positions apart") {
  TestRank here;
  const auto x = cut(here, shape(2, 4, 6), 0b010);
  CHECK(after(gelu(x) + 2.0 * x) == 0b010);
  CHECK(after(x * cut(here, shape(2, 4, 6), 0)) == 0b010);
  CHECK(after(cut(here, shape(2, 4, 6), 0) + x) == 0b010);
  CHECK(after(softmax(x)) == 0b010);
  CHECK(after(swiglu(x)) == 0b010);
  CHECK(after(cast<float>(x)) == 0b010);
  CHECK(after(transpose<1, 2, 0>(x)) == 0b001);
  CHECK(after(transpose<0, 2, 1>(x)) == 0b100);
  CHECK(after(slice<2>(x, 1, 2)) == 0b010);
  CHECK(after(std::get<1>(split<0, 2>(x))) == 0b010);
  CHECK(after(concat<2>(cut(here, shape(2, 4, 6), 0), x)) == 0b010);
  CHECK(after(redistribute<Replicate>(x)) == 0b010);
  CHECK(after(recompute([](const auto& v) { return relu(v); }, x)) == 0b010);
}

TEST_CASE("a reshape tracks which of the new dimensions hold positions") {
  TestRank here;
  const auto x = cut(here, shape(2, 4, 6), 0b010);
  CHECK(after(reshape(x, shape(2, 4, 3, 2))) == 0b0010);
  CHECK(after(reshape(x, shape(8, 6))) == 0b01);
  CHECK(after(reshape(x, shape(2, 24))) == 0b10);
  CHECK(after(reshape(x, shape(2, 2, 2, 6))) == 0b0110);
  CHECK(after(reshape(reshape(x, shape(48)), shape(2, 4, 6))) == 0b111);  // what is not known is held for cut
  CHECK(after(reshape(cut(here, shape(2, 1, 6), 0b010), shape(2, 1, 2, 3))) == 0b0010);
  CHECK(after(reshape(cut(here, shape(2, 4, 6), 0), shape(8, 6))) == 0);
}

TEST_CASE("an operation that would mix, select or join positions of a part is an error with the dimension") {
  TestRank here;
  const auto x = cut(here, shape(2, 4, 6), 0b010);
  const auto turned = transpose<0, 2, 1>(x);
  CHECK_THROWS_WITH_AS(
      batched_matmul(x, turned),
      "dspp: batched_matmul needs whole sequences, but dimension 2 of [2, 6, 4] runs along sequences "
      "that Cp cuts, and this rank has a part of them. Use attend, or whole_sequences(context, x) in a "
      "layer of your own, or leave Cp out of the policy.",
      Error);
  CHECK_THROWS_AS(batched_matmul(turned, x), Error);
  CHECK_THROWS_AS(batched_matmul(cut(here, shape(2, 3, 4), 0), x), Error);
  const auto rows = reshape(x, shape(8, 6));
  CHECK_THROWS_AS(matmul(rows, transpose<1, 0>(rows)), Error);
  CHECK_THROWS_AS(matmul(transpose<1, 0>(rows), rows), Error);
  CHECK_THROWS_AS(softmax(turned), Error);
  CHECK_THROWS_AS(swiglu(turned), Error);
  CHECK_THROWS_AS(slice<1>(x, 0, 3), Error);
  CHECK_THROWS_AS((split<1, 2>(x)), Error);
  CHECK_THROWS_AS(concat<1>(cut(here, shape(2, 4, 6), 0), x), Error);
  LayerNorm<Policy<F64>> norm(4);
  Linear<Policy<F64>> mix(4, 4);
  Home<double> norms(norm, here), mixes(mix, here);
  CHECK_THROWS_AS(norm(turned), Error);
  CHECK_THROWS_AS(mix(turned), Error);
}

TEST_CASE("products within a position, and with values that are not cut along sequences, are allowed") {
  TestRank here;
  const auto heads = reshape(cut(here, shape(2, 4, 6), 0b010), shape(8, 2, 3));
  REQUIRE(after(heads) == 0b001);
  CHECK(after(batched_matmul(heads, transpose<0, 2, 1>(heads))) == 0b001);
  const auto rows = cut(here, shape(8, 6), 0b01);
  CHECK(after(matmul(rows, cut(here, shape(6, 3), 0))) == 0b01);
  CHECK(after(matmul(cut(here, shape(3, 6), 0), transpose<1, 0>(rows))) == 0b10);
}
