// SPDX-License-Identifier: Apache-2.0
/// Elements by a mask, and rows by number.
///
///   select   y[i, j] = mask[i] ? a[i, j] : b[i, j], a number where a or b is null
///   gather   y[i, k, :] = x[i, ids[i, k], :]; backward dx[i, r, :] = sum over k with ids[i, k] = r of dy[i, k, :]
///
/// x [outer, rows, n], y [outer, count, n]. The backward pass looks at all ids of a sample for each row, and sums in
/// order of k: for few rows. Embeddings are in embedding.cuh.
#pragma once

#include <kernels/each.cuh>

namespace dspp::gpu {

template <class T, class M>
struct Select {
  Size n;
  T* y;
  const M* mask;
  const T *a, *b;
  T a_number, b_number;
  __device__ void operator()(Size i) const {
    y[i] = mask[i / n] != 0 ? (a != nullptr ? a[i] : a_number) : (b != nullptr ? b[i] : b_number);
  }
};

/// y may be a or b.
template <class T, class M>
void select(cudaStream_t stream, Size rows, Size n, T* y, const M* mask, const T* a, double a_number, const T* b,
            double b_number) {
  launch_each(Work{"select", rows, n}, stream, rows * n,
              Select<T, M>{n, y, mask, a, b, static_cast<T>(static_cast<float>(a_number)),
                           static_cast<T>(static_cast<float>(b_number))});
}

template <class T>
struct Gather {
  Size rows, count, n;
  T* y;
  const T* x;
  const std::int32_t* ids;
  __device__ void operator()(Size i) const {
    const Size place = i / n, row = ids[place];  // place: of outer x count
    y[i] = row >= 0 && row < rows ? x[(place / count * rows + row) * n + i % n] : T{};
  }
};

template <class T>
void gather(cudaStream_t stream, Size outer, Size rows, Size count, Size n, T* y, const T* x, const std::int32_t* ids) {
  launch_each(Work{"gather", outer * count, n}, stream, outer * count * n, Gather<T>{rows, count, n, y, x, ids});
}

template <class T>
struct GatherBackward {
  Size rows, count, n;
  T* dx;
  const T* dy;
  const std::int32_t* ids;
  __device__ void operator()(Size i) const {
    const Size row = i / n % rows, sample = i / n / rows;
    float sum = 0;
    for (Size k = sample * count; k < (sample + 1) * count; ++k)
      if (ids[k] == row) sum += to_float(dy[k * n + i % n]);
    dx[i] = from_float<T>(sum);
  }
};

template <class T>
void gather_backward(cudaStream_t stream, Size outer, Size rows, Size count, Size n, T* dx, const T* dy,
                     const std::int32_t* ids) {
  launch_each(Work{"gather_backward", outer * rows, n}, stream, outer * rows * n,
              GatherBackward<T>{rows, count, n, dx, dy, ids});
}

}  // namespace dspp::gpu
