// SPDX-License-Identifier: Apache-2.0
/// The order in which a communicator adds, and so how far the bits of its sums are fixed.
#pragma once

#include <string>

#include <dspp/base/config.hpp>
#include <dspp/base/error.hpp>

namespace dspp {

/// The tiers of the law on sums. Each implies the ones before it, so `order >= SumOrder::rank` asks for at least rank
/// order. Integers are exact under every tier.
enum class SumOrder {
  rounding,   ///< as transport, but bf16 and f16 may be rounded at every addition: NCCL's
  transport,  ///< every rank gets the same bits, and a repeated call on the same values gives them again; the order
              ///< may differ between collectives, counts, groups and places in a buffer
  rank,   ///< the bits of an element depend on its summands alone, in rank order: a slice of all_reduce has the bits
          ///< of reduce_scatter, for any count and position in a buffer
  exact,  ///< the sum is exact and rounded once: independent of the order and the number of ranks
};

constexpr const char* name_of(SumOrder order) {
  switch (order) {
    case SumOrder::rounding: return "rounding";
    case SumOrder::transport: return "transport";
    case SumOrder::rank: return "rank";
    case SumOrder::exact: return "exact";
  }
  return "?";
}

/// The order named by `text`, the value of option `name`.
///
/// Throws   Error(usage) unless it is "rank" or "transport"
SumOrder sum_order_named(const std::string& name, const std::string& text);

namespace detail {

/// Throws   Error(usage) unless `order` is one that threads and MPI ranks offer: rank or transport
void check_sum_order(const char* who, SumOrder order);

// ---------------------------------------------------------------------------------------------------------------------

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE void check_sum_order(const char* who, SumOrder order) {
  if (order == SumOrder::rank || order == SumOrder::transport) return;
  fail(ErrorCode::usage, std::string("dspp: ") + who +
                             " needs a sum order that it offers, rank or transport, but got " + name_of(order) +
                             ". Leave sum_order out for rank.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace detail

#if DSPP_HAS_DEFINITIONS()

DSPP_INLINE SumOrder sum_order_named(const std::string& name, const std::string& text) {
  for (const SumOrder order : {SumOrder::rank, SumOrder::transport})
    if (text == name_of(order)) return order;
  fail(ErrorCode::usage, "dspp: " + name + " needs rank or transport, but got '" + text + "'. Leave it out for rank.");
}

#endif  // DSPP_HAS_DEFINITIONS()

}  // namespace dspp
