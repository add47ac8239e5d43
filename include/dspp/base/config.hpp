// SPDX-License-Identifier: Apache-2.0
/// The one header that reads compiler macros. The others query it: `#if DSPP_HAS_OPENMP()`. A missing include or a
/// misspelt name is an error, since it is then an unknown function-like macro.
///
/// Units of one program that are compiled differently do not link, since they would share inline functions and classes
/// of different code and layout. The linker then reports that dspp_units_need_one_configuration is defined twice, and
/// names the two configurations as sections or symbols: dspp_unit_with_openmp_without_onednn_for_avx2_fma_f16c.
#pragma once

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "dspp: dspp needs C++20, but this unit is compiled for an older one. Compile with -std=c++20."
#endif

// ---- flags that take the arithmetic of IEEE 754 away: exp, tanh and the overflow check would be wrong ---------------

#if defined(__FAST_MATH__)
#error "dspp: a unit needs the arithmetic of IEEE 754, but is compiled with -ffast-math or -Ofast. Leave it out."
#elif defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__ > 0
#error "dspp: a unit needs NaN and infinity, but is compiled with -ffinite-math-only. Leave it out."
#elif defined(__ASSOCIATIVE_MATH__)
#error "dspp: a unit needs sums in their order, but is compiled with -fassociative-math. Leave it out."
#elif defined(__RECIPROCAL_MATH__)
#error "dspp: a unit needs rounded quotients, but is compiled with -freciprocal-math. Leave it out."
#elif defined(__NO_SIGNED_ZEROS__)
#error "dspp: a unit needs the sign of zero, but is compiled with -fno-signed-zeros. Leave it out."
#elif defined(__FLT_EVAL_METHOD__) && (__FLT_EVAL_METHOD__ == 1 || __FLT_EVAL_METHOD__ == 2)
#error "dspp: a unit needs floats that are rounded to float, but is compiled with -mfpmath=387. Use -mfpmath=sse."
#endif
// Others are detected at run time: base/arithmetic.hpp.

// ---- options: -fopenmp, what the CMake targets dspp::onednn, dspp::liburing and dspp::mpi define, NCCL, cuDNN -------

#if defined(_OPENMP)
#define DSPP_HAS_OPENMP() 1
#define DSPP_NAME_OF_OPENMP with_openmp
#else
#define DSPP_HAS_OPENMP() 0
#define DSPP_NAME_OF_OPENMP without_openmp
#endif

#if defined(DSPP_WITH_ONEDNN) && DSPP_WITH_ONEDNN + 0 != 0
#define DSPP_HAS_ONEDNN() 1
#define DSPP_NAME_OF_ONEDNN with_onednn
#else
#define DSPP_HAS_ONEDNN() 0
#define DSPP_NAME_OF_ONEDNN without_onednn
#endif

#if defined(DSPP_WITH_LIBURING) && DSPP_WITH_LIBURING + 0 != 0
#define DSPP_HAS_LIBURING() 1
#else
#define DSPP_HAS_LIBURING() 0
#endif

#if defined(DSPP_WITH_MPI) && DSPP_WITH_MPI + 0 != 0
#define DSPP_HAS_MPI() 1
#else
#define DSPP_HAS_MPI() 0
#endif

#if defined(DSPP_WITH_NCCL) && DSPP_WITH_NCCL + 0 != 0
#define DSPP_HAS_NCCL() 1
#else
#define DSPP_HAS_NCCL() 0
#endif

#if defined(DSPP_WITH_CUDNN) && DSPP_WITH_CUDNN + 0 != 0
#define DSPP_HAS_CUDNN() 1
#else
#define DSPP_HAS_CUDNN() 0
#endif

// DSPP_COMPILED: the unit links dspp::compiled, which defines what depends on no type of the user's. Of its own units,
// those with DSPP_COMPILES define functions, those with DSPP_COMPILES_KERNELS kernels, and those with
// DSPP_COMPILES_OPTIONS app/options.hpp, which needs CLI11.
#if defined(DSPP_COMPILED) && DSPP_COMPILED + 0 != 0
#define DSPP_NAME_OF_DEFINITIONS _compiled
#else
#define DSPP_NAME_OF_DEFINITIONS
#endif

#if !defined(DSPP_COMPILED) || DSPP_COMPILED + 0 == 0
#define DSPP_LINKS_COMPILED() 0
#define DSPP_HAS_DEFINITIONS() 1
#define DSPP_HAS_KERNELS() 1
#define DSPP_HAS_OPTIONS() 1
#define DSPP_INLINE inline
#else
#define DSPP_LINKS_COMPILED() 1
#if defined(DSPP_COMPILES)
#define DSPP_HAS_DEFINITIONS() 1
#else
#define DSPP_HAS_DEFINITIONS() 0
#endif
#if defined(DSPP_COMPILES_KERNELS)
#define DSPP_HAS_KERNELS() 1
#else
#define DSPP_HAS_KERNELS() 0
#endif
#if defined(DSPP_COMPILES_OPTIONS)
#define DSPP_HAS_OPTIONS() 1
#else
#define DSPP_HAS_OPTIONS() 0
#endif
/// For a function that dspp::compiled defines.
#define DSPP_INLINE
#endif

// DSPP_COMPILES_CUDA: a unit of dspp::cuda, that is linked with units of any configuration; see below.
// DSPP_COMPILES_CUDA_ENTRIES: the one of them that defines what depends on no type.
#if defined(DSPP_COMPILES_CUDA_ENTRIES)
#define DSPP_CUDA_INLINE
#else
#define DSPP_CUDA_INLINE inline
#endif

// ---- the processor: -march and -m... --------------------------------------------------------------------------------

#if defined(__SSE2__)
#define DSPP_HAS_SSE2() 1
#else
#define DSPP_HAS_SSE2() 0
#endif

#if defined(__x86_64__)
#define DSPP_HAS_CPUID() 1
#else
#define DSPP_HAS_CPUID() 0
#endif

#if defined(__SSE4_2__)
#define DSPP_HAS_SSE42() 1
#else
#define DSPP_HAS_SSE42() 0
#endif

#if defined(__AVX__)
#define DSPP_HAS_AVX() 1
#else
#define DSPP_HAS_AVX() 0
#endif

#if defined(__AVX2__)
#define DSPP_HAS_AVX2() 1
#else
#define DSPP_HAS_AVX2() 0
#endif

#if defined(__AVX512F__)
#define DSPP_HAS_AVX512() 1
#else
#define DSPP_HAS_AVX512() 0
#endif

/// Before a loop of constant length over vectors, whose array then is registers.
#if defined(__CUDACC__)  // which warns, and hands the host's code to a compiler that need not be told
#define DSPP_UNROLL_VECTORS
#else
#define DSPP_UNROLL_VECTORS _Pragma("GCC unroll 8")
#endif

#if defined(__F16C__) && !defined(__CUDACC__)  // nvcc's front end lacks the instructions; same bits
#define DSPP_HAS_F16C() 1
#else
#define DSPP_HAS_F16C() 0
#endif

#if defined(__AVX512BF16__)
#define DSPP_HAS_AVX512BF16() 1
#else
#define DSPP_HAS_AVX512BF16() 0
#endif

// The SIMD level, as Eigen reads it: its alignment and the code of its products follow from these macros.
#if defined(__AVX512DQ__)
#define DSPP_NAME_OF_LEVEL avx512dq
#elif defined(__AVX512F__)
#define DSPP_NAME_OF_LEVEL avx512f
#elif defined(__AVX2__)
#define DSPP_NAME_OF_LEVEL avx2
#elif defined(__AVX__)
#define DSPP_NAME_OF_LEVEL avx
#elif defined(__SSE4_2__)
#define DSPP_NAME_OF_LEVEL sse42
#elif defined(__SSE4_1__)
#define DSPP_NAME_OF_LEVEL sse41
#elif defined(__SSSE3__)
#define DSPP_NAME_OF_LEVEL ssse3
#elif defined(__SSE3__)
#define DSPP_NAME_OF_LEVEL sse3
#elif defined(__SSE2__)
#define DSPP_NAME_OF_LEVEL sse2
#elif defined(__ARM_FEATURE_SVE)
#define DSPP_NAME_OF_LEVEL sve
#elif defined(__ARM_NEON)
#define DSPP_NAME_OF_LEVEL neon
#else
#define DSPP_NAME_OF_LEVEL any_processor
#endif

#if defined(__FMA__)
#define DSPP_NAME_OF_FMA _fma
#else
#define DSPP_NAME_OF_FMA
#endif

#if defined(__F16C__)
#define DSPP_NAME_OF_F16C _f16c
#else
#define DSPP_NAME_OF_F16C
#endif

/// Marks a function that device code may call. Empty unless nvcc compiles.
#if defined(__CUDACC__)
#define DSPP_HAS_NVCC() 1
#define DSPP_HOST_DEVICE __host__ __device__
#else
#define DSPP_HAS_NVCC() 0
#define DSPP_HOST_DEVICE
#endif

/// True in the pass of nvcc that compiles for the GPU.
#if defined(__CUDA_ARCH__)
#define DSPP_ON_GPU() 1
#else
#define DSPP_ON_GPU() 0
#endif

// ---- one configuration in a program ---------------------------------------------------------------------------------

#define DSPP_TEXT_OF(name) #name
#define DSPP_TEXT(name) DSPP_TEXT_OF(name)

/// Defines a constant `own`, which all units that define it share, and `common` as a second name of it, which is not
/// shared: a unit with another `own` defines it a second time, an error in every linker, also with link-time
/// optimisation.
#if defined(__ELF__)
#define DSPP_ONE_IN_A_PROGRAM(common, own)                                                 \
  extern "C" {                                                                             \
  [[gnu::used]] inline constexpr char own[] = DSPP_TEXT(own);                              \
  extern const char common[sizeof(DSPP_TEXT(own))] __attribute__((alias(DSPP_TEXT(own)))); \
  }
#else
#define DSPP_ONE_IN_A_PROGRAM(common, own)
#endif

#define DSPP_JOIN_OF(a, b, c, d, e, f) dspp_unit_##a##_##b##_for_##c##d##e##f
#define DSPP_JOIN(a, b, c, d, e, f) DSPP_JOIN_OF(a, b, c, d, e, f)
#define DSPP_CONFIGURATION                                                                                     \
  DSPP_JOIN(DSPP_NAME_OF_OPENMP, DSPP_NAME_OF_ONEDNN, DSPP_NAME_OF_LEVEL, DSPP_NAME_OF_FMA, DSPP_NAME_OF_F16C, \
            DSPP_NAME_OF_DEFINITIONS)

/// What ranks of other processes compare: the version, which CMakeLists.txt checks against its own, and the
/// configuration of this unit.
#define DSPP_VERSION "0.1.0"
#define DSPP_BUILD DSPP_VERSION " " DSPP_TEXT(DSPP_CONFIGURATION) " " __VERSION__

static_assert(sizeof(1.0) == sizeof(double),
              "dspp: a unit needs constants in double, but is compiled with "
              "-fsingle-precision-constant. Leave it out.");

// A unit of dspp::cuda uses no class whose layout depends on the configuration, and no product of the Cpu.
#if !defined(DSPP_COMPILES_CUDA)
DSPP_ONE_IN_A_PROGRAM(dspp_units_need_one_configuration, DSPP_CONFIGURATION)
#endif
