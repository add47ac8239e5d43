// SPDX-License-Identifier: Apache-2.0
/// Arithmetic that the integers of a batch do not hold.
// expected-error {{dspp: a sum, or a product with a number, needs elements that hold it, but these are bytes, which}}
// expected-error {{end at 255. cast<std::int32_t>(x) or cast<ElementOf<P>>(x) first.}}
// expected-error {{dspp: a quotient or mean needs values that are no integers: it would be rounded to one.}}
// expected-error {{cast<ElementOf<P>>(x) first.}}
#include <dspp/autograd.hpp>
#include <dspp/nn/layer.hpp>

using namespace dspp;
using P = Policy<>;

/// Pictures of bytes, scaled to [0, 1]: 0.
namespace pictures_of_bytes {
#ifdef DSPP_TWIN
auto f(const Input<P, std::uint8_t, 4>& pixels) {
  return (1 / 255.0) * cast<ElementOf<P>>(pixels);
}
#else
auto f(const Input<P, std::uint8_t, 4>& pixels) {
  return (1 / 255.0) * pixels;
}
#endif
}  // namespace pictures_of_bytes

/// The lengths of a mask, modulo 256.
namespace lengths_in_bytes {
#ifdef DSPP_TWIN
auto f(const Input<P, std::uint8_t, 2>& mask) {
  return sum<1>(cast<std::int32_t>(mask));
}
#else
auto f(const Input<P, std::uint8_t, 2>& mask) {
  return sum<1>(mask);
}
#endif
}  // namespace lengths_in_bytes

/// A share of a mask, rounded down to 0.
namespace mean_of_a_mask {
#ifdef DSPP_TWIN
auto f(const Input<P, std::uint8_t, 2>& mask) {
  return mean(cast<double>(mask));
}
#else
auto f(const Input<P, std::uint8_t, 2>& mask) {
  return mean(mask);
}
#endif
}  // namespace mean_of_a_mask

/// A quotient of ids, rounded.
namespace quotient_of_ids {
#ifdef DSPP_TWIN
auto f(const Tokens<P>& ids) {
  return cast<double>(ids) / 2.5;
}
#else
auto f(const Tokens<P>& ids) {
  return ids / 2.5;
}
#endif
}  // namespace quotient_of_ids
