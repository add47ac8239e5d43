// SPDX-License-Identifier: Apache-2.0
/// Profiles without the header of what Engine::profile returns, and of a device that goes on by itself.
// expected-error {{dspp: Engine::profile needs the header of what it returns, but it is not included. Include}}
// expected-error {{<dspp/engine/profiling.hpp>.}}
// expected-error {{dspp: a profile needs operations that are done when their calls return, but those of this}}
// expected-error {{policy's device are not. Use its own profiler: Nsight Systems shows dspp's ranges on Cuda.}}
#include <dspp/cuda.hpp>
#include <dspp/engine/engine.hpp>
#include <dspp/engine/profiling.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

using namespace dspp;

#ifdef DSPP_TWIN
using Profiled = Engine<Gpt<Policy<F32>>, AdamW>;
using OfDevice = Profiled;
#else
struct Profiled {};
template <>
class dspp::Profiling<Profiled>;  // as without the header, which all files here read

struct OfDevice {
  using P = Policy<F32, Cuda>;
};
#endif

constexpr void f() {
  detail::check_profiling<Profiled>();
}
Size g() {
  return sizeof(Profiling<OfDevice>);
}
