// SPDX-License-Identifier: Apache-2.0
/// The main function of every test program.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <support/sanitizer.hpp>

#ifdef DSPP_TEST_UNDER_ASAN
// Undefined behaviour in a test's own code traps: AddressSanitizer shows where, in place of doctest.
extern "C" const char* __asan_default_options() {
  return "handle_sigill=2";
}
#endif
