// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the functions that need CLI11. The library has this unit where CLI11 was found.
#define DSPP_COMPILES_OPTIONS
#include <dspp/app/options.hpp>
