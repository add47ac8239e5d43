// SPDX-License-Identifier: Apache-2.0
/// A bias of the logits of a VocabParallel table.
#pragma once

#include <dspp/nn/linear.hpp>
#include <dspp/parallel/vocab.hpp>

namespace dspp {

/// y = logits + b, b split over Tp as the rows of the table are: `bias(table.logits(x))`.
///
///   logits [..., vocabulary / tp] per rank   b [vocabulary / tp] per rank   y like logits
///
/// Placement   PaddedShard<-1>, kept; the padding of b starts at zero and receives no gradient
/// Memory      one tensor like the logits; keeps nothing
/// Throws      Error(shape) for logits of another vocabulary
template <class P>
struct VocabBias : Layer<P> {
  ParameterOf<P, 2> bias;  // [1, vocabulary]
  Size vocabulary;

  constexpr explicit VocabBias(Size tokens)
      : bias("VocabBias bias", dspp::shape(Size{1}, tokens), Initial::zeros(), Cut{1, P::tp}), vocabulary(tokens) {
    bias.groups_first = true;
    bias.decays = false;
  }
  constexpr void visit(auto&& f) { f("bias", bias); }

  template <Tracked X>
  constexpr X operator()(const X& logits) const {
    check_value_of<P, X>();
    constexpr bool padded = is_padded<state_of<X>>;
    static_assert(padded,
                  "dspp: VocabBias needs logits split along the vocabulary over Tp, but these are not. Compute them by "
                  "a VocabParallel table.");
    if constexpr (padded && is_value_of<P, X>) {
      require(logits.whole() == vocabulary,
              "dspp: VocabBias needs logits of its vocabulary, but they are of another one. Give both the same.",
              ErrorCode::shape, {{"logits", logits.whole()}, {"vocabulary", vocabulary}});
      using Sum = operations::Shift<ElementOf<P>, X::rank, DeviceOf<P>>;
      return X(perform<Sum>(logits, bias, is_partial_beside<X>), logits);
    } else {
      return logits;
    }
  }
};

}  // namespace dspp
