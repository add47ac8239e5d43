// SPDX-License-Identifier: Apache-2.0
/// Loops of the host that are no operation on a device's memory, on the threads of a rank.
#pragma once

#include <dspp/ops/cpu/parallel.hpp>

namespace dspp::ops {

/// f(begin, end) for the pieces of `grain` of [0, count), in any order and on several threads: see cpu::parallel_for.
template <class F>
void on_host_pieces(Size count, Size grain, const F& f) {
  cpu::parallel_for(count, grain, f);
}

}  // namespace dspp::ops
