// SPDX-License-Identifier: Apache-2.0
/// Cuda without <dspp/launch/cuda_rank.hpp>, which no file here includes: all of them read the includes of all.
// expected-error {{dspp: run needs a DeviceRank of the policy's device, but none is included. Include}}
// expected-error {{<dspp/launch/cuda_rank.hpp> for Cuda, or specialise DeviceRank for a device of your own.}}
#include <dspp/cuda.hpp>
#include <dspp/launch/run.hpp>

using namespace dspp;

#ifdef DSPP_TWIN
using P = Policy<F32>;
#else
using P = Policy<F32, Cuda>;
#endif

auto f() {
  return run<P>({.ranks = 2}, [](World<P>&) {});
}
