// SPDX-License-Identifier: Apache-2.0
/// Elements in memory (f32, bf16, f16) and in registers (f32), 16 bytes at a time where addresses allow it.
#pragma once

#include <cstdint>
#include <type_traits>

#include <dspp/base/bits.hpp>
#include <dspp/base/element.hpp>
#include <kernels/device.cuh>

namespace dspp::gpu {

__device__ inline float to_float(float x) {
  return x;
}
__device__ inline float to_float(bf16 x) {
  return bits_as<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
__device__ inline float to_float(f16 x) {
#if DSPP_HAS_NVCC()
  return __half2float(__ushort_as_half(x.bits));
#else
  return static_cast<float>(x);
#endif
}

/// The nearest T, ties to even; NaN stays NaN.
template <class T>
__device__ inline T from_float(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    T y;
#if DSPP_HAS_NVCC()
    if constexpr (std::is_same_v<T, bf16>)
      y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
    else
      y.bits = __half_as_ushort(__float2half_rn(x));
#else
    y = T(x);
#endif
    return y;
  }
}

/// N elements as they lie in memory, in registers.
template <class T, int N>
struct alignas(N * sizeof(T) < 4    ? 4
               : N * sizeof(T) < 16 ? N * sizeof(T)
                                    : 16) Pack {
  static constexpr int bytes = N * static_cast<int>(sizeof(T));
  std::uint32_t words[(bytes + 3) / 4];
};

namespace detail {
/// One access to memory. It may read elements of any type.
template <int Words>
struct alignas(4 * Words) [[gnu::may_alias]] Access {
  std::uint32_t words[Words];
};

/// The two elements of a word.
template <class T>
__device__ inline void split(std::uint32_t word, float& lower, float& upper) {
  if constexpr (std::is_same_v<T, bf16>) {
    lower = bits_as<float>(word << 16);
    upper = bits_as<float>(word & 0xffff0000u);
  } else {
    f16 x, y;
    x.bits = static_cast<std::uint16_t>(word);
    y.bits = static_cast<std::uint16_t>(word >> 16);
    lower = to_float(x);
    upper = to_float(y);
  }
}

template <class T>
__device__ inline std::uint32_t join(float lower, float upper) {
#if DSPP_HAS_NVCC()  // one instruction converts both
  std::uint32_t word;
  if constexpr (std::is_same_v<T, bf16>) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(lower, upper);
    memcpy(&word, &pair, sizeof word);
  } else {
    const __half2 pair = __floats2half2_rn(lower, upper);
    memcpy(&word, &pair, sizeof word);
  }
  return word;
#else
  return from_float<T>(lower).bits | static_cast<std::uint32_t>(from_float<T>(upper).bits) << 16;
#endif
}
}  // namespace detail

/// N elements from an address that is a multiple of their bytes, or of 16. N is 1 or even.
template <int N, class T>
__device__ inline Pack<T, N> load_pack(const T* from) {
  Pack<T, N> pack;
  if constexpr (N == 1) {
    pack.words[0] = bits_as<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>(*from);
  } else {
    constexpr int each = Pack<T, N>::bytes < 16 ? Pack<T, N>::bytes / 4 : 4;
    for (int i = 0; i < Pack<T, N>::bytes / 4; i += each) {
      const auto access = reinterpret_cast<const detail::Access<each>*>(from)[i / each];
      for (int k = 0; k < each; ++k) pack.words[i + k] = access.words[k];
    }
  }
  return pack;
}

template <class T, int N>
__device__ inline void store_pack(T* to, const Pack<T, N>& pack) {
  if constexpr (N == 1) {
    *to = bits_as<T>(static_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint16_t>>(pack.words[0]));
  } else {
    constexpr int each = Pack<T, N>::bytes < 16 ? Pack<T, N>::bytes / 4 : 4;
    for (int i = 0; i < Pack<T, N>::bytes / 4; i += each) {
      detail::Access<each> access;
      for (int k = 0; k < each; ++k) access.words[k] = pack.words[i + k];
      reinterpret_cast<detail::Access<each>*>(to)[i / each] = access;
    }
  }
}

/// The same to a pack in shared memory, which is there after __pipeline_commit() and __pipeline_wait_prior(). 4, 8 or
/// 16 bytes.
template <class T, int N>
__device__ inline void copy_pack_async(Pack<T, N>* to, const T* from) {
  __pipeline_memcpy_async(to, from, sizeof *to);
}
/// Zeros in its place unless is_there; nothing is read then.
template <class T, int N>
__device__ inline void copy_pack_async(Pack<T, N>* to, const T* from, bool is_there) {
  __pipeline_memcpy_async(to, from, sizeof *to, is_there ? 0 : sizeof *to);
}

__device__ inline void copy_float_async(float* to, const float* from, bool is_there) {
  __pipeline_memcpy_async(to, from, sizeof *to, is_there ? 0 : sizeof *to);
}

template <class T, int N>
__device__ inline void unpack(float (&to)[N], const Pack<T, N>& pack) {
  for (int i = 0; i < N; ++i) {
    if constexpr (sizeof(T) == 4)
      to[i] = bits_as<float>(pack.words[i]);
    else if constexpr (N == 1)
      to[0] = to_float(bits_as<T>(static_cast<std::uint16_t>(pack.words[0])));
    else if (i % 2 == 0)
      detail::split<T>(pack.words[i / 2], to[i], to[i + 1]);
  }
}

/// The nearest elements.
template <class T, int N>
__device__ inline Pack<T, N> pack_floats(const float (&from)[N]) {
  Pack<T, N> pack;
  for (int i = 0; i < N; ++i) {
    if constexpr (sizeof(T) == 4)
      pack.words[i] = bits_as<std::uint32_t>(from[i]);
    else if constexpr (N == 1)
      pack.words[0] = from_float<T>(from[0]).bits;
    else if (i % 2 == 0)
      pack.words[i / 2] = detail::join<T>(from[i], from[i + 1]);
  }
  return pack;
}

template <class T, int N>
__device__ inline void load(float (&to)[N], const T* from) {
  unpack(to, load_pack<N>(from));
}

template <class T, int N>
__device__ inline void store(T* to, const float (&from)[N]) {
  store_pack(to, pack_floats<T>(from));
}

/// The same to global memory, 16 bytes by one instruction where there are 16. Of store_pack nvcc 13.0 makes four stores
/// of 4 bytes in some kernels (seen in SASS), each of which writes an eighth of every sector.
template <class T, int N>
__device__ inline void store_pack_at_once(T* to, const Pack<T, N>& pack) {
#if DSPP_HAS_NVCC()
  if constexpr (Pack<T, N>::bytes % 16 == 0) {
    for (int i = 0; i < Pack<T, N>::bytes / 4; i += 4)
      asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
                   :
                   : "l"(__cvta_generic_to_global(to) + 4 * i), "r"(pack.words[i]), "r"(pack.words[i + 1]),
                     "r"(pack.words[i + 2]), "r"(pack.words[i + 3])
                   : "memory");
    return;
  }
#endif
  store_pack(to, pack);
}
template <class T, int N>
__device__ inline void store_at_once(T* to, const float (&from)[N]) {
  store_pack_at_once(to, pack_floats<T>(from));
}

/// One element of a pack, and its replacement, bit for bit.
template <class T, int N>
__device__ inline T element_of(const Pack<T, N>& pack, int i) {
  if constexpr (sizeof(T) == 4)
    return bits_as<T>(pack.words[i]);
  else
    return bits_as<T>(static_cast<std::uint16_t>(pack.words[i / 2] >> (i % 2 * 16)));
}

template <class T, int N>
__device__ inline void set_element(Pack<T, N>& pack, int i, T value) {
  if constexpr (sizeof(T) == 4)
    pack.words[i] = bits_as<std::uint32_t>(value);
  else if (i % 2 == 0)
    pack.words[i / 2] = bits_as<std::uint16_t>(value);
  else
    pack.words[i / 2] |= static_cast<std::uint32_t>(bits_as<std::uint16_t>(value)) << 16;
}

// ---- where accesses of 16 bytes are possible ------------------------------------------------------------------------

inline bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

/// Whether rows of n elements begin and end at multiples of 16 bytes in all of these arrays; null ones do not count.
template <class T, class... A>
bool rows_are_aligned(Size n, const A*... arrays) {
  return n % pack_length<T> == 0 && (is_aligned(arrays) && ...);
}

}  // namespace dspp::gpu
