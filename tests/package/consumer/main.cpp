// SPDX-License-Identifier: Apache-2.0
/// A program that uses dspp as a package.
#include <cstdio>
#include <dspp/dspp.hpp>

float rounded(float value);

/// The elements of a product of two matrices of twos, 3 x 3.
float product() {
  dspp::Pool pool;
  const auto a = dspp::Tensor<float, 2>::zeros(dspp::shape(3, 3), pool);
  a.fill(2);
  return dspp::ops::matmul(a, dspp::Transpose::no, a, dspp::Transpose::no).data()[4];
}

int main() {
  const bool right = rounded(1.0f) == 1.0f && rounded(1.00001f) == 1.0f && product() == 12;
  std::puts(right ? "consumer: right" : "consumer: wrong");
  return right ? 0 : 1;
}
