// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <string>

#include <dspp/comm/sum_order.hpp>

using namespace dspp;

static_assert(SumOrder::transport < SumOrder::rank && SumOrder::rank < SumOrder::exact);

TEST_CASE("a sum order is chosen by its name, among those that ranks offer") {
  CHECK(sum_order_named("--sum-order", "rank") == SumOrder::rank);
  CHECK(sum_order_named("--sum-order", "transport") == SumOrder::transport);
  for (const std::string text : {"", "exact", "ran", "rank "})
    CHECK_THROWS_WITH_AS(
        sum_order_named("--sum-order", text),
        ("dspp: --sum-order needs rank or transport, but got '" + text + "'. Leave it out for rank.").c_str(), Error);
}

TEST_CASE("ranks offer the rank's and the transport's order") {
  CHECK_NOTHROW(detail::check_sum_order("ThreadGroup", SumOrder::rank));
  CHECK_NOTHROW(detail::check_sum_order("ThreadGroup", SumOrder::transport));
  CHECK_THROWS_WITH_AS(detail::check_sum_order("ThreadGroup", SumOrder::exact),
                       "dspp: ThreadGroup needs a sum order that it offers, rank or transport, but got exact. Leave "
                       "sum_order out for rank.",
                       Error);
}
