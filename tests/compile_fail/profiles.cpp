// SPDX-License-Identifier: Apache-2.0
/// Profiles without the header of what Engine::profile returns.
// expected-error {{dspp: Engine::profile needs the header of what it returns, but it is not included. Include}}
// expected-error {{<dspp/engine/profiling.hpp>.}}
#include <dspp/engine/engine.hpp>
#include <dspp/engine/profiling.hpp>
#include <dspp/models/gpt.hpp>
#include <dspp/optim/adamw.hpp>

using namespace dspp;

#ifdef DSPP_TWIN
using Profiled = Engine<Gpt<Policy<F32>>, AdamW>;
#else
struct Profiled {};
template <>
class dspp::Profiling<Profiled>;  // as without the header, which all files here read
#endif

constexpr void f() {
  detail::check_profiling<Profiled>();
}
