// SPDX-License-Identifier: Apache-2.0
// How train_gpt names its policy. labels: examples
#include <doctest/doctest.h>

#include <dspp/cuda/device.hpp>

#include "../../examples/train_gpt/policy_name.hpp"

using namespace dspp;

TEST_CASE("a policy's name has the stage, the precision and what differs from the default, and names the same policy") {
  const auto name = []<class P>(P) { return train_gpt::PolicyName<P>::text(); };
  CHECK(name(Policy<>()) == "Policy<Zero<0>, F32>");
  CHECK(name(Policy<Bf16, AttentionBy<Fastest>, Cuda>()) == "Policy<Zero<0>, Bf16, Cuda>");
  CHECK(name(Policy<Bf16, AttentionBy<CuDnn>, Cuda, Zero<2>>()) == "Policy<Zero<2>, Bf16, AttentionBy<CuDnn>, Cuda>");
  CHECK(name(Policy<AttentionBy<FlashKernels>, Tp<2>, F16>()) ==
        "Policy<Zero<0>, F16, Tp<2>, AttentionBy<FlashKernels>>");
  CHECK(name(Policy<AttentionBy<PlainKernels>>()) == "Policy<Zero<0>, F32, AttentionBy<PlainKernels>>");
}
