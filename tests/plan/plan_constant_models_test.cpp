// SPDX-License-Identifier: Apache-2.0
// Plans of models of one's own in constant expressions: the examples', and one of the operators that these lack.
// labels: plan
#include <doctest/doctest.h>

#include <dspp/dspp.hpp>
#include <laws/own_goldens.hpp>

using namespace dspp;
using namespace dspp::laws;

namespace {

template <class P>
struct Rows {
  Input<P, ElementOf<P>, 3> x;
  Input<P, std::uint8_t, 2> known;
  constexpr void visit(auto&& f) { f("x", x), f("known", known); }
};

/// Every operator with a choice of its own inside.
template <class P>
struct Operators : Layer<P> {
  Linear<P> first{4, 8};
  GroupedAttention<P> across{{.width = 8, .heads = 2, .rope_theta = 0, .rule = {.mask = AttentionMask::full}}};
  constexpr explicit Operators(int) {}
  constexpr void visit(auto&& f) { f("first", first), f("across", across); }
  constexpr Loss<P> loss(const Rows<P>& batch) const {
    const auto x = first(batch.x);
    const auto centred = x - mean<-1>(x, keep_dimension);
    const auto y = where(batch.known, centred * x / (square(x) + 1.0), 0.0) - relu(-x) + (2.0 - tanh(x));
    const auto z = across(concat<1>(y, x), KeysOf{slice<1>(y, 0, 1)});
    return mean(max<-1>(z) - sum<-1>(exp(-square(z))));
  }
  constexpr Rows<P> new_batch(const BatchSizes& sizes, Memory<DeviceOf<P>>& memory) const {
    using D = DeviceOf<P>;
    Rows<P> batch;
    batch.x = Tensor<ElementOf<P>, 3, D>::uninitialized(shape(sizes.micro_batch, 3, 4), memory, Category::data);
    batch.known = Tensor<std::uint8_t, 2, D>::uninitialized(shape(sizes.micro_batch, 3), memory, Category::data);
    return batch;
  }
};

template <class Golden>
constexpr auto plan_of() {
  using Model = typename Golden::template Model<Policy<F64>>;
  return plan<Model>(Golden::config, {.micro_batch = Golden::samples, .sequence = Golden::sequence});
}

/// The plan of a constant expression is that of run time.
template <class Golden>
void check() {
  constexpr auto constant = plan_of<Golden>();
  static_assert(constant.peak > constant.resident);
  const auto now = plan_of<Golden>();
  CHECK(constant.peak == now.peak);
  CHECK(constant.backward_flops == now.backward_flops);
}

}  // namespace

TEST_CASE("models of one's own are planned in constant expressions") {
  check<SmallVit>();
  check<SmallTowers>();
  check<SmallParallelLlama>();
  check<SmallBert>();
  constexpr auto constant = plan<Operators<Policy<F64>>>(1, {.micro_batch = 2});
  CHECK(constant.peak == plan<Operators<Policy<F64>>>(1, {.micro_batch = 2}).peak);
}
