// SPDX-License-Identifier: Apache-2.0
/// Profiles without the header of what Engine::profile returns, and of a device that goes on by itself without a clock.
// expected-error {{dspp: Engine::profile needs the header of what it returns, but it is not included. Include}}
// expected-error {{<dspp/engine/profiling.hpp>.}}
// expected-error {{dspp: a profile needs a clock of a device whose operations go on when their calls return, but that}}
// expected-error {{of this policy has none. Give it clock(memory), as Cuda has.}}
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

struct Own : Cpu {
  static constexpr bool synchronous = false;
};
struct OfDevice {
  struct P {
    using DeviceType = Own;
  };
};
#endif

constexpr void f() {
  detail::check_profiling<Profiled>();
}
Size g() {
  return sizeof(Profiling<OfDevice>);
}
