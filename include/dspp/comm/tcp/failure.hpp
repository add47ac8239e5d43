// SPDX-License-Identifier: Apache-2.0
/// The failure of a world of TCP ranks, as its ranks receive it.
#pragma once

#include <string>

#include <dspp/base/error.hpp>

namespace dspp::detail {

/// The first failure that a rank received: what its collectives throw, and what the failing rank itself threw.
struct TcpFailure {
  ErrorCode code = ErrorCode::aborted;
  std::string sentence;
  int culprit = -1;       ///< the world rank to blame; -1 if there is none
  bool own_error = true;  ///< the culprit threw a dspp::Error; else `reason` is all that is known
  ErrorCode own_code = ErrorCode::aborted;
  std::string reason;
};

}  // namespace dspp::detail
