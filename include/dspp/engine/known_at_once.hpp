// SPDX-License-Identifier: Apache-2.0
/// The one question that the engine asks of a device: whether operations are done when they return.
#pragma once

#include <dspp/tensor/device.hpp>

namespace dspp::detail {

/// True if the host may read a value without waiting. It decides when errors are thrown and what is kept until then,
/// never a bit of a result.
template <Device D>
inline constexpr bool known_at_once = D::synchronous;

/// True if the last batch is kept until the next one, since its loss is not known yet. As the device that is imitated.
template <Device D>
inline constexpr bool keeps_last_batch = !imitates_synchronous<D>;

}  // namespace dspp::detail
