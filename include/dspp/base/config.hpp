// SPDX-License-Identifier: Apache-2.0
/// Macros that the code is configured with; the only ones there are.
#pragma once

/// Marks a function that device code may call. Empty unless nvcc compiles.
#if defined(__CUDACC__)
#define DSPP_HOST_DEVICE __host__ __device__
#else
#define DSPP_HOST_DEVICE
#endif
