// SPDX-License-Identifier: Apache-2.0
// labels: cuda
#include <doctest/doctest.h>

#include <kernels/attention_choice.cuh>

#include <laws/device_array.hpp>
#include <laws/left_out.hpp>

using namespace dspp;
using laws::DeviceArray;
using laws::worst_without;

namespace {

/// Each of the first barriers[i] of y, dq, dk and dv is found, and so are the waits for copies.
void check_left_out(gpu::AttentionKernels by, const int (&barriers)[4]) {
  std::mt19937 random(5);
  const kernels::AttentionExtents at{1, 140, 1, 1, 16, {AttentionMask::full}};
  const Size count = at.sequence * at.width();
  const DeviceArray<bf16> q(laws::normals<bf16>(count, random)), k(laws::normals<bf16>(count, random)),
      v(laws::normals<bf16>(count, random)), dy(laws::normals<bf16>(count, random));
  const auto heads = [&](const DeviceArray<bf16>& x) { return gpu::HeadsOf<const bf16>{x, at.width()}; };
  const auto to = [&](const DeviceArray<bf16>& x) { return gpu::HeadsOf<bf16>{x, at.width()}; };
  const auto run = [&](int which) {
    const laws::TestStream stream;
    const DeviceArray<bf16> y(count), dq(count), dk(count), dv(count);
    const DeviceArray<float> lse(at.sequence), own(at.sequence);
    const auto of = gpu::attention_operands<bf16>(at, {}, heads(q), heads(k), heads(v));
    gpu::attention<bf16>(stream, of, to(y), lse, by);
    if (which > 0) {
      y.read(stream);
      gpu::attention_backward<bf16>(stream, {of, heads(y), heads(dy), lse}, to(dq), to(dk), to(dv), nullptr, own, by);
    }
    const DeviceArray<bf16>* const results[] = {&y, &dq, &dk, &dv};
    return laws::in_f64(results[which]->read(stream));
  };
  for (int which = 0; which < 4; ++which) {
    const auto expected = run(which);
    const auto worst = [&] {
      const auto got = run(which);
      laws::Worst apart;
      for (std::size_t i = 0; i < got.size(); ++i) apart.add(laws::difference(got[i], expected[i]));
      return apart.value();
    };
    CHECK(worst_without(-1, worst, 3) == 0);
    for (int barrier = 0; barrier < barriers[which]; ++barrier) {
      CAPTURE(which);
      CAPTURE(barrier);
      CHECK(worst_without(barrier, worst, 3) > 0);
    }
    software_gpu::leave_out_waits_for_copies(true);
    CHECK(worst_without(-1, worst, 1) > 0);
    software_gpu::leave_out_waits_for_copies(false);
  }
}

}  // namespace

TEST_CASE("The GPU in software finds each __syncthreads and the waits of flash attention that are left out") {
  // Of y: two for each of three tiles of keys; of dq: for each of five; of dk and dv: one a tile of queries.
  check_left_out(gpu::AttentionKernels::by_warps, {6, 10, 3, 3});
}

TEST_CASE("The GPU in software finds the same of attention by warpgroups") {
  // Of y: one for each of two tiles of keys, and one before the last product; of dq, dk and dv: one for each of three
  // tiles. Those before results take the places of operands are beyond it: a product reads a warp's own rows there.
  check_left_out(gpu::AttentionKernels::fastest, {3, 3, 3, 3});
}
