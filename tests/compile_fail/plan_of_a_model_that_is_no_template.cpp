// SPDX-License-Identifier: Apache-2.0
/// A plan of a model that cannot be moved to Meta: it is of one policy, not a template.
// expected-error {{dspp: a plan needs the model under another policy, on Meta, but its type does not say}}
// expected-error {{how. Make it a}}
// expected-error {{template of its policy alone, or give it a member template <class Q> using on = ....}}
#include <dspp/models/gpt.hpp>
#include <dspp/plan/plan.hpp>

using namespace dspp;

/// A model of one policy alone.
namespace model_that_is_no_template {
#ifdef DSPP_TWIN
template <class P>
struct Any : Gpt<P> {
  using Gpt<P>::Gpt;
};
using Model = Any<Policy<>>;
#else
struct Model : Gpt<Policy<>> {
  using Gpt<Policy<>>::Gpt;
};
#endif
constexpr auto paper =
    plan<Model>(GptConfig{.layers = 1, .width = 8, .heads = 2, .sequence = 4}, {.micro_batch = 1, .sequence = 4});
}  // namespace model_that_is_no_template
