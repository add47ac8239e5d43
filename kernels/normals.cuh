// SPDX-License-Identifier: Apache-2.0
/// Normal numbers by Philox: the Cpu's bits, each a function of its place.
///
///   y[i] = deviation z(first + i)      z(e) the standard normal of (seed, step, sample, site, e), y [count]
///
/// A thread draws the four elements that one call of Philox gives.
///
/// Bytes     sizeof(T) an element; ten rounds of Philox for every four elements
/// Source    Salmon, Moraes, Dror, Shaw 2011, Parallel random numbers: as easy as 1, 2, 3, section 3.3; the normal
///           distribution's inverse: base/philox.hpp
#pragma once

#include <dspp/base/philox.hpp>
#include <kernels/each.cuh>

namespace dspp::gpu {

template <class T>
struct DrawNormals {
  PhiloxStream stream;
  Size first, count;
  float deviation;
  T* y;

  __device__ void operator()(Size number) const {
    const Size block = first / 4 + number;
    const PhiloxBlock bits =
        philox4x32_10(dspp::detail::philox_counter(stream, block), static_cast<std::uint32_t>(stream.key.seed),
                      static_cast<std::uint32_t>(stream.key.seed >> 32));
    DSPP_UNROLL
    for (int word = 0; word < 4; ++word)
      if (const Size i = 4 * block + word - first; i >= 0 && i < count)
        y[i] = from_float<T>(deviation * normal_from_bits(bits.words[word]));
  }
};

template <class T>
void normals(cudaStream_t stream, const PhiloxStream& numbers, Size first, Size count, double deviation, T* y) {
  const Size blocks = count == 0 ? 0 : (first + count + 3) / 4 - first / 4;
  launch_each(Work{"normals", 1, count}, stream, blocks,
              DrawNormals<T>{numbers, first, count, static_cast<float>(deviation), y});
}

}  // namespace dspp::gpu
