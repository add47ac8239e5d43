// SPDX-License-Identifier: Apache-2.0
/// Normal numbers on the Cpu.
#pragma once

#include <dspp/base/philox.hpp>
#include <dspp/ops/kernels.hpp>

namespace dspp {

template <class T>
struct Kernel<kernels::Normals<T>, Cpu> {
  static void run(const PhiloxStream& stream, Size first, Size count, double deviation, T* y);
};

}  // namespace dspp

#if DSPP_HAS_KERNELS()

#include <dspp/ops/cpu/parallel.hpp>

namespace dspp {

template <class T>
void Kernel<kernels::Normals<T>, Cpu>::run(const PhiloxStream& stream, Size first, Size count, double deviation, T* y) {
  using C = Compute<T>;
  cpu::parallel_for(count, Size{1} << 16, [&](Size begin, Size end) {
    constexpr Size chunk = 1024;
    float normals[chunk];
    for (Size i = begin; i < end; i += chunk) {
      const Size n = std::min(chunk, end - i);
      philox_fill_normal(stream, first + i, first + i + n, normals);
      for (Size j = 0; j < n; ++j) y[i + j] = static_cast<T>(static_cast<C>(deviation) * static_cast<C>(normals[j]));
    }
  });
}

}  // namespace dspp

#endif  // DSPP_HAS_KERNELS()
