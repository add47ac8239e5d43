// SPDX-License-Identifier: Apache-2.0
/// A program that knows dspp only as a package.
#include <cstdio>
#include <dspp/dspp.hpp>

float rounded(float value);

int main() {
  const bool right = rounded(1.0f) == 1.0f && rounded(1.00001f) == 1.0f;
  std::puts(right ? "consumer: right" : "consumer: wrong");
  return right ? 0 : 1;
}
