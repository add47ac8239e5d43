// SPDX-License-Identifier: Apache-2.0
/// Blocks one after the other, each a unit of its own.
#pragma once

#include <type_traits>
#include <utility>

#include <dspp/autograd/recompute.hpp>
#include <dspp/base/fixed_array.hpp>
#include <dspp/zero/in_unit.hpp>

namespace dspp {

/// f_n(... f_1(x)) for n blocks of one type, numbered from 0. Under Zero<3> one block's parameters are gathered at a
/// time, and the next one's ahead.
///
/// The blocks are `segments` parts of n / segments each, rounded, of which all but the last keep only their input and
/// run again in backward, one at a time. plan() says the memory, and segments_that_fit() the least number that a limit
/// needs. Bits do not depend on the number, but for two orders of sums: on Cuda of blocks that end with a gelu
/// (autograd/recompute.hpp), and under Zero<2> and <3> of a parameter that is alone in its bucket outside of the blocks
/// and used in several of them. If the output has a gradient on one rank, it must have one on all.
///
/// Cost     of s segments a forward more of (s - 1) / s of the blocks in backward, with its collectives over Tp, and
///          under Zero<3> its gathers
/// Memory   s - 1 inputs, what one segment's blocks save, and under Zero<3> a block's parameters ahead of their use
/// Source   Chen et al. 2016, arXiv:1604.06174
template <class B>
struct Stack : Layer<typename B::policy> {
  template <class Q>
  using on = Stack<rebind<B, typename Q::DeviceType>>;

  FixedArray<InUnit<B>> blocks;
  int segments = 1;  ///< more than there are blocks: one a block

  /// `count` blocks, each described by the same arguments, or by what a function of its number returns.
  template <class... Config>
  constexpr explicit Stack(int count, const Config&... config) {
    require(count >= 0, "dspp: Stack needs 0 blocks or more, but got fewer. Change the number of layers.",
            ErrorCode::usage, {{"blocks", count}});
    blocks = FixedArray<InUnit<B>>(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) {
      if constexpr (sizeof...(Config) == 1 && (std::is_invocable_v<const Config&, int> && ...))
        blocks.emplace_back(B(config(i)...));
      else
        blocks.emplace_back(B(config...));
    }
  }

  /// Every rank runs the same blocks again.
  constexpr void describe(auto&& f) const {
    if (segments != 1) f("recompute_segments", segments);
  }
  constexpr void visit(auto&& f) {
    int number = 0;
    for (auto& block : blocks) f(number++, block);
  }

  /// The same arguments follow x in every block: `blocks(x, Lengths{batch.lengths})`. Segments keep copies of them.
  template <Tracked X, class... Extras>
  constexpr X operator()(X x, const Extras&... extras) const {
    static_assert((std::is_copy_constructible_v<Extras> && ...),
                  "dspp: Stack needs arguments that its segments can keep until backward, but one of those behind the "
                  "input cannot be copied. Give a pointer to it, to what outlives the tape.");
    require(segments >= 1, "dspp: Stack needs at least 1 segment, but got fewer. Raise recompute_segments.",
            ErrorCode::usage, {{"segments", segments}});
    const auto count = static_cast<int>(blocks.size());
    const int parts = segments < count ? segments : count;
    int begin = 0;
    for (int part = 1; part < parts; ++part) {
      const auto end = static_cast<int>(static_cast<Size>(count) * part / parts);
      x = recompute([this, begin, end, extras...](const X& again) { return run(begin, end, again, extras...); }, x);
      begin = end;
    }
    return run(begin, count, std::move(x), extras...);
  }

 private:
  template <class X, class... Extras>
  constexpr X run(int begin, int end, X x, const Extras&... extras) const {
    for (int i = begin; i < end; ++i) x = blocks[static_cast<std::size_t>(i)](x, extras...);
    return x;
  }
};

}  // namespace dspp
