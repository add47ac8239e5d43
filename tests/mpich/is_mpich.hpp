// SPDX-License-Identifier: Apache-2.0
/// Stops the compiler where <mpi.h> is another MPI's.
#pragma once

#include <mpi.h>

#ifndef MPICH_VERSION
#error "dspp: this test needs the mpi.h of MPICH, but got another MPI's. Set DSPP_MPICH_INCLUDE_DIR."
#endif
