// SPDX-License-Identifier: Apache-2.0
/// One choice per program: whether the collectives of GPUs are NCCL's. It changes DeviceRank<Cuda>, and nothing in
/// dspp::compiled.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_NCCL()
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_nccl, dspp_unit_with_nccl)
#else
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_choice_of_nccl, dspp_unit_without_nccl)
#endif
