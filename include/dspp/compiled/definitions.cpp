// SPDX-License-Identifier: Apache-2.0
/// dspp::compiled: the functions that are no templates.
#define DSPP_COMPILES
#include <dspp/dspp.hpp>
