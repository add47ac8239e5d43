// SPDX-License-Identifier: Apache-2.0
/// Blocks one after the other, each a unit of its own.
#pragma once

#include <type_traits>

#include <dspp/base/fixed_array.hpp>
#include <dspp/zero/in_unit.hpp>

namespace dspp {

/// f_n(... f_1(x)) for n blocks of one type, numbered from 0. Under Zero<3> one block's parameters are gathered at a
/// time, and the next one's ahead.
template <class B>
struct Stack : Layer<typename B::policy> {
  template <class Q>
  using on = Stack<rebind<B, typename Q::DeviceType>>;

  FixedArray<InUnit<B>> blocks;

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

  constexpr void visit(auto&& f) {
    int number = 0;
    for (auto& block : blocks) f(number++, block);
  }

  /// The same arguments follow x in every block: `blocks(x, Lengths{batch.lengths})`.
  template <Tracked X, class... Extras>
  constexpr X operator()(X x, const Extras&... extras) const {
    for (const auto& block : blocks) x = block(x, extras...);
    return x;
  }
};

}  // namespace dspp
