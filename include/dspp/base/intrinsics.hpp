// SPDX-License-Identifier: Apache-2.0
/// The compiler's header of vector instructions, if the target has AVX (F16C implies it). Included by this header only,
/// before Eigen includes it.
#pragma once

#include <dspp/base/config.hpp>

#if DSPP_HAS_AVX()
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
// g++ 12 warns about its own header: the undefined values in avx512fintrin.h are variables that initialise themselves.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#endif
