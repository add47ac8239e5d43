// SPDX-License-Identifier: Apache-2.0
/// Where processes that were started without MPI meet, read from the variables of torchrun and of cluster scripts.
#pragma once

#include <optional>
#include <string>

#include <dspp/base/error.hpp>
#include <dspp/base/function_ref.hpp>
#include <dspp/comm/tcp/place.hpp>
#include <dspp/launch/launch.hpp>

#if DSPP_HAS_DEFINITIONS()
#include <cstdlib>
#endif

namespace dspp {

/// Reads MASTER_ADDR, MASTER_PORT and DSPP_TOKEN from `variable(name)`, which returns a text or null. DSPP_MASTER_PORT
/// replaces the port; under a torchrun whose own store has MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True) it is the
/// next one. Empty if neither MASTER_ADDR nor MASTER_PORT is set.
///
/// Throws   Error(usage) if one of the two is missing, a port is not from 1 to 65535, or the token is empty
std::optional<TcpPlace> read_tcp_place(const Launch& launch, FunctionRef<const char*(const char*)> variable);

/// That of this process.
std::optional<TcpPlace> this_tcp_place(const Launch& launch);

// ---------------------------------------------------------------------------------------------------------------------

namespace detail {

int tcp_port(const char* name, const std::string& text);

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

namespace detail {

DSPP_INLINE int tcp_port(const char* name, const std::string& text) {
  const bool is_number = !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == std::string::npos;
  const int port = is_number ? std::stoi(text) : 0;
  if (port >= 1 && port <= 65535) return port;
  fail(ErrorCode::usage, std::string("dspp: run needs a port from 1 to 65535 in the variable ") + name +
                             ", but it holds '" + text + "'. Set it to one that is free on the host of rank 0.");
}

}  // namespace detail

DSPP_INLINE std::optional<TcpPlace> read_tcp_place(const Launch& launch,
                                                   FunctionRef<const char*(const char*)> variable) {
  const char *const host = variable("MASTER_ADDR"), *const port = variable("MASTER_PORT"),
                    *const own_port = variable("DSPP_MASTER_PORT"), *const token = variable("DSPP_TOKEN"),
                    *const store = variable("TORCHELASTIC_USE_AGENT_STORE");
  if (host == nullptr && port == nullptr) return std::nullopt;
  const auto need = [&](bool there, const char* name, const char* other) {
    if (there) return;
    fail(ErrorCode::usage, std::string("dspp: run needs the variable ") + name + " beside " + other +
                               ", where the ranks meet, but it is not set. Set both on every rank.");
  };
  need(host != nullptr && *host != 0, "MASTER_ADDR", "MASTER_PORT");
  need(port != nullptr || own_port != nullptr, "MASTER_PORT", "MASTER_ADDR");
  if (token != nullptr && *token == 0)
    fail(ErrorCode::usage,
         "dspp: run needs a secret in the variable DSPP_TOKEN, but it is empty. Set it to the same on every rank, or "
         "unset it for ranks of one machine.");
  TcpPlace place{.rank = launch.rank, .size = launch.size, .host = host, .token = token == nullptr ? "" : token};
  const bool has_store = store != nullptr && std::string(store) == "True";
  if (own_port != nullptr)
    place.port = detail::tcp_port("DSPP_MASTER_PORT", own_port);
  else
    place.port = detail::tcp_port("MASTER_PORT", port) + (has_store ? 1 : 0);
  if (place.port > 65535)
    fail(ErrorCode::usage,
         "dspp: run needs a port beside that of torchrun's store, but MASTER_PORT is 65535. Set DSPP_MASTER_PORT.");
  return place;
}

DSPP_INLINE std::optional<TcpPlace> this_tcp_place(const Launch& launch) {
  return read_tcp_place(launch, [](const char* name) { return std::getenv(name); });
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
