// SPDX-License-Identifier: Apache-2.0
/// The keys that a query attends to, for the kernels of every device.
#pragma once

#include <dspp/ops/kernels.hpp>

namespace dspp {

/// Of one sample. Causal needs keys >= queries: the last query attends to the last key.
struct SeenKeys {
  Size queries = 0, keys = 0;
  AttentionRule rule{};
  const std::int32_t* ranges = nullptr;  ///< of the sample, see kernels::AttentionExtras

  /// Query i attends to the keys [from(i), by(i)), none if that is empty. Neither falls from i to i + 1.
  DSPP_HOST_DEVICE constexpr Size from(Size i) const {
    Size first = rule.window > 0 ? i + keys - queries - rule.window + 1 : 0;
    if (first < 0) first = 0;
    return ranges == nullptr || first > ranges[2 * i] ? first : ranges[2 * i];
  }
  DSPP_HOST_DEVICE constexpr Size by(Size i) const {
    const Size own = i + keys - queries;
    Size end = rule.mask == AttentionMask::causal ? own + 1 : keys;
    if (rule.window > 0 && rule.window < keys && own + rule.window < end) end = own + rule.window;
    return ranges == nullptr || end < ranges[2 * i + 1] ? end : ranges[2 * i + 1];
  }
};

}  // namespace dspp
