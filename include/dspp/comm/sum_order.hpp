// SPDX-License-Identifier: Apache-2.0
/// In which order a communicator adds: how far the bits of its sums are fixed.
#pragma once

#include <string>

#include <dspp/base/config.hpp>
#include <dspp/base/error.hpp>

namespace dspp {

/// The tiers of the law on sums. Each promises what the ones before it promise, so `order >= SumOrder::rank` asks for
/// at least rank order. Integers are exact under every tier.
enum class SumOrder {
  transport,  ///< every rank gets the same bits, and the same call on the same values gives them again; the order may
              ///< differ between collectives, counts, groups and places in a buffer
  rank,   ///< the bits of an element depend on its summands alone, in rank order: those of a slice of all_reduce are
          ///< those of reduce_scatter, whoever makes the sum and wherever it lies
  exact,  ///< the sum is the exact one, rounded once: independent of the order and the number of the ranks
};

constexpr const char* name_of(SumOrder order) {
  switch (order) {
    case SumOrder::transport: return "transport";
    case SumOrder::rank: return "rank";
    case SumOrder::exact: return "exact";
  }
  return "?";
}

/// The order that `text` names, which option `name` was given.
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
