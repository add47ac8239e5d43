// SPDX-License-Identifier: Apache-2.0
/// What is done at the end of a scope that was left early.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp::detail {

/// Calls f at the end of the scope unless cancelled: what must be undone if something throws.
template <class F>
class Otherwise {
 public:
  constexpr explicit Otherwise(F f) : f_(f) {}
  Otherwise(const Otherwise&) = delete;
  Otherwise& operator=(const Otherwise&) = delete;
  constexpr ~Otherwise() {
    if (!cancelled_) f_();
  }
  constexpr void cancel() { cancelled_ = true; }

 private:
  F f_;
  bool cancelled_ = false;
};

}  // namespace dspp::detail
