// SPDX-License-Identifier: Apache-2.0
/// One choice per program: whether run() uses the ranks that mpirun started. It changes the code of run() and nothing
/// in dspp::compiled.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_MPI()
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_mpi, dspp_unit_with_mpi)
#else
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_mpi, dspp_unit_without_mpi)
#endif
