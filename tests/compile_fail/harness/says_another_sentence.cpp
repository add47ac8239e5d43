// SPDX-License-Identifier: Apache-2.0
/// The harness refuses a mistake whose error differs from the expected one.
// expected-error {{dspp: Column needs a whole input, but this one is split.}}
#ifdef DSPP_TWIN
constexpr bool right = true;
#else
constexpr bool right = false;
#endif
static_assert(right, "dspp: Row needs a split input, but this one is whole.");
