// SPDX-License-Identifier: Apache-2.0
/// A reference to a function object, for arguments of functions that are no templates.
#pragma once

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

#include <dspp/base/config.hpp>

namespace dspp {

template <class Signature>
class FunctionRef;

/// Calls a function object that must outlive it. Cost: one indirect call.
///
///   void each_rank(FunctionRef<void(int)> f);   each_rank([&](int rank) { ... });
template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class F>
  requires(!std::same_as<F, FunctionRef> && std::is_invocable_r_v<Result, const F&, Arguments...>)
      FunctionRef(const F& f)
      : object_(std::addressof(f)), call_([](const void* object, Arguments... arguments) -> Result {
          const F& function = *static_cast<const F*>(object);
          if constexpr (std::is_void_v<Result>)
            static_cast<void>(function(std::forward<Arguments>(arguments)...));
          else
            return function(std::forward<Arguments>(arguments)...);
        }) {}

  Result operator()(Arguments... arguments) const { return call_(object_, std::forward<Arguments>(arguments)...); }

 private:
  const void* object_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace dspp
