// SPDX-License-Identifier: Apache-2.0
/// Optimizers without a learning rate, without a rule for blocks of any length, and with half of a matrix's update.
// expected-error {{dspp: Engine needs an optimizer with a learning rate, but this one has no member lr.}}
// expected-error {{dspp: Engine needs an optimizer with rule<S>(scalars) const, a functor that takes an}}
// expected-error {{length, but this one has none that fits. Write it as in the concept IsOptimizer,}}
// expected-error {{dspp: Engine needs an optimizer of matrices with matrix_direction, matrix_update,}}
// expected-error {{for all else, but this one lacks one of them, or has direction, too. See Muon.}}
// expected-error {{dspp: Delayed<1>, Speculative and ZenFlow need an optimizer that updates each element by itself,}}
// expected-error {{as AdamW does, since the ranks do not meet in its update, but this one asks for}}
// expected-error {{norms or matrices. Take}}
// expected-error {{another, or drop it.}}
#include <dspp/engine/engine_types.hpp>
#include <dspp/optim/lamb.hpp>
#include <dspp/optim/muon.hpp>
#include <dspp/optim/sgd.hpp>
#include <dspp/placement/policy.hpp>

using namespace dspp;

/// A rate under another name.
namespace optimizer_without_lr {
struct Mine : Sgd {
#ifndef DSPP_TWIN
 private:
  using Sgd::lr;
#endif
};
static_assert(detail::check_optimizer_type<Mine, float>());
}  // namespace optimizer_without_lr

/// A rule for blocks of one length.
namespace optimizer_for_one_length {
struct Mine {
  static constexpr int moment_count = 0;
  double lr = 1e-3;
  template <class S>
  auto rule(const UpdateScalars&) const {
#ifdef DSPP_TWIN
    return [](auto&) {};
#else
    return [](UpdateBlock<S, 8>&) {};
#endif
  }
};
static_assert(detail::check_optimizer_type<Mine, float>());
}  // namespace optimizer_for_one_length

/// Moments of matrices, and nothing that updates them.
namespace optimizer_of_matrices_without_update {
#ifdef DSPP_TWIN
using Mine = Muon;
#else
struct Mine : AdamW {
  static constexpr int matrix_moment_count = 1;
};
#endif
static_assert(detail::check_optimizer_type<Mine, float>());
}  // namespace optimizer_of_matrices_without_update

/// Ranks that would meet in an update that is delayed, or begins in backward.
namespace optimizer_of_norms_that_is_delayed {
#ifdef DSPP_TWIN
using Mine = Sgd;
#else
using Mine = Lamb;
#endif
static_assert(detail::check_delayed<Policy<Delayed<1>>, Mine>() && detail::check_delayed<Policy<Speculative>, Mine>() &&
              detail::check_delayed<Policy<ZenFlow>, Mine>());
}  // namespace optimizer_of_norms_that_is_delayed
