// SPDX-License-Identifier: Apache-2.0
/// The harness accepts a mistake with its expected sentences, however the compiler quotes and wraps them, and a twin.
// expected-error {{dspp: A "quoted" sentence; with [brackets], a semicolon and a second half on the next line.}}
// expected-error {{Write less.}}
#ifdef DSPP_TWIN
constexpr bool right = true;
#else
constexpr bool right = false;
#endif
template <class T>
struct Checked {
  static_assert(right && sizeof(T) > 0,
                "dspp: A \"quoted\" sentence; with [brackets], a semicolon "
                "and a second half on the next line. Write less.");
};
template struct Checked<int>;
