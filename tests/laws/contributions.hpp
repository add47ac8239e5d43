// SPDX-License-Identifier: Apache-2.0
/// The contributions of ranks to the collectives under test, and the expected results, computed by plain loops.
/// Defined in contributions.cpp, which is optimised where tests are not, for f64, f32, bf16, f16, i32, i64 and u8.
#pragma once

#include <cstring>
#include <vector>

#include <dspp/comm/buffer.hpp>
#include <dspp/comm/sum_order.hpp>

namespace dspp::laws {

/// Element i of the contribution of rank `rank`: a function of both, of mixed signs and magnitudes.
template <class T>
T contribution(int rank, Size i, int salt = 0);

template <class T>
std::vector<T> contributions(int rank, Size count, int salt = 0, Size first = 0);

/// The sums that the laws require: in rank order, in Compute<T>, rounded once.
template <class T>
std::vector<T> sums(int ranks, Size count, int salt = 0, Size first = 0);

/// True if x holds the sums that the tier of `order` guarantees, from element `first`.
template <class T>
bool are_sums(SumOrder order, const std::vector<T>& x, int ranks, int salt = 0, Size first = 0);

template <class T>
std::vector<T> concatenation(int ranks, Size count, int salt = 0);

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <class T>
Size count_of(const std::vector<T>& x) {
  return static_cast<Size>(x.size());
}

template <class T>
Buffer all_of(std::vector<T>& x) {
  return buffer(x.data(), count_of(x));
}

template <class T>
ConstBuffer all_of(const std::vector<T>& x) {
  return buffer(x.data(), count_of(x));
}

}  // namespace dspp::laws
