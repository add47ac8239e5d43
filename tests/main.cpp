// SPDX-License-Identifier: Apache-2.0
/// The main function of every test program. (doctest.h itself is already there, precompiled; these lines add its body.)
#define DOCTEST_CONFIG_IMPLEMENT
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
