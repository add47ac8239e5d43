// SPDX-License-Identifier: Apache-2.0
// An error about heads names the heads, not an extent derived from them.
// labels: models
#include <doctest/doctest.h>

#include <string>

#include <dspp/models/attention.hpp>
#include <dspp/models/grouped_attention.hpp>

using namespace dspp;

namespace {

/// The constructor's error, or nothing.
template <class Layer, class Config>
std::string said_of(const Config& config) {
  try {
    const Layer layer(config);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

template <class P>
void check_heads() {
  constexpr Size tp = P::tp, ranks = P::tp * P::cp;
  for (Size heads = -2; heads <= 12; ++heads)
    for (Size width = 1; width <= 24; ++width) {
      CAPTURE(heads);
      CAPTURE(width);
      const bool fits = heads > 0 && width % heads == 0 && heads % ranks == 0;
      const std::string said = said_of<SelfAttention<P>>(AttentionConfig{.width = width, .heads = heads});
      if (fits != said.empty()) FAIL_CHECK(said);
      if (!fits && said.find("dspp: SelfAttention needs ") != 0) FAIL_CHECK(said);
      for (Size kv_heads = 0; kv_heads <= 4; ++kv_heads) {
        const auto grouped =
            said_of<GroupedAttention<P>>(GroupedAttentionConfig{.width = width, .heads = heads, .kv_heads = kv_heads});
        const Size kv = kv_heads > 0 ? kv_heads : heads;
        const bool right = fits && heads % kv == 0 && kv % tp == 0 &&
                           ((kv / tp) % P::cp == 0 || P::cp % (kv / tp) == 0) && width / heads % 2 == 0;
        if (right != grouped.empty()) FAIL_CHECK(grouped);
        if (!right && grouped.find("dspp: GroupedAttention needs ") != 0) FAIL_CHECK(grouped);
      }
    }
}

}  // namespace

TEST_CASE("an error about heads that do not fit the width, the tensor or the context ranks names the heads") {
  check_heads<Policy<>>();
  check_heads<Policy<Tp<2>>>();
  check_heads<Policy<Tp<3>>>();
  check_heads<Policy<Tp<2>, Cp<2>>>();
}
