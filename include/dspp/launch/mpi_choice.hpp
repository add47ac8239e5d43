// SPDX-License-Identifier: Apache-2.0
/// One choice in a program: whether run() takes the ranks that mpirun started. Its code differs, and that of nothing
/// that dspp::compiled has.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_mpi, dspp_unit_with_mpi)
#else
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_mpi, dspp_unit_without_mpi)
#endif
