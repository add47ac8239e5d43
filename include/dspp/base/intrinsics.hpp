// SPDX-License-Identifier: Apache-2.0
/// The compiler's header of vector instructions, where the target has AVX or F16C. Included by this one alone, before
/// Eigen does.
#pragma once

#if defined(__AVX__) || defined(__F16C__)
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
// g++ 12 warns of its own header: the undefined values in avx512fintrin.h are variables that initialise themselves.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif
#endif
