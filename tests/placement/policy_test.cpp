// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <tuple>

#include <dspp/models/gpt.hpp>
#include <dspp/models/recompute.hpp>
#include <dspp/models/sequential.hpp>
#include <dspp/nn/activation.hpp>

using namespace dspp;

namespace {
template <class A, class B>
constexpr bool same = std::is_same_v<A, B>;
}

TEST_CASE("equal policies are one type, in any order of members and without defaults") {
  static_assert(same<Policy<>, Policy<Zero<0>, F32, Tp<1>, Pp<1>, Cp<1>, Ep<1>, Cpu, NoSequenceParallel, KeepInputs>>);
  static_assert(same<Policy<Bf16, Tp<2>, SequenceParallel, Zero<3>>, Policy<Zero<3>, SequenceParallel, Tp<2>, Bf16>>);
  static_assert(!same<Policy<Tp<2>>, Policy<Tp<4>>>);
  static_assert(!same<Policy<Zero<1>>, Policy<Zero<2>>>);
  CHECK(!same<Policy<Bf16>, Policy<Bf16, Gradients<F32>>>);
}

namespace {
template <class... Members>
Policy<Members...> named_again(Strategy<Members...>);

/// Whether the policies' types say the same.
template <class P, class Q>
constexpr bool alike = same<typename P::ZeroStage, typename Q::ZeroStage> &&
                       same<typename P::Precision, typename Q::Precision> &&
                       same<typename P::GradientChoice, typename Q::GradientChoice> &&
                       same<typename P::TensorAxis, typename Q::TensorAxis> &&
                       same<typename P::ContextAxis, typename Q::ContextAxis> &&
                       same<typename P::Sequence, typename Q::Sequence> &&
                       same<typename P::Inputs, typename Q::Inputs> &&
                       same<typename P::Attention, typename Q::Attention> &&
                       same<typename P::DeviceType, typename Q::DeviceType>;
/// The canonical policy of members says what they say, in any order of theirs, and the members that it names give it.
template <class... Members>
constexpr bool holds = alike<Policy<Members...>, Strategy<Members...>> &&
                       same<decltype(named_again(Policy<Members...>())), Policy<Members...>>;
template <class... Given>
constexpr bool hold_with = holds<Given...> && holds<Given..., Tp<2>> && holds<Cp<3>, Given...> &&
                           holds<Given..., Tp<2>, SequenceParallel> && holds<Meta, Given..., Cp<2>> &&
                           holds<RegatherInputs, SequenceParallel, Given..., Tp<4>, Cp<2>> &&
                           holds<Given..., AttentionBy<FlashKernels>>;
}  // namespace

TEST_CASE("a strategy names its stage, its precision and what differs from the default, in one order") {
  static_assert(same<Policy<>, Strategy<Zero<0>, F32>>);
  static_assert(same<Policy<Cpu, Gradients<ByUse>, Tp<1>, Bf16>, Strategy<Zero<0>, Bf16>>);
  static_assert(same<Policy<SequenceParallel, Bf16, Meta, Tp<2>, Zero<3>, Gradients<F32>>,
                     Strategy<Zero<3>, Bf16, Gradients<F32>, Tp<2>, SequenceParallel, Meta>>);
  static_assert(
      same<Policy<AttentionBy<FlashKernels>, Cp<3>, RegatherInputs, SequenceParallel, Tp<4>>,
           Strategy<Zero<0>, F32, Tp<4>, Cp<3>, SequenceParallel, RegatherInputs, AttentionBy<FlashKernels>>>);
  static_assert(same<rebind<Strategy<Bf16>, Meta>, Strategy<Zero<0>, Bf16, Meta>>);
  CHECK((hold_with<> && hold_with<Zero<1>, F64> && hold_with<F16, Zero<3>, Gradients<F32>>));
}

TEST_CASE("a policy has its element type, stage, degree and residual stream's state") {
  using P = Policy<Zero<2>, Bf16, Tp<2>, SequenceParallel, RegatherInputs>;
  static_assert(same<P::Element, bf16> && same<P::DeviceType, Cpu> && same<P::HiddenState, Shard<1>>);
  static_assert(P::zero_stage == 2 && P::tp == 2 && P::sequence_parallel && P::regather_inputs);
  static_assert(same<Policy<>::HiddenState, Invariant> && same<Policy<F64>::Element, double>);
  CHECK(!Policy<Tp<2>>::sequence_parallel);
}

TEST_CASE("a policy says what computes attention, which is part of its type on paper, too") {
  static_assert(same<Policy<Bf16>, Policy<AttentionBy<Fastest>, Bf16>>);
  static_assert(!same<Policy<Bf16>, Policy<Bf16, AttentionBy<FlashKernels>>>);
  static_assert(Policy<>::attention_by == AttentionKernels::fastest);
  static_assert(Policy<F16, AttentionBy<CuDnn>>::attention_by == AttentionKernels::cudnn);
  static_assert(Policy<AttentionBy<FlashKernels>>::attention_by == AttentionKernels::flash);
  static_assert(Policy<AttentionBy<PlainKernels>, F64>::attention_by == AttentionKernels::plain);
  using P = Policy<Zero<2>, Bf16, AttentionBy<CuDnn>>;
  CHECK(same<rebind<Gpt<P>, Meta>, Gpt<Policy<Bf16, AttentionBy<CuDnn>, Meta>>>);
}

TEST_CASE("a policy says what is computed again, which is part of its type on paper, too") {
  using N = SelectiveRecompute<Norms>;
  using A = SelectiveRecompute<ActivationFunctions>;
  static_assert(same<Policy<A, Zero<1>, N>, Policy<Zero<1>, N, A>> && !same<Policy<N>, Policy<A>>);
  static_assert(Policy<N>::recomputes_norms && !Policy<N>::recomputes_functions && Policy<A, N>::recomputes_functions);
  CHECK(same<rebind<Gpt<Policy<Zero<2>, A, N>>, Meta>, Gpt<Policy<N, A, Meta>>>);
}

TEST_CASE("models, decorators and Sequential are rebound to another device with all their parts") {
  using P = Policy<Zero<3>, Tp<2>, Gradients<F32>>;
  using Q = Policy<Tp<2>, Meta>;
  static_assert(same<rebind<P, Meta>, Q> && same<rebind<P, Cpu>, P>);  // paper is given the stage as a value
  static_assert(same<rebind<Linear<P>, Meta>, Linear<Q>>);
  static_assert(same<rebind<ColumnParallel<Linear, P>, Meta>, ColumnParallel<Linear, Q>>);
  static_assert(same<rebind<VocabParallel<Embedding, P>, Meta>, VocabParallel<Embedding, Q>>);
  static_assert(same<rebind<Recompute<GptBlock<P>>, Meta>, Recompute<GptBlock<Q>>>);
  static_assert(same<rebind<Stack<Recompute<GptBlock<P>>>, Meta>, Stack<Recompute<GptBlock<Q>>>>);
  static_assert(same<rebind<Gpt<P, Recompute<GptBlock<P>>>, Meta>, Gpt<Q, Recompute<GptBlock<Q>>>>);
  using Mixed = Sequential<P, LayerNorm<P>, ColumnParallel<Linear>, Gelu, RowParallel<Linear, P>>;
  CHECK(same<rebind<Mixed, Meta>, Sequential<Q, LayerNorm<Q>, ColumnParallel<Linear>, Gelu, RowParallel<Linear, Q>>>);
}
