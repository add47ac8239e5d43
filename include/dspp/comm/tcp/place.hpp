// SPDX-License-Identifier: Apache-2.0
/// A rank of a world that TCP connects, and where it meets the others.
#pragma once

#include <string>

#include <dspp/base/config.hpp>

namespace dspp {

/// A rank, and where rank 0 waits for the others: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, DSPP_TOKEN.
struct TcpPlace {
  int rank = 0, size = 1;
  std::string host = "127.0.0.1";
  int port = 0;
  /// The same on every rank, and presented by every connection. Without one, all addresses must be loopback's. It is
  /// sent as it is, as is everything else: for networks that are trusted.
  std::string token{};
};

}  // namespace dspp
