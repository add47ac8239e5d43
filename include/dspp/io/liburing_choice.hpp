// SPDX-License-Identifier: Apache-2.0
/// One choice per program: whether files of blocks are transferred by liburing, in the units that define it.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_LIBURING()
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_liburing, dspp_unit_with_liburing)
#else
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_liburing, dspp_unit_without_liburing)
#endif
