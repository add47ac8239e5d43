// SPDX-License-Identifier: Apache-2.0
/// The bits of one type read as another, on host and device.
#pragma once

#include <dspp/base/config.hpp>

namespace dspp {

/// std::bit_cast, which nvcc does not let device code call.
template <class To, class From>
DSPP_HOST_DEVICE constexpr To bits_as(From value) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, value);
}

}  // namespace dspp
